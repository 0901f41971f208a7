"""What is wrong with an argument is said at the call, by name, and nothing is sent."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable
from typing import Any, Final

import pytest

from raybroker.admin.verb import declared_in
from raybroker.admin.verbs import AdminVerbs
from raybroker.errors import BrokerError, ConfigError, MessageFormatError
from tests.contracts.conftest import ONE_FACE, TWO_FACES
from tests.contracts.handles import WAIT_S, LoopbackBroker, state_of

NEITHER_TRUE_NOR_FALSE = ("no", 1, 0, "", [])
NO_NUMBERS = ("1", True, 1.5, [], 1 << 70)
SEND: list[tuple[str, tuple[Any, ...]]] = [
    ("properties", ("abc", "", [], [("a", 1)], 5, {"NOT": 1}, {"JMSPriority": 1}, {"a": 1 << 63}, {"a": b"x"})),
    ("persistent", NEITHER_TRUE_NOR_FALSE),
    ("priority", (*NO_NUMBERS, -1, 10)),
    ("ttl_ms", (*NO_NUMBERS, -1)),
    ("delivery_delay_ms", (*NO_NUMBERS, -1)),
    ("unit_of_order", ("", "x" * 256, 5, b"u")),
    ("type", (5, b"x")),
    ("correlation_id", (5, b"x", "\ud800")),
    ("dedup_id", ("", "x" * 256, 5)),
]


@pytest.mark.parametrize(("name", "values"), SEND, ids=[name for name, _ in SEND])
@TWO_FACES
def test_a_bad_argument_of_send_is_refused_by_name(broker: LoopbackBroker, name: str, values: tuple[Any, ...]) -> None:
    connection, queue = broker.connect(), broker.name()
    session = connection.session()
    producer = session.producer(queue)
    for value in values:
        for call in (producer.send, producer.send_async):
            with pytest.raises(MessageFormatError, match=name if name != "properties" else "propert"):
                call("x", **{name: value})
    if name in ("persistent", "priority", "ttl_ms", "delivery_delay_ms", "unit_of_order"):
        for value in values:
            with pytest.raises(MessageFormatError, match=name):
                session.producer(queue, **{name: value})
    assert state_of(connection, queue)["messages_in"] == 0


@pytest.mark.parametrize(
    "options",
    [
        {"properties": {"a": 1}},
        {"properties": "ab"},
        {"properties": [5]},
        {"priority": True},
        {"priority": 1.5},
        {"priority": [True]},
        {"ttl_ms": 5.5},
        {"persistent": "no"},
        {"unit_of_order": 5},
        {"priority": []},
    ],
    ids=str,
)
@TWO_FACES
def test_a_bad_argument_of_send_many_is_refused(broker: LoopbackBroker, options: dict[str, Any]) -> None:
    connection, queue = broker.connect(), broker.name()
    producer = connection.session().producer(queue)
    with pytest.raises(MessageFormatError, match=next(iter(options))):
        producer.send_many(["x"], **options)
    assert state_of(connection, queue)["messages_in"] == 0


@pytest.mark.parametrize(
    "options",
    [{"repeat": 3}, {"catch_up": True}, {"timezone": "Europe/Zurich"}, {"repeat": 0}, {"catch_up": "no"}],
    ids=str,
)
@TWO_FACES
def test_what_belongs_to_a_schedule_is_nothing_without_one(broker: LoopbackBroker, options: dict[str, Any]) -> None:
    connection, queue = broker.connect(), broker.name()
    producer = connection.session().producer(queue)
    with pytest.raises(ConfigError, match="schedule="):
        producer.send("x", **options)
    with pytest.raises(ConfigError, match="repeat"):
        producer.send("x", schedule="@every 1h", repeat=True)
    assert state_of(connection, queue)["messages_in"] == 0


@TWO_FACES
def test_a_bad_timeout_is_refused(broker: LoopbackBroker) -> None:
    connection, queue = broker.connect(), broker.name()
    session = connection.session()
    consumer = session.consumer(queue)
    for value in ("1", math.inf, math.nan, -1, -0.5, True, [], 1e12):
        for call in (consumer.receive, lambda v: consumer.receive_many(3, v), lambda v: session.request(queue, "x", v)):
            with pytest.raises(ConfigError, match="timeout="):
                call(value)
    assert consumer.receive(timeout=0) is None
    for value in (0, -1, "5", True, None, 1.5):
        with pytest.raises(ConfigError, match="max="):
            consumer.receive_many(value, 0)


@pytest.mark.parametrize(
    "call",
    [
        lambda c, s, q: c.session(ack=5),
        lambda c, s, q: c.session(transacted="no"),
        lambda c, s, q: c.session(redelivery_delay_ms=True),
        lambda c, s, q: s.consumer(q, selector=5),
        lambda c, s, q: s.consumer(q, prefetch=True),
        lambda c, s, q: s.consumer(q, threshold="9"),
        lambda c, s, q: s.consumer(q, no_local="no"),
        lambda c, s, q: s.consumer(q, ack_timeout_ms=True),
        lambda c, s, q: s.browser(q, selector=b"x"),
        lambda c, s, q: s.unsubscribe(5),
        lambda c, s, q: s.durable_consumer("t", 5),
        lambda c, s, q: s.durable_consumer("t", "n", no_local=1),
        lambda c, s, q: s.consumer(q).on_message("x"),
        lambda c, s, q: c.on_exception(5),
        lambda c, s, q: c.on_consumer_event(q, 5),
        lambda c, s, q: s.producer(q, disable_message_id="no"),
        lambda c, s, q: s.producer(5),
        lambda c, s, q: s.queue(5),
        lambda c, s, q: s.topic(None),
    ],
)
@TWO_FACES
def test_a_bad_argument_of_another_method_is_refused(broker: LoopbackBroker, call: Callable[..., Any]) -> None:
    connection = broker.connect()
    session = connection.session()
    with pytest.raises(BrokerError, match=r"=|no destination|a text|subscription name 5"):
        call(connection, session, broker.name())


@pytest.mark.parametrize(
    ("verb", "args"),
    [
        ("create_destination", (5, "q")),
        ("create_destination", ("queue", [])),
        ("query_destination", ("queue", {})),
        ("list_destinations", (5,)),
        ("purge_destination", ("queue", 5)),
        ("pause_destination", ("queue", "q", 5)),
        ("list_consumers", (5,)),
        ("query_consumer", ([],)),
        ("list_subscriptions", (5,)),
        ("query_schedule", ({},)),
        ("query_transaction", (1.5,)),
        ("browse_messages", ("queue", "q", 5)),
        ("delete_messages", ("queue", "q", 5)),
        ("move_messages", ("queue", "q", 5)),
        ("retry_messages", ("queue", "mq.sys.dmq", None, 5)),
        ("import_messages", ("queue", "q", 5)),
        ("create_template", (5,)),
        ("update_broker", (5,)),
        ("metrics", (5,)),
    ],
)
@TWO_FACES
def test_a_bad_argument_of_administration_is_refused(broker: LoopbackBroker, verb: str, args: tuple[Any, ...]) -> None:
    admin = broker.connect().admin()
    with pytest.raises(BrokerError, match=r"=.*; it is "):
        getattr(admin, verb)(*args)


WRONG: Final = (
    object(),
    [object()],
    [1],
    (b"x",),
    {1: 2},
    {None},
    b"x",
    1.5,
    math.nan,
    -1,
    1 << 70,
    "\ud800",
    "x" * 70_000,
    [[]],
    "",
    {"x": object()},
    True,
    [None, "x"],
    "x y\n",
    iter([1]),
    range,
)
RIGHT: Final = {"type": "queue", "name": "q", "target": "q2", "blocks": [], "which": "all", "attributes": {}}
"""Of arguments without a default; the others are a text."""
VERBS: Final = [
    (name, argument)
    for name, verb in declared_in(AdminVerbs).items()
    for argument, kind in verb.signature.parameters.items()
    if kind.kind not in (kind.VAR_KEYWORD, kind.VAR_POSITIONAL) and not name.startswith(("shutdown", "restart"))
]


@pytest.mark.parametrize(("verb", "argument"), VERBS)
@ONE_FACE
def test_whatever_an_argument_of_administration_is_nothing_raw_is_raised(
    broker: LoopbackBroker, verb: str, argument: str
) -> None:
    admin = broker.connect().admin()
    parameters = inspect.signature(getattr(admin, verb)).parameters
    needed = {name: RIGHT.get(name, "x") for name, kind in parameters.items() if kind.default is kind.empty}
    for value in WRONG:
        with contextlib.suppress(BrokerError):
            getattr(admin, verb)(**{**needed, argument: value})


def test_jmsxgroupid_is_the_unit_of_order_of_a_message_and_selects_it(broker: LoopbackBroker) -> None:
    session, queue = broker.connect().session(), broker.name()
    producer = session.producer(queue)
    producer.send("other", unit_of_order="u2")
    producer.send("one", unit_of_order="u1", properties={"a$b": 1})
    message = session.consumer(queue, selector="JMSXGroupID = 'u1' AND a$b = 1").receive(WAIT_S)
    assert (message.body, message.get_string("JMSXGroupID")) == ("one", "u1")
    assert message.property_names == ["a$b", "JMSXGroupID", "JMSXDeliveryCount"]


def test_a_body_is_sent_only_as_deep_as_it_can_be_read(broker: LoopbackBroker) -> None:
    session, queue = broker.connect().session(), broker.name()
    producer = session.producer(queue)
    body: list[Any] = []
    for _ in range(1023):
        body = [body]
    producer.send(body)
    with pytest.raises(MessageFormatError, match="1024"):
        producer.send([body])
