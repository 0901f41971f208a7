"""Looks over the host's shoulder: every step is compared with a twin, effects with the disk, recovery with both."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from raybroker.content.death_records import DELIVERY_COUNT
from raybroker.content.headers import BlockContent, decode_header
from raybroker.core import command as cmd
from raybroker.core.admission.pool_share import PoolShare
from raybroker.core.blocks import message_mask as pk
from raybroker.core.destination import Destination
from raybroker.core.durable.records import REJECTED
from raybroker.core.invariants import check
from raybroker.core.outcome import DeadLetter, Deliver, Outcome, Refused
from raybroker.engine.host import Host
from raybroker.engine.measured_time import STEP_MS
from raybroker.engine.ports import Death, Revived
from raybroker.hosting.block_codec import WireCodec
from raybroker.model.blocks.block import Block
from tests.simulation.history import PASSING_SHIFT, History, queue_id, value_of
from tests.simulation.ondisk import INDEX_BITS, Delta, OnDisk, Row
from tests.simulation.plan import DMQ
from tests.simulation.twin import Twin
from tests.simulation.twin_commands import HANDLERS

if TYPE_CHECKING:
    from tests.simulation.network import Connection
    from tests.simulation.surroundings import Surroundings

Asked = tuple[int, int, list[int]]
"""Destination, delivery queue and values that an acknowledgement is about."""


def values_of(block: Block) -> list[int]:
    return [value_of(block.producer, block.seq_of(index)) for index in range(block.count)]


class SimCodec(WireCodec):
    """Remembers which dead message is which, and which was sent back.

    moved    old value → new one, of the latest block that the host itself has sent
    old      the way back, for all of them
    once     new ones of which there can be only one: a topic has one for each subscription that cannot deliver it
    dead     those that are dead, with the subscription that each died in, or ""
    """

    def __init__(self) -> None:
        self.moved: dict[int, int] = {}
        self.old: dict[int, int] = {}
        self.once: set[int] = set()
        self.dead: dict[int, str] = {}

    def dead_block(
        self, block: Block, mask: int, death: Death, *, producer: int, first_seq: int, now_ms: int, truncate: bool
    ) -> bytes:
        old = [value_of(block.producer, block.seq_of(index)) for index in pk.indexes(mask)]
        new = [value_of(producer, first_seq + index) for index in range(len(old))]
        self.old.update(zip(new, old, strict=True))
        self.dead.update(dict.fromkeys(new, death.subscription))
        if death.origin[0] == "queue" or death.reason not in ("UNDELIVERABLE", "ERROR"):
            self.once.update(new)
        return super().dead_block(
            block, mask, death, producer=producer, first_seq=first_seq, now_ms=now_ms, truncate=truncate
        )

    def revived(self, block: Block, mask: int, *, producer: int, first_seq: int, now_ms: int) -> list[Revived]:
        found = super().revived(block, mask, producer=producer, first_seq=first_seq, now_ms=now_ms)
        for kind, _, subscription, some, data in found:
            old = [value_of(block.producer, block.seq_of(index)) for index in pk.indexes(some)]
            new = values_of(Block(data))
            assert [decode_header(Block(data).header(at)).doubtful > 0 for at in range(len(new))] == [
                decode_header(block.header(index)).properties[DELIVERY_COUNT] > 0 for index in pk.indexes(some)
            ], "what was delivered before does not say so"
            assert {self.dead[value] for value in old} == {subscription}, "it died elsewhere"
            self.old.update(zip(new, old, strict=True))
            if kind == "queue" or subscription:
                self.once.update(new)
        return found

    def root(self, value: int) -> int:
        """The message as its producer made it."""
        while value in self.old:
            value = self.old[value]
        return value


class Watch:
    """``committed``: values that are on disk, or were. ``moved``: dead ones that are elsewhere.

    ``where``: consumer → what it consumes from (see Op). ``classes``: see the checker of order.
    """

    def __init__(self, world: Surroundings) -> None:
        self.world = world
        self.history = History()
        self.codec = SimCodec()
        self.twins: dict[int, Twin] = {}
        self.disks: dict[int, OnDisk] = {}
        self.committed: set[int] = set()
        self.refused: set[int] = set()
        self.unawaited: set[int] = set()
        """What nobody waits for the confirmation of."""
        self.moved: set[int | None] = set()
        self.first_tags: dict[int, int] = {}
        self.queue_of: dict[int, tuple[int, int]] = {}
        self.where: dict[int, int] = {}
        self.session_of: dict[int, str | int] = {}
        self.durable_at: dict[int, bool] = {}
        self.classes: dict[int, int | None] = {}
        self.overdue: dict[tuple[int, int, int], int] = {}
        self.steps = 0
        self.fences: dict[tuple[int, int], int] = {}
        """(destination, delivery queue) → the largest fencing number, over all restarts."""
        self.seen: Counter[str] = Counter()
        """What happened in the core: names of commands, reasons of death, what a restart found."""

    # ---- the core --------------------------------------------------------------------------------------------------

    def wrap(self, destination: Destination) -> None:
        """Watch every step of a new destination."""
        twin = self.twins[destination.number] = Twin(destination, HANDLERS)
        disk = self._disk_of(destination)
        assert self.world.host is not None
        time = self.world.host.time
        twin.restore(disk, time.now_ms(), time.ahead_ms)
        destination.step = lambda command, *, now_ms, ahead_ms: self._step(  # type: ignore[method-assign]
            destination, twin, command, now_ms, ahead_ms
        )

    def _check_time(self, now_ms: int, ahead_ms: int) -> None:
        """A host measures evenly, and follows the wall clock."""
        passed_ms = now_ms - self.world.began_ms
        assert passed_ms == self.world.loop.now // 1000, "time is measured by a clock that is set"
        off_ms = now_ms + ahead_ms - self.world.clock.now_ms()
        assert abs(off_ms) < STEP_MS, f"the wall clock was set and is not followed: {off_ms} ms"
        self.seen["steps of a clock that was set"] += ahead_ms != 0

    def _disk_of(self, destination: Destination) -> OnDisk:
        """A number may be used again after a crash when nothing of its first use was durable."""
        is_queue = destination.kind == "queue"
        disk = self.disks.get(destination.number)
        if disk is None or (disk.is_queue != is_queue and disk.empty and not disk.subscriptions):
            disk = self.disks[destination.number] = OnDisk(is_queue=is_queue)
        return disk

    def _step(self, destination: Destination, twin: Twin, command: cmd.Command, now_ms: int, ahead_ms: int) -> Outcome:
        self._check_time(now_ms, ahead_ms)
        fates = self._fates(destination, twin, command)
        if isinstance(command, cmd.Send) and not (command.persistent or command.confirm):
            first = value_of(command.producer, command.first_seq)
            self.unawaited.update(range(first, first + len(command.sizes)))
        if destination.policy.account is not None:
            share = destination.policy.account.share
            twin.pool_used, refused_before = (share.used_messages, share.used_bytes), share.refused
        out = Destination.step(destination, command, now_ms=now_ms, ahead_ms=ahead_ms)
        own = isinstance(command, cmd.Send) and not command.attachment
        if own:
            assert isinstance(command.content, BlockContent)
            twin.values = values_of(command.content._block)
            self.codec.moved = {self.codec.old[new]: new for new in twin.values}
            twin.made = {value: self.codec.root(value) for value in twin.values}
            self._check_only(destination, command)
            self.seen["sent back"] += sum(old in self.codec.dead for old in self.codec.moved)
            self._add_all("enqueue", twin.values, kind="invoke")
            self.classes |= {new: self.classes[old] for old, new in self.codec.moved.items() if old in self.classes}
        twin.step(command, out, now_ms, ahead_ms)
        if destination.policy.account is not None:
            share, by_pool = destination.policy.account.share, twin.turned_down.count("pool")
            assert share.refused - refused_before == by_pool, "a message that has no room is counted once"
            self.seen["refused by the pool"] += by_pool
            self.seen["refused by the destination"] += twin.turned_down.count("own")
            self._check_pool(share, command, twin.pool_used)
        if isinstance(command, cmd.SettleDeadLetters):
            assert not fates or fates <= self.codec.moved.keys(), "dead messages are forgotten and were not moved"
            self.codec.moved = {}
        if isinstance(command, cmd.AttachConsumer):
            self._attached(destination, twin, command.attachment)
            self.session_of[command.attachment] = command.owner or command.attachment
        self._note_dying(destination, out)
        self._check_fences(destination, out)
        self.steps += 1
        self.seen[type(command).__name__] += 1
        if self.steps % 4 == 0:
            check(destination)
        self._log(destination, twin)
        return out

    def _check_fences(self, destination: Destination, out: Outcome) -> None:
        """Each delivery that has a fencing number has a larger one than all before it in its delivery queue."""
        fenced = [e for e in (*out.immediate, *out.after_durable) if isinstance(e, Deliver) and e.fence]
        for effect in sorted(fenced, key=lambda one: one.fence):
            key = destination.number, self.twins[destination.number].queue_of[effect.attachment].number
            assert effect.fence > self.fences.get(key, 0), f"{effect} has a fencing number that was given before"
            self.fences[key] = effect.fence
            self.seen["fenced deliveries again"] += effect.attempt > 1

    def _check_pool(self, share: PoolShare, command: cmd.Command, before: tuple[int, int]) -> None:
        """All destinations of a pool hold no more than it may, or than ``before``, after whatever a client has sent."""
        assert self.world.host is not None
        destinations = self.world.host.registry.destinations.values()
        accounts = ((destination.block_index, destination.policy.account) for destination in destinations)
        mine = [index for index, one in accounts if one is not None and one.share is share]
        held, held_bytes = sum(index.messages for index in mine), sum(index.bytes_held for index in mine)
        leaving = self.world.committer.leaving
        staying = [destination for destination in destinations if destination.number not in leaving]
        charged = all((destination.policy.account is None) == (destination.name == DMQ) for destination in staying)
        assert charged, "a destination is not charged"
        assert held == share.used_messages, f"{held} messages are held, {share.used_messages} are charged"
        assert held_bytes == share.used_bytes, f"{held_bytes} bytes are held, {share.used_bytes} are charged"
        for waiter in share.waiting:
            producer = waiter.what.attachment
            assert producer.number in self.world.host.attachments.by_number, "a block waits whose producer is gone"
            account = producer.destination.policy.account
            own = None if account is None else account.share
            assert own is share, "a block waits for room that its destination does not use"
        if isinstance(command, cmd.Send) and command.attachment:
            most, most_bytes = share.limits.messages, share.limits.bytes
            assert most < 0 or held <= max(most, before[0]), f"{held} messages are held of {most}"
            assert most_bytes < 0 or held_bytes <= max(most_bytes, before[1]), f"{held_bytes} bytes of {most_bytes}"
            self.seen["pool full"] += held == most
            self.seen["bytes full"] += held_bytes == most_bytes > 0
            self.seen["over a lowered limit"] += 0 <= most < held or 0 <= most_bytes < held_bytes
            self.seen["larger than the pool"] += 0 < most_bytes < max(command.sizes)
            self.seen["sends that wait"] += bool(share.waiting)

    def _check_only(self, destination: Destination, command: cmd.Send) -> None:
        """What died in one subscription goes back to that alone."""
        where = {self.codec.dead.get(old, "") for old in self.codec.moved}
        own = destination.queues[command.only].subscription if command.only is not None else None
        if destination.kind == "queue" or where == {""}:
            assert own is None, f"{command} is for one subscription"
            return
        assert own is not None, f"{command} is for all subscriptions"
        named = {"client_id": own.client_id, "name": own.name, "durable": own.durable}
        (died,) = map(json.loads, where)
        assert died == named if own.name else died["subscriber"].endswith(f"-{destination.number}-{command.only}")
        self.seen["sent back to a subscription"] += 1

    def _log(self, destination: Destination, twin: Twin) -> None:
        for queue, value in twin.unseen:
            self._add("unsee", value, where=self.where_of(destination, queue))
        for queue, value in twin.arrived:
            self._add("enqueue", value, where=self.where_of(destination, queue), kind="invoke")
        discarded = [(self.where_of(destination, queue), value) for queue, value in twin.discarded]
        if twin.delta:
            twin.delta.discarded = discarded
            self.world.committer.deltas.append(twin.delta)
        else:
            for where, value in discarded:
                self._add("discard", value, where=where)

    def snapshot(self) -> list[Delta]:
        """What a checkpoint written now adds to the disk: everything that was taken, also what nobody wanted."""
        found = []
        for destination in self.world.host.registry.destinations.values() if self.world.host is not None else ():
            delta, twin = Delta(destination.number), self.twins.get(destination.number)
            for values in twin.unwritten.values() if twin is not None else ():
                for value in values:
                    delta.add("take", value)
            found.append(delta)
        return found

    def _attached(self, destination: Destination, twin: Twin, attachment: int) -> None:
        queue = twin.queue_of[attachment]
        self.queue_of[attachment] = destination.number, queue.number if queue.durable else -1
        where = self.where[attachment] = self.where_of(destination, queue.number)
        self.durable_at[where] = queue.durable

    def where_of(self, destination: Destination, queue: int) -> int:
        """Numbers of delivery queues that are not durable are used again after a restart."""
        if destination.kind == "queue":
            return 0
        twin = self.twins[destination.number]
        living = twin.queues.get(queue)
        durable = queue in self.disks[destination.number].queues or (living is not None and living.durable)
        durable = durable or ("queue_gone", queue) in twin.delta.ops  # It ends before the disk knows that it began.
        return queue_id(destination.number, queue) | (0 if durable else self.world.incarnation << PASSING_SHIFT)

    def _fates(self, destination: Destination, twin: Twin, command: cmd.Command) -> set[int]:
        """Values that have to be elsewhere when this command says that they are buried."""
        if not isinstance(command, cmd.SettleDeadLetters) or command.queue not in twin.queues:
            return set()
        queue, found = twin.queues[command.queue], set()
        for index in pk.indexes(command.mask):
            key = command.ordinal << INDEX_BITS | index
            reason = queue.dying.get(key)
            if reason is None or not queue.items[key].message.persistent:
                continue
            if reason == "MOVED" or self._target(destination, reason) is not None:
                found.add(queue.items[key].message.value)
        return found

    def _target(self, destination: Destination, reason: str) -> str | None:
        """Where the dead of a destination go, by its attributes."""
        attributes, host = destination.attributes, self.world.host
        there = host is not None and ("queue", DMQ) in host.registry.destinations
        if destination.name == DMQ or (reason == "EXPIRED" and attributes.expirationPolicy != "Default"):
            return None
        if reason == "STALE" and attributes.stalenessPolicy == "Discard":
            return None
        return DMQ if attributes.useDMQ and there else None

    def _note_dying(self, destination: Destination, out: Outcome) -> None:
        queues = self.disks[destination.number].queues
        for effect in out.immediate:
            if isinstance(effect, DeadLetter):
                self.seen[effect.reason] += 1
                for index in pk.indexes(effect.mask):
                    row = queues.get(effect.queue, {}).get(effect.ordinal << INDEX_BITS | index)
                    if row is not None:
                        row.dying = True

    def _add(
        self,
        f: str,
        first: int,
        count: int = 1,
        attempt: int = 0,
        process: int = 0,
        *,
        persistent: bool = True,
        where: int = 0,
        kind: str = "ok",
    ) -> None:
        self.history.add(self.world.loop.now, process, kind, f, first, count, attempt, persistent, where)

    def _add_all(self, f: str, values: Sequence[int], *, where: int = 0, kind: str = "ok") -> None:
        for value in values:
            self._add(f, value, where=where, kind=kind)

    # ---- the disk --------------------------------------------------------------------------------------------------

    def durable(self, delta: Delta) -> None:
        """A batch with these changes is synced."""
        disk = self.disks[delta.number]
        disk.apply(delta)
        is_queue = disk.is_queue
        for op in delta.ops:
            if op[0] == "add":
                _, queue, _, message = op
                where = 0 if is_queue else queue_id(delta.number, queue)
                old = self.codec.old.get(message.value)
                if message.value in self.codec.once and old in self.committed:
                    assert old not in self.moved, f"{old:#x} is dead and stored elsewhere twice"
                    self.moved.add(old)
                self.committed.add(message.value)
                self._add("commit", message.value, where=where)
                if not is_queue or message.value in self.codec.old:
                    self._add("enqueue", message.value, where=where)
        for where, value in delta.discarded:
            self._add("discard", value, where=where)

    def freed(self, number: int, ordinal: int) -> None:
        """The store may forget a block: nobody may be owed it, as far as the disk knows."""
        disk = self.disks.get(number)
        early = disk is not None and not disk.gone and disk.left.get(ordinal)
        assert not early, f"block {ordinal} of {number} is freed too early"

    def crash(self) -> None:
        for twin in self.twins.values():
            for queue in twin.queues.values():
                for key in queue.dying:
                    where = self.where_of(twin.destination, queue.number)
                    self._add("revive", queue.items[key].message.value, where=where)
        self._add("crash", 0)
        for where in {w for w in self.where.values() if w}:
            self._add("crash", 0, where=where)

    def recovered(self, host: Host) -> None:
        """A host has started: it holds exactly what was on disk, and what it does not open is empty."""
        self.twins.clear()
        self.overdue.clear()
        for number, disk in self.disks.items():
            if number not in host.registry.definitions:
                assert disk.gone or disk.empty, f"destination {number} is gone, with {len(disk.queues)} lanes"
        for destination in host.registry.destinations.values():
            disk = self._disk_of(destination)
            assert not disk.gone, f"destination {destination.name} is back although it was destroyed"
            self.seen["prepared at a restart"] += len(disk.waiting) + len(disk.staged)
            self.seen["subscriptions at a restart"] += len(disk.subscriptions)
            self.seen["resting at a restart"] += sum(
                1 for rows in disk.queues.values() for row in rows.values() if row.due
            )
            compare(destination, disk, host.time.wall_ms(), jumped=self.world.plan.rates["clock_jump"] > 0)
            check(destination)
            self.wrap(destination)

    def check_scanned(self, longest: int) -> None:
        """Nothing that has expired waits longer than that, microseconds, whether anybody asks for it or not."""
        host, now, now_ms = self.world.host, self.world.loop.now, self.world.clock.now_ms()
        there = host.registry.definitions if host is not None else {}
        alive = [twin for twin in self.twins.values() if twin.destination.number in there]
        overdue = {
            (twin.destination.number, queue.number, key)
            for twin in alive
            for queue in twin.queues.values()
            for _, _, key in queue.waiting
            if 0 < queue.items[key].message.expires < now_ms
        }
        self.overdue = {row: self.overdue.get(row, now) for row in overdue}
        for row, since in self.overdue.items():
            assert now - since <= longest, f"(destination, lane, key) {row} has expired and waits"

    # ---- effects ---------------------------------------------------------------------------------------------------

    def sent(self, connection: Connection, handle: int, first: int, count: int, refused: Sequence[Refused]) -> None:
        """The host confirms messages: those that were not refused are on disk, or nobody would miss them."""
        producer = connection.session.producer_ids.get(handle)
        if producer is None or producer in self.world.transactional:
            hidden = {i for row in refused for i in range(row.start, row.end)}
            self.refused.update(value_of(producer or 0, first + index) for index in hidden)
            return
        number = connection.session.producers[handle].destination.number
        twin, disk = self.twins[number], self.disks[number]
        hidden = {i for row in refused for i in range(row.start, row.end)}
        for index in range(count):
            value = value_of(producer, first + index)
            safe = value in self.committed or value in disk.taken or value in twin.transient or value in self.unawaited
            assert index in hidden or safe, f"{value:#x} is confirmed too early"

    def delivered(self, epoch: int, tag: int, attempt: int, block: Block) -> None:
        """The host writes messages to a connection: persistent ones are on disk, and none was given back."""
        assert tag >= self.first_tags.get(epoch, 0), f"tag {tag} is delivered although the consumer gave it back"
        where = self.where[epoch]
        stored = block.persistent and (not where or self.durable_at[where])
        for at, value in enumerate(values_of(block), tag):
            if stored:
                assert value in self.committed, f"{value:#x} is delivered before it is durable"
            if self._too_late(epoch, at):
                continue
            self._add("deliver", value, 1, attempt, epoch, persistent=block.persistent, where=where)

    def _too_late(self, epoch: int, tag: int) -> bool:
        """The time for acknowledging it was over before it was written: it may be with somebody else by now."""
        queue = next((t.queue_of[epoch] for t in self.twins.values() if epoch in t.queue_of), None)
        holder = queue.holders[epoch] if queue is not None else None
        return holder is not None and holder.lease_ms > 0 and not holder.no_ack and tag not in holder.unsettled

    def acked(self, asked: Asked | None, unknown: int) -> None:
        """The host confirms an acknowledgement: a restart would not bring the messages back."""
        if asked is None or unknown:
            return
        number, queue, values = asked
        disk = self.disks.get(number)
        if disk is not None and not disk.gone and queue in disk.queues and values:
            back = {row.message.value for row in disk.queues[queue].values()}.intersection(values)
            assert not back, f"{len(back)} messages are confirmed as settled and still on disk"
        self._add_all("settle", values, where=0 if disk is None or disk.is_queue else queue_id(number, queue))


# ---- recovery ------------------------------------------------------------------------------------------------------


def compare(destination: Destination, disk: OnDisk, now_ms: int, *, jumped: bool) -> None:
    """A destination after a restart holds what is on disk, where it was."""
    numbers = {number for number, queue in destination.queues.items() if queue.durable}
    assert numbers == disk.queues.keys(), (
        f"recovery of {destination.name}: lanes {numbers}, expected {list(disk.queues)}"
    )
    for number, rows in disk.queues.items():
        found = _found(destination, number, jumped=jumped)
        staged = {key: txn for txn, keys in disk.staged.items() for queue, key in keys if queue == number}
        expected = {key: _expected(row, key, staged, now_ms, found, jumped=jumped) for key, row in rows.items()}
        _assert_equal(f"{destination.name}, lane {number}: (attempts, failures, where)", found, expected)
        _align(destination, number, rows)
    waiting = {
        block.ordinal << INDEX_BITS | index: txn
        for txn, one in destination.staged.items()
        for block in one.blocks
        for index in pk.indexes(block.mask)
    }
    expected_waiting = {key: txn for txn, rows in disk.waiting.items() for key in rows}
    _assert_equal(f"{destination.name}, prepared", waiting, expected_waiting)


def _align(destination: Destination, number: int, rows: dict[int, Row]) -> None:
    """How long messages rest is what the host says: its clock may have jumped."""
    for row in rows.values():
        row.due = 0
    for due, run in destination.queues[number].delayed.runs():
        for index in pk.indexes(run.mask):
            rows[run.ordinal << INDEX_BITS | index].due = due


def _assert_equal(what: str, found: dict[int, Any], expected: dict[int, Any]) -> None:
    if found != expected:
        both = sorted(found.keys() | expected.keys())
        rows = [(k >> INDEX_BITS, k & 2047, found.get(k), expected.get(k)) for k in both]
        wrong = [row for row in rows if row[2] != row[3]]
        raise AssertionError(f"recovery of {what}: (block, index, found, expected) {wrong[:6]}")


def _found(destination: Destination, number: int, *, jumped: bool) -> dict[int, Any]:
    queue = destination.queues[number]
    places: list[tuple[str, Any]] = list(queue.contents())
    for txn, staged in destination.staged.items():
        places += [(f"in {txn}", delivery.run) for queue_number, delivery in staged.acks if queue_number == number]
    found: dict[int, Any] = {}
    for state, run in places:
        for index in pk.indexes(run.mask):
            key = run.ordinal << INDEX_BITS | index
            assert key not in found, f"message {index} of block {run.ordinal} is at two places after a restart"
            found[key] = run.attempts, run.failures, "waiting" if jumped and state == "delayed" else state
    return found


def _expected(
    row: Row, key: int, staged: dict[int, int], now_ms: int, found: dict[int, Any], *, jumped: bool
) -> tuple[int, int, str]:
    if row.dying and key in found and found[key][1] & 0xFFFF_FFFF == REJECTED:
        row.failures = row.failures >> 32 << 32 | REJECTED
    row.dying = False
    due = row.due if row.attempts else row.message.deliver_at
    state = "delayed" if due > now_ms and not jumped else "waiting"
    return row.attempts, row.failures, f"in {staged[key]}" if key in staged else state
