"""Subscription of a topic: who it belongs to, and which messages it wants."""

from __future__ import annotations

import json
from typing import NamedTuple

from raybroker.model.errors import IllegalStateError, StoreDamagedError


class Subscription(NamedTuple):
    """Identity is ``client_id`` and ``name``; a plain subscriber has no name and nothing in common with any other.

    client_id the scope of the name: that of its clients, "" for a shared subscription of clients without one, or of
              everyone
    durable   kept while nobody is attached
    shared    any number of consumers share its messages
    selector  None: every message
    no_local  not what its own connection (durable: its own client) publishes
    origin    that connection or client
    """

    client_id: str = ""
    name: str = ""
    durable: bool = False
    shared: bool = False
    selector: str | None = None
    no_local: bool = False
    origin: str = ""

    def encode(self) -> bytes:
        return json.dumps(list(self), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Subscription:
        try:
            return cls(*json.loads(data))
        except (ValueError, TypeError) as error:
            raise StoreDamagedError(f"a stored subscription does not decode: {error!r}") from None


def shared_otherwise(name: str, *, shared: bool) -> IllegalStateError:
    """A durable subscription of that name exists and is ``shared`` or not; the other kind was asked for (JMS 2.0)."""
    kinds = ("an unshared", "a shared")
    return IllegalStateError(
        f"subscription {name!r} exists as {kinds[shared]} durable subscription, and its messages are kept for it;"
        f" unsubscribe it first, or choose another name for {kinds[not shared]} one"
    )
