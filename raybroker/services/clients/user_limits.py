"""Limits for each user: how much he may have of what he makes by way of one broker's services.

Counted is what is still there of what he has made: destinations by using them, temporary ones, durable subscriptions.
It is written down, so that a broker that was restarted counts it too.  What a user has made is looked at again before
he is refused, since some of it may be gone, and whenever it has doubled, so that what is gone is forgotten.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Protocol, TypeVar

from raybroker.model.errors import BrokerError, ResourceAllocationError
from raybroker.model.settings.settings import ConfigView

DESTINATIONS: Final = "raybroker.service.user_destinations_max"
TEMPORARY: Final = "raybroker.service.user_temporary_max"
SUBSCRIPTIONS: Final = "raybroker.service.user_subscriptions_max"
CONSUMERS: Final = "raybroker.service.user_consumers_max"
WHAT: Final = {
    DESTINATIONS: "destinations",
    TEMPORARY: "temporary destinations",
    SUBSCRIPTIONS: "durable subscriptions",
    CONSUMERS: "consumers",
}
SPARE: Final = 1000
"""So many rows more than twice what counts may be written down before the file is written anew."""
KNOWN: Final = 100
"""So many more than twice what was there at the last look may be known of a user before somebody looks again."""
Key = tuple[str, str]
There = Callable[[Iterable[Key]], Awaitable[set[Key]]]
"""Those of the keys that are still there."""
R = TypeVar("R")

log: Final = logging.getLogger("raybroker.services")


class Kept(Protocol):
    """The place where it is written down: store.record.RecordFile."""

    def open(self) -> list[bytes]: ...

    def append(self, frames: Sequence[bytes], /) -> None: ...

    def replace(self, frames: Sequence[bytes], /) -> None: ...

    def close(self) -> None: ...


class UserLimits:
    """The limits of one broker's users; they are those of the configuration. ``kept``: None where a restart leaves
    nothing."""

    def __init__(self, config: ConfigView, kept: Kept | None = None) -> None:
        self._config = config
        self._kept = kept
        self._rows = 0
        """In the file."""
        self._numbers = itertools.count()
        self._making: set[Key] = set()
        """What is being made: it is not there yet, and counts."""
        self._made: dict[tuple[str, str], set[Key]] = {}
        """(property, user) → what he has made."""
        self._look_at: dict[tuple[str, str], int] = {}
        """(property, user) → how much of that is known when somebody looks again what is gone."""

    async def start(self) -> None:
        """Read what was made before; limits begin anew, and the log says so, where that cannot be done."""
        if self._kept is None:
            return
        try:
            frames = await asyncio.to_thread(self._kept.open)
        except BrokerError as error:
            log.error("[B2176] what users have made is not known, and their limits begin anew: %s", error)
            self._kept = None
            return
        self._rows = len(frames)
        for frame in frames:
            limit, user, *key = json.loads(frame)
            self._made.setdefault((limit, user), set()).add((key[0], key[1]))

    async def making(
        self,
        limit: str,
        user: str,
        key: Key,
        make: Callable[[], Awaitable[R]],
        there: There,
        name_of: Callable[[R], Key] | None = None,
    ) -> R:
        """Make one more, which counts from now on unless it fails; raises ResourceAllocationError at the limit, and
        StoreError when it cannot be written down.

        ``key``: what it is; of one that gets its name as it is made, ``name_of`` says that.
        """
        most = self._config[limit]
        if most < 0:
            return await make()
        made = self._made.setdefault((limit, user), set())
        if key not in made and len(made) >= min(most, self._look_at.get((limit, user), KNOWN)):
            await self._forget_gone((limit, user), made, there)
            if key not in made and most <= len(made):
                raise exceeded(limit, user, len(made), most)
        if key in made:
            return await make()
        key = key if name_of is None else ("", str(next(self._numbers)))
        made.add(key)
        self._making.add(key)
        try:
            if name_of is None:
                await self._write(limit, user, key)
            answer = await make()
        except BaseException:
            made.discard(key)
            raise
        finally:
            self._making.discard(key)
        if name_of is not None:
            made.discard(key)
            made.add(name_of(answer))
            await self._write(limit, user, name_of(answer))
        return answer

    async def _forget_gone(self, whose: tuple[str, str], made: set[Key], there: There) -> None:
        """Forget what is gone of what a user has made."""
        self._look_at[whose] = 2 * len(made) + KNOWN  # Those who come meanwhile need not look too.
        known = tuple(made - self._making)
        made -= set(known) - await there(known)
        self._look_at[whose] = 2 * len(made) + KNOWN

    async def _write(self, limit: str, user: str, key: Key) -> None:
        if self._kept is None:
            return
        self._rows += 1
        if self._rows <= 2 * sum(map(len, self._made.values())) + SPARE:
            await asyncio.to_thread(self._kept.append, [_frame(limit, user, key)])
            return
        frames = [_frame(*whose, key) for whose, keys in self._made.items() for key in keys - self._making]
        frames.append(_frame(limit, user, key))
        self._rows = len(frames)
        await asyncio.to_thread(self._kept.replace, frames)

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()


def _frame(limit: str, user: str, key: Key) -> bytes:
    return json.dumps([limit, user, *key]).encode()


def exceeded(limit: str, user: str, count: int, most: int) -> ResourceAllocationError:
    """The refusal of one more."""
    return ResourceAllocationError(
        f"user {user!r:.140} has {count} {WHAT[limit]} and may have {most} ({limit}); end some, or raise it"
    )
