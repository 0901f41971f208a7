"""One rule of the broker switched off at a time: each entry replaces a piece of production code while a seed runs.

A mutant says which rule it breaks. ``equivalent`` would say why no history can tell it from the original; none is now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from raybroker.core import command as cmd
from raybroker.core import limit, notes, queue, ranges, recovery
from raybroker.core.backlog import Backlog
from raybroker.core.consumers import Consumer, Consumers
from raybroker.core.outcome import Acked, Deliver, Outcome, Refused, Released, Retire, Sent
from raybroker.core.producers import Producers
from raybroker.core.queue import Queue
from raybroker.core.recovery import Recovery
from raybroker.core.window import UNLIMITED, CreditWindow, PrefetchWindow
from raybroker.engine import checkpoint, host
from raybroker.engine.host import Host
from raybroker.engine.runner import Runner
from raybroker.engine.session import Session
from tests.simulation.disk import SimCommitter


@dataclass(frozen=True, slots=True)
class Mutant:
    """``apply`` is called with a function that replaces an attribute, or an item of a table, for as long as it runs."""

    name: str
    rule: str
    apply: Callable[[Patch], None]
    equivalent: str = ""


class Patch:
    """Replaces things and puts them back."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        old = owner.__dict__[name]
        setattr(owner, name, value)
        self._undo.append(lambda: setattr(owner, name, old))

    def handler(self, kind: type, value: Any) -> None:
        """What a queue does with one kind of command."""
        old = queue._HANDLERS[kind]
        queue._HANDLERS[kind] = value
        self._undo.append(lambda: queue._HANDLERS.__setitem__(kind, old))

    def undo(self) -> None:
        for undo in reversed(self._undo):
            undo()


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    patch = Patch()
    mutant.apply(patch)
    try:
        yield
    finally:
        patch.undo()


TABLE: list[Mutant] = []


def mutant(rule: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def add(apply: Callable[[Patch], None]) -> Callable[[Patch], None]:
        TABLE.append(Mutant(apply.__name__, rule, apply))
        return apply

    return add


def _without(out: Outcome, kind: int) -> None:
    out.records[:] = [e for e in out.records if e.kind != 2 or notes.kind_of(e.meta) != kind]


def _at_once(out: Outcome, kind: type) -> None:
    """Move effects of a kind to those that do not wait."""
    out.immediate.extend(e for e in out.after_durable if isinstance(e, kind))
    out.after_durable[:] = [e for e in out.after_durable if not isinstance(e, kind)]


# ---- durability ----------------------------------------------------------------------------------------------------


@mutant("effects wait for their records")
def release_before_sync(patch: Patch) -> None:
    def carry(self: Runner, records: Any, after: Any, immediate: Any, release: Any) -> None:
        release([*immediate, *after])
        if records:
            self._committer.submit(records, lambda: None)

    patch.set(Runner, "carry", carry)


@mutant("an effect without records waits for what was appended before it")
def no_wait_without_records(patch: Patch) -> None:
    old = Runner.carry

    def carry(self: Runner, records: Any, after: Any, immediate: Any, release: Any) -> None:
        if records:
            old(self, records, after, immediate, release)
        else:
            release([*immediate, *after])

    patch.set(Runner, "carry", carry)


@mutant("one commit is in flight, so that completions are in order")
def two_commits_in_flight(patch: Patch) -> None:
    patch.set(SimCommitter, "in_flight_max", 2)


@mutant("a send is confirmed when it is durable")
def sent_at_once(patch: Patch) -> None:
    old = Queue._send

    def send(self: Queue, command: Any, out: Outcome) -> None:
        old(self, command, out)
        _at_once(out, Sent)

    patch.handler(cmd.Send, send)


@mutant("an acknowledgement is confirmed when it is durable")
def acked_at_once(patch: Patch) -> None:
    old = Queue._acknowledge

    def acknowledge(self: Queue, command: Any, out: Outcome) -> None:
        old(self, command, out)
        _at_once(out, Acked)

    patch.handler(cmd.Acknowledge, acknowledge)


@mutant("a persistent message is delivered when it is durable")
def delivered_at_once(patch: Patch) -> None:
    old = Queue._dispatch

    def dispatch(self: Queue, out: Outcome) -> None:
        old(self, out)
        _at_once(out, Deliver)

    patch.set(Queue, "_dispatch", dispatch)


@mutant("acknowledgements are recorded")
def ack_not_recorded(patch: Patch) -> None:
    old = Queue._settle_parts

    def settle_parts(self: Queue, parts: Any, out: Outcome) -> int:
        count = old(self, parts, out)
        _without(out, notes.ACKED)
        return count

    patch.set(Queue, "_settle_parts", settle_parts)


@mutant("what is handed out is recorded, so that a second delivery after a crash is flagged")
def dispatch_not_recorded(patch: Patch) -> None:
    old = Queue._dispatch

    def dispatch(self: Queue, out: Outcome) -> None:
        old(self, out)
        _without(out, notes.DISPATCHED)

    patch.set(Queue, "_dispatch", dispatch)


@mutant("refused messages of a stored block are recorded")
def refusal_not_recorded(patch: Patch) -> None:
    old = Queue._accept

    def accept(self: Queue, command: Any, admitted: Any, out: Outcome) -> None:
        old(self, command, admitted, out)
        _without(out, notes.REFUSED)

    patch.set(Queue, "_accept", accept)


@mutant("a block may go when its last acknowledgement is durable")
def retired_at_once(patch: Patch) -> None:
    old = Queue._settle_parts

    def settle_parts(self: Queue, parts: Any, out: Outcome) -> int:
        count = old(self, parts, out)
        _at_once(out, Retire)
        return count

    patch.set(Queue, "_settle_parts", settle_parts)


@mutant("a block may go when its last message is settled, not its first")
def retired_too_early(patch: Patch) -> None:
    old = Queue._settle_parts

    def settle_parts(self: Queue, parts: Any, out: Outcome) -> int:
        count = old(self, parts, out)
        out.after_durable.append(Retire(tuple(part.ordinal for part in parts), True))
        return count

    patch.set(Queue, "_settle_parts", settle_parts)


# ---- windows -------------------------------------------------------------------------------------------------------


@mutant("no more is sent than was granted")
def credit_unchecked(patch: Patch) -> None:
    patch.set(CreditWindow, "room", lambda self: UNLIMITED)
    patch.set(CreditWindow, "sent", lambda self, count: None)


@mutant("what is sent uses up what was granted")
def credit_not_consumed(patch: Patch) -> None:
    patch.set(CreditWindow, "sent", lambda self, count: None)


@mutant("a full prefetch window stays shut until half is settled")
def prefetch_topped_up_at_once(patch: Patch) -> None:
    def settled(self: PrefetchWindow, count: int) -> None:
        self.outstanding -= count
        self.full = False

    patch.set(PrefetchWindow, "settled", settled)


@mutant("a prefetch window opens when half is settled, not only when all is")
def prefetch_waits_for_all(patch: Patch) -> None:
    def settled(self: PrefetchWindow, count: int) -> None:
        self.outstanding -= count
        self.full = self.full and self.outstanding > 0

    patch.set(PrefetchWindow, "settled", settled)


@mutant("at most the prefetch limit is unsettled")
def prefetch_unchecked(patch: Patch) -> None:
    def sent(self: PrefetchWindow, count: int) -> None:
        self.outstanding += count

    patch.set(PrefetchWindow, "room", lambda self: UNLIMITED)
    patch.set(PrefetchWindow, "sent", sent)


@mutant("a held consumer gets nothing")
def held_is_ignored(patch: Patch) -> None:
    patch.set(Consumer, "room", lambda self: self.window.room() if self.active else 0)


# ---- order and redelivery ------------------------------------------------------------------------------------------


@mutant("what is given back goes to its old place")
def requeued_at_the_end(patch: Patch) -> None:
    def give_back(self: Backlog, run: Any) -> None:
        self.fresh.append(run)
        self.count += run.end - run.start

    patch.set(Backlog, "give_back", give_back)


@mutant("what a consumer leaves behind is given back")
def requeue_forgotten(patch: Patch) -> None:
    patch.set(Queue, "_give_back", lambda self, consumer: consumer.unsettled.clear())


@mutant("a second delivery counts as one")
def attempts_not_counted(patch: Patch) -> None:
    old = Consumer.handed
    patch.set(Consumer, "handed", lambda self, run: old(self, run._replace(attempts=0)))


@mutant("a release gives back and starts new tags")
def release_keeps_old_tags(patch: Patch) -> None:
    def release(self: Queue, command: Any, out: Outcome) -> None:
        consumer = self.consumers.by_attachment.get(command.attachment)
        if consumer is not None:
            consumer.next_tag = 1
        Queue._release(self, command, out)

    patch.handler(cmd.Release, release)


@mutant("the answer to a release comes before what is delivered after it")
def released_late(patch: Patch) -> None:
    def release(self: Queue, command: Any, out: Outcome) -> None:
        Queue._release(self, command, out)
        out.after_durable.extend(e for e in out.immediate if isinstance(e, Released))
        out.immediate[:] = [e for e in out.immediate if not isinstance(e, Released)]

    patch.handler(cmd.Release, release)


@mutant("after a release, deliveries that were decided before it are not sent any more")
def stale_deliveries_sent(patch: Patch) -> None:
    def tell(self: Host, attachment: Any, effect: Any) -> None:
        if isinstance(effect, Released):
            attachment.peer.released(attachment.handle, effect.request, effect.next_tag)
        else:
            old(self, attachment, effect)

    old = Host._tell
    patch.set(Host, "_tell", tell)


@mutant("a non-persistent message is delivered once")
def volatile_delivered_twice(patch: Patch) -> None:
    old = Queue._dispatch

    def dispatch(self: Queue, out: Outcome) -> None:
        old(self, out)
        out.immediate.extend([e for e in out.immediate if isinstance(e, Deliver)])

    patch.set(Queue, "_dispatch", dispatch)


# ---- producers -----------------------------------------------------------------------------------------------------


@mutant("a retried send is recognised")
def no_dedupe(patch: Patch) -> None:
    patch.set(Producers, "fresh", lambda self, producer, first, end, floor: ([(first, end)], []))


@mutant("a refused message does not look like one that was taken")
def dedupe_by_highest_number(patch: Patch) -> None:
    old = Producers.fresh
    patch.set(Producers, "fresh", lambda self, *args: (old(self, *args)[0], []))


@mutant("a refused message stays refused once later ones were taken")
def refused_retry_taken(patch: Patch) -> None:
    old = Producers.fresh

    def fresh(self: Producers, *args: int) -> Any:
        after, before = old(self, *args)
        return [*before, *after], []

    patch.set(Producers, "fresh", fresh)


@mutant("only what is below the floor is forgotten")
def floor_forgets_too_much(patch: Patch) -> None:
    old = Producers.fresh

    def fresh(self: Producers, producer: int, first: int, end: int, floor: int) -> Any:
        ranges.drop_below(self.taken.setdefault(producer, []), first + 1)
        return old(self, producer, first, end, floor)

    patch.set(Producers, "fresh", fresh)


@mutant("a producer is on one connection at a time")
def old_connections_heard(patch: Patch) -> None:
    def attach(self: Producers, attachment: int, producer: int) -> None:
        self.attached[attachment] = producer
        self.taken.setdefault(producer, [])

    patch.set(Producers, "attach", attach)


@mutant("what was refused is not counted as taken")
def refused_counts_as_taken(patch: Patch) -> None:
    old = Queue._accept

    def accept(self: Queue, command: Any, admitted: Any, out: Outcome) -> None:
        old(self, command, admitted, out)
        if command.persistent:
            self.producers.take(command.producer, command.first_seq, command.first_seq + len(command.sizes))

    patch.set(Queue, "_accept", accept)


@mutant("holes of a block are settled when it is accepted")
def holes_not_settled(patch: Patch) -> None:
    patch.set(queue, "_complement", lambda rows, count: [])


@mutant("a full disk does not refuse what is stored already")
def full_disk_refuses_retries(patch: Patch) -> None:
    def send(self: Queue, command: Any, out: Outcome) -> None:
        if command.room or not command.persistent:
            Queue._send(self, command, out)
        elif self.producers.attached.get(command.attachment) == command.producer:
            count = len(command.sizes)
            refused = (Refused(0, count, "store_full", "full"),)
            out.after_durable.append(Sent(command.attachment, command.first_seq, count, refused))

    patch.handler(cmd.Send, send)


@mutant("acknowledgements of an ended attachment are dropped")
def epoch_unchecked(patch: Patch) -> None:
    patch.set(Session, "_consumer", lambda self, handle, epoch: self.consumers.get(handle))


# ---- limits and consumers ------------------------------------------------------------------------------------------


def _limits_raised(field: str) -> Callable[[Patch], None]:
    def apply(patch: Patch) -> None:
        old = limit.admit

        def admit(name: str, limits: limit.Limits, *rest: Any) -> Any:
            value = getattr(limits, field)
            return old(name, limits._replace(**{field: value + (value >= 0)}), *rest)

        patch.set(limit, "admit", admit)

    return apply


TABLE += [
    Mutant("one_message_too_many", "maxNumMsgs is exact", _limits_raised("messages_max")),
    Mutant("one_byte_too_many", "maxTotalMsgBytes is exact", _limits_raised("bytes_max")),
    Mutant("one_byte_too_long", "maxBytesPerMsg is exact", _limits_raised("message_bytes_max")),
]


@mutant("backups get nothing")
def backup_gets_messages(patch: Patch) -> None:
    patch.set(Consumer, "room", lambda self: 0 if self.held else self.window.room())


@mutant("a backup takes the place of an active consumer that left")
def no_promotion(patch: Patch) -> None:
    patch.set(Consumers, "promote", lambda self, active_max: [])


@mutant("a purge leaves to consumers what they have")
def purge_takes_from_consumers(patch: Patch) -> None:
    def purge(self: Queue, command: Any, out: Outcome) -> None:
        for consumer in self.consumers.by_attachment.values():
            self._give_back(consumer)
        Queue._purge(self, command, out)

    patch.handler(cmd.Purge, purge)


# ---- checkpoints and recovery --------------------------------------------------------------------------------------


def _table_left_out(layout: Any) -> Callable[[Patch], None]:
    def apply(patch: Patch) -> None:
        old = notes.table
        patch.set(notes, "table", lambda rows_of, rows: old(rows_of, [] if rows_of is layout else rows))

    return apply


def _note_ignored(kind: int) -> Callable[[Patch], None]:
    def apply(patch: Patch) -> None:
        old = Recovery.apply

        def ignore(self: Recovery, entry: Any) -> None:
            if entry.kind == 1 or notes.kind_of(entry.meta) != kind:
                old(self, entry)

        patch.set(Recovery, "apply", ignore)

    return apply


TABLE += [
    Mutant("checkpoint_without_parts", "a checkpoint has partial acknowledgements", _table_left_out(notes.PART)),
    Mutant("checkpoint_without_live", "a checkpoint says which blocks live", _table_left_out(notes.SPAN)),
    Mutant("checkpoint_without_producers", "a checkpoint has what was taken", _table_left_out(recovery._TAKEN)),
    Mutant("checkpoint_without_attempts", "a checkpoint has attempts", _table_left_out(notes.TRIED)),
    Mutant("recovery_ignores_refused", "what was refused does not come back", _note_ignored(notes.REFUSED)),
    Mutant("recovery_ignores_acks", "what was acknowledged does not come back", _note_ignored(notes.ACKED)),
    Mutant("recovery_ignores_dispatch", "what was handed out is known as such", _note_ignored(notes.DISPATCHED)),
]


@mutant("recovery knows how far fresh messages were handed out")
def recovery_ignores_mark(patch: Patch) -> None:
    old = notes.decode_dispatched
    patch.set(notes, "decode_dispatched", lambda note: (None, old(note)[1]))


@mutant("a block that was alive in the checkpoint and acknowledged since need not be there")
def recovery_keeps_live(patch: Patch) -> None:
    patch.set(Recovery, "_drop_live", lambda self, ordinal: None)


@mutant("an acknowledgement may come before the copy that the store moved")
def moved_copies_come_back(patch: Patch) -> None:
    old = Recovery._block

    def block(self: Recovery, ordinal: int, meta: Any) -> None:
        self.gone.clear()
        if ordinal < self._snapshot_end and not self._is_live(ordinal):
            self.live.append((ordinal, ordinal))
        old(self, ordinal, meta)

    patch.set(Recovery, "_block", block)


@mutant("the last part of a block is noted as the whole block")
def last_part_noted_as_part(patch: Patch) -> None:
    def encode(rows: Any, parts: Any) -> bytes:
        extra = [notes.Part(ordinal, 0, 1) for first, last in rows for ordinal in range(first, last + 1)]
        return old([], [*parts, *extra])

    old = notes.encode_acked
    patch.set(notes, "encode_acked", encode)


@mutant("numbers of destinations are not used again after a checkpoint")
def numbers_used_again(patch: Patch) -> None:
    old = checkpoint.encode_checkpoint
    patch.set(host, "encode_checkpoint", lambda next_number, rows: old(1, rows))
