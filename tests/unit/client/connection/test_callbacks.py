"""Callbacks of the application: one after another in a thread of their own."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.client.io import callbacks as module
from raybroker.client.io.callbacks import Callbacks
from raybroker.client.producer.send_future import SendFuture
from raybroker.model.errors import IllegalStateError

WAIT_S = 60.0


def drained(callbacks: Callbacks) -> None:
    done = threading.Event()
    callbacks.post(done.set)
    assert done.wait(WAIT_S)


def test_they_run_in_order_in_one_thread_that_is_not_the_callers() -> None:
    callbacks, seen = Callbacks("test"), list[tuple[int, str]]()
    for number in range(50):
        callbacks.post(lambda n: seen.append((n, threading.current_thread().name)), number)
    drained(callbacks)
    assert seen == [(number, "raybroker-test") for number in range(50)]


def test_one_that_raises_is_logged_and_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    callbacks = Callbacks("test")
    callbacks.post(lambda: 1 / 0)
    drained(callbacks)
    assert [record.getMessage() for record in caplog.records] == ["a callback of the application has failed: test"]


def test_the_thread_ends_when_it_has_nothing_to_do_and_another_one_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_S", 0.001)
    callbacks, threads = Callbacks("test"), list[threading.Thread]()
    for _ in range(2):
        callbacks.post(lambda: threads.append(threading.current_thread()))
        drained(callbacks)
        threads[-1].join(WAIT_S)
    assert threads[0] is not threads[1]


def test_whoever_posts_too_much_waits_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CALLBACKS_MAX", 2)
    callbacks, go_on, entered = Callbacks("test"), threading.Event(), threading.Event()

    def block() -> None:
        entered.set()
        go_on.wait(WAIT_S)
        callbacks.wait_for_room()  # A callback itself does not wait, however many there are.

    callbacks.post(block)
    assert entered.wait(WAIT_S)
    assert not callbacks.full
    for _ in range(2):
        callbacks.post(lambda: None)
    assert callbacks.full
    go_on.set()
    callbacks.wait_for_room()
    assert not callbacks.full


def test_a_wrapped_handler_is_called_there_and_none_stays_none() -> None:
    callbacks, seen = Callbacks("test"), list[str]()
    wrapped = callbacks.wrap(seen.append)
    assert wrapped is not None
    wrapped("event")
    drained(callbacks)
    assert (seen, callbacks.wrap(None)) == (["event"], None)


def future(callbacks: Callbacks, unusable: str = "") -> SendFuture:
    def require_usable() -> None:
        if unusable:
            raise IllegalStateError(unusable)

    io: Any = SimpleNamespace(unusable=unusable, require_usable=require_usable)
    return SendFuture(callbacks, io)


def test_a_send_cannot_be_taken_back_and_tells_in_the_callbacks_thread() -> None:
    callbacks, seen = Callbacks("test"), list[str]()
    sent = future(callbacks)
    assert sent.cancel() is False
    sent.add_done_callback(lambda done: seen.append(f"{done.result(0)} {threading.current_thread().name}"))
    sent.set_result("id")
    drained(callbacks)
    assert seen == ["id raybroker-test"]


def test_a_send_can_be_awaited() -> None:
    async def work() -> str:
        sent: Future[str] = future(Callbacks("test"))
        waiting = asyncio.wrap_future(sent)
        sent.set_result("id")
        return await asyncio.wait_for(waiting, WAIT_S)

    assert asyncio.run(work()) == "id"


def test_in_a_forked_child_nobody_waits_for_what_nobody_completes() -> None:
    sent = future(Callbacks("test"), "a forked child")
    for ask in (lambda: sent.result(0), lambda: sent.exception(0), lambda: sent.add_done_callback(print)):
        with pytest.raises(IllegalStateError, match="a forked child"):
            ask()
    sent.set_result("id")
    assert (sent.result(0), sent.exception(0)) == ("id", None)
