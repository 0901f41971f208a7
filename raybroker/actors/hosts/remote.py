"""A host actor as its broker sees it: a HostPort whose roles are made of calls of the actor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from types import SimpleNamespace
from typing import Any

from raybroker.actors import runtime
from raybroker.actors.hosts.host_spec import HostSpec
from raybroker.hosting.host_port import ROLES, HostPort
from raybroker.model.errors import BrokerError, ConnectionLostError


class HostHandle(HostPort, ABC):
    """The methods of all roles, with their arguments by position, are calls of :meth:`call_role`."""

    def __init__(self, spec: HostSpec) -> None:
        self.spec = spec
        self.key, self.hosting = spec.key, spec.hosting
        for role, methods in ROLES.items():
            calls = {method: partial(self.call_role, role, method) for method in methods}
            setattr(self, role, SimpleNamespace(**calls))

    @abstractmethod
    async def call_role(self, role: str, method: str, *args: Any) -> Any:
        """Call a method of one of the roles of HostPort."""


class RemoteHost(HostHandle):
    """``actor`` is the handle of a DestinationHost."""

    def __init__(self, actor: Any, spec: HostSpec) -> None:
        super().__init__(spec)
        self.actor = actor

    async def where(
        self, timeout_s: float = runtime.CALL_TIMEOUT_S, gone: type[BrokerError] = ConnectionLostError
    ) -> tuple[str, int, int, bytes]:
        """(ip, port, process id, the certificate that it shows, b"" without TLS). Raises what keeps the host from
        serving, and ``gone`` where its process does not answer."""
        found: tuple[str, int, int, bytes] = await runtime.call(self.actor.where, timeout_s=timeout_s, gone=gone)
        return found

    async def call_role(self, role: str, method: str, *args: Any) -> Any:
        return await runtime.call(self.actor.call_role, role, method, *args)
