"""Named definitions of a broker: templates, quotas and policies. Each kind is one small file that is written whole."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from raybroker.hosting.host_port import HostPort, Row
from raybroker.model.errors import BrokerError, ConfigError, UnknownDefinitionError

Saved = dict[str, dict[str, Any]]
"""Name → attributes, or fields."""
Save = Callable[[Saved], Awaitable[None]]

TELL_TIMEOUT_S: Final = 5.0
"""How long a host may take for a change; then it is told again later."""

log = logging.getLogger("raybroker.broker")


async def keep_nothing(saved: Saved) -> None:
    """Keep nothing: definitions of such brokers end with them."""


class NamedDefinitions:
    """Those of one kind. ``word``: of one, ``words``: of several; ``most``: how many there can be; ``saved`` is what
    there is, ``save`` makes a new state durable before it holds, and raises StoreError."""

    word: str
    words: str
    most: int

    def __init__(self, saved: Saved | None = None, save: Save = keep_nothing) -> None:
        self._saved: Saved = dict(saved or {})
        self._save = save
        self._changing = asyncio.Lock()

    async def put(self, name: str, fields: Row) -> None:
        """Make this the definition of that name."""
        async with self._changing:
            if fields != self._saved.get(name):
                await self._replace({**self._saved, name: dict(fields)})

    async def drop(self, name: str) -> None:
        """Nothing happens when there is none."""
        async with self._changing:
            if name in self._saved:
                await self._replace({key: value for key, value in self._saved.items() if key != name})

    async def _replace(self, saved: Saved) -> None:
        await self._save(saved)
        self._saved = saved
        self._took()

    def _took(self) -> None:
        """What is made of all of them is made anew."""

    def saved(self) -> Saved:
        return dict(self._saved)

    def fields(self, name: str) -> dict[str, Any]:
        """Raises UnknownDefinitionError when there is none of that name."""
        found = self._saved.get(name)
        if found is None:
            known = ", ".join(sorted(self._saved)) or "none"
            raise UnknownDefinitionError(f"there is no {self.word} {name!r}; there are: {known}")
        return found

    def refuse_new(self, name: str) -> None:
        """Raises ConfigError for a name that is taken, and when there are as many as there can be."""
        if name in self._saved:
            raise ConfigError(f"{self.word} {name!r} exists already; update or destroy it")
        if len(self._saved) >= self.most:
            raise ConfigError(f"there are {self.most} {self.words}, which is the most there can be")

    def definition_rows(self) -> list[Row]:
        """One row each, by name: name and attributes."""
        return [{"name": name, "attributes": dict(found)} for name, found in sorted(self._saved.items())]


class NamedAtHosts(NamedDefinitions):
    """Those that hosts have to know. ``hosts``: those that serve; ``define`` tells one what there is."""

    def __init__(
        self,
        saved: Saved | None,
        save: Save,
        hosts: Callable[[], Iterable[HostPort]],
        define: Callable[[HostPort, Saved], Awaitable[None]],
    ) -> None:
        super().__init__(saved, save)
        self._hosts = hosts
        self._define = define
        self._behind: set[str] = set()
        """Hosts that were not told yet what there is."""

    async def _replace(self, saved: Saved) -> None:
        await super()._replace(saved)
        self._behind = {host.key for host in self._hosts()}
        await self.tell()

    async def tell(self) -> None:
        """Tell the hosts that do not know yet, for a bounded time."""
        hosts = [host for host in self._hosts() if host.key in self._behind]
        self._behind = {host.key for host in hosts}
        await asyncio.gather(*(self._tell(host) for host in hosts))

    async def greet(self, host: HostPort, new: bool) -> None:
        """The broker has a host from now on; one that is not ``new`` may know of others."""
        if self._saved or not new:
            self._behind.add(host.key)
            await self._tell(host)

    async def _tell(self, host: HostPort) -> None:
        told = self._saved
        try:
            await self._define(host, dict(told))
        except (BrokerError, TimeoutError) as error:
            log.warning("host %s was not told of the %s: %s; it will be", host.key, self.words, error)
            return
        if told is self._saved:
            self._behind.discard(host.key)
