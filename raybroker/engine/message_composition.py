"""The message that a complete unit of work becomes: made of its parts, and put in their place.

Both happen in one batch of the store: a restart finds the parts or the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from raybroker.core import command as cmd
from raybroker.core.destination import Destination
from raybroker.core.outcome import Compose, DeadLetter
from raybroker.engine.dead_letters import own_send
from raybroker.model.block import Block
from raybroker.model.errors import MessageTooLargeError, StoreDamagedError, StoreError

if TYPE_CHECKING:
    from raybroker.engine.host import Host

AGAIN_MS: Final = 5_000
"""How long to wait for room in the store."""


class Composing:
    """``waiting``: units for which the store has no room now."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._again_at_ms = 0
        self.waiting: list[tuple[Destination, Compose]] = []

    def compose(self, home: Destination, effect: Compose) -> None:
        """A unit of ``home`` is complete."""
        self._host.later(lambda: self._compose(home, effect))

    def _compose(self, home: Destination, effect: Compose) -> None:
        host = self._host
        queue = home.queues.get(effect.queue)
        if queue is None or host.destinations.get((home.kind, home.name)) is not home:
            return
        if any(queue.dead_letters.masks.get(ordinal, 0) & mask != mask for ordinal, mask in effect.parts):
            return  # Some of them were purged.
        try:
            blocks = {ordinal: host.payloads.get(home.number, ordinal) for ordinal, _ in effect.parts}
            parts = [(blocks[ordinal], mask.bit_length() - 1) for ordinal, mask in effect.parts]
            data = host.codec.composed(effect.unit, parts, producer=host.identity, first_seq=host.burial.take_seqs(1))
        except StoreDamagedError as error:
            host.halt(home, error)
        except StoreError as error:
            host.fail(error)
        except MessageTooLargeError as error:
            for ordinal, mask in effect.parts:
                host.burial.bury(home, DeadLetter(effect.queue, ordinal, mask, 0, "ERROR", str(error)))
        else:
            if host.has_room(len(data)):
                step = own_send(host, home, Block(data))
                assert isinstance(step.command, cmd.Send)
                host.perform(home, cmd.Composed(effect.queue, effect.parts, step.command), step.block)
            else:
                self.waiting.append((home, effect))
                self._again_at_ms = self._again_at_ms or host.clock.now_ms() + AGAIN_MS
                host.wake(0, self._again_at_ms)

    def again(self, now_ms: int) -> None:
        """Try again what there was no room for."""
        if self._again_at_ms and now_ms >= self._again_at_ms:
            self._again_at_ms = 0
            waiting, self.waiting = self.waiting, []
            for home, effect in waiting:
                self._compose(home, effect)
