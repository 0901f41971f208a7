"""Connections between a client machine and the host: late, in order, and breaking at any moment.

When a connection breaks, each direction loses what had not arrived by a moment of its own, and each end notices at a
moment of its own.  So a client can be back on a new connection while the host still reads what the old one had sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from raybroker.core.outcome import Refused
from raybroker.model.blocks.block import Block
from raybroker.model.blocks.large_block import LargeBlock
from raybroker.model.blocks.record import Buffer
from raybroker.model.errors import ProtocolError
from tests.simulation.events import Loop

if TYPE_CHECKING:
    from tests.simulation.surroundings import Surroundings

FOREVER = 1 << 62
STALL_MAX = 60_000
"""Microseconds that a host leaves what has arrived unread."""


class Owner(Protocol):
    """A client's machine: answers of the host reach it by its methods ``on_…``."""

    def lost(self, connection: Connection) -> None: ...


class Connection:
    """Both ends: the engine's Peer, and what a machine sends on."""

    def __init__(self, world: Surroundings, machine: Owner) -> None:
        self.world = world
        self.machine = machine
        self.number = world.next_number()
        self.loop: Loop = world.loop
        self.rng: Random = world.rng
        self.client_open = True
        self.pieces = False
        """The host takes large bodies in pieces."""
        self.host_open = True
        self.session = world.host.open_session(self)
        self._delay_max = world.plan.delay_max
        self._pipe_frames = world.plan.pipe_frames
        self._up_last = self._down_last = 0
        self._up_cut = self._down_cut = FOREVER
        self._stall_until = 0
        self._in_flight = 0
        self._was_congested = False
        self._meter_max = world.plan.meter_messages
        self._metered = self._arrived = 0

    # ---- client → host ---------------------------------------------------------------------------------------------

    def up(self, run: Callable[..., None], *args: Any) -> None:
        """The client sends something that calls a method of the session."""
        if not self.client_open:
            return
        self._up_last = max(self._up_last, self.loop.now + int(self.rng.random() * self._delay_max))
        if self._up_last < self._up_cut:
            self.loop.at(self._up_last, self._arrive_up, run, args)

    def _arrive_up(self, run: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self.loop.now < self._stall_until:
            self.loop.at(self._stall_until, self._arrive_up, run, args)
        elif self.host_open and self.loop.now < self._up_cut:
            run(*args)

    def send(self, handle: int, floor: int, data: bytes, txn: int = 0) -> None:
        self.up(self._send, handle, floor, data, txn)

    def _send(self, handle: int, floor: int, data: bytes, txn: int) -> None:
        self.session.send(handle, floor, Block(data), txn)

    def send_large(self, handle: int, floor: int, body: int, front: bytes, txn: int = 0) -> None:
        self.up(self._send_large, handle, floor, body, front, txn)

    def _send_large(self, handle: int, floor: int, body: int, front: bytes, txn: int) -> None:
        try:
            self.session.send_large(handle, floor, body, LargeBlock.promised(front), txn)
        except ProtocolError:  # The client was hasty, and what it does is not our protocol.
            self.world.watch.seen["bodies that had not come"] += 1
            self.close("protocol", "")

    # ---- breaking --------------------------------------------------------------------------------------------------

    def lose(self) -> None:
        """Break: both directions are cut soon, both ends notice some time later."""
        if self._up_cut != FOREVER:
            return
        now, draw, spread = self.loop.now, self.rng.randrange, self._delay_max * 2
        self._up_cut, self._down_cut = now + draw(spread), now + draw(spread)
        if self.rng.random() < 0.5:
            # The host is busy elsewhere: what has arrived waits in its buffers, and the client may be back before.
            self._stall_until = now + draw(STALL_MAX)
            self._up_cut = self._stall_until + 1
        self.loop.at(max(now + draw(spread * 4), self._up_cut), self.host_notices)
        self.loop.at(now + draw(spread * 4), self.client_notices)

    def host_dies(self) -> None:
        """The host is gone; what it had written still arrives, or some of it."""
        self.host_open = False
        self._down_cut = min(self._down_cut, self.loop.now + self.rng.randrange(self._delay_max))
        self.loop.after(self.rng.randrange(self._delay_max * 4), self.client_notices)

    def machine_dies(self) -> None:
        """The client is gone; what it had written still arrives, or some of it."""
        self.client_open = False
        self._up_cut = min(self._up_cut, self.loop.now + self.rng.randrange(self._delay_max))
        self.loop.after(self.rng.randrange(self._delay_max * 4), self.host_notices)

    def host_notices(self) -> None:
        if self.host_open:
            self.host_open = False
            self.session.close()

    def client_notices(self) -> None:
        if self.client_open:
            self.client_open = False
            self.machine.lost(self)

    # ---- the engine's Peer -----------------------------------------------------------------------------------------

    def _down(self, run: Callable[..., None], *args: Any) -> None:
        if self.host_open:
            self._in_flight += 1
            self._down_last = max(self._down_last, self.loop.now + int(self.rng.random() * self._delay_max))
            self.loop.at(self._down_last, self._arrive_down, run, args)

    def _arrive_down(self, run: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._in_flight -= 1
        if self.client_open and self.loop.now < self._down_cut:
            run(*args)
        if self._was_congested and not self._in_flight:
            self._was_congested = False
            if self.host_open:
                self.session.writable()

    def full(self) -> bool:
        if self._in_flight >= self._pipe_frames:
            self._was_congested = True
            return True
        return False

    def congested(self) -> bool:
        return self.full() or 0 < self._meter_max <= self._metered

    def room(self) -> int:
        return max(1, self._meter_max - self._metered) if self._meter_max else 0

    def _go_on(self) -> None:
        """The client has got all that the meter allows, and wants more (F-16)."""
        self._metered = 0
        self.session.flow(True)
        self.session.writable()

    def _delivered(self, handle: int, epoch: int, tag: int, attempt: int, block: Block) -> None:
        self.machine.on_deliver(self, handle, epoch, tag, attempt, block)

    def came(self, count: int) -> None:
        """The client has messages, and their bodies."""
        self._arrived += count
        if 0 < self._meter_max <= self._arrived:
            self._arrived = 0
            self.up(self._go_on)

    def reply(self, request: int, result: object) -> None:
        if self.host_open:
            for asked in self.machine.asked_many.pop((self.number, request), ()):
                self.world.watch.acked(asked, 0)
        self._down(self.machine.on_reply, self, request, result, None)

    def failed(self, request: int, code: str, text: str) -> None:
        self._down(self.machine.on_reply, self, request, None, code)

    def sent(self, handle: int, first_seq: int, count: int, refused: Sequence[Refused]) -> None:
        if self.host_open:
            self.world.watch.sent(self, handle, first_seq, count, refused)
        self._down(self.machine.on_sent, self, handle, first_seq, refused)

    def deliver(self, handle: int, epoch: int, tag: int, attempt: int, block: Sequence[Buffer]) -> None:
        opened = Block(b"".join(block))
        if self.host_open:
            self.world.watch.delivered(epoch, tag, attempt, opened)
        self._metered += opened.count
        self._down(self._delivered, handle, epoch, tag, attempt, opened)

    def deliver_large(self, handle: int, epoch: int, tag: int, attempt: int, ordinal: int, front: Buffer) -> None:
        block = LargeBlock.promised(bytes(front))
        if self.host_open:
            self.world.watch.delivered(epoch, tag, attempt, block)
            self.world.watch.seen["large deliveries"] += 1
        self._metered += 1
        self._down(self._delivered_large, handle, epoch, tag, attempt, ordinal, block)

    def _delivered_large(
        self, handle: int, epoch: int, tag: int, attempt: int, ordinal: int, block: LargeBlock
    ) -> None:
        self.machine.on_deliver_large(self, handle, epoch, tag, attempt, ordinal, block)

    def acked(self, request: int, unknown: int) -> None:
        if self.host_open:
            self.world.watch.acked(self.machine.asked.pop((self.number, request), None), unknown)
        self._down(self.machine.on_acked, self, request, unknown)

    def released(self, handle: int, request: int, next_tag: int) -> None:
        if self.host_open:
            self.world.watch.first_tags[self.session.consumers[handle].number] = next_tag
        self._down(self.machine.on_reply, self, request, next_tag, None)

    def drained(self, handle: int, epoch: int, unused: int) -> None:
        self._down(self.machine.on_drained, self, handle, epoch, unused)

    def ready(self, handle: int, epoch: int) -> None:
        self._down(self.machine.on_drained, self, handle, epoch, None)

    def withdrawn(self, handle: int, epoch: int, ranges: Sequence[tuple[int, int]]) -> None:
        self._down(self.machine.on_withdrawn, self, handle, epoch, ranges)

    def recall(self, handle: int, epoch: int, ranges: Sequence[tuple[int, int]]) -> None:
        self._down(self.machine.on_recall, self, handle, epoch, ranges)

    def mark(self, handle: int, epoch: int, tag: int, fence: int) -> None:
        self._down(self.machine.on_mark, self, handle, epoch, tag, fence)

    def checkpoint(self, handle: int, epoch: int, tag: int, state: bytes) -> None:
        self._down(self.machine.on_checkpoint, self, handle, epoch, tag, state)

    def promoted(self, handle: int) -> None:
        self._down(self.machine.on_promoted, self, handle)

    def gate(self, handle: int, state: str, until_ms: int) -> None:
        self._down(self.machine.on_gate, self, handle, state)

    def event(self, name: str, data: dict[str, object]) -> None:
        self._down(self.machine.on_event, self, name, data)

    def close(self, code: str, text: str) -> None:
        """The host fails stop: it says so and closes."""
        self.loop.after(0, self.host_notices)
        self.loop.after(self.rng.randrange(self._delay_max * 4), self.client_notices)
