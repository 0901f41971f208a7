"""Looking at a handle is no call: no attribute raises another error than AttributeError, and each says what it is."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock, create_autospec

import pytest

import raybroker as rb
from raybroker import aio
from raybroker.errors import IllegalStateError, MessageFormatError
from tests.contracts.handle_basics import Point
from tests.contracts.handles import WAIT_S, LoopbackBroker


def inner(handle: Any) -> Any:
    return handle.inner if hasattr(type(handle), "_wrapped") else handle


def handles_of(broker: LoopbackBroker) -> Iterator[tuple[str, Any]]:
    """(what it is, handle) of every kind and state."""
    connection, name = broker.connect(), broker.name()
    yield "a connection", connection
    yield "a connection that was not started", broker.connect(started=False)
    for kind, options in (("auto", {}), ("client", {"ack": "client"}), ("transacted", {"transacted": True})):
        session = connection.session(**options)
        yield f"a session: {kind}", session
        producer = session.producer(name)
        yield f"a producer: {kind}", producer
        yield f"an unnamed producer: {kind}", session.producer()
        yield f"a consumer: {kind}", session.consumer(name)
    xa = broker.connect(xa=True)
    yield "an XA connection", xa
    yield "an XA session", xa.session()
    yield "its branches", xa.session().xa
    session = connection.session(ack="client")
    session.producer(name, serializer="pickle").send(Point(1))
    browser = session.browser(name)
    yield "a browser", browser
    wary = session.consumer(name)
    message = wary.receive(WAIT_S)
    yield "a message that cannot be read here", message
    yield "a copy of a message", pickle.loads(pickle.dumps(inner(message)))
    temporary = session.temporary_queue()
    yield "a temporary queue", temporary
    yield "a pattern", session.topic("a.*")
    yield "administration", connection.admin()
    everything = (producer, session.producer(name), wary, browser, session, connection)
    for handle in everything[1:]:
        handle.close()
        yield "a closed handle", handle
    for handle in everything:
        yield "a handle of a closed connection", handle


def test_looking_at_all_attributes_raises_nothing(broker: LoopbackBroker) -> None:
    for what, handle in handles_of(broker):
        found = inner(handle)
        try:
            inspect.getmembers(found)
            create_autospec(found)
            Mock(spec=found)
            [hasattr(found, name) for name in (*dir(found), "nothing_of_that_name")]
        except Exception as error:
            raise AssertionError(f"{what} ({type(found).__name__})") from error


def test_every_handle_says_what_it_is(broker: LoopbackBroker) -> None:
    said = [(what, repr(inner(handle))) for what, handle in handles_of(broker)]
    assert [(what, text) for what, text in said if " object at 0x" in text] == []


def test_a_handle_is_known_by_its_destination_and_its_state(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(client_id="billing"), broker.name()
    session = connection.session(ack="client")
    producer, consumer = session.producer(name), session.consumer(name)
    assert repr(inner(connection)) == "<Connection billing, started, 1 sessions>"
    assert repr(inner(session)) == "<Session ack='client', 1 producers, 1 consumers>"
    assert repr(inner(producer)) == f"<Producer for queue:{name}>"
    assert repr(inner(consumer)) == f"<Consumer of queue:{name}, 0 buffered>"
    connection.close()
    assert repr(inner(connection)) == "<Connection billing, closed, 0 sessions>"
    assert repr(inner(session)) == "<Session ack='client', closed>"
    assert repr(inner(producer)) == f"<Producer for queue:{name}, closed>"
    assert repr(inner(consumer)) == f"<Consumer of queue:{name}, closed>"


def test_what_is_not_there_still_raises_its_own_error(broker: LoopbackBroker) -> None:
    session, name = broker.connect().session(), broker.name()
    assert not hasattr(session, "xa")
    with pytest.raises(IllegalStateError, match="connect_xa"):
        _ = session.xa
    session.producer(name, serializer="pickle").send(Point(1))
    message = session.consumer(name).receive(WAIT_S)
    with pytest.raises(MessageFormatError, match="serializer"):
        _ = message.body


def test_looking_at_a_copy_of_a_handle_connects_nothing() -> None:
    with rb.loopback(broker="looked-at") as connection:
        producer = connection.session().producer("q")
        copies = [pickle.loads(pickle.dumps(handle)) for handle in (connection, producer)]
    for copy in copies:  # Its broker is gone: it could not connect.
        inspect.getmembers(copy)
        create_autospec(copy)
    assert [repr(copy) for copy in copies] == ["<Connection, not connected yet>", "<Producer, not opened yet>"]


def test_types_of_handles_are_public() -> None:
    with rb.loopback() as connection:
        session = connection.session()
        handles = (connection, session, session.producer("q"), session.consumer("q"), session.browser("q"))
        kinds = (rb.Connection, rb.Session, rb.Producer, rb.Consumer, rb.Browser)
        assert [isinstance(handle, kind) for handle, kind in zip(handles, kinds, strict=True)] == [True] * 5
        assert isinstance(connection.admin(), rb.Admin)
        session.producer("r").send("x")
        assert isinstance(session.receive("r", timeout=WAIT_S), rb.Message)
    assert not issubclass(aio.Session, rb.Session)
