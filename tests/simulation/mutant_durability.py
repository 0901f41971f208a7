"""Mutants of what waits for the disk, what is recorded, and what comes back from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raybroker.core import command as cmd
from raybroker.core import notes, recovery
from raybroker.core.outcome import Acked, Deliver, Outcome, Retire, Sent
from raybroker.core.queue import Queue
from raybroker.core.recovery import Recovery
from raybroker.engine import checkpoint, host
from raybroker.engine.runner import Runner
from tests.simulation.disk import SimCommitter
from tests.simulation.mutation import TABLE, Mutant, Patch, at_once, mutant, without

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
        at_once(out, Sent)

    patch.handler(cmd.Send, send)


@mutant("an acknowledgement is confirmed when it is durable")
def acked_at_once(patch: Patch) -> None:
    old = Queue._acknowledge

    def acknowledge(self: Queue, command: Any, out: Outcome) -> None:
        old(self, command, out)
        at_once(out, Acked)

    patch.handler(cmd.Acknowledge, acknowledge)


@mutant("a persistent message is delivered when it is durable")
def delivered_at_once(patch: Patch) -> None:
    old = Queue._dispatch

    def dispatch(self: Queue, out: Outcome) -> None:
        old(self, out)
        at_once(out, Deliver)

    patch.set(Queue, "_dispatch", dispatch)


@mutant("acknowledgements are recorded")
def ack_not_recorded(patch: Patch) -> None:
    old = Queue._settle_parts

    def settle_parts(self: Queue, parts: Any, out: Outcome) -> int:
        count = old(self, parts, out)
        without(out, notes.ACKED)
        return count

    patch.set(Queue, "_settle_parts", settle_parts)


@mutant("what is handed out is recorded, so that a second delivery after a crash is flagged")
def dispatch_not_recorded(patch: Patch) -> None:
    old = Queue._dispatch

    def dispatch(self: Queue, out: Outcome) -> None:
        old(self, out)
        without(out, notes.DISPATCHED)

    patch.set(Queue, "_dispatch", dispatch)


@mutant("refused messages of a stored block are recorded")
def refusal_not_recorded(patch: Patch) -> None:
    old = Queue._accept

    def accept(self: Queue, command: Any, admitted: Any, out: Outcome) -> None:
        old(self, command, admitted, out)
        without(out, notes.REFUSED)

    patch.set(Queue, "_accept", accept)


@mutant("a block may go when its last acknowledgement is durable")
def retired_at_once(patch: Patch) -> None:
    old = Queue._settle_parts

    def settle_parts(self: Queue, parts: Any, out: Outcome) -> int:
        count = old(self, parts, out)
        at_once(out, Retire)
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
