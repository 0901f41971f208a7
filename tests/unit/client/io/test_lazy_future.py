"""Lazy futures do what those of the standard library do, and make nothing before somebody looks."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError, Future, InvalidStateError, wait
from typing import Any

import pytest

from raybroker.client.io.lean_futures import LazyFuture

WAIT_S = 60.0
KINDS = pytest.mark.parametrize("kind", [Future, LazyFuture])


def test_an_answer_that_is_there_before_anybody_waits_takes_no_condition() -> None:
    future: LazyFuture[int] = LazyFuture()
    assert not future.done()
    future.set_result(0)
    assert (future.done(), future.result()) == (True, 0)
    assert not future._raybroker_looked


@KINDS
def test_it_ends_once(kind: type[Future[int]]) -> None:
    for end in (lambda f: f.set_result(1), lambda f: f.set_exception(OSError("gone"))):
        future = kind()
        end(future)
        with pytest.raises(InvalidStateError):
            future.set_result(2)
        with pytest.raises(InvalidStateError):
            future.set_exception(OSError("again"))
        assert not future.cancel()


@KINDS
def test_an_error_is_raised_to_whoever_asks(kind: type[Future[int]]) -> None:
    future = kind()
    future.set_exception(OSError("gone"))
    assert isinstance(future.exception(), OSError)
    with pytest.raises(OSError, match="gone"):
        future.result()


@KINDS
def test_what_was_cancelled_takes_no_result(kind: type[Future[int]]) -> None:
    future = kind()
    assert future.cancel()
    assert (future.done(), future.cancelled()) == (True, True)
    with pytest.raises(InvalidStateError):
        future.set_result(1)
    with pytest.raises(CancelledError):
        future.result()
    with pytest.raises(CancelledError):
        future.exception()


@KINDS
def test_a_wait_ends_with_its_time(kind: type[Future[int]]) -> None:
    future = kind()
    with pytest.raises(TimeoutError):
        future.result(0.001)
    with pytest.raises(TimeoutError):
        future.exception(0)
    future.set_result(1)
    assert future.result(0) == 1


@KINDS
def test_callbacks_are_called_once_also_when_it_is_over_already(kind: type[Future[int]]) -> None:
    early, late, called = kind(), kind(), list[Any]()
    early.set_result(1)
    early.add_done_callback(called.append)
    late.add_done_callback(called.append)
    assert called == [early]
    late.set_result(2)
    assert called == [early, late]


@KINDS
def test_a_thread_that_waits_is_woken_whichever_comes_first(kind: type[Future[int]]) -> None:
    for number in range(200):
        future, heard = kind(), list[int]()
        thread = threading.Thread(target=lambda f=future, h=heard: h.append(f.result(WAIT_S)))
        thread.start()
        future.set_result(number)
        thread.join(WAIT_S)
        assert heard == [number]


@KINDS
def test_several_are_waited_for_at_once_and_on_a_loop(kind: type[Future[int]]) -> None:
    done, pending = kind(), kind()
    done.set_result(1)
    assert wait([done, pending], 0).not_done == {pending}

    async def work() -> int:
        waiting = asyncio.wrap_future(pending)
        threading.Timer(0.001, pending.set_result, (2,)).start()
        return await waiting

    assert asyncio.run(work()) == 2


def test_parts_that_were_made_stay_when_they_are_looked_for_again() -> None:
    """As by two threads at once, or by a handler of a signal in the middle."""
    future: LazyFuture[int] = LazyFuture()
    parts = [future.__getattr__(name) for name in ("_condition", "_waiters", "_done_callbacks")]
    assert [future.__getattr__(name) for name in ("_condition", "_waiters", "_done_callbacks")] == parts
    assert future._condition is parts[0]
    with pytest.raises(AttributeError, match="'LazyFuture' has no attribute 'nothing'"):
        future.nothing  # type: ignore[attr-defined]  # noqa: B018 - looking it up is the test
