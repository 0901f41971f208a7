"""One broker's members of a consumer or producer: joined as they come, and again after they were lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Coroutine
from typing import Any, Final

from raybroker.client.cluster.directory import Directory
from raybroker.client.destinations import Destination, Topic
from raybroker.client.io.tasks import Tasks
from raybroker.model.errors import BrokerError, ConnectionLostError, InvalidDestinationError

CHANGED_WAIT_S: Final = 15.0
"""One question for changes waits so long; asking again costs one call."""
Key = tuple[str, str]
"""Of a member: its broker, "" for the home broker whichever that is, and its destination's name."""
Join = Callable[[str, Destination, bool], Coroutine[Any, Any, Any]]
"""(broker, destination, create): makes a member, and puts it to the others."""


class BrokerMembers:
    """Keeps ``members`` in step with what there is on one broker: its member of a destination, or the topics that
    match a pattern. On the IO loop."""

    def __init__(
        self,
        directory: Directory,
        tasks: Tasks,
        destination: Destination,
        broker: str,
        members: Container[Key],
        join: Join,
        *,
        create: bool = False,
    ) -> None:
        """``create``: a destination that is missing on this broker is made the first time."""
        self.broker = broker
        self.stopped = False
        self._directory = directory
        self._tasks = tasks
        self._destination = destination
        self._members = members
        self._join = join
        self._create = create
        self._task: asyncio.Task[None] | None = None
        self._joining = False
        self._version = -1
        """Of the list of topics that is joined completely; -1 when there is something left to be done."""
        self._left = asyncio.Event()

    async def join_present(self) -> None:
        """Join what there is; raises why the list cannot be had, or why one could not be joined for good."""
        if not self._destination.is_pattern:
            await self._join_one(self._destination)
            self._version = 0
            return
        version, names = await self._tasks.with_retry(self._destination.name, self._matching)
        self._version = version if await self._join_all(names) else -1

    async def _matching(self) -> tuple[int, list[str]]:
        return await self._directory.matching(self._destination.name, self.broker or None)

    def follow(self) -> None:
        """Begin to join what comes, and whatever left."""
        self._task = self._tasks.keep("members of a consumer", self._follow)

    def member_left(self) -> None:
        """A member is gone that may come back."""
        self._left.set()

    def stop(self) -> None:
        """Join nothing more; what is being joined at this moment is for the owner of the members to close."""
        self.stopped = True
        if self._task is not None and not self._joining:
            self._task.cancel()

    async def _follow(self) -> None:
        while not self.stopped:
            try:
                if self._version >= 0:
                    await self._changed()
                await self._join_missing()
            except BrokerError:
                self._version = -1
            if self._version < 0 and not self.stopped:
                await self._tasks.pause()

    async def _changed(self) -> None:
        """Wait until there may be something to do."""
        if not self._destination.is_pattern:
            await self._left.wait()
            return
        seen = self._version
        while not self._left.is_set():
            if await self._directory.changed(seen, CHANGED_WAIT_S, self.broker or None) != seen:
                return

    async def _join_missing(self) -> None:
        self._left.clear()
        if self._destination.is_pattern:
            version, names = await self._matching()
            self._version = version if await self._join_all(names) else -1
        else:
            self._version = -1
            if (self.broker, self._destination.name) not in self._members:
                await self._join_one(self._destination)
            self._version = 0

    async def _join_all(self, names: list[str]) -> bool:
        """Join those that are not members; False when one could not be reached and has to be tried again."""
        complete = True
        for name in names:
            if (self.broker, name) not in self._members and not self.stopped:
                try:
                    await self._join_one(Topic(name))
                except ConnectionLostError:
                    complete = False
                except InvalidDestinationError:
                    continue  # It is gone again.
        return complete

    async def _join_one(self, destination: Destination) -> None:
        self._joining = True
        try:
            await self._join(self.broker, destination, self._create and not self._destination.is_pattern)
            self._create = False  # If it is destroyed, nobody makes it again.
        finally:
            self._joining = False
