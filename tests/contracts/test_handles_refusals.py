"""Everything that handles refuse: each with the error that fits and with a text that names what is wrong."""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any

import pytest

import raybroker as rb
from raybroker import errors
from raybroker.errors import (
    BrokerError,
    ConfigError,
    IllegalStateError,
    InvalidClientIDError,
    InvalidDestinationError,
    MessageFormatError,
    MessageTooLargeError,
    NoClusterError,
    QuotaExceededError,
)
from tests.contracts.conftest import TWO_FACES
from tests.contracts.handles import LoopbackBroker, names_of, state_of


@pytest.mark.parametrize("body", [object(), {1, 2}, {"a": object()}, 1 << 64, "\ud800", [{1}]])
@TWO_FACES
def test_a_body_of_another_type_is_refused_before_anything_is_sent(broker: LoopbackBroker, body: Any) -> None:
    connection, name = broker.connect(), broker.name()
    producer = connection.session().producer(name)
    for call in (producer.send, producer.send_async, lambda b: producer.send_many([b])):
        with pytest.raises(MessageFormatError, match=type(body).__name__):
            call(body)
    producer.send("right")
    assert state_of(connection, name)["messages_in"] == 1


@pytest.mark.parametrize(
    ("options", "error", "word"),
    [
        ({"properties": {"a b": 1}}, MessageFormatError, "a b"),
        ({"properties": {"a": []}}, MessageFormatError, "list"),
        ({"properties": {1: 1}}, MessageFormatError, "1"),
        ({"correlation_id": 5}, MessageFormatError, "correlation_id"),
        ({"reply_to": 5}, MessageFormatError, "reply_to"),
        ({"type": b"x"}, MessageFormatError, "type"),
        ({"priority": 10}, MessageFormatError, "priority"),
        ({"priority": -1}, MessageFormatError, "priority"),
        ({"priority": "high"}, MessageFormatError, "priority"),
        ({"properties": {"a": "x" * 65536}}, MessageTooLargeError, "65536"),
        ({"ttl_ms": -1}, MessageFormatError, "ttl_ms"),
        ({"ttl_ms": 1.5}, MessageFormatError, "ttl_ms"),
        ({"delivery_delay_ms": -1}, MessageFormatError, "delivery_delay_ms"),
        ({"dedup_id": ""}, MessageFormatError, "dedup_id"),
        ({"dedup_id": "x" * 256}, MessageFormatError, "255"),
        ({"unit_of_order": ""}, MessageFormatError, "unit_of_order"),
        ({"unit_of_order": "x" * 256}, MessageFormatError, "255"),
        ({"unit_of_order": 5}, MessageFormatError, "unit_of_order"),
    ],
)
@TWO_FACES
def test_a_bad_send_option_is_refused_by_name(
    broker: LoopbackBroker, options: dict[str, Any], error: type[Exception], word: str
) -> None:
    connection, name = broker.connect(), broker.name()
    producer = connection.session().producer(name)
    for call in (producer.send, producer.send_async):
        with pytest.raises(error, match=word):
            call("x", **options)
    assert state_of(connection, name)["messages_in"] == 0


@TWO_FACES
def test_an_address_or_a_user_alone_is_not_enough_and_a_type_that_is_unknown_says_so(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    admin = connection.admin()
    with pytest.raises(ConfigError, match="a username and a password"):
        rb.connect("mq://localhost:7676/jms")
    with pytest.raises(ConfigError, match="for connections from outside"):
        rb.connect(username="guest")
    with pytest.raises(ConfigError, match="mqssl is for services with TLS, ssljms, httpsjms, ssladmin"):
        rb.connect("mqssl://localhost:7676/jms")
    with pytest.raises(InvalidDestinationError, match="use 'queue' or 'topic'"):
        admin.create_destination("stream", name)
    assert names_of(connection) == []


@pytest.mark.parametrize(
    ("make", "error", "word"),
    [
        (lambda: rb.ConnectionFactory(imqConsumerFlowLimi=1), ConfigError, "imqConsumerFlowLimit"),
        (lambda: rb.ConnectionFactory(imqConsumerFlowThreshold=101), ConfigError, "imqConsumerFlowThreshold"),
        (lambda: rb.ConnectionFactory({"raybroker.producer.linger_ms": -1}), ConfigError, "linger_ms"),
        (lambda: rb.ConnectionFactory(imqSSLIsHostTrusted="perhaps"), ConfigError, "imqSSLIsHostTrusted"),
        (lambda: rb.ConnectionFactory(imqPingAckTimeout=-1), ConfigError, "imqPingAckTimeout"),
        (lambda: rb.ConnectionFactory(imqAddressList="mqssl://localhost:7676/jms"), ConfigError, "services with TLS"),
        (lambda: rb.ConnectionFactory(imqAddressList="b1, b 2"), ConfigError, "imqAddressList"),
        (lambda: rb.ConnectionFactory(imqAddressListBehavior="NEAREST"), ConfigError, "PRIORITY"),
        (lambda: rb.loopback(properties={"imq.autocreate.queu": True}), ConfigError, "imq.autocreate.queue"),
        (lambda: rb.loopback(properties={"maxNumMsgs": 1}), ConfigError, "maxNumMsgs"),
        (lambda: rb.loopback(client_id=""), InvalidClientIDError, "empty"),
        (lambda: rb.listener(queue="a b"), InvalidDestinationError, "blank"),
        (lambda: rb.listener(queue="a", batch=0), ConfigError, "batch"),
        (lambda: rb.deploy(print), ConfigError, "rb.listener"),
    ],
)
def test_a_bad_attribute_is_refused_when_it_is_given(make: Any, error: type[Exception], word: str) -> None:
    with pytest.raises(error, match=word):
        make()


def test_every_error_of_this_suite_is_a_broker_error() -> None:
    for kind in (NoClusterError, IllegalStateError, QuotaExceededError, MessageFormatError, ConfigError):
        assert issubclass(kind, errors.BrokerError)


def test_a_listener_whose_queue_is_destroyed_tells_the_exception_handler() -> None:
    told: SimpleQueue[BrokerError] = SimpleQueue()
    with rb.loopback() as connection:
        connection.on_exception(told.put)
        connection.admin().create_destination("queue", "gone")
        connection.session().consumer("gone").on_message(lambda message: None)
        connection.admin().destroy_destination("queue", "gone")
        error = told.get(timeout=20)
    assert isinstance(error, InvalidDestinationError)
    assert "destroyed" in str(error)
