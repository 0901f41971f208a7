"""send and receive."""

from __future__ import annotations

import json
from typing import Any

from tests.contracts.handles import WAIT_S


def bodies(broker: Any, queue: str = "a") -> list[Any]:
    left = broker.admin().query_destination("queue", queue)["messages"]
    consumer = broker.session(ack="none").consumer(queue)
    return [consumer.receive(timeout=WAIT_S).body for _ in range(left)]


def test_a_message_is_sent_and_received(raybroker: Any, broker: Any) -> None:
    assert raybroker.output("send", "a", "hello") == "sent 1 message to a\n"
    assert raybroker.output("receive", "a") == "hello\n"
    assert raybroker.json("query", "dst", "-n", "a")["messages"] == 0


def test_count_sends_the_same_again(raybroker: Any, broker: Any) -> None:
    assert raybroker.output("send", "a", "x", "--count", "3") == "sent 3 messages to a\n"
    assert bodies(broker) == ["x", "x", "x"]


def test_standard_input_is_one_message_without_its_last_line_end(raybroker: Any, broker: Any) -> None:
    raybroker.output("send", "a", "-", stdin="one\ntwo\n")
    raybroker.output("send", "a", stdin="three\n")
    assert bodies(broker) == ["one\ntwo", "three"]


def test_lines_are_one_message_each(raybroker: Any, broker: Any) -> None:
    raybroker.output("send", "a", "-", "--lines", stdin="one\ntwo\n")
    assert bodies(broker) == ["one", "two"]


def test_bodies_can_be_json_or_bytes(raybroker: Any, broker: Any) -> None:
    raybroker.output("send", "a", '{"n": [1, null]}', "--body-type", "json")
    raybroker.output("send", "a", "-", "--body-type", "bytes", stdin=b"\xff\x00\n")
    assert bodies(broker) == [{"n": [1, None]}, b"\xff\x00\n"]


def test_bytes_that_are_no_text_are_not_sent_as_text(raybroker: Any, broker: Any) -> None:
    result = raybroker("send", "a", "-", stdin=b"\xff")
    assert (result.exit_code, broker.asked) == (2, [])
    assert "--body-type bytes" in result.stderr


def test_properties_have_types(raybroker: Any, broker: Any) -> None:
    raybroker.output("send", "a", "x", "-p", "n=5", "-p", "ok=true", "--property", "t=5 o'clock", "-p", 'q="5"')
    row = json.loads(raybroker.output("receive", "a", "--json"))
    assert row["properties"] == {"n": 5, "ok": True, "t": "5 o'clock", "q": "5"}
    assert (row["body"], row["persistent"], row["redelivered"], row["delivery_count"]) == ("x", True, False, 1)


def test_messages_may_be_sent_without_being_stored(raybroker: Any, broker: Any) -> None:
    raybroker.output("send", "a", "x", "--non-persistent")
    assert json.loads(raybroker.output("receive", "a", "--json"))["persistent"] is False


def test_receive_takes_as_many_as_asked_and_no_more(raybroker: Any, broker: Any) -> None:
    broker.session().producer("a").send_many(str(n) for n in range(10))
    assert raybroker.output("receive", "a", "--count", "3").split() == ["0", "1", "2"]
    left = raybroker.json("query", "dst", "-n", "a")
    assert (left["messages"], left["redelivered"]) == (7, 0)


def test_receive_all_ends_when_nothing_comes_any_more(raybroker: Any, broker: Any) -> None:
    broker.session().producer("a").send_many(range(2500))
    assert raybroker.output("receive", "a", "--count", "0", "--timeout", "0.3").split() == [str(n) for n in range(2500)]


def test_receive_without_a_message_is_code_1(raybroker: Any, broker: Any) -> None:
    broker.admin().create_destination("queue", "a")
    result = raybroker("receive", "a", "--timeout", "0.05")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "raybroker: no message came to a within 0.05 s\n"


def test_bodies_print_as_what_they_are(raybroker: Any, broker: Any) -> None:
    producer = broker.session().producer("a")
    for body in ("text", {"k": b"\x01"}, None):
        producer.send(body)
    assert raybroker.output("receive", "a", "--count", "3") == 'text\n{"k": {"base64": "AQ=="}}\nnull\n'
    producer.send(b"\xfe")
    assert raybroker("receive", "a").stdout_bytes == b"\xfe\n"
