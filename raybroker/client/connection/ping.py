"""The client's own test of its links: a ping at intervals, and what happens when there is no answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from raybroker.client.connection.channel import Channel
from raybroker.client.io.tasks import Tasks
from raybroker.model.errors import RequestTimeoutError
from raybroker.model.settings.settings import ConfigView

LATE_S: Final = 0.5
"""A loop that is later than this was busy, and has not read yet what came meanwhile."""
READ_S: Final = 0.05
"""Time for it to read."""
Unanswered = Callable[[Channel, RequestTimeoutError], None]


async def keep_pinging(
    channels: Callable[[], Iterable[Channel]], attributes: ConfigView, tasks: Tasks, unanswered: Unanswered
) -> None:
    """Ping every link each imqPingInterval, until cancelled; returns at once when that is off.

    A host that does not answer within imqPingAckTimeout loses its link with imqAbortOnPingAckTimeout; else
    ``unanswered`` is called.
    """
    interval_s, answer_s = attributes["imqPingInterval"], attributes["imqPingAckTimeout"] / 1000
    if attributes["imqAbortOnPingAckTimeout"]:
        unanswered = Channel.give_up
    loop = asyncio.get_running_loop()
    while interval_s > 0:
        due_s = loop.time() + interval_s
        await asyncio.sleep(interval_s)
        if loop.time() - due_s > LATE_S:
            await asyncio.sleep(READ_S)
        for channel in channels():
            if channel.lost:
                continue
            channel.ping()
            if answer_s > 0 and not channel.lost:
                tasks.spawn(_answered(channel, answer_s, unanswered))


async def _answered(channel: Channel, answer_s: float, unanswered: Unanswered) -> None:
    if not await channel.answers(answer_s, READ_S) and not channel.lost:
        text = f"host {channel.place.key} has not answered within imqPingAckTimeout={answer_s:g} s"
        unanswered(channel, RequestTimeoutError(text))
