"""Listeners: what is called, how it is awaited, and what becomes of a message whose call fails (R-06)."""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from raybroker.errors import ConfigError, ListenerError
from tests.contracts.conftest import ONE_FACE, TWO_FACES
from tests.contracts.handle_basics import held
from tests.contracts.handles import LoopbackBroker, create, dead, state_of, until


class UnknownCustomerError(Exception):
    """What the application raises."""


# ---- what is called --------------------------------------------------------------------------------------------------


def test_a_coroutine_is_run_to_its_end_before_its_message_is_acknowledged(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    seen: list[str] = []
    waiting, go_on = threading.Event(), threading.Event()

    async def listen(message: Any) -> None:
        seen.append(f"begin {message.body}")
        waiting.set()
        await asyncio.to_thread(go_on.wait)
        seen.append(f"end {message.body}")

    connection.session().consumer(name).on_message(listen)
    connection.session().producer(name).send_many("ab")
    assert waiting.wait(60)
    assert state_of(connection, name)["messages"] == 2, "nothing is acknowledged while the call runs"
    go_on.set()
    until(lambda: held(connection, name) == 0)
    assert seen == ["begin a", "end a", "begin b", "end b"]


@ONE_FACE
@pytest.mark.parametrize("how", ["lambda", "partial", "object"])
def test_whatever_returns_a_coroutine_is_awaited(broker: LoopbackBroker, how: str) -> None:
    connection, name = broker.connect(), broker.name()
    seen: list[Any] = []

    async def work(message: Any) -> None:
        await asyncio.sleep(0)
        seen.append(message.body)

    class Worker:
        async def __call__(self, message: Any) -> None:
            await work(message)

    ways: dict[str, Callable[[Any], Any]] = {
        "lambda": lambda message: work(*[message]),
        "partial": functools.partial(work),
        "object": Worker(),
    }
    connection.session().consumer(name).on_message(ways[how])
    connection.session().producer(name).send("x")
    until(lambda: held(connection, name) == 0)
    assert seen == ["x"]


def generates(message: Any) -> Any:
    yield message


async def generates_asynchronously(message: Any) -> Any:
    yield message


REFUSED: dict[str, tuple[Any, str]] = {
    "no function": ("orders", "'orders'"),
    "None": (None, "None"),
    "a class": (Exception, "the class Exception"),
    "no argument": (lambda: None, "cannot be called with a message"),
    "two arguments": (lambda message, more: None, "cannot be called with a message"),
    "a generator": (generates, "generates has a yield"),
    "an asynchronous generator": (generates_asynchronously, "has a yield"),
    "the generator of a partial": (functools.partial(generates), "has a yield"),
}


@pytest.mark.parametrize("case", REFUSED)
@TWO_FACES
def test_what_cannot_handle_a_message_is_refused_at_once(broker: LoopbackBroker, case: str) -> None:
    listener, text = REFUSED[case]
    connection, name = broker.connect(), broker.name()
    connection.session().producer(name).send("kept")
    session = connection.session()
    with pytest.raises(ConfigError, match=text):
        session.consumer(name).on_message(listener)
    session.close()
    (message,) = connection.session().consumer(name).receive_many(1, timeout=60)
    assert message.body == "kept"
    assert dead(connection) == []


@pytest.mark.parametrize(
    "options",
    [
        {"retry_on": "ValueError"},
        {"reject_on": int},
        {"reject_on": (ValueError, 3)},
        {"backoff": -1},
        {"backoff": "1"},
        {"backoff": (2, 1)},
        {"backoff": True},
        {"backoff": (1, 2, 3)},
    ],
)
@TWO_FACES
def test_rules_for_failures_that_cannot_be_are_refused(broker: LoopbackBroker, options: dict[str, Any]) -> None:
    consumer = broker.connect().session().consumer(broker.name())
    with pytest.raises(ConfigError, match=next(iter(options))):
        consumer.on_message(print, **options)


# ---- failures --------------------------------------------------------------------------------------------------------


def test_a_failure_is_logged_told_and_written_on_the_dead_message(
    broker: LoopbackBroker, caplog: pytest.LogCaptureFixture
) -> None:
    connection = broker.connect()
    name = create(connection, broker.name(), redeliveryLimit=1)
    told: list[Any] = []
    connection.on_exception(told.append)

    def handle(message: Any) -> None:
        raise UnknownCustomerError(f"no customer {message.body}")

    with caplog.at_level(logging.ERROR, "raybroker.listener"):
        connection.session().consumer(name).on_message(handle, backoff=0.01)
        connection.session().producer(name).send(17)
        (row,) = until(lambda: dead(connection))
        until(lambda: len(told) == 2)
    properties = row["properties"]
    kind = f"{__name__}.UnknownCustomerError"
    assert properties["JMS_SUN_DMQ_UNDELIVERED_EXCEPTION"] == f"{kind}: no customer 17"
    assert properties["JMS_SUN_DMQ_UNDELIVERED_REASON"] == "UNDELIVERABLE"
    assert "in handle\n    raise UnknownCustomerError(" in properties["RAYBROKER_TRACEBACK"]
    assert "listening.py" not in properties["RAYBROKER_TRACEBACK"], "it begins in the application"
    assert all(type(error) is ListenerError and type(error.__cause__) is UnknownCustomerError for error in told)
    assert [f"of {name}, attempt {n}" in str(error) for n, error in enumerate(told, 1)] == [True, True]
    logged = [record for record in caplog.records if record.name == "raybroker.listener"]
    assert len(logged) == 2
    assert "no customer 17; it comes again after 0.01 s" in logged[0].getMessage()
    assert logged[0].exc_info is not None


@pytest.mark.parametrize("mode", ["auto", "dups_ok", "client", "transacted"])
def test_exceptions_of_given_types_reject_their_message_and_nothing_else(broker: LoopbackBroker, mode: str) -> None:
    connection = broker.connect()
    name = create(connection, broker.name())
    seen: list[tuple[Any, int]] = []

    def handle(message: Any) -> Any:
        seen.append((message.body, message.delivery_count))
        if message.body == "bad":
            raise UnknownCustomerError("x")
        return message.acknowledge() if mode == "client" else None

    connection.session().producer(name).send_many(["a", "bad", "b"])
    options = {"transacted": True} if mode == "transacted" else {"ack": mode}
    session = connection.session(**options)
    session.consumer(name).on_message(handle, reject_on=UnknownCustomerError)
    (row,) = until(lambda: dead(connection))
    assert (row["body"], row["properties"]["JMS_SUN_DMQ_UNDELIVERED_REASON"]) == ("bad", "ERROR")
    assert row["properties"]["JMS_SUN_DMQ_UNDELIVERED_EXCEPTION"].endswith("UnknownCustomerError: x")
    assert "in handle" in row["properties"]["RAYBROKER_TRACEBACK"]
    until(lambda: [body for body, _ in seen if body == "b"])
    session.close()
    assert held(connection, name) == 0
    assert [count for body, count in seen if body == "bad"] == [1]


def test_exceptions_that_are_not_worth_another_attempt_reject(broker: LoopbackBroker) -> None:
    connection = broker.connect()
    name = create(connection, broker.name())
    seen: list[Any] = []

    def handle(message: Any) -> None:
        seen.append(message.body)
        raise TimeoutError if len(seen) == 1 else UnknownCustomerError

    connection.session().producer(name).send("x")
    connection.session().consumer(name).on_message(handle, retry_on=(TimeoutError, OSError), backoff=(0.01, 0.02))
    until(lambda: dead(connection))
    assert seen == ["x", "x"]


@ONE_FACE
def test_a_failing_listener_is_not_called_without_a_pause_and_others_go_on(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    seen: list[tuple[Any, float]] = []

    def handle(message: Any) -> None:
        seen.append((message.body, time.monotonic()))
        assert message.body != "bad"

    connection.session().producer(name).send_many(["bad", *range(20)])
    session = connection.session()
    session.consumer(name).on_message(handle, backoff=0.05)
    until(lambda: [body for body, _ in seen].count("bad") == 3)
    assert [body for body, _ in seen[:21]] == ["bad", *range(20)]
    first, second, third = [at for body, at in seen if body == "bad"]
    assert second - first >= 0.049
    assert third - second >= 0.099, "the pause doubles"


@ONE_FACE
def test_the_pause_of_a_session_is_that_of_its_listeners_unless_they_have_their_own(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    logged: list[float] = []

    def handle(message: Any) -> None:
        logged.append(time.monotonic())
        assert len(logged) > 1

    connection.session().producer(name).send("x")
    connection.session(redelivery_delay_ms=20).consumer(name).on_message(handle)
    until(lambda: held(connection, name) == 0)
    assert logged[1] - logged[0] >= 0.019


@ONE_FACE
def test_a_lazily_acknowledged_message_is_not_lost_when_its_call_fails(broker: LoopbackBroker) -> None:
    """The tenth message starts an acknowledgement, which must not cover what is in hand."""
    connection, name = broker.connect(), broker.name()
    seen: list[tuple[Any, int]] = []

    def handle(message: Any) -> None:
        seen.append((message.body, message.delivery_count))
        if message.delivery_count == 1 and message.body == 9:
            until(lambda: state_of(connection, name)["messages"] == 3)  # Nine of twelve are acknowledged.
            raise UnknownCustomerError

    connection.session().producer(name).send_many(range(12))
    session = connection.session(ack="dups_ok")
    session.consumer(name).on_message(handle, backoff=0.01)
    until(lambda: (9, 2) in seen)
    session.close()
    assert held(connection, name) == 0


def test_a_listener_that_exits_or_is_cancelled_fails_its_message_and_goes_on(broker: LoopbackBroker) -> None:
    connection = broker.connect()
    name = create(connection, broker.name(), redeliveryLimit=0)
    seen: list[Any] = []
    exits = broker.face == "blocking"  # In an application's own loop it ends the application.

    def handle(message: Any) -> None:
        if message.body == "bad":
            sys.exit(3) if exits else _cancelled()
        seen.append(message.body)

    connection.session().consumer(name).on_message(handle)
    connection.session().producer(name).send_many(["bad", "good"])
    until(lambda: seen == ["good"] and len(dead(connection)) == 1)


def _cancelled() -> None:
    raise asyncio.CancelledError


def test_the_listener_of_a_destroyed_queue_ends_with_a_line_in_the_log(
    broker: LoopbackBroker, caplog: pytest.LogCaptureFixture
) -> None:
    connection = broker.connect()
    name = create(connection, broker.name())
    connection.session().consumer(name).on_message(print)
    with caplog.at_level(logging.ERROR, "raybroker.listener"):
        connection.admin().destroy_destination("queue", name)
        until(lambda: any(name in record.getMessage() for record in caplog.records))
