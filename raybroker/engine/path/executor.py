"""The path of every command: step the destination, append what it recorded, release what that allows.

An executor is not thread safe: one thread (an event loop) calls it, and the committer posts back into that thread.
What follows from an effect is deferred until no command is under way, so that it never comes between an effect and the
record of that effect.

After a store error the executor is stopped for good: it performs, appends and releases nothing more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from raybroker.core import command as cmd
from raybroker.core.destination import Destination
from raybroker.core.outcome import Effect, Outcome
from raybroker.engine.measured_time import MeasuredTime
from raybroker.engine.memory.block_cache import BlockCache
from raybroker.engine.path.effect_dispatcher import EffectDispatcher
from raybroker.engine.path.observers import Observers
from raybroker.engine.path.runner import Runner
from raybroker.engine.path.wakeups import Wakeups
from raybroker.engine.ports import Committer, Store
from raybroker.model.blocks.block import Block
from raybroker.model.blocks.large_block import payload_of
from raybroker.model.blocks.record import BLOCK, NOTE, LogEntry, Payload
from raybroker.model.errors import BrokerError, StoreError, StoreFullError

Done = Callable[[], None]
DISK_FULL: Final = "the store's disk is full; consume messages or free space"


class DestinationStep(NamedTuple):
    """One command for one destination, with the block that a Send brings."""

    destination: Destination
    command: cmd.Command
    block: Block | None = None


class ExecutorOwner(NamedTuple):
    """Whoever has an executor, as the executor calls it.

    kept        takes a block that a destination took
    damaged     takes a block whose headers a destination needed and could not read
    checkpoint  gives the entry with the state of all destinations, when the store asks for one
    failed      takes the error that stopped the executor, once
    report      takes a line for the log
    """

    kept: Callable[[Destination, Outcome, Block], None]
    damaged: Callable[[Destination, int], None]
    checkpoint: Callable[[], LogEntry]
    failed: Callable[[BrokerError], None]
    report: Callable[[str], None]


class Executor:
    """``failure``: why it has stopped; ``payload``: what the store gets of a new block.

    effects    who carries out the effects of outcomes
    observers  called after each command, before what the command has caused
    """

    def __init__(
        self,
        store: Store,
        time: MeasuredTime,
        cache: BlockCache,
        wakeups: Wakeups,
        effects: EffectDispatcher,
        observers: Observers,
        owner: ExecutorOwner,
    ) -> None:
        self.failure: BrokerError | None = None
        self.payload: Callable[[Block], Payload] = payload_of
        self._store = store
        self._time = time
        self._cache = cache
        self._wake = wakeups.wake
        self._handlers = effects.handlers
        self._observers = observers.by_destination
        self._kept = owner.kept
        self._owner = owner
        self._checkpointing = False
        self._performing = 0
        self._settling = False
        self._deferred: deque[Callable[[], object]] = deque()
        self._committer: Committer
        self._runner: Runner

    def start(self, committer: Committer) -> None:
        self._committer = committer
        self._runner = Runner(committer)

    def fail(self, error: BrokerError) -> None:
        """Stop for good, and release nothing more."""
        if self.failure is None:
            self.failure = error
            self._owner.failed(error)

    def require_running(self) -> None:
        if self.failure is not None:
            raise StoreError(f"the host has stopped: {self.failure}")

    # ---- commands --------------------------------------------------------------------------------------------------

    def perform(self, destination: Destination, command: cmd.Command, block: Block | None = None) -> Outcome | None:
        """Step, append, release. Raises what the core raises; then nothing has changed."""
        if self.failure is not None:
            return None
        self._performing += 1
        try:
            time = self._time
            outcome = destination.step(command, now_ms=time.read(), ahead_ms=time.ahead_ms)
            records: Sequence[LogEntry] = outcome.records
            effects, ordinal = outcome.after_durable, outcome.accepted
            durable = partial(self._release, destination, effects) if effects else None
            if ordinal is not None:
                assert block is not None
                records, crowded = self._keep(destination, outcome, block)
                if crowded:
                    durable = partial(self._release_and_demote, destination, effects, ordinal)
            # Before the records: a committer that does not wait for a disk releases the other effects in the same call.
            if outcome.immediate:
                self._release(destination, outcome.immediate)
            self._runner.append(records, durable)
            if (
                destination.number in self._observers
                or outcome.wake_at is not None
                or outcome.unfinished
                or outcome.damaged
            ):
                self._after(destination, outcome)
            # Behind the records of the command: a checkpoint says what they say, and takes their place.
            if not self._checkpointing and self._store.checkpoint_due():
                self.checkpoint()
        finally:
            self._performing -= 1
        if self._deferred:
            self._settle_down()
        return outcome

    def perform_all(self, steps: Sequence[DestinationStep], extra: Sequence[LogEntry], done: Done) -> list[Outcome]:
        """Carry out several commands whose records become durable together or not at all; then ``done``. None of them
        raises.

        All effects wait for that: nothing is seen of what may not have been.
        """
        outcomes: list[Outcome] = []
        if self.failure is not None:
            return outcomes
        self._performing += 1
        try:
            records: list[LogEntry] = []
            now_ms, ahead_ms = self._time.read(), self._time.ahead_ms
            # Before the steps: what a command decides is staged no longer after it.
            waited = [
                (destination.number, block)
                for destination, command, _ in steps
                for block in _waiting(destination, command)
            ]
            for destination, command, block in steps:
                outcome = destination.step(command, now_ms=now_ms, ahead_ms=ahead_ms)
                outcomes.append(outcome)
                if block is not None:
                    records += self._keep(destination, outcome, block)[0]
                else:
                    records += self._with_bytes(destination, outcome.records)
            self._runner.append((*records, *extra), partial(self._release_all, steps, outcomes, waited, done))
            for (destination, _, _), outcome in zip(steps, outcomes, strict=True):
                self._after(destination, outcome)
                if not self._checkpointing and self._store.checkpoint_due():
                    self.checkpoint()
        finally:
            self._performing -= 1
        self._settle_down()
        return outcomes

    def append(self, entries: Sequence[LogEntry], done: Done) -> None:
        """Write entries; ``done`` once they, and everything before them, are durable."""
        self._runner.append(entries, lambda: done() if self.failure is None else None)

    def note(self, number: int, meta: bytes, done: Done) -> None:
        """Write one journal record of a destination."""
        self.append([LogEntry(NOTE, number, 0, meta)], done)

    def has_room(self, nbytes: int) -> bool:
        """Whether the store would take so much more; refusing early keeps room for acknowledgements."""
        return self._store.has_room(self._committer.pending_bytes + nbytes)

    # ---- deferral --------------------------------------------------------------------------------------------------

    def later(self, action: Callable[[], object]) -> None:
        """Call ``action`` when no command is under way, after what was deferred before."""
        self._deferred.append(action)
        self._settle_down()

    def undisturbed(self, action: Done) -> None:
        """Call ``action`` at once; actions that it defers run after it."""
        self._performing += 1
        try:
            action()
        finally:
            self._performing -= 1
        self._settle_down()

    def _settle_down(self) -> None:
        if self._settling or not self._deferred:
            return
        self._settling = True
        try:
            # An action that defers another one comes back here and leaves it to this loop: the stack does not grow.
            while self._deferred and not self._performing and self.failure is None:
                self._deferred.popleft()()
        finally:
            self._settling = False

    # ---- checkpoints -----------------------------------------------------------------------------------------------

    def checkpoint(self, done: Done | None = None) -> None:
        """Write the state of all destinations, so that the store can forget what came before; then ``done``."""
        self._checkpointing = True
        self.append([self._owner.checkpoint()], partial(self._checkpoint_done, done))

    def checkpoint_now(self) -> bool:
        """:meth:`checkpoint`; False when one is under way, which may say what was true before."""
        if self._checkpointing or self.failure is not None:
            return False
        self.checkpoint()
        return True

    def _checkpoint_done(self, done: Done | None) -> None:
        self._checkpointing = False
        if done is not None:
            done()

    def give_back(self, *, idle: bool) -> None:
        """Let the store give back space that it does not need now; if there is nothing to do, also by a checkpoint."""
        if self._checkpointing or self.failure is not None:
            return
        if idle and self._store.checkpoint_helps():
            self.checkpoint(self.tidy)
        elif self._store.tidy_helps():
            self.tidy()

    def tidy(self) -> None:
        """Let the store reclaim space though nothing is written; see Committer."""
        if self.failure is None:
            self._committer.tidy()

    def disk_full(self, error: StoreFullError) -> None:
        """What was decided cannot be written now; a checkpoint takes the place of the records before it."""
        if not self._checkpointing and self.failure is None:
            self._owner.report(f"[B2158] {error}; what is decided waits until there is room")
            self.checkpoint()

    # ---- internals -------------------------------------------------------------------------------------------------

    def _after(self, destination: Destination, outcome: Outcome) -> None:
        for look in self._observers.get(destination.number, ()):
            look(destination)
        if outcome.wake_at is not None:
            self._wake(destination.number, outcome.wake_at)
        if outcome.unfinished:
            self._wake(destination.number, self._time.now_ms())
        for ordinal in outcome.damaged:
            self.later(partial(self._owner.damaged, destination, ordinal))

    def _keep(self, destination: Destination, outcome: Outcome, block: Block) -> tuple[Sequence[LogEntry], bool]:
        """The records with the block's bytes, and whether the bytes are to leave the memory once they are durable."""
        ordinal = outcome.accepted
        if ordinal is None:
            return outcome.records, False
        held = destination.block_index.held.fresh(ordinal)
        if held is not None and held.stored:
            crowded = self._cache.put(destination.number, ordinal, block, stored=True)
        else:
            staged = held is not None and held.transacted and held.persistent
            crowded = self._cache.put(
                destination.number, ordinal, block, stored=False, staged=staged, topic=destination.kind == "topic"
            )
        self._kept(destination, outcome, block)
        # Nearly every block has one record, its own: nothing is copied for it.
        if len(outcome.records) == 1:
            kind, number, _, meta, _ = outcome.records[0]
            if kind == BLOCK:
                return (LogEntry(BLOCK, number, ordinal, meta, self.payload(block)),), crowded
        return [
            LogEntry(BLOCK, e.destination, e.ordinal, e.meta, self.payload(block)) if e.kind == BLOCK else e
            for e in outcome.records
        ], crowded

    def _with_bytes(self, destination: Destination, records: Sequence[LogEntry]) -> list[LogEntry]:
        """Records of blocks that came before and waited for their transaction."""
        return [
            LogEntry(
                BLOCK, e.destination, e.ordinal, e.meta, self.payload(self._cache.get(destination.number, e.ordinal))
            )
            if e.kind == BLOCK
            else e
            for e in records
        ]

    def _release(self, destination: Destination, effects: Sequence[Effect]) -> None:
        """Carry out all of the effects, before anything that follows from one of them."""
        if self.failure is not None:
            return
        handlers = self._handlers
        self._performing += 1
        try:
            for effect in effects:
                handlers[type(effect)](destination, effect)
        finally:
            self._performing -= 1
        if self._deferred:
            self._settle_down()

    def _release_and_demote(self, destination: Destination, effects: Sequence[Effect], ordinal: int) -> None:
        self._release(destination, effects)
        self._cache.demote(destination.number, ordinal)

    def _release_all(
        self,
        steps: Sequence[DestinationStep],
        outcomes: Sequence[Outcome],
        waited: Sequence[tuple[int, int]],
        done: Done,
    ) -> None:
        """Carry out the effects of all destinations, before anything that follows from one of them; ``waited``:
        destination and ordinal of blocks that waited for their transaction, and that the store may not have got."""
        self._performing += 1
        try:
            for (destination, _, _), outcome in zip(steps, outcomes, strict=True):
                self._release(destination, [*outcome.immediate, *outcome.after_durable])
                for entry in outcome.records:
                    if entry.kind == BLOCK:
                        self._cache.demote(entry.destination, entry.ordinal)
            if self._cache.pager is not None:
                for key in waited:
                    self._cache.pager.loosen(key)
            if self.failure is None:
                done()
        finally:
            self._performing -= 1
        if self._deferred:
            self._settle_down()


def _waiting(destination: Destination, command: cmd.Command) -> list[int]:
    """Blocks of a topic that wait for a transaction which is being decided: no durable subscription may want them."""
    if not isinstance(command, cmd.Decide) or destination.kind != "topic" or command.txn not in destination.staged:
        return []
    return [block.ordinal for block in destination.staged[command.txn].blocks if block.persistent]


def unawaited() -> None:
    """A ``done`` callback for callers that do not wait."""
