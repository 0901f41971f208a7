"""What a thread waits at for one answer."""

from __future__ import annotations

import threading
from concurrent.futures import InvalidStateError

import pytest

from raybroker.client.io.lone_waiter import LoneWaiter

WAIT_S = 60.0


def test_an_answer_that_is_there_takes_no_lock() -> None:
    waiter = LoneWaiter()
    assert not waiter.done()
    waiter.set_result("id")
    assert waiter.done()
    assert waiter.result(0) == "id"
    assert waiter._asleep is None
    assert (waiter.cancel(), waiter.cancelled()) == (False, False)


@pytest.mark.parametrize("refused", [False, True])
def test_a_thread_that_sleeps_is_woken_whichever_comes_first(refused: bool) -> None:
    for _ in range(200):
        waiter, heard = LoneWaiter(), list[str]()

        def sleep(waiter: LoneWaiter = waiter, heard: list[str] = heard) -> None:
            waiter.wait(WAIT_S)
            try:
                heard.append(waiter.result(0))
            except OSError as error:
                heard.append(str(error))

        thread = threading.Thread(target=sleep)
        thread.start()
        if refused:
            waiter.set_exception(OSError("id"))
        else:
            waiter.set_result("id")
        thread.join(WAIT_S)
        assert heard == ["id"]


def test_it_ends_once_and_a_time_out_leaves_it_open() -> None:
    waiter = LoneWaiter()
    with pytest.raises(TimeoutError):
        waiter.result(0.001)
    waiter.set_exception(OSError("gone"))
    with pytest.raises(InvalidStateError):
        waiter.set_result("id")
    with pytest.raises(InvalidStateError):
        waiter.set_exception(OSError("again"))
    with pytest.raises(OSError, match="gone"):
        waiter.result(0)
