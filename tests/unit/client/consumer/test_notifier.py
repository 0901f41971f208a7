"""Where threads and tasks wait for messages of a consumer."""

from __future__ import annotations

import threading

from raybroker.client.consumer.notifier import Notifier


class Box:
    def __init__(self, notifier: Notifier[Box], full: bool) -> None:
        self.notifier = notifier
        self.full = full
        notifier.filled.append(self)

    def unlisted(self) -> bool:
        if not self.full:
            self.notifier.filled.popleft()
        return not self.full


def test_what_is_there_is_not_waited_for() -> None:
    notifier: Notifier[Box] = Notifier()
    polls: list[None] = []
    assert notifier.wait(lambda: True, lambda: polls.append(None), None)
    assert notifier.future(lambda: True, lambda: polls.append(None)).done()
    assert polls == []
    assert not notifier.has_waiters


def test_a_wait_polls_once_and_ends_with_its_time() -> None:
    notifier: Notifier[Box] = Notifier()
    polls: list[bool] = []
    assert not notifier.wait(lambda: False, lambda: polls.append(notifier.has_waiters), 0)
    assert polls == [True]
    assert not notifier.has_waiters


def test_a_thread_and_a_future_are_woken_by_what_comes() -> None:
    notifier: Notifier[Box] = Notifier()
    here = False
    polled = threading.Event()
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(notifier.wait(lambda: here, polled.set, 10)))
    thread.start()
    assert polled.wait(10)
    future = notifier.future(lambda: here, lambda: None)
    assert notifier.has_waiters
    assert not future.done()
    with notifier.lock:
        here = True
        notifier.notify()
    thread.join(10)
    assert woken == [True]
    assert future.done()
    assert not notifier.has_waiters


def test_the_first_filled_buffer_is_found_past_those_that_were_emptied() -> None:
    notifier: Notifier[Box] = Notifier()
    assert notifier.first() is None
    Box(notifier, full=False)
    full = Box(notifier, full=True)
    assert notifier.first() is full
    assert list(notifier.filled) == [full]
