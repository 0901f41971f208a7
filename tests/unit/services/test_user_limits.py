"""What users have made: many at the same time, what is gone, and what is written down."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import pytest

from raybroker.config import Config
from raybroker.errors import ResourceAllocationError, StoreError
from raybroker.services.clients import user_limits
from raybroker.services.clients.user_limits import DESTINATIONS, TEMPORARY, UserLimits
from raybroker.store.record import RecordFile

MOST = 3
Key = tuple[str, str]


class World:
    """Limits, and what there is."""

    def __init__(self, kept: RecordFile | None = None, **more: object) -> None:
        self.limits = UserLimits(Config.from_values({DESTINATIONS: MOST, TEMPORARY: MOST, **more}), kept)
        self.there: set[Key] = set()
        self.numbers = iter(range(1_000_000))

    async def _there(self, keys: Iterable[Key]) -> set[Key]:
        await asyncio.sleep(0)
        return self.there & set(keys)

    async def makes(self, name: str, user: str = "ann") -> bool:
        async def make() -> None:
            await asyncio.sleep(0)
            self.there.add(("queue", name))

        return await self._tried(self.limits.making(DESTINATIONS, user, ("queue", name), make, self._there))

    async def makes_temporary(self) -> bool:
        async def make() -> str:
            await asyncio.sleep(0)
            name = f"t{next(self.numbers)}"
            self.there.add(("queue", name))
            return name

        return await self._tried(
            self.limits.making(TEMPORARY, "ann", ("", ""), make, self._there, lambda name: ("queue", name))
        )

    async def _tried(self, making: Awaitable[object]) -> bool:
        try:
            await making
        except ResourceAllocationError:
            return False
        return True


def run(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(story())  # type: ignore[arg-type]


def test_as_many_as_there_may_be_whether_they_are_made_one_by_one_or_at_once() -> None:
    async def story() -> None:
        for make in (World.makes_temporary, lambda world: world.makes(f"q{next(world.numbers)}")):
            world = World()
            assert sum(await asyncio.gather(*(make(world) for _ in range(20)))) == MOST
            assert not await make(world)
            world.there.pop()
            assert sum(await asyncio.gather(*(make(world) for _ in range(20)))) == 1
            assert len(world.there) == MOST

    run(story)


def test_what_is_written_down_counts_for_whoever_reads_it(tmp_path: Path) -> None:
    async def story() -> None:
        there: set[Key] = set()
        for life in range(3):
            world = World(RecordFile(tmp_path / "made"))
            world.there = there
            await world.limits.start()
            assert await world.makes(f"q{life}")
            assert await world.makes("bobs", "bob")
            assert await world.makes_temporary() or life
            world.limits.close()
        world = World(RecordFile(tmp_path / "made"))
        world.there = there
        await world.limits.start()
        assert not await world.makes("one more")
        assert await world.makes("q1"), "what he has"
        there.discard(("queue", "q0"))
        assert await world.makes("one more")
        world.limits.close()

    run(story)


def test_the_file_does_not_grow_with_what_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_limits, "SPARE", 10)

    async def story() -> None:
        file = tmp_path / "made"
        world = World(RecordFile(file))
        await world.limits.start()
        for number in range(200):
            assert await world.makes(f"q{number}")
            world.there.discard(("queue", f"q{number}"))
        world.limits.close()
        assert file.stat().st_size < 5000
        again = World(RecordFile(file))
        again.there = {("queue", f"q{number}") for number in range(200)}
        await again.limits.start()
        assert not await again.makes("one more"), "the last are known"
        again.limits.close()

    run(story)


def test_what_is_gone_is_forgotten_long_before_the_limit() -> None:
    async def story() -> None:
        world = World(**{TEMPORARY: 10_000})
        assert await world.makes_temporary()
        stays = set(world.there)
        for _ in range(20 * user_limits.KNOWN):
            assert await world.makes_temporary()
            world.there &= stays
            (known,) = world.limits._made.values()
            assert stays < known
            assert len(known) <= 2 * len(stays) + user_limits.KNOWN + 1

    run(story)


def test_a_file_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    async def story() -> None:
        file = tmp_path / "made"
        file.write_bytes(b"this is no record at all")
        world = World(RecordFile(file))
        await world.limits.start()
        assert await world.makes("q"), "the services work, and limits begin anew"
        world.limits.close()
        file.unlink()
        world = World(kept := RecordFile(file))
        await world.limits.start()
        kept.close()
        with pytest.raises(StoreError):
            await world.makes("q")
        assert world.there == set(), "nothing is made that does not count"

    run(story)


def test_without_a_limit_nothing_is_kept(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(RecordFile(tmp_path / "made"), **{DESTINATIONS: -1})
        await world.limits.start()
        for number in range(50):
            assert await world.makes(f"q{number}")
        assert not world.limits._made
        world.limits.close()

    run(story)
