"""The operations of messages over HTTP."""

from __future__ import annotations

from typing import Any, Final

from pydantic import TypeAdapter

from raybroker.services.rest import models
from raybroker.services.web.credentials import Offer
from raybroker.services.web.operations import DESCRIPTION, HEALTH, About, Operation

_RECEIVE: Final[TypeAdapter[Any]] = TypeAdapter(models.ReceiveQuery)
_RECEIVED: Final[TypeAdapter[Any]] = TypeAdapter(models.Received)
_SENT: Final[TypeAdapter[Any]] = TypeAdapter(models.Sent)
_SETTLED: Final[TypeAdapter[Any]] = TypeAdapter(models.SettledAll)
_ONE_OR_ALL: Final = "Send a message, or an array of messages of which all are stored or none."
_SETTLING: Final = "200 when all of them are; else 409, and ``results`` says what became of each."
_NAME: Final = {"name": {"type": "string", "pattern": models.NAME_PATTERN}}

OPERATIONS: Final = (
    Operation("POST", "/queues/{name}/messages", "send_to_queue", _ONE_OR_ALL, _SENT, 201, models.SEND, segments=_NAME),
    Operation("POST", "/topics/{name}/messages", "send_to_topic", _ONE_OR_ALL, _SENT, 201, models.SEND, segments=_NAME),
    Operation(
        "GET",
        "/queues/{name}/messages",
        "browse",
        "Look at what waits, and take nothing.",
        TypeAdapter(models.Browsed),
        query=TypeAdapter(models.BrowseQuery),
        segments=_NAME,
    ),
    Operation(
        "POST",
        "/queues/{name}/receive",
        "receive",
        "Take messages, each held for lease_ms under a receipt; after that it comes again, as failed. Options are"
        " in the query or in the body.",
        _RECEIVED,
        body=models.RECEIVE,
        body_needed=False,
        query=_RECEIVE,
        segments=_NAME,
    ),
    Operation(
        "POST",
        "/queues/{name}/acknowledge",
        "acknowledge",
        f"Messages are done. {_SETTLING}",
        _SETTLED,
        body=models.ACKNOWLEDGE,
        segments=_NAME,
    ),
    Operation(
        "POST",
        "/queues/{name}/release",
        "release",
        f"Give messages back. {_SETTLING}",
        _SETTLED,
        body=models.RELEASE,
        segments=_NAME,
    ),
    HEALTH,
    DESCRIPTION,
)


def about(version: str, offer: Offer) -> About:
    """What the description says of the service."""
    return About(
        "raybroker",
        version,
        "Messages over HTTP. Users are those of the broker, by HTTP Basic or a token over TLS; what each may do is in"
        " the broker's access rules.",
        offer.schemes,
    )
