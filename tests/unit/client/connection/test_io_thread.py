"""The thread that does a process's broker IO: what is posted during a piece of work leaves at its end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raybroker.client.io.io_thread import IoThread, end_thread


@pytest.fixture
def io() -> Iterator[IoThread]:
    made = IoThread("io of a test")
    yield made
    end_thread(made)


def test_what_work_posts_is_called_at_its_end_and_once(io: IoThread) -> None:
    order: list[str] = []

    async def run() -> list[str]:
        def work() -> None:
            io.post(order.append, "first")
            io.post(order.append, "second")
            order.append("work")

        io.together(work)
        return list(order)

    assert io.run(run()) == ["work", "first", "second"]

    async def later() -> list[str]:
        return order

    assert io.run(later()) == ["work", "first", "second"]


def test_what_was_posted_before_stays_before_it(io: IoThread) -> None:
    order: list[str] = []

    async def run() -> None:
        io.post(order.append, "before")
        io.together(lambda: io.post(order.append, "in it"))

    io.run(run())
    io.run(_nothing())
    assert order == ["before", "in it"]


def test_work_that_fails_leaves_nothing_uncalled(io: IoThread) -> None:
    order: list[str] = []

    async def run() -> None:
        def work() -> None:
            io.post(order.append, "posted")
            raise ValueError

        with pytest.raises(ValueError):
            io.together(work)
        assert order == ["posted"]
        io.post(order.append, "after")

    io.run(run())
    io.run(_nothing())
    assert order == ["posted", "after"]


async def _nothing() -> None:
    return None
