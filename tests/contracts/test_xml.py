"""Texts are checked by the producer of a destination that wants it, before anything is sent (R-17)."""

from __future__ import annotations

import logging
import socket
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from raybroker.errors import BrokerError, ConfigError, MessageFormatError
from tests.contracts.conftest import TWO_FACES
from tests.contracts.handles import LoopbackBroker, bodies, create, cut, nothing, take
from tests.contracts.stomp_socket import StompSocket
from tests.contracts.test_services import Outside

XSD = "http://www.w3.org/2001/XMLSchema"
SCHEMA = f'<xs:schema xmlns:xs="{XSD}"><xs:element name="order" type="xs:int"/></xs:schema>'
GOOD, BAD = "<order>1</order>", "<order>many</order>"


def written(folder: Path) -> str:
    """The name of a file with the schema."""
    (folder / "order.xsd").write_text(SCHEMA)
    return str(folder / "order.xsd")


@pytest.fixture
def schema(tmp_path: Path) -> str:
    return written(tmp_path)


def checked(connection: Any, broker: Any, schema: str, type: str = "queue", **more: object) -> str:
    attributes = {"validateXMLSchemaEnabled": True, "XMLSchemaURIList": schema, **more}
    return create(connection, broker.name(), type, **attributes)


def test_a_text_that_is_not_valid_is_refused_and_not_sent(broker: LoopbackBroker, tmp_path: Path) -> None:
    connection = broker.connect()
    name = checked(connection, broker, written(tmp_path))
    session = connection.session()
    producer = session.producer(name)
    for attempt in (
        lambda: producer.send(BAD),
        lambda: producer.send_async(BAD),
        lambda: producer.send("no xml"),
        lambda: producer.send(BAD, persistent=False),
        lambda: producer.send_many([GOOD, BAD]),
    ):
        with pytest.raises(MessageFormatError, match="validateXMLSchemaEnabled"):
            attempt()
    producer.send(GOOD)
    producer.send({"order": "many"})
    producer.send_many([BAD.encode(), GOOD])
    consumer = session.consumer(name)
    assert bodies(take(consumer, 4)) == [GOOD, {"order": "many"}, BAD.encode(), GOOD]
    assert nothing(consumer)


def test_a_transaction_goes_on_without_the_text_that_was_refused(broker: LoopbackBroker, schema: str) -> None:
    connection = broker.connect()
    name = checked(connection, broker, schema)
    session = connection.session(transacted=True)
    producer = session.producer(name)
    producer.send(GOOD)
    with pytest.raises(MessageFormatError):
        producer.send(BAD)
    session.commit()
    assert bodies(take(connection.session().consumer(name), 1)) == [GOOD]


def test_a_schema_that_cannot_be_read_is_told_when_the_producer_is_made(broker: LoopbackBroker, schema: str) -> None:
    connection = broker.connect()
    name = checked(connection, broker, schema + ".gone", maxNumProducers=1)
    session = connection.session()
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"order\.xsd\.gone"):
            session.producer(name)
    connection.admin().update_destination("queue", name, XMLSchemaURIList=schema)
    session.producer(name).send(GOOD)


def test_a_change_holds_for_producers_that_open_or_come_back_afterwards(broker: LoopbackBroker, schema: str) -> None:
    connection, name = broker.connect(), broker.name()
    create(connection, name)
    session = connection.session()
    early = session.producer(name)
    connection.admin().update_destination("queue", name, validateXMLSchemaEnabled=True, XMLSchemaURIList=schema)
    early.send(BAD)
    with pytest.raises(MessageFormatError):
        session.producer(name).send(BAD)
    cut(connection)
    early.send_async(GOOD).result(20)
    with pytest.raises(MessageFormatError):
        early.send(BAD)


def test_each_topic_that_a_pattern_matches_has_its_own_rule(broker: LoopbackBroker, schema: str) -> None:
    connection = broker.connect()
    name = broker.name()
    create(connection, f"{name}.checked", "topic", validateXMLSchemaEnabled=True, XMLSchemaURIList=schema)
    session = connection.session()
    consumer = session.consumer(f"topic:{name}.checked")
    producer = session.producer(f"topic:{name}.*")
    with pytest.raises(MessageFormatError):
        producer.send(BAD)
    producer.send(GOOD)
    assert bodies(take(consumer, 1)) == [GOOD]


def test_a_missing_library_is_told_when_the_producer_is_made(
    broker: LoopbackBroker, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = broker.connect()
    name = checked(connection, broker, schema)
    monkeypatch.setitem(sys.modules, "lxml", None)
    with pytest.raises(ConfigError, match="pip install"):
        connection.session().producer(name)


@pytest.mark.parametrize("value", ["maybe", 2])
@TWO_FACES
def test_a_value_that_is_neither_true_nor_false_is_refused(broker: LoopbackBroker, value: object) -> None:
    with pytest.raises(BrokerError, match="validateXMLSchemaEnabled"):
        create(broker.connect(), broker.name(), validateXMLSchemaEnabled=value)


ENTITIES = (
    '<!DOCTYPE order [<!ENTITY x SYSTEM "file:///etc/hostname">]><order>&x;</order>',
    '<?xml version="1.0"?><!DOCTYPE order [<!ELEMENT order ANY><!ENTITY x SYSTEM "http://127.0.0.1:9/">]><order>&x;</order>',
    '<!DOCTYPE order [<!ENTITY a "1"><!ENTITY b "&a;&a;&a;">]><order>&b;</order>',
)


@pytest.mark.parametrize("text", ENTITIES)
def test_a_text_with_entities_is_its_senders_error_whatever_way_it_comes(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as opened:
        outside = Outside(tmp_path, opened, **{"imq.service.activelist": "jms,httpjms,stomp"})
        attributes = {"validateXMLSchemaEnabled": True, "XMLSchemaURIList": written(tmp_path)}
        outside.admin.create_destination("queue", "orders", **attributes)
        with caplog.at_level(logging.WARNING):
            for connection in (outside.inside, outside.connect()):
                producer = connection.session().producer("orders")
                with pytest.raises(MessageFormatError, match="and entities are not read"):
                    producer.send(text)
                producer.send(GOOD)
            url = f"http://127.0.0.1:{outside.ports['httpjms']}/queues/orders/messages"
            for body in ({"body": text}, [{"body": GOOD}, {"body": text}]):
                answer = httpx.post(url, json=body, auth=("ann", "secret"), timeout=30)
                told = answer.json()["detail"]
                assert (answer.status_code, "entities are not read" in told) == (400, True), told
            made = socket.create_connection(("127.0.0.1", outside.ports["stomp"]), timeout=20)
            with closing(StompSocket(made)) as client:
                headers = {"destination": "/queue/orders", "content-type": "text/plain", "receipt": "r"}
                error = client.login().refused("SEND", headers, text.encode())
            assert error.headers["error-code"] == MessageFormatError.code, error
        assert "Traceback" not in caplog.text
        assert outside.admin.query_destination("queue", "orders")["messages"] == 2
