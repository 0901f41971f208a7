"""The client's own test of its links: a ping at intervals, and what happens when there is no answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from raybroker.client.connection.channel import Channel
from raybroker.client.connection.events import UNANSWERED
from raybroker.model.errors import RequestTimeoutError

if TYPE_CHECKING:
    from raybroker.client.connection.connection import ConnectionCore


async def keep_pinging(connection: ConnectionCore) -> None:
    """Ping every link each imqPingInterval, until cancelled; returns at once when that is off."""
    attributes = connection.attributes
    interval_s, answer_s = attributes["imqPingInterval"], attributes["imqPingAckTimeout"] / 1000
    while interval_s > 0:
        await asyncio.sleep(interval_s)
        for channel in connection.channels():
            if channel.lost:
                continue
            channel.ping()
            if answer_s > 0 and not channel.lost:
                connection.spawn(_answered(connection, channel, answer_s))


async def _answered(connection: ConnectionCore, channel: Channel, answer_s: float) -> None:
    if await channel.answers(answer_s) or channel.lost:
        return
    error = RequestTimeoutError(f"host {channel.place.key} has not answered within imqPingAckTimeout={answer_s:g} s")
    if connection.attributes["imqAbortOnPingAckTimeout"]:
        channel.give_up(error)
    else:
        connection.events.tell(UNANSWERED, channel.place.key, error)
