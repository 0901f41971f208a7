"""Looks over the host's shoulder: every step is compared with a twin, every effect with the disk, recovery with both.

What is on disk is kept as a dumb model of its own: messages per destination, changed when a batch is synced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from raybroker.core import command as cmd
from raybroker.core.invariants import check
from raybroker.core.outcome import Outcome, Refused
from raybroker.core.queue import Queue
from raybroker.engine.host import Host
from raybroker.model.block import Block
from tests.simulation.history import History, value_of
from tests.simulation.twin import INDEX_BITS, Delta, Message, Twin

if TYPE_CHECKING:
    from tests.simulation.network import Connection
    from tests.simulation.world import World


class OnDisk:
    """One destination as the disk knows it: key → [value, size, attempts]."""

    def __init__(self) -> None:
        self.held: dict[int, list[int]] = {}
        self.left: dict[int, int] = {}
        self.taken: set[int] = set()
        self.top: dict[int, int] = {}
        self.first: dict[tuple[int, bool], int] = {}
        self.gone = False

    def apply(self, delta: Delta) -> None:
        for key, value, size in delta.added:
            assert key not in self.held
            self.held[key] = [value, size, 0]
            self.left[key >> INDEX_BITS] = self.left.get(key >> INDEX_BITS, 0) + 1
            self.taken.add(value)
            self.top[value >> 32] = value
        for key, attempts in delta.tried.items():
            assert key in self.held, "a message is recorded as handed out before it is recorded"
            row = self.held[key]
            row[2] = attempts
            if attempts == 1:
                self.first[row[0] >> 32, True] = row[0]
        for key in delta.removed:
            assert key in self.held, "a message is recorded as settled before it is recorded"
            del self.held[key]
            self.left[key >> INDEX_BITS] -= 1
        self.gone = self.gone or delta.gone


class Watch:
    """``committed``: values that are on disk, or were."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.history = History()
        self.twins: dict[int, Twin] = {}
        self.disks: dict[int, OnDisk] = {}
        self.committed: set[int] = set()
        self.first_tags: dict[int, int] = {}
        self.steps = 0

    # ---- the core --------------------------------------------------------------------------------------------------

    def wrap(self, queue: Queue) -> None:
        """Watch every step of a new queue."""
        twin = self.twins[queue.number] = Twin(queue)
        self._restore(twin, self.disks.setdefault(queue.number, OnDisk()))
        queue.step = lambda command, *, now_ms: self._step(queue, twin, command, now_ms)  # type: ignore[method-assign]

    def _step(self, queue: Queue, twin: Twin, command: cmd.Command, now_ms: int) -> Outcome:
        out = Queue.step(queue, command, now_ms=now_ms)
        twin.step(command, out)
        self.steps += 1
        if self.steps % 4 == 0:
            check(queue)
        if twin.delta:
            self.world.committer.delta = twin.delta
        for value in twin.discarded:
            self._add("discard", value, 1)
        return out

    def _add(self, f: str, first: int, count: int, attempt: int = 0, process: int = 0, persistent: bool = True) -> None:
        self.history.add(self.world.loop.now, process, "ok", f, first, count, attempt, persistent)

    # ---- the disk --------------------------------------------------------------------------------------------------

    def durable(self, delta: Delta) -> None:
        """A batch with these changes is synced."""
        self.disks.setdefault(delta.number, OnDisk()).apply(delta)
        for _, value, _ in delta.added:
            self.committed.add(value)
            self._add("commit", value, 1)

    def freed(self, number: int, ordinal: int) -> None:
        """The store may forget a block: nobody may be owed it, as far as the disk knows."""
        disk = self.disks.get(number)
        early = disk is not None and not disk.gone and disk.left.get(ordinal)
        assert not early, f"block {ordinal} of {number} is freed too early"

    def crash(self) -> None:
        self._add("crash", 0, 1)

    def recovered(self, host: Host) -> None:
        """A host has started: its queues hold exactly what was on disk, and what it does not open is empty."""
        self.twins.clear()
        for number, disk in self.disks.items():
            if number not in host.definitions:
                assert disk.gone or not disk.held, f"destination {number} is gone, with {len(disk.held)} messages"
        for queue in host.queues.values():
            disk = self.disks.setdefault(queue.number, OnDisk())
            assert not disk.gone, f"destination {queue.name} is back although it was destroyed"
            found = {}
            for run in (*queue.backlog.returned, *queue.backlog.fresh):
                for index in range(run.start, run.end):
                    found[run.ordinal << INDEX_BITS | index] = run.attempts
            expected = {key: row[2] for key, row in disk.held.items()}
            if found != expected:
                both = found.keys() | expected.keys()
                rows = [(k >> INDEX_BITS, k & 2047, found.get(k), expected.get(k)) for k in sorted(both)]
                wrong = [row for row in rows if row[2] != row[3]]
                raise AssertionError(f"recovery of {queue.name}: (block, index, attempts, expected) {wrong[:8]}")
            check(queue)
            self.wrap(queue)

    def _restore(self, twin: Twin, disk: OnDisk) -> None:
        for key, (value, size, attempts) in sorted(disk.held.items()):
            twin.restore(key, Message(value, size, True, attempts))
        twin.taken = set(disk.taken)
        twin.top = dict(disk.top)
        twin.first = dict(disk.first)
        ledger = twin.queue.ledger
        assert (ledger.messages, ledger.bytes_held) == (len(twin.messages), twin.bytes_held), "totals differ"

    # ---- effects ---------------------------------------------------------------------------------------------------

    def sent(self, connection: Connection, handle: int, first: int, count: int, refused: Sequence[Refused]) -> None:
        """The host confirms messages: those that were not refused are on disk."""
        producer = connection.session.producer_ids[handle]
        start = value_of(producer, first)
        hidden = {i for row in refused for i in range(row.start, row.end)}
        for index in range(count):
            value = start + index
            assert index in hidden or value in self.committed, f"{value:#x} is confirmed too early"

    def delivered(self, epoch: int, tag: int, attempt: int, block: Block) -> None:
        """The host writes messages to a connection: persistent ones are on disk, and none was given back."""
        assert tag >= self.first_tags.get(epoch, 0), f"tag {tag} is delivered although the consumer gave it back"
        first = value_of(block.producer, block.first_seq)
        if block.persistent:
            for value in range(first, first + block.count):
                assert value in self.committed, f"{value:#x} is delivered before it is durable"
        self._add("deliver", first, block.count, attempt, epoch, block.persistent)

    def acked(self, asked: Any, unknown: int) -> None:
        """The host confirms an acknowledgement: a restart would not bring the messages back."""
        if asked is None or unknown:
            return
        number, values = asked
        disk = self.disks.get(number)
        if disk is not None and not disk.gone:
            back = {row[0] for row in disk.held.values()}.intersection(values) if len(values) > 0 else ()
            assert not back, f"{len(back)} messages are confirmed as settled and still on disk"
        for value in values:
            self._add("settle", value, 1)
