"""Connection factories and destinations that are looked up, overrides at the start, and overrides of headers."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker import aio
from raybroker.errors import (
    BrokerError,
    ConfigError,
    ForeignObjectError,
    IllegalStateError,
    NoObjectError,
)
from raybroker.objects import operations
from raybroker.objects.folder import file_name
from raybroker.objects.stores import open_store
from tests.contracts.test_services import Outside

pytestmark = pytest.mark.xdist_group("administered_objects")


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    with ExitStack() as opened:
        yield Outside(tmp_path, opened)


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"file://{tmp_path}/objects"


@pytest.fixture(autouse=True)
def _no_overrides(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("RAYBROKER_CLIENT_OVERRIDES", raising=False)
    yield
    monkeypatch.delenv("RAYBROKER_CLIENT_OVERRIDES", raising=False)
    rb.overrides({})


def add(store: str, name: str, kind: str, *, read_only: bool = False, **attributes: object) -> None:
    with open_store(store) as opened:
        operations.add(opened, name, kind, attributes, read_only=read_only)


def factory(outside: Outside, store: str, kind: str = "cf", *, read_only: bool = False, **attributes: object) -> Any:
    more = {"imqDefaultUsername": "ann", "imqDefaultPassword": "secret", **attributes}
    add(store, "cf/orders", kind, read_only=read_only, imqAddressList=outside.url(), **more)
    return rb.lookup("cf/orders", store=store)


def test_a_program_looks_up_all_it_needs_and_names_nothing_else(outside: Outside, store: str) -> None:
    factory(outside, store, defaultPriority=7)
    add(store, "queues/orders", "q", imqDestinationName="orders", imqDestinationDescription="of the shop")
    add(store, "topics/news", "t", imqDestinationName="news")
    made, queue, topic = (rb.lookup(name, store) for name in ("cf/orders", "queues/orders", "topics/news"))
    assert queue == rb.Queue("orders")
    assert (queue.description, rb.Queue("orders").description) == ("of the shop", "")
    assert topic == rb.Topic("news")
    for _ in range(2):
        with made.connect() as connection:
            session = connection.session()
            session.producer(queue).send("x")
            session.producer().send("y", destination=queue)
            consumer = session.consumer(queue)
            assert [(m.body, m.priority) for m in (consumer.receive(10), consumer.receive(10))] == [("x", 7), ("y", 7)]
            news = session.consumer(topic)
            session.producer(topic).send("z")
            assert news.receive(10).body == "z"


def test_asyncio_looks_up_the_same(outside: Outside, store: str) -> None:
    factory(outside, store, "xcf")
    add(store, "queues/orders", "q", imqDestinationName="orders")

    async def work() -> Any:
        made = await aio.lookup("cf/orders", store)
        queue = await aio.lookup("queues/orders", store)
        async with await made.connect() as connection:
            session = await connection.session()
            producer = await session.producer(queue)
            await producer.send("x")
            consumer = await session.consumer(queue)
            body = (await consumer.receive(10)).body
        async with await made.connect_xa() as connection:
            assert isinstance(connection, aio.XaConnection)
        return body

    assert asyncio.run(work()) == "x"


def test_what_cannot_be_looked_up_says_why(store: str, tmp_path: Path) -> None:
    with pytest.raises(NoObjectError, match="there is no object 'a'"):
        rb.lookup("a", store)
    add(store, "a", "cf")
    path = tmp_path / "objects" / file_name("a")
    path.write_text(path.read_text().replace('"attributes": {}', '"attributes": {"imqOfTomorrow": "1"}'))
    with pytest.raises(ConfigError, match="imqOfTomorrow"):
        rb.lookup("a", store)
    path.write_text("something else")
    with pytest.raises(ForeignObjectError):
        rb.lookup("a", store)


def test_a_read_only_factory_takes_no_attributes_and_no_overrides(outside: Outside, store: str) -> None:
    made = factory(outside, store, read_only=True, imqJMSPriority=2, imqOverrideJMSPriority=True)
    assert made.read_only
    with pytest.raises(IllegalStateError, match="read-only"):
        made.set(imqJMSPriority=9)
    with pytest.raises(TypeError):
        made.attributes["imqJMSPriority"] = 9
    rb.overrides({"imqJMSPriority": 8, "imqAddressList": "mq://127.0.0.1:1/jms"})
    with made.connect() as connection:
        session = connection.session()
        session.producer("q").send("x", priority=5)
        assert session.receive("q", timeout=10).priority == 2


def test_a_read_only_destination_takes_no_attributes(store: str) -> None:
    add(store, "a", "q", read_only=True, imqDestinationName="orders")
    add(store, "b", "t", imqDestinationName="news.*")
    queue, topic = rb.lookup("a", store), rb.lookup("b", store)
    for name in ("name", "description", "read_only"):
        with pytest.raises(IllegalStateError, match="read-only"):
            setattr(queue, name, "x")
    topic.description = "of the town"
    assert topic.is_pattern
    for found in (queue, topic):
        copy = pickle.loads(pickle.dumps(found))
        assert copy == found
        assert (copy.description, copy.read_only) == (found.description, found.read_only)
        assert repr(copy) == repr(found)


def test_a_factory_that_is_not_xa_makes_no_connection_for_distributed_transactions(
    outside: Outside, store: str
) -> None:
    made = factory(outside, store)
    with pytest.raises(IllegalStateError, match="xcf, xqf or xtf"):
        made.connect_xa()


def test_a_factory_takes_attributes_until_it_is_read_only() -> None:
    made = rb.ConnectionFactory(imqAckTimeout=1)
    made.set({"imqJMSPriority": 3}, imqAckTimeout=2)
    assert made.attributes == {"imqAckTimeout": 2, "imqJMSPriority": 3}
    with pytest.raises(ConfigError, match="imqJMSPriority"):
        made.set(imqJMSPriority=10)
    assert made.attributes["imqJMSPriority"] == 3


def test_overrides_beat_what_a_program_and_an_object_say(
    outside: Outside, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = factory(outside, store, defaultPriority=2)
    monkeypatch.setenv("RAYBROKER_CLIENT_OVERRIDES", "-DdefaultPriority=8 imqAckTimeout=7000")

    def priority(connect: Any, **how: Any) -> int:
        with connect(**how) as connection:
            assert connection._core.attributes["imqAckTimeout"] == 7000
            session = connection.session()
            session.producer("q").send("x")
            found: int = session.receive("q", timeout=10).priority
            return found

    given = {"url": outside.url(), "username": "ann", "password": "secret"}
    assert priority(made.connect) == 8
    assert priority(rb.connect, **given, defaultPriority=3, imqAckTimeout=1) == 8
    assert rb.overrides(["-DdefaultPriority=9"]) == {"defaultPriority": "9", "imqAckTimeout": "7000"}
    assert priority(made.connect) == 9
    assert rb.overrides("-DdefaultPriority=9 imqAckTimeout=1")["imqAckTimeout"] == "1"
    with pytest.raises(ConfigError, match="No closing quotation"):
        rb.overrides("'-DdefaultPriority=9")
    rb.overrides({})
    assert rb.overrides() == {"defaultPriority": "8", "imqAckTimeout": "7000"}


def test_overrides_name_the_broker_in_the_place_of_the_program(outside: Outside) -> None:
    host, port = "127.0.0.1", outside.ports["portmapper"]
    user = {"username": "ann", "password": "secret"}
    elsewhere = "mq://127.0.0.1:1/jms"
    for found in (
        {"imqAddressList": outside.url()},
        {"imqBrokerHostName": host, "imqBrokerHostPort": port},
    ):
        rb.overrides(found)
        rb.connect(elsewhere, **user).close()
        rb.connect(imqAddressList=elsewhere, **user).close()
        rb.connect(broker="none", **user).close()
    rb.overrides({})
    rb.connect(imqBrokerHostName=host, imqBrokerHostPort=port, **user).close()
    with pytest.raises(BrokerError):
        rb.connect(elsewhere, **user, **{"raybroker.reconnect.timeout_ms": 100}, imqSocketConnectTimeout=50)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("imqAckTimeot=1", "RAYBROKER_CLIENT_OVERRIDES: 'imqAckTimeot'.*imqAckTimeout"),
        ("imqAckTimeout=long", "RAYBROKER_CLIENT_OVERRIDES: imqAckTimeout"),
        ("imqAckTimeout", "write -Dname=value"),
        ("'imqAckTimeout=1", "No closing quotation"),
    ],
)
def test_a_wrong_override_is_named(text: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYBROKER_CLIENT_OVERRIDES", text)
    with pytest.raises(ConfigError, match=says):
        rb.connect("mq://127.0.0.1:1/jms", username="ann", password="secret")


def test_the_variables_of_clients_are_no_properties_of_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    from raybroker.config import Config

    monkeypatch.setenv("RAYBROKER_CLIENT_OVERRIDES", "imqAckTimeout=1")
    monkeypatch.setenv("RAYBROKER_OBJECTS", "/objects")
    assert Config.load()["imqAckTimeout"] == 0


FORCED = {
    "imqOverrideJMSDeliveryMode": True,
    "imqJMSDeliveryMode": 2,
    "imqOverrideJMSExpiration": True,
    "imqJMSExpiration": 3_600_000,
    "imqOverrideJMSPriority": True,
    "imqJMSPriority": 6,
}


def sent(connection: Any, to: Any) -> list[tuple[bool, int, bool]]:
    """Persistent, priority and whether it expires, of messages that a program sends in each way."""
    session = connection.session()
    consumer = session.consumer(to)
    producer = session.producer(to, priority=1)
    producer.send("a", persistent=False, priority=2)
    producer.send("b", {"p": 1}, ttl_ms=0)
    producer.send_async("c", priority=3).result(10)
    producer.send_many(["d", "e"], priority=[1, 2], ttl_ms=[0, 0], properties=[{"p": 1}, {"p": 2}])
    producer.send_many(["f"], persistent=False, priority=2)
    session.producer().send("g", destination=to, priority=1)
    session.producer().send_many(["h"], destination=to)
    session.producer().send_async("i", destination=to, persistent=False).result(10)
    found = [consumer.receive(10) for _ in range(9)]
    assert sorted(m.body for m in found) == list("abcdefghi")
    return [(m.persistent, m.priority, m.expiration > 0) for m in found]


@pytest.fixture
def inside(request: pytest.FixtureRequest) -> Iterator[Any]:
    with rb.loopback(properties=request.param) as connection:
        yield connection


@pytest.mark.parametrize("inside", [FORCED], indirect=True)
def test_headers_are_overridden_whatever_a_program_says(inside: Any) -> None:
    assert sent(inside, "q") == [(True, 6, True)] * 9
    assert (True, 6, True) not in sent(inside, inside.session().temporary_queue())


@pytest.mark.parametrize("inside", [{**FORCED, "imqOverrideJMSHeadersToTemporaryDestinations": True}], indirect=True)
def test_headers_of_messages_to_temporary_destinations_are_overridden_where_that_is_said(inside: Any) -> None:
    assert sent(inside, inside.session().temporary_queue()) == [(True, 6, True)] * 9


@pytest.mark.parametrize(
    "inside", [{"imqOverrideJMSDeliveryMode": True, "imqJMSDeliveryMode": 1, "imqJMSPriority": 9}], indirect=True
)
def test_one_override_leaves_the_other_headers(inside: Any) -> None:
    session = inside.session()
    session.producer("q", priority=3).send("x", ttl_ms=0, persistent=True)
    message = session.receive("q", timeout=10)
    assert (message.persistent, message.priority, message.expiration) == (False, 3, 0)


@pytest.mark.parametrize("inside", [FORCED], indirect=True)
def test_requests_are_overridden_and_their_answers_are_not(inside: Any) -> None:
    asked: list[tuple[bool, int, bool]] = []

    def answer(message: Any) -> None:
        asked.append((message.persistent, message.priority, message.expiration > 0))
        message.reply("pong", priority=1)

    inside.session().consumer("q").on_message(answer)
    reply = inside.session().request("q", "ping", timeout=20, priority=2, persistent=False)
    assert asked == [(True, 6, True)]
    assert (reply.body, reply.priority, reply.expiration) == ("pong", 1, 0)
