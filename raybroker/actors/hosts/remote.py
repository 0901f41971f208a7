"""A host actor as its broker sees it: a HostPort whose methods are calls of the actor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from raybroker.actors import runtime
from raybroker.actors.hosts.host import HostSpec
from raybroker.hosting.host_port import HOST_METHODS, Row


class HostHandle(ABC):
    """A HostPort by names: its methods, with their arguments by position, are calls of :meth:`ask`."""

    def __init__(self, spec: HostSpec) -> None:
        self.spec = spec

    @property
    def key(self) -> str:
        return self.spec.key

    @property
    def hosting(self) -> str:
        return self.spec.hosting

    @abstractmethod
    async def ask(self, method: str, *args: Any) -> Any:
        """Call one of the methods of HostPort."""

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        if method not in HOST_METHODS:
            raise AttributeError(f"a host has no method {method!r}")
        return partial(self.ask, method)


class RemoteHost(HostHandle):
    """``actor`` is the handle of a DestinationHost."""

    def __init__(self, actor: Any, spec: HostSpec) -> None:
        super().__init__(spec)
        self.actor = actor

    async def where(self, timeout_s: float = runtime.CALL_TIMEOUT_S) -> tuple[str, int, int, bytes]:
        """(ip, port, process id, the certificate that it shows, b"" without TLS)."""
        found: tuple[str, int, int, bytes] = await runtime.call(self.actor.where, timeout_s=timeout_s)
        return found

    async def state(self) -> Row:
        state: dict[str, Any] = await runtime.call(self.actor.state)
        return state

    async def ask(self, method: str, *args: Any) -> Any:
        return await runtime.call(self.actor.ask, method, *args)
