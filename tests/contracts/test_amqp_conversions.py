"""Messages between clients of AMQP and those of other protocols (F1): one message each way, for every pair."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import httpx
import pytest

from raybroker.wire.amqp.sections import MessageSections
from raybroker.wire.amqp.types import Byte, Int, Timestamp
from tests.contracts.amqp_rig import AmqpPeer, AmqpRig, body, message
from tests.contracts.stomp_rig import Bare

AT = datetime(2024, 2, 29, 1, 2, 3, 4000, UTC)
AT_MS = 1_709_168_523_004
PROPERTIES = {"n": 7, "s": "text"}

Read = tuple[Any, dict[str, Any], str | None, str | None]
"""(body, properties, correlation id, type)."""


class Pairs:
    """A broker with every protocol, and a client of each."""

    def __init__(self, folder: Any, opened: ExitStack) -> None:
        self.rig = rig = AmqpRig(folder, opened, **{"imq.service.activelist": "amqp,stomp,httpjms"})
        self.peer: AmqpPeer = rig.peer(container="pairs")
        self.stomp = Bare(rig.ports["stomp"]).login()
        opened.callback(self.stomp.close)
        url = f"http://127.0.0.1:{rig.ports['httpjms']}"
        self.http = httpx.Client(base_url=url, auth=("ann", "secret"), timeout=30)
        opened.callback(self.http.close)
        self.session = rig.inside.session()

    # ---- each way in: a body, PROPERTIES, a correlation id "c" and a type "t"

    def send_native(self, queue: str, sent: Any) -> None:
        self.session.producer(queue).send(sent, properties=PROPERTIES, correlation_id="c", type="t")

    def send_amqp(self, queue: str, sent: Any) -> None:
        named = {"n": Int(7), "s": "text"}
        more: dict[str, Any] = {"correlation_id": "c", "subject": "t", "named": named}
        states = self.peer.send(self.peer.sender(queue), message(sent, **more))
        assert [type(state).__name__ for state in states] == ["AmqpAccepted"]

    def send_stomp(self, queue: str, sent: Any) -> None:
        raw = sent if isinstance(sent, bytes) else sent.encode()
        kind = {"content-length": len(raw)} if isinstance(sent, bytes) else {"content-type": "text/plain"}
        headers = {"destination": f"/queue/{queue}", "correlation-id": "c", "type": "t", "n": 7, "s": "text", **kind}
        self.stomp.done("SEND", headers, raw)

    def send_rest(self, queue: str, sent: Any) -> None:
        asked = {"body": sent, "properties": PROPERTIES, "correlation_id": "c", "type": "t"}
        assert self.http.post(f"/queues/{queue}/messages", json=asked).status_code == 201

    # ---- each way out

    def read_native(self, queue: str) -> Read:
        got: Any = self.session.receive(queue, timeout=10)
        return got.body, got.properties, got.correlation_id, got.type

    def read_amqp(self, queue: str) -> Read:
        link = self.peer.receiver(queue)
        (got,) = self.peer.receive()
        self.peer.settle([got])
        self.peer.close(link)
        sections = MessageSections(got.payload)
        found = sections.properties
        assert found is not None
        return body(got), sections.application_properties, found.correlation_id, found.subject

    def read_stomp(self, queue: str) -> Read:
        self.stomp.done("SUBSCRIBE", {"destination": f"/queue/{queue}", "id": queue})
        got = self.stomp.expect("MESSAGE")
        self.stomp.done("UNSUBSCRIBE", {"id": queue})
        kind = got.headers["content-type"]
        read: Any = json.loads(got.body) if "json" in kind else got.body.decode() if "text" in kind else got.body
        named = {key: got.headers[key] for key in PROPERTIES}
        return read, named, got.headers["correlation-id"], got.headers["type"]

    def read_rest(self, queue: str) -> Read:
        (got,) = self.http.post(f"/queues/{queue}/receive").json()["messages"]
        done = self.http.post(f"/queues/{queue}/acknowledge", json={"receipts": [got["receipt"]]})
        assert done.status_code == 200
        read = got["body"]
        if got["body_type"] == "bytes":
            read = base64.b64decode(read)
        return read, got["properties"], got["correlation_id"], got["type"]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pairs]:
    with ExitStack() as opened:
        yield Pairs(tmp_path_factory.mktemp("pairs"), opened)


TEXT, BYTES, MAP, LIST = (
    "größer — ≥ 😀",
    b"\x00\xffbytes",
    {"a": 1, "b": [1.5, None, True], "c": {"d": "e"}},
    [1, "2", []],
)
FROM_AMQP: list[tuple[Any, Any, Any]] = [
    # sent by AMQP, read by native, read as JSON
    (TEXT, TEXT, TEXT),
    (BYTES, BYTES, BYTES),
    (MAP, MAP, MAP),
    (LIST, LIST, LIST),
    (Int(-5), -5, -5),
    (1 << 40, 1 << 40, 1 << 40),
    (2.5, 2.5, 2.5),
    (True, True, True),
    (None, None, None),
    (Timestamp(AT_MS), AT, AT.isoformat()),
    (UUID(int=7), UUID(int=7), str(UUID(int=7))),
]


@pytest.mark.parametrize("out", ["native", "stomp", "rest", "amqp"])
@pytest.mark.parametrize("row", FROM_AMQP, ids=lambda row: type(row[0]).__name__)
def test_what_amqp_sends_is_read_by_each(pairs: Pairs, row: tuple[Any, Any, Any], out: str) -> None:
    sent, native, plain = row
    queue = pairs.rig.name()
    pairs.send_amqp(queue, sent)
    read: Callable[[str], Read] = getattr(pairs, f"read_{out}")
    found, named, correlation_id, type_ = read(queue)
    assert found == {"native": native, "amqp": sent}.get(out, plain)
    assert {key: str(value) for key, value in named.items()} == {"n": "7", "s": "text"}
    assert (correlation_id, type_) == ("c", "t")


@pytest.mark.parametrize(
    ("way", "sent", "found"),
    [
        ("native", TEXT, TEXT),
        ("native", BYTES, BYTES),
        ("native", MAP, MAP),
        ("native", LIST, LIST),
        ("native", -5, -5),
        ("native", 1 << 40, 1 << 40),
        ("native", (1 << 64) - 1, (1 << 64) - 1),
        ("native", 2.5, 2.5),
        ("native", False, False),
        ("native", None, None),
        ("native", {1: "one"}, {1: "one"}),
        ("native", AT, AT_MS),
        ("native", UUID(int=7), UUID(int=7)),
        ("native", date(2024, 2, 29), "2024-02-29"),
        ("native", Decimal("1.50"), "1.50"),
        ("native", ("a", 1), ["a", 1]),
        ("stomp", TEXT, TEXT),
        ("stomp", BYTES, BYTES),
        ("rest", TEXT, TEXT),
        ("rest", MAP, MAP),
        ("rest", LIST, LIST),
        ("rest", 7, 7),
        ("rest", None, None),
    ],
)
def test_what_others_send_is_read_by_amqp(pairs: Pairs, way: str, sent: Any, found: Any) -> None:
    queue = pairs.rig.name()
    send: Callable[[str, Any], None] = getattr(pairs, f"send_{way}")
    send(queue, sent)
    read, named, correlation_id, type_ = pairs.read_amqp(queue)
    assert read == found
    assert {key: str(value) for key, value in named.items()} == {"n": "7", "s": "text"}
    assert (correlation_id, type_) == ("c", "t")


@pytest.mark.parametrize(
    ("sent", "type_"), [(TEXT, 5), (BYTES, 3), (MAP, 2), (LIST, 4), (7, 1), (None, 1), ({1: "one"}, 1)]
)
def test_a_jms_client_is_told_what_kind_of_message_it_is(pairs: Pairs, sent: Any, type_: int) -> None:
    queue = pairs.rig.name()
    pairs.session.producer(queue).send(sent, reply_to="topic:news")
    link = pairs.peer.receiver(queue)
    (got,) = pairs.peer.receive()
    pairs.peer.settle([got])
    pairs.peer.close(link)
    sections = MessageSections(got.payload)
    told = sections.message_annotations
    assert {str(key): int(value) for key, value in told.items()} == {
        "x-opt-jms-msg-type": type_,
        "x-opt-jms-dest": 0,
        "x-opt-jms-reply-to": 1,
    }
    properties = sections.properties
    assert properties is not None
    assert (properties.to, properties.reply_to) == (queue, "news")
    assert str(properties.message_id).startswith("ID:")


def test_a_request_of_amqp_is_answered_by_native_and_the_other_way_round(pairs: Pairs) -> None:
    requests, peer = pairs.rig.name(), pairs.peer
    answers: Any = peer.receiver(None, "temporary-queue", source={"dynamic": True})
    address = answers.peer.source.address
    asked = message("question", message_id="ID:q1", reply_to=address, annotations={"x-opt-jms-reply-to": Byte(2)})
    peer.send(peer.sender(requests), asked)
    got: Any = pairs.session.receive(requests, timeout=10)
    assert (got.id, got.reply_to) == ("ID:q1", address)
    got.reply("answer")
    (answer,) = peer.receive()
    found = MessageSections(answer.payload).properties
    assert found is not None
    assert (body(answer), found.correlation_id) == ("answer", "ID:q1")
    peer.settle([answer])
    peer.close(answers)


@pytest.mark.parametrize("value", [5, UUID(int=9), b"\1\2", "plain"])
def test_an_id_of_any_type_crosses_and_comes_back(pairs: Pairs, value: Any) -> None:
    there, back = pairs.rig.name(), pairs.rig.name()
    pairs.peer.send(pairs.peer.sender(there), message("x", message_id=value))
    got: Any = pairs.session.receive(there, timeout=10)
    pairs.session.producer(back).send("y", correlation_id=got.id)
    link = pairs.peer.receiver(back)
    (answer,) = pairs.peer.receive()
    found = MessageSections(answer.payload).properties
    assert found is not None
    assert found.correlation_id == value
    pairs.peer.settle([answer])
    pairs.peer.close(link)
