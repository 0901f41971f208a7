"""Receiving as many messages as there is room for, for programs that pass them on in one piece."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from raybroker.client.consumer.message import Message
from raybroker.client.session import opening

if TYPE_CHECKING:
    from raybroker.client.aio.handles import Session

COMING_S: Final = 0.1
"""A receive waits at least so long where there is something for it: what waits in a queue takes a moment to come."""


async def receive_fitting(
    session: Session, destination: str, most: int, timeout: float, fits: Callable[[Message], bool], buffer_bytes: int
) -> list[Message]:
    """Do what ``session.receive_many`` does, up to the first message but one that does not fit: that one goes back, as
    if it had never been handed out. ``buffer_bytes``: of what the broker sends ahead."""
    consumer = await session._consumer(destination, {"prefetch": most}, buffer_bytes=buffer_bytes)
    try:
        core = consumer._core
        found = await consumer.receive_many(1, max(timeout, COMING_S) if core.may_get else timeout)
        if found:
            fits(found[0])
        while found and len(found) < most:
            more = await consumer._follow(1, opening.BATCH_LINGER_S)
            if not more:
                break
            if not fits(more[0]):
                await session._core.settle_as(more[0], "unseen")
                break
            found += more
        return found
    finally:
        await session._run(opening.let_consumer_go(consumer._core))
        session._consumers.discard(consumer)
