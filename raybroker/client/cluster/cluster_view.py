"""The cluster view of a connection: the brokers and their states, followed from the first use on.

A broker that is reported down is asked directly before its connections are given up, since the others may only have
lost contact with it. Another broker is asked whether the home broker is up, since a broker that hangs does not report
it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from raybroker.client.cluster.directory import Directory, View
from raybroker.client.connection.channel import Channel
from raybroker.client.io.tasks import Tasks
from raybroker.model.errors import BrokerError

CHANGED_WAIT_S: Final = 15.0
"""One question for changes waits so long; asking again costs one call."""
WITNESS_WAIT_S: Final = 5.0
"""The same for the broker that watches ours: shorter, because it may be hanging as well."""
ANSWER_S: Final = 1.0
"""A host of a broker that is said to be down answers within that time, or its connection is given up."""
DOUBT_S: Final = 0.5
"""How long a suspected home broker may take to answer before another one becomes the home."""
GONE_S: Final = 10.0
"""Messages that can go to one broker alone do not wait for it any more when it has been down for so long: one that Ray
starts again is back by then."""
DOWN: Final = "DOWN"


def alive(view: View) -> list[str]:
    """Names of the brokers that may be there."""
    return [row.name for row in view.members if row.state != DOWN]


def coordinator(view: View) -> str:
    """The broker that keeps the order of consumers."""
    return next((row.name for row in view.members if row.coordinator), view.home)


class ClusterView:
    """The view of the cluster, on the IO loop. ``channels``: those of the connection; ``listeners`` are called with
    each new view."""

    def __init__(self, directory: Directory, tasks: Tasks, channels: Callable[[], list[Channel]]) -> None:
        self.listeners: list[Callable[[View], None]] = []
        self._directory = directory
        self._tasks = tasks
        self._channels = channels
        self._view: View | None = None
        self._down_since: dict[str, float] = {}
        """Brokers that are down → since when, by the loop's clock; 0: since before we looked."""

    async def view(self) -> View:
        """The brokers there are; raises ConnectionLostError when none can be asked."""
        if self._view is None:
            view = await self._tasks.with_retry("the brokers of the cluster", self._directory.brokers)
            if self._view is None:
                self._view = view
                self._down_since = {row.name: 0.0 for row in view.members if row.state == DOWN}
                if self._directory.home:
                    self._tasks.keep("view of the brokers", self._follow)
                    self._tasks.keep("guard of the home broker", self._guard)
        return self._view

    @property
    def alone(self) -> bool:
        """There is one broker, and there will never be another."""
        return not self._directory.home

    def gone(self, broker: str, for_s: float = 0.0) -> bool:
        """Whether a broker has been down for so many seconds, as far as is known; from now on the brokers are
        followed."""
        self.follow()
        since = self._down_since.get(broker)
        return since is not None and asyncio.get_running_loop().time() - since >= for_s

    def follow(self) -> None:
        """Begin to follow the brokers, if that has not begun: for those who do not ask for the view."""

        async def begin() -> None:
            with contextlib.suppress(BrokerError):
                await self.view()

        if self._view is None and not self.alone:
            self._tasks.spawn(begin())

    def link_lost(self, broker: str) -> None:
        """A link to a host of a broker broke: if it is our home broker, that one may be gone as well."""
        if self._view is not None and broker == self._directory.home:
            self._tasks.spawn(self._doubt(broker))

    async def _follow(self) -> None:
        directory = self._directory
        while not self._tasks.closed:
            assert self._view is not None
            home = directory.home
            try:
                version = await directory.brokers_changed(self._view.version, CHANGED_WAIT_S)
                if version != self._view.version:
                    self._changed(await directory.brokers())
            except BrokerError:
                if directory.home == home:
                    await self._tasks.pause()
                with contextlib.suppress(BrokerError):
                    self._changed(await directory.brokers())

    async def _guard(self) -> None:
        """Have our home broker watched by another one."""
        directory, turn = self._directory, 0
        while not self._tasks.closed:
            assert self._view is not None
            others = [name for name in alive(self._view) if name != directory.home]
            try:
                if not others:
                    await self._tasks.rest()
                    continue
                witness = others[turn % len(others)]
                async with asyncio.timeout(ANSWER_S):
                    seen = await directory.brokers(witness)
                if directory.home not in alive(seen):
                    await self._doubt(directory.home)
                async with asyncio.timeout(WITNESS_WAIT_S + ANSWER_S):
                    await directory.brokers_changed(seen.version, WITNESS_WAIT_S, witness)
            except (BrokerError, TimeoutError):
                turn += 1
                await self._tasks.rest()

    async def _doubt(self, home: str) -> None:
        """There is reason to believe that our home broker is down: if it does not answer us, have another one."""
        self._tasks.spawn(self._drop_silent(home))
        with contextlib.suppress(BrokerError):
            await self._directory.doubt(home, DOUBT_S)

    def _changed(self, view: View) -> None:
        before, self._view = self._view, view
        if view == before:
            return
        there, now = alive(view), asyncio.get_running_loop().time()
        self._down_since = {row.name: self._down_since.get(row.name, now) for row in view.members if row.state == DOWN}
        for channel in self._channels():
            if channel.place.broker not in there and not channel.lost:
                self._tasks.spawn(self._drop_silent(channel.place.broker))
        for listener in list(self.listeners):
            listener(view)

    async def _drop_silent(self, broker: str) -> None:
        """Give up the connections to hosts of a broker that do not answer."""
        for channel in self._channels():
            if channel.place.broker == broker and not channel.lost and not await channel.answers(ANSWER_S):
                channel.link.abort()
