"""What is put off to the end of a turn, and what a lone sender does not wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raybroker.services.native.turn import ALONE_BYTES_MAX, Turn


def confirmed(seen: list[str], name: str = "confirmed") -> Callable[[], None]:
    return lambda: seen.append(name)


def in_a_loop(case: Callable[[Turn, list[str]], Coroutine[Any, Any, None]]) -> list[str]:
    """What a case has seen, with a mark at each further turn of the loop."""
    seen: list[str] = []

    async def run() -> None:
        await case(Turn(), seen)
        for _ in range(3):
            seen.append("|")
            await asyncio.sleep(0)

    asyncio.run(run())
    while seen[-1] == "|":
        seen.pop()
    return seen


def test_a_lone_senders_commit_does_not_wait_for_the_loop() -> None:
    async def case(turn: Turn, seen: list[str]) -> None:
        turn.under_way = turn.handling = True
        turn.soon(lambda: seen.append("commit"))
        assert not seen
        turn.finish_frames(alone=True)

    assert in_a_loop(case) == ["commit"]


def test_a_commit_waits_for_others_and_for_more_of_a_lot() -> None:
    async def others(turn: Turn, seen: list[str]) -> None:
        turn.under_way = turn.handling = True
        turn.soon(lambda: seen.append("commit"))
        turn.finish_frames(alone=False)

    async def a_lot(turn: Turn, seen: list[str]) -> None:
        committer: Any = SimpleNamespace(pending_bytes=ALONE_BYTES_MAX + 1)
        turn.committer = committer
        turn.under_way = turn.handling = True
        turn.soon(lambda: seen.append("commit"))
        turn.finish_frames(alone=True)

    async def outside(turn: Turn, seen: list[str]) -> None:
        turn.soon(lambda: seen.append("commit"))

    for case in (others, a_lot, outside):
        assert in_a_loop(case) == ["|", "commit"]


@pytest.mark.parametrize("has_socket", [True, False])
def test_what_nobody_waits_for_comes_behind_what_a_client_makes_of_its_confirmation(has_socket: bool) -> None:
    async def case(turn: Turn, seen: list[str]) -> None:
        loop, link = asyncio.get_running_loop(), SimpleNamespace(has_socket=has_socket)
        turn.latest = cast(Any, link)
        turn.under_way = turn.handling = True

        def commit() -> None:
            turn.behind(lambda: seen.append("noted"))
            turn.confirming.append(lambda: loop.call_soon(seen.append, "told"))

        turn.soon(commit)
        turn.finish_frames(alone=True)

    assert in_a_loop(case) == (["|", "noted", "told"] if has_socket else ["|", "told", "|", "noted"])


def test_confirmations_of_one_commit_are_written_after_all_of_it() -> None:
    async def case(turn: Turn, seen: list[str]) -> None:
        one, other = confirmed(seen, "one"), confirmed(seen, "other")

        def done(connection: Callable[[], None]) -> None:
            assert turn.under_way
            turn.confirming.append(connection)
            seen.append("done")

        turn.release([lambda: done(one), lambda: done(other)])
        assert not turn.under_way
        turn.under_way = turn.handling = True
        turn.release([lambda: done(one)])
        assert turn.under_way, "a commit within a turn leaves the rest to the turn"
        turn.finish_frames(alone=False)

    assert in_a_loop(case) == ["done", "done", "one", "other", "done", "one"]


def test_a_confirmation_outside_of_a_turn_is_written_soon() -> None:
    async def case(turn: Turn, seen: list[str]) -> None:
        turn.confirms(confirmed(seen, "one"))
        turn.confirms(confirmed(seen, "other"))

    assert in_a_loop(case) == ["|", "one", "other"]


def test_the_rest_of_a_turn_happens_although_one_part_fails() -> None:
    async def case(turn: Turn, seen: list[str]) -> None:
        def fails() -> None:
            raise ValueError("no")

        turn.under_way = turn.handling = True
        turn.confirming.append(confirmed(seen))
        turn.soon(fails)
        try:
            turn.finish_frames(alone=True)
        except ValueError:
            seen.append("failed")
        assert not turn.under_way

    assert in_a_loop(case) == ["confirmed", "failed"]


def test_what_a_commit_brings_about_is_committed_in_the_loops_next_turn() -> None:
    """Whoever is told of a commit may store something more; no frame has to come for that to be committed."""

    async def in_a_turn(turn: Turn, seen: list[str]) -> None:
        def commit() -> None:
            seen.append("commit")
            turn.release([lambda: turn.soon(lambda: seen.append("another"))])

        turn.under_way = turn.handling = True
        turn.soon(commit)
        turn.finish_frames(alone=True)

    async def outside(turn: Turn, seen: list[str]) -> None:
        seen.append("commit")
        turn.release([lambda: turn.soon(lambda: seen.append("another"))])

    for case in (in_a_turn, outside):
        assert in_a_loop(case) == ["commit", "|", "another"]
