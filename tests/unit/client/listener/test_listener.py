"""What a function is marked with, and which marks do not go together."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.client.destinations import Queue, Topic
from raybroker.client.listener.listener import BATCH_MAX, CONCURRENCY_MAX, listener
from raybroker.model.errors import ConfigError


def function(message: Any) -> str:
    return f"called with {message}"


def test_a_marked_function_is_still_the_function() -> None:
    marked = listener(queue="q", batch=3, concurrency=2)(function)
    assert marked("m") == "called with m"
    assert (marked.name, marked.destination, marked.batch, marked.concurrency) == ("function", Queue("q"), 3, 2)
    assert marked.sharing


def test_a_topic_without_a_subscription_is_not_durable_and_not_shared_out() -> None:
    marked = listener(topic="t")(function)
    assert (marked.destination, marked.durable, marked.sharing) == (Topic("t"), False, False)
    shared = listener(topic="t", subscription="s", shared=True)(function)
    assert (shared.durable, shared.sharing) == (True, True)


@pytest.mark.parametrize(
    ("marks", "why"),
    [
        ({}, "one of them"),
        ({"queue": "q", "topic": "t"}, "one of them"),
        ({"queue": Topic("t")}, "name it with topic"),
        ({"queue": "q", "batch": 0}, f"from 1 to {BATCH_MAX}"),
        ({"queue": "q", "batch": True}, "batch=True"),
        ({"queue": "q", "concurrency": CONCURRENCY_MAX + 1}, f"from 1 to {CONCURRENCY_MAX}"),
        ({"queue": "q", "transacted": 1}, "transacted=1"),
        ({"topic": "t", "shared": True}, "needs subscription="),
        ({"topic": "t", "subscription": "s"}, "needs client_id="),
        ({"topic": "t", "subscription": "s", "durable": False}, "durable or shared"),
        ({"topic": "t", "concurrency": 2}, "would get every message"),
        ({"queue": "q", "backoff": -1}, "backoff=-1"),
    ],
)
def test_marks_that_cannot_be_are_refused(marks: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        listener(**marks)


@pytest.mark.parametrize("wrong", [None, 5, int, lambda: None, lambda a, b: None])
def test_only_what_can_be_called_with_a_message_is_marked(wrong: Any) -> None:
    with pytest.raises(ConfigError):
        listener(queue="q")(wrong)
