"""A destination host: the destinations that share one store, and the way from a command to its effects.

``perform`` is the path of everything that happens: step the core, append what it recorded, release what it allows.  A
host knows nothing of sockets or Ray; it runs in an actor, in the loopback and in the simulator alike.  It is not thread
safe: one thread (an event loop) calls it, and the committer posts back into that thread.

After a store error the host *fails stop*: no further effect is released, every peer is told and closed, and the owner's
``failed`` callback decides about the process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from raybroker.core import command as cmd
from raybroker.core.destination import Destination
from raybroker.core.durable import records as notes
from raybroker.core.outcome import DeadLetter, Effect, Outcome
from raybroker.core.selector.content import Content
from raybroker.engine.attachments import Attachment, Outbox, Release
from raybroker.engine.block_cache import Payloads
from raybroker.engine.checkpoint import Definition, encode_checkpoint, read_back
from raybroker.engine.consumer_watch import Watching
from raybroker.engine.dead_letters import Burial
from raybroker.engine.destination_registry import Catalogue
from raybroker.engine.executor import Step
from raybroker.engine.message_composition import Composing
from raybroker.engine.meters import Meters
from raybroker.engine.ports import Clock, Codec, Committer, Forward, Peer, Store
from raybroker.engine.quarantine import Quarantine
from raybroker.engine.runner import Runner
from raybroker.engine.schedules import Schedules
from raybroker.engine.transactions import Transactions
from raybroker.engine.transfer import Handing
from raybroker.model.block import Block
from raybroker.model.bounds import message_bytes_max
from raybroker.model.errors import BrokerError, InvalidDestinationError, StoreDamagedError, StoreError, StoreFullError
from raybroker.model.record import BLOCK, NOTE, Entry
from raybroker.model.settings import ConfigView

if TYPE_CHECKING:
    from raybroker.engine.session import Session

ATTACHMENT_BITS = 40
"""Attachments of one life of a host; the bits above are its incarnation, so numbers are never used twice."""


class Host:
    """See the module. ``incarnation`` grows with every start over the same store.

    codec     what is in blocks
    identity  64 bits that nobody else has: the producer of what the host itself sends (dead messages, moved ones)
    broker    its broker's name, for what is written on dead messages
    idle      called with (type, name) of a destination that is over: auto-created and unused, or temporary and left
    alarm     called with a time, milliseconds, at which ``tick`` should be called at the latest
    forward   the way to destinations of other hosts
    report    takes a line for the log
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        config: ConfigView,
        *,
        codec: Codec,
        incarnation: int = 1,
        identity: int = 1,
        broker: str = "",
        idle: Callable[[str, str], None] | None = None,
        failed: Callable[[BrokerError], None] | None = None,
        alarm: Callable[[int], None] | None = None,
        forward: Forward | None = None,
        report: Callable[[str], None] | None = None,
    ) -> None:
        self.store = store
        self.clock = clock
        self.config = config
        self.codec = codec
        self.broker = broker
        self.identity = identity
        self.forward = forward
        self.report = report or _unheard
        self.catalogue = Catalogue(self)
        self.destinations = self.catalogue.destinations
        self.definitions = self.catalogue.definitions
        self.attachments: dict[int, Attachment] = {}
        self.sessions: dict[Session, None] = {}
        """A set in order of arrival, so that the same things happen in the same order every time."""
        self.halted: dict[int, StoreDamagedError] = {}
        """Destinations with a message that the store cannot give back whole: nobody is served until that is skipped, or
        the destination purged."""
        self.failure: BrokerError | None = None
        self.payloads = Payloads(store, config["raybroker.memory.block_cache_bytes"])
        self.incarnation = incarnation
        self.message_bytes_max = message_bytes_max(config["imq.message.max_size"])
        self.transactions = Transactions(self)
        self.burial = Burial(self)
        self.quarantine = Quarantine(self)
        self.schedules = Schedules(self)
        self.handing = Handing(self)
        self.composing = Composing(self)
        self.watching = Watching(self)
        self.meters = Meters(self, timing=config["raybroker.metrics.timing"])
        self.idle = idle
        self._next_attachment = (incarnation << ATTACHMENT_BITS) + 1
        self._wakes: dict[int, int] = {}
        self._alarm = alarm
        self._checkpointing = False
        self._failed = failed
        self._releasing = Release(self)
        self._performing = 0
        self._settling = False
        self._later: deque[Callable[[], None]] = deque()
        self._committer: Committer
        self._runner: Runner

    # ---- life ------------------------------------------------------------------------------------------------------

    def start(self, committer: Committer) -> None:
        """Rebuild every destination from the store, then take commands. Raises StoreDamagedError."""
        self._committer = committer
        self._runner = Runner(committer)
        found = read_back(self.store.recover())
        self.transactions.restore(found.transactions)
        gone = self.catalogue.restore(found)
        if gone:
            self.append([Entry(NOTE, n, 0, notes.encode(notes.GONE, 0)) for n in gone], _nobody)
        self.transactions.recovered()
        self.schedules.restore(found.schedules)

    def fail(self, error: BrokerError) -> None:
        """Stop for good: tell every peer why, release nothing more."""
        if self.failure is not None:
            return
        self.failure = error
        for session in list(self.sessions):
            session.peer.close(error.code, str(error))
        if self._failed is not None:
            self._failed(error)

    def tick(self) -> None:
        """Let whatever act whose time has come; called about once a second, and when the alarm says so."""
        now_ms = self.clock.now_ms()
        for number in [n for n, at in self._wakes.items() if at <= now_ms]:
            self._wakes.pop(number, None)
            home = self.catalogue.by_number(number)
            if home is not None:
                self.perform(home, cmd.Tick())
            self.catalogue.forget_dormant(number)
        self.catalogue.end_orphans(now_ms)
        self.transactions.tick(now_ms)
        for tick in (self.burial.again, self.schedules.tick, self.handing.tick, self.composing.again):
            tick(now_ms)
        if self._alarm is not None and self._wakes:
            self._alarm(min(self._wakes.values()))

    def wake(self, number: int, at_ms: int) -> None:
        """Destination ``number`` wants a Tick then."""
        before = self._wakes.get(number)
        if before is None or at_ms < before:
            self._wakes[number] = at_ms
            if self._alarm is not None:
                self._alarm(at_ms)

    def unwake(self, number: int) -> None:
        self._wakes.pop(number, None)

    # ---- destinations ----------------------------------------------------------------------------------------------

    def find(self, kind: str, name: str) -> Destination:
        """A destination that can be used. Raises InvalidDestinationError, or StoreDamagedError when it is halted."""
        found = self.named(kind, name)
        if found.number in self.halted:
            raise self.halted[found.number]
        return found

    def named(self, kind: str, name: str) -> Destination:
        found = self.destinations.get((kind, name))
        if found is None:
            raise InvalidDestinationError(f"{kind} {name!r} does not exist; create it, or allow imq.autocreate.{kind}")
        return found

    def definition(self, home: Destination) -> Definition:
        return self.definitions[home.number]

    # ---- the path of every command ---------------------------------------------------------------------------------

    def attach(
        self, home: Destination, peer: Peer, handle: int, outbox: Outbox, *, eager: bool = False
    ) -> Attachment:
        """A number for a new producer or consumer; the caller then performs Attach… and detaches if that raises."""
        attachment = Attachment(self._next_attachment, home, peer, handle, outbox, eager=eager)
        self._next_attachment += 1
        self.attachments[attachment.number] = attachment
        return attachment

    def perform(self, home: Destination, command: cmd.Command, block: Block | None = None) -> Outcome | None:
        """Step, append, release. Raises what the core raises; then nothing has changed."""
        if self.failure is not None:
            return None
        self._performing += 1
        try:
            outcome = home.step(command, now_ms=self.clock.now_ms())
            records: Sequence[Entry] = outcome.records
            after, release = outcome.after_durable, lambda e: self._release(home, e)
            if outcome.accepted is not None:
                assert block is not None
                records, crowded = self._keep(home, outcome, block)
                if crowded:
                    after, release = [*after, _DONE], lambda e: self._release_and_demote(home, outcome, e)
            self._runner.carry(records, after, outcome.immediate, release)
            self._after(home, outcome)
        finally:
            self._performing -= 1
        self._settle_down()
        return outcome

    def perform_all(self, steps: Sequence[Step], extra: Sequence[Entry], done: Callable[[], None]) -> list[Outcome]:
        """Several commands whose records become durable together or not at all; then ``done``. None of them raises.

        All effects wait for that: nothing is seen of what may not have been.
        """
        outcomes: list[Outcome] = []
        if self.failure is not None:
            return outcomes
        self._performing += 1
        try:
            records: list[Entry] = []
            now_ms = self.clock.now_ms()
            for home, command, block in steps:
                outcome = home.step(command, now_ms=now_ms)
                outcomes.append(outcome)
                if block is not None:
                    records += self._keep(home, outcome, block)[0]
                else:
                    records += self._attach_bytes(home, outcome)
            self._runner.carry((*records, *extra), (_DONE,), (), lambda _: self._done(steps, outcomes, done))
            for (home, _, _), outcome in zip(steps, outcomes, strict=True):
                self._after(home, outcome)
        finally:
            self._performing -= 1
        self._settle_down()
        return outcomes

    def _done(self, steps: Sequence[Step], outcomes: Sequence[Outcome], done: Callable[[], None]) -> None:
        for (home, _, _), outcome in zip(steps, outcomes, strict=True):
            self._release(home, [*outcome.immediate, *outcome.after_durable])
            for entry in outcome.records:
                if entry.kind == BLOCK:
                    self.payloads.demote(entry.destination, entry.ordinal)
        if self.failure is None:
            done()

    def later(self, action: Callable[[], None]) -> None:
        """Do this when no command is under way: what follows from an effect must not come between it and its record."""
        self._later.append(action)
        self._settle_down()

    def _settle_down(self) -> None:
        if self._settling:
            return
        self._settling = True
        try:
            while self._later and not self._performing and self.failure is None:
                self._later.popleft()()
        finally:
            self._settling = False

    def _after(self, home: Destination, outcome: Outcome) -> None:
        self.watching.look(home)
        self.meters.thresholds.look(home)
        if outcome.wake_at is not None:
            self.wake(home.number, outcome.wake_at)
        if outcome.unfinished:
            self.wake(home.number, self.clock.now_ms())
        for ordinal in outcome.damaged:
            self.later(lambda o=ordinal: self._damaged(home, o))  # type: ignore[misc]
        if not self._checkpointing and self.store.checkpoint_due():
            self._checkpoint()

    def _damaged(self, home: Destination, ordinal: int) -> None:
        try:
            self.payloads.get(home.number, ordinal)
        except StoreDamagedError as error:
            self.halt(home, error)
        except StoreError as error:
            self.fail(error)

    def has_room(self, nbytes: int) -> bool:
        """Whether the store would take so much more; refusing early keeps room for acknowledgements."""
        return self.store.has_room(self._committer.pending_bytes + nbytes)

    def writable(self, outbox: Outbox) -> None:
        """A connection can take more: hand over what waited for it, before anything that follows from that."""
        self._performing += 1
        try:
            self._releasing.writable(outbox)
        finally:
            self._performing -= 1
        self._settle_down()

    # ---- internals -------------------------------------------------------------------------------------------------

    def _keep(self, home: Destination, outcome: Outcome, block: Block) -> tuple[Sequence[Entry], bool]:
        """The records with the block's bytes, and whether the bytes are to leave the memory once they are durable."""
        if outcome.accepted is None:
            return outcome.records, False
        held = home.block_index.held.get(outcome.accepted)
        stored = held is not None and held.stored
        crowded = self.payloads.put(home.number, outcome.accepted, block.view, stored=stored)
        self.meters.kept(home, outcome, block)
        return [
            Entry(BLOCK, e.destination, e.ordinal, e.meta, (block.view,)) if e.kind == BLOCK else e
            for e in outcome.records
        ], crowded  # fmt: skip

    def _release_and_demote(self, home: Destination, outcome: Outcome, effects: Sequence[Effect]) -> None:
        self._release(home, effects)
        if effects and effects[-1] is _DONE and outcome.accepted is not None:
            self.payloads.demote(home.number, outcome.accepted)

    def _attach_bytes(self, home: Destination, outcome: Outcome) -> list[Entry]:
        """Records of blocks that came before and waited for their transaction."""
        return [
            Entry(BLOCK, e.destination, e.ordinal, e.meta, (self.payloads.get(home.number, e.ordinal).view,))
            if e.kind == BLOCK
            else e
            for e in outcome.records
        ]

    def _release(self, home: Destination, effects: Sequence[Effect]) -> None:
        """All of them, before anything that follows from one of them."""
        if self.failure is not None:
            return
        self._performing += 1
        try:
            for effect in effects:
                if effect is _DONE:
                    continue
                if isinstance(effect, DeadLetter):
                    self._later.append(lambda e=effect: self.burial.bury(home, e))  # type: ignore[misc]
                else:
                    self._releasing.effect(home, effect)
        finally:
            self._performing -= 1
        self._settle_down()

    def halt(self, home: Destination, error: StoreDamagedError) -> None:
        """A message is damaged, not absent: its destination stops and says so, all others go on."""
        if home.number in self.halted or self.destinations.get((home.kind, home.name)) is not home:
            return
        self.halted[home.number] = error
        ended = [a for a in self.attachments.values() if a.home is home]
        for attachment in ended:
            del self.attachments[attachment.number]
            attachment.peer.event("halted", {"handle": attachment.handle, "code": error.code, "text": str(error)})
        for attachment in ended:
            self.perform(home, cmd.DetachConsumer(attachment.number))
            self.perform(home, cmd.DetachProducer(attachment.number, forget=False))

    def read_headers(self, home: Destination, ordinal: int) -> Content | None:
        """Headers of a held block; None when the store cannot give it back."""
        try:
            return self.codec.content(self.payloads.get(home.number, ordinal))
        except StoreError:
            return None

    def _checkpoint(self) -> None:
        """Write the state of all destinations, so that the store can forget what came before."""
        self._checkpointing = True

        def done() -> None:
            self._checkpointing = False

        rows = self.catalogue.rows()
        number, schedules = self.catalogue.next_number, self.schedules.log
        self.append([encode_checkpoint(number, self.transactions.log, schedules, rows)], done)

    def disk_full(self, error: StoreFullError) -> None:
        """What was decided cannot be written now; a checkpoint takes the place of the notes before it."""
        if not self._checkpointing and self.failure is None:
            self.report(f"[B2158] {error}; what is decided waits until there is room")
            self._checkpoint()

    def note(self, number: int, meta: bytes, done: Callable[[], None]) -> None:
        self.append([Entry(NOTE, number, 0, meta)], done)

    def append(self, entries: list[Entry], done: Callable[[], None]) -> None:
        """Write entries; ``done`` once they, and everything before them, are durable."""
        self._runner.carry(entries, (_DONE,), (), lambda _: done() if self.failure is None else None)

    def require_running(self) -> None:
        if self.failure is not None:
            raise StoreError(f"the host has stopped: {self.failure}")


_DONE = DeadLetter(0, 0, 0, 0, "", "")
"""Stands in the place of an effect where only the moment of its release matters."""


def _nobody() -> None:
    """Nobody waits for it."""


def _unheard(line: str) -> None:
    """Nobody reads the log."""
