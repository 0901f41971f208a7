"""Destinations as STOMP clients write them."""

from __future__ import annotations

import pytest

from raybroker.model.errors import InvalidDestinationError
from raybroker.services.stomp.destinations import TEMPORARIES_MAX, StompTarget, Temporaries, target, text_of

REAL = "mq.temp.q.broker.1"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/queue/a", StompTarget("queue", "a")),
        ("/topic/a.>", StompTarget("topic", "a.>")),
        ("/temp-queue/a/b", StompTarget("queue", "a/b", True)),
        ("/temp-topic/a", StompTarget("topic", "a", True)),
        (f"/remote-temp-queue/{REAL}", StompTarget("queue", REAL)),
    ],
)
def test_what_a_header_names(text: str, found: StompTarget) -> None:
    assert target(text) == found


@pytest.mark.parametrize(
    "text", [None, "", "a", "/a", "/queue/", "queue:a", "/remote-temp-queue/a", "/temp-queue/" + "a" * 201]
)
def test_what_names_none(text: str | None) -> None:
    with pytest.raises(InvalidDestinationError, match="reply-to"):
        target(text, "reply-to")


def test_temporary_destinations_are_called_as_their_connection_does() -> None:
    own = Temporaries()
    assert own.real("queue", "a") is None
    own.add("queue", "a", REAL)
    assert own.real("queue", "a") == REAL
    assert (own.text_of("queue", REAL), text_of("queue", REAL)) == ("/temp-queue/a", f"/remote-temp-queue/{REAL}")
    assert own.text_of("topic", "news") == "/topic/news"
    for number in range(TEMPORARIES_MAX - 1):
        own.require_room()
        own.add("queue", str(number), f"{REAL}{number}")
    with pytest.raises(InvalidDestinationError, match="at most 100"):
        own.require_room()
