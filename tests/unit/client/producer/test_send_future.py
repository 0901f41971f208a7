"""Send futures: futures of the standard library in every respect, with a condition from the first look on only."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import threading
from concurrent.futures import FIRST_COMPLETED, Future, as_completed, wait
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.client.io.callbacks import Callbacks
from raybroker.client.io.io_thread import fulfil, refuse
from raybroker.client.producer.send_future import SendFuture, fulfil_all
from raybroker.errors import ConnectionLostError, IllegalStateError

WAIT_S = 60.0


class Io:
    unusable = ""

    def require_usable(self) -> None:
        raise IllegalStateError(self.unusable)

    def done(self, future: Future[Any], timeout_s: float | None) -> bool:
        return bool(wait([future], timeout_s).done)


def made(count: int = 1, io: Io | None = None) -> list[SendFuture]:
    """Futures of one producer."""
    there: Any = io or Io()
    callbacks = Callbacks("test")
    return [SendFuture(callbacks, there) for _ in range(count)]


def settle(futures: list[SendFuture], first_seq: int = 1) -> None:
    fulfil_all(futures, range(len(futures)), "ID:", first_seq)


def test_what_nobody_looked_at_has_no_condition_when_it_is_settled_nor_afterwards() -> None:
    futures = made(3)
    assert [f.done() for f in futures] == [False] * 3
    settle(futures, 7)
    assert [f.result() for f in futures] == ["ID:7", "ID:8", "ID:9"]
    assert [(f.done(), f.cancelled(), f.running(), f.cancel(), f.exception()) for f in futures] == [
        (True, False, False, False, None)
    ] * 3
    assert all(f._raybroker_looked is None for f in futures)
    assert "finished" in repr(futures[0])


def own_objects(root: object, *shared: object) -> int:
    """How many objects the garbage collector has to visit for this one alone; other threads make objects meanwhile, so
    that those of the whole process are not counted."""
    seen, waiting = {id(found) for found in shared}, [root]
    count = 0
    while waiting:
        found = waiting.pop()
        if id(found) in seen or isinstance(found, type) or not gc.is_tracked(found):
            continue
        seen.add(id(found))
        count += 1
        waiting += gc.get_referents(found)
    return count


def test_a_future_is_smaller_than_one_of_the_standard_library() -> None:
    callbacks, io = Callbacks("test"), Io()
    there: Any = io
    ours, theirs = SendFuture(callbacks, there), Future[str]()
    assert own_objects(ours, callbacks, io) * 3 < own_objects(theirs)


def test_an_outcome_is_final() -> None:
    (first,), (second,), (third,) = made(), made(), made()
    refuse(first, ConnectionLostError("gone"))
    settle([first])
    assert isinstance(first.exception(), ConnectionLostError)
    with pytest.raises(ConnectionLostError, match="gone"):
        first.result()
    settle([second])
    refuse(second, ConnectionLostError("too late"))
    settle([second], 9)
    assert second.result() == "ID:1"
    fulfil(third, "by hand")
    settle([third])
    assert third.result() == "by hand"


def test_the_time_of_waiting_is_bounded() -> None:
    (future,) = made()
    with pytest.raises(TimeoutError):
        future.result(0.01)
    with pytest.raises(TimeoutError):
        future.exception(0.01)
    assert wait([future], 0.01).not_done == {future}
    with pytest.raises(TimeoutError):
        list(as_completed([future], 0.01))
    settle([future])
    assert (future.result(0), future.exception(0)) == ("ID:1", None)


def test_wait_and_as_completed_take_them_in_any_state() -> None:
    futures = made(6)
    settle(futures[:2])
    assert wait(futures, WAIT_S, FIRST_COMPLETED).done == set(futures[:2])
    waiting = threading.Thread(target=lambda: found.append(wait(futures, WAIT_S)))
    found: list[Any] = []
    waiting.start()
    stream = as_completed(futures, WAIT_S)
    assert {next(stream), next(stream)} == set(futures[:2])
    settle(futures[2:4], 3)
    refuse(futures[4], ConnectionLostError("gone"))
    settle(futures[5:], 6)
    assert set(stream) == set(futures[2:])
    waiting.join(WAIT_S)
    assert found[0].done == set(futures)


def test_a_loop_waits_for_them() -> None:
    async def work() -> None:
        futures = made(3)
        wrapped = [asyncio.wrap_future(f) for f in futures]
        threading.Thread(target=settle, args=(futures,)).start()
        assert await asyncio.gather(*wrapped) == ["ID:1", "ID:2", "ID:3"]
        assert await asyncio.wrap_future(futures[0]) == "ID:1"

    asyncio.run(asyncio.wait_for(work(), WAIT_S))


@given(st.lists(st.sampled_from(["nobody", "waits", "calls back"]), min_size=1, max_size=30))
def test_callbacks_come_in_order_whoever_looks_at_the_others(lookers: list[str]) -> None:
    told: list[int] = []
    over = threading.Event()
    futures = made(len(lookers))
    for number, (future, looker) in enumerate(zip(futures, lookers, strict=True)):
        if looker == "calls back":
            future.add_done_callback(lambda _, number=number: told.append(number))
        elif looker == "waits":
            wait([future], 0)
    settle(futures)
    futures[-1].add_done_callback(lambda _: over.set())
    assert over.wait(WAIT_S)
    assert told == [number for number, looker in enumerate(lookers) if looker == "calls back"]


def test_nobody_is_left_waiting_when_looking_and_settling_meet() -> None:
    """Many threads look for the first time, in every way there is, just as blocks are settled."""
    draw = random.Random(5)
    for _ in range(40):
        futures = made(200)
        called: list[object] = []
        orders = [draw.sample(futures, len(futures)) for _ in range(4)]
        looks: list[Any] = [
            lambda them: [f.result(WAIT_S) for f in them],
            lambda them: [f.exception(WAIT_S) for f in them],
            lambda them: wait(them, WAIT_S).not_done,
            lambda them, call=called.append: [f.add_done_callback(call) for f in them],
        ]
        failed: list[BaseException] = []

        def run(look: Any, them: list[SendFuture], failed: list[BaseException] = failed) -> None:
            try:
                found = look(them)
                assert found is not None
            except BaseException as error:  # noqa: BLE001 - looked at below
                failed.append(error)

        threads = [threading.Thread(target=run, args=pair) for pair in zip(looks, orders, strict=True)]
        for thread in threads:
            thread.start()
        for start in range(0, 200, 50):
            settle(futures[start : start + 50], start)
        for thread in threads:
            thread.join(WAIT_S)
        assert not failed
        assert not any(thread.is_alive() for thread in threads)
        assert [f.result(0) for f in futures] == [f"ID:{n}" for n in range(200)]
        over = threading.Event()
        futures[0].add_done_callback(lambda _, over=over: over.set())
        assert over.wait(WAIT_S)
        assert len(called) == 200


def test_in_a_forked_child_what_is_done_stays_done_and_nothing_is_waited_for() -> None:
    io = Io()
    done, pending, looked = made(3, io)
    settle([done])
    wait([looked], 0)
    io.unusable = "this is the child"
    for future in (pending, looked):
        for call in (future.result, future.exception, lambda f=future: f.add_done_callback(print)):
            with pytest.raises(IllegalStateError, match="the child"):
                call()
    assert done.result() == "ID:1"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_guard_that_is_held_in_the_parent_is_free_in_its_child() -> None:
    from raybroker.client.producer import send_future

    taken, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with send_future._guard.lock:
            taken.set()
            leave.wait(WAIT_S)

    holder = threading.Thread(target=hold)
    holder.start()
    assert taken.wait(WAIT_S)
    pid = os.fork()
    if pid == 0:
        free = send_future._guard.lock.acquire(timeout=WAIT_S)
        os._exit(0 if free else 1)
    _, status = os.waitpid(pid, 0)
    leave.set()
    holder.join(WAIT_S)
    assert os.waitstatus_to_exitcode(status) == 0
