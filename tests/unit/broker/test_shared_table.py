"""Calls to the shared table, made in threads (K-20)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest

from raybroker.broker.cluster.shared_table import SharedTable
from raybroker.cluster import events as ev
from raybroker.model.errors import ConfigError, RequestTimeoutError, StoreError
from raybroker.model.shared_record import FoundRecord, RecordHead, TableRow

FOUND = FoundRecord(RecordHead("c", "r", 1, 0), 0, "", ())


class Scripted:
    """``read`` does what the test says; the others say what they were asked."""

    shown = "records"

    def __init__(self, read: Callable[[], FoundRecord | None] = lambda: FOUND) -> None:
        self._read = read
        self.threads: list[threading.Thread] = []
        self.asked: list[object] = []

    def read(self, record: str, number: int) -> FoundRecord | None:
        self.threads.append(threading.current_thread())
        return self._read()

    def insert(self, record: str, rows: Sequence[TableRow]) -> bool:
        self.asked.append((record, rows))
        return True

    def shorten(self, record: str, before: int, number: int, digest: str, base: str) -> bool:
        self.asked.append((record, before, number, digest, base))
        return False


def test_calls_are_carried_out_in_another_thread() -> None:
    table = Scripted()
    shared = SharedTable(table, 5000)

    async def work() -> None:
        assert await shared.carry_out(ev.ReadTable(1, "r", 0)) == ev.TableDone(1, found=FOUND)
        assert await shared.carry_out(ev.AppendTable(2, "r", ())) == ev.TableDone(2, done=True)
        assert await shared.carry_out(ev.ShortenTable(3, "r", 0, 1, "d", "b")) == ev.TableDone(3, done=False)

    asyncio.run(work())
    assert threading.current_thread() not in table.threads
    assert table.asked == [("r", ()), ("r", 0, 1, "d", "b")]


@pytest.mark.parametrize(
    ("error", "unknown"),
    [
        (StoreError("gone"), False),
        (ConfigError("gone"), False),
        (RequestTimeoutError("gone"), True),
        (ValueError("gone"), True),
    ],
)
def test_an_error_is_an_answer(error: Exception, unknown: bool) -> None:
    def fail() -> FoundRecord:
        raise error

    done = asyncio.run(SharedTable(Scripted(fail), 5000).carry_out(ev.ReadTable(1, "r", 0)))
    assert "gone" in done.error
    assert done.unknown is unknown


def test_a_call_that_hangs_is_given_up_and_holds_up_nobody() -> None:
    go_on = threading.Event()

    def hang() -> FoundRecord:
        assert go_on.wait(20)
        return FOUND

    table = Scripted(hang)
    shared = SharedTable(table, 100)

    async def work() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.get_running_loop().create_task(tick())
        done = await shared.carry_out(ev.ReadTable(1, "r", 0))
        assert done.unknown
        assert "within 0.1 s" in done.error
        assert ticks >= 3
        before = threading.active_count()
        again = await shared.carry_out(ev.ReadTable(2, "r", 0))
        assert "has not come back" in again.error
        assert not again.unknown, "it was not even begun"
        assert threading.active_count() == before
        go_on.set()
        await asyncio.to_thread(table.threads[0].join)
        assert (await shared.carry_out(ev.ReadTable(3, "r", 0))).found == FOUND
        ticking.cancel()

    asyncio.run(asyncio.wait_for(work(), 20))


def test_what_comes_after_the_end_of_the_loop_is_for_nobody() -> None:
    go_on = threading.Event()

    def hang() -> FoundRecord:
        assert go_on.wait(20)
        return FOUND

    table = Scripted(hang)
    asyncio.run(SharedTable(table, 50).carry_out(ev.ReadTable(1, "r", 0)))
    go_on.set()
    table.threads[0].join(20)
    assert not table.threads[0].is_alive()
