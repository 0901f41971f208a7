"""Fencing numbers, and deliveries that are tied to the life of whoever works on them (N5)."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import ConfigError, IllegalStateError
from tests.contracts.handles import buffered, create, until


@pytest.fixture
def connection() -> Iterator[Any]:
    with rb.loopback(broker="fences") as found:
        yield found


def received(consumer: Any) -> Any:
    message = consumer.receive(timeout=10)
    assert message is not None
    return message


def test_each_delivery_has_a_larger_number(connection: Any) -> None:
    """Over consumers, sessions and messages, and also of messages that are not persistent"""
    name = create(connection, "q")
    producer = connection.session().producer(name)
    producer.send_many(range(3))
    producer.send("volatile", persistent=False)
    first = connection.session(ack="client").consumer(name, prefetch=1, fenced=True)
    seen = {}
    last = 0
    for _ in range(4):
        message = received(first)
        assert message.fence > last
        seen[message.body] = last = message.fence
        message.acknowledge_this()
    producer.send("again")
    lost = received(first)
    lost.release()
    other = connection.session(ack="client").consumer(name, fenced=True)
    again = first.receive(timeout=0.5) or received(other)
    assert again.body == "again"
    assert again.fence > lost.fence > last


def test_who_has_lost_a_message_can_be_told_by_its_number(connection: Any) -> None:
    """A zombie: its ack deadline has passed, another one has the message; what it writes late is refused downstream,
    and so is its acknowledgement"""
    name = create(connection, "q")
    connection.session().producer(name, unit_of_order="u").send_many(["one", "two"])
    slow = connection.session(ack="client").consumer(name, ack_timeout_ms=50, fenced=True)
    zombie = [received(slow), received(slow)]
    other = connection.session(ack="client").consumer(name, fenced=True)
    taken = [received(other), received(other)]
    assert [message.body for message in taken] == ["one", "two"]
    highest = taken[0].fence
    assert all(message.fence < highest for message in zombie), "also the second one of the unit is late"
    with pytest.raises(IllegalStateError, match="ack deadline"):
        zombie[0].acknowledge_this()
    for message in taken:
        message.acknowledge_this()


def test_numbers_grow_beyond_a_restart(tmp_path: Path) -> None:
    last = 0
    for life in range(3):
        with rb.loopback(tmp_path) as connection:
            if not life:
                connection.session().producer("q").send("work")
            message = received(connection.session(ack="client").consumer("q", fenced=True))
            assert message.fence > last
            last = message.fence


def test_only_those_who_ask_have_numbers(connection: Any) -> None:
    name = create(connection, "q")
    connection.session().producer(name).send("work")
    message = received(connection.session().consumer(name))
    assert message.fence is None


def test_what_a_process_works_on_goes_back_when_it_dies(connection: Any) -> None:
    """At once, long before the ack deadline, which does not pass as long as the process lives"""
    name = create(connection, "q")
    connection.session().producer(name).send("work")
    consumer = connection.session(ack="client").consumer(name, ack_timeout_ms=600, fenced=True)
    worker = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        message = received(consumer)
        message.lease_to(worker)
        other = connection.session(ack="client").consumer(name, fenced=True)
        assert other.receive(timeout=1.5) is None, "the deadline is extended while the process lives"
    finally:
        worker.kill()
        began = time.monotonic()
    until(lambda: buffered(consumer) + buffered(other) > 0)
    again = received(consumer if buffered(consumer) else other)
    assert time.monotonic() - began < 0.6, "it does not wait for the deadline"
    assert again.redelivered
    assert again.fence > message.fence
    with pytest.raises(IllegalStateError):
        message.acknowledge_this()
    worker.wait()
    with pytest.raises(ConfigError, match="no process"):
        again.lease_to(worker)
    again.acknowledge_this()


def test_a_settled_message_is_tied_to_nobody(connection: Any) -> None:
    name = create(connection, "q")
    connection.session().producer(name).send_many(range(2))
    session = connection.session(ack="client")
    consumer = session.consumer(name)
    worker = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        message = received(consumer)
        for wrong in ("me", -1, True, object()):
            with pytest.raises(ConfigError, match="lease_to"):
                message.lease_to(wrong)
        message.lease_to(worker.pid)
        message.acknowledge_this()
        with pytest.raises(IllegalStateError, match="settled"):
            message.lease_to(worker)
        until(lambda: not list(session._core.handed.ties))
    finally:
        worker.kill()
        worker.wait()
    auto = connection.session().consumer(create(connection, "auto"))
    connection.session().producer("auto").send("work")
    message = received(auto)
    with pytest.raises(IllegalStateError, match="client"):
        message.lease_to(1)
