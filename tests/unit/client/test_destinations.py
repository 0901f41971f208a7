"""Destinations are values: a type and a name, as text and back (D-04, D-05, D-23)."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.client.destinations import Queue, TemporaryQueue, TemporaryTopic, Topic, destination_of, reply_text
from raybroker.errors import InvalidDestinationError, MessageFormatError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders", Queue("orders")),
        ("queue:orders", Queue("orders")),
        ("topic:prices", Topic("prices")),
        ("topic:a.*.c", Topic("a.*.c")),
        ("mq.sys.dmq", Queue("mq.sys.dmq")),
        ("mq.temp.q.ab1", Queue("mq.temp.q.ab1")),
        ("mq.temp.t.ab1", Topic("mq.temp.t.ab1")),
        ("topic:mq.temp.t.ab1", Topic("mq.temp.t.ab1")),
        ("topic:mq.metrics.broker", Topic("mq.metrics.broker")),
    ],
)
def test_text_names_a_queue_unless_it_says_topic(text: str, expected: Queue | Topic) -> None:
    found = destination_of(text)
    assert (found, found.kind) == (expected, expected.kind)
    assert destination_of(found) is found
    assert destination_of(found.text) == found


@pytest.mark.parametrize("bad", ["", "a b", "topic:", "queue:", "mq.sys", "other:x", "a*", "queue:a.*", "topic:.>", 5])
def test_what_names_nothing_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidDestinationError):
        destination_of(bad)


def test_a_queue_and_a_topic_of_one_name_are_two_and_a_temporary_one_equals_its_name() -> None:
    assert Queue("x") != Topic("x")
    assert len({Queue("x"), Topic("x"), Queue("x")}) == 2
    queue = TemporaryQueue("mq.temp.q.1", None, lambda it: it.name)
    topic = TemporaryTopic("mq.temp.t.1", None, lambda it: it.name)
    assert queue == Queue("mq.temp.q.1")
    assert topic == Topic("mq.temp.t.1")
    assert [queue.delete(), topic.delete()] == ["mq.temp.q.1", "mq.temp.t.1"]
    assert str(topic) == "mq.temp.t.1"


def test_only_a_topic_can_be_a_pattern() -> None:
    assert [Topic.checked(name).is_pattern for name in ("a.b", "a.*", "**.a", ">")] == [False, True, True, True]
    assert not Queue.checked("a.b").is_pattern
    with pytest.raises(InvalidDestinationError, match="pattern"):
        Queue.checked("a.*")


def test_reply_to_carries_the_type() -> None:
    assert [reply_text(to) for to in (None, Queue("a"), Topic("a"), "a", "topic:a")] == [
        None,
        "queue:a",
        "topic:a",
        "queue:a",
        "topic:a",
    ]
    with pytest.raises(MessageFormatError, match="reply_to"):
        reply_text(5)
