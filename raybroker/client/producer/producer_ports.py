"""Ports of a producer: what it needs of its connection and of its session."""

from __future__ import annotations

from typing import Any, Protocol

from raybroker.client.session.transaction import SessionTransactions


class ProducerSession(Protocol):
    """What a producer needs of its session. ``producers``: it puts itself there."""

    transactions: SessionTransactions | None
    producers: list[Any]
