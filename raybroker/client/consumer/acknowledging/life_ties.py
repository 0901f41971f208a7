"""Leases: messages that an application has handed on, and whose deliveries end with the life of who has them now.

While that lives, the ack deadline of the message is extended, if its consumer has one; once it has ended, the message
goes back at once, whatever the deadline.  A message that is settled leaves by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from raybroker.model.errors import ResourceAllocationError

if TYPE_CHECKING:
    from raybroker.client.consumer.acknowledging.lives import Life
    from raybroker.client.consumer.message import Message

LOOK_S: Final = 0.1
"""How often it is looked who is alive."""
TIES_MAX: Final = 10_000
"""Messages of one session that are tied to somebody at a time."""


class LifeTies:
    """The ties of one session.

    held     whether a message is unacknowledged still
    expired  called with a message and why the life of who had it is over
    """

    def __init__(self, held: Callable[[Message], bool], expired: Callable[[Message, str], None]) -> None:
        self._held = held
        self._expired = expired
        self._lives: dict[Message, Life] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __iter__(self) -> Iterator[Message]:
        return iter(list(self._lives))

    def tie(self, message: Message, life: Life) -> None:
        """Tie a message from now on, instead of what it was tied to before; in any thread.

        Raises ResourceAllocationError for one too many.
        """
        before = self._lives.get(message)
        if before is None and len(self._lives) >= TIES_MAX:
            life.unwatch()
            raise ResourceAllocationError(
                f"a session has at most {TIES_MAX} messages that are tied to a life; acknowledge some first"
            )
        self._lives[message] = life
        if before is not None:
            before.unwatch()

    def watch(self) -> None:
        """Begin to look, on the IO loop; it goes on as long as there is something to look at."""
        if self._timer is None:
            self._look_at_lives()

    def _look_at_lives(self) -> None:
        self._timer = None
        for message, life in list(self._lives.items()):
            if not self._held(message):
                self._untie(message)
            elif (why := life.ended()) is not None:
                self._untie(message)
                self._expired(message, why)
        if self._lives:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look_at_lives)

    def _untie(self, message: Message) -> None:
        life = self._lives.pop(message, None)
        if life is not None:
            life.unwatch()
