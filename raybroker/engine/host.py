"""A destination host: the destinations that share one store, and the way from a command to its effects.

``perform`` is the path of everything that happens: step the core, append what it recorded, release what it allows.  A
host knows nothing of sockets or Ray; it runs in an actor, in the loopback and in the simulator alike.  It is not thread
safe: one thread (an event loop) calls it, and the committer posts back into that thread.

After a store error the host *fails stop*: no further effect is released, every peer is told and closed, and the owner's
``failed`` callback decides about the process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from raybroker.core import command as cmd
from raybroker.core import notes
from raybroker.core.outcome import Acked, Deliver, Effect, Idle, Outcome, Promoted, Released, Retire, Sent
from raybroker.core.queue import Queue
from raybroker.engine.checkpoint import Definition, encode_checkpoint, read_back
from raybroker.engine.payloads import Payloads
from raybroker.engine.ports import Clock, Committer, Peer, Store
from raybroker.engine.runner import Runner
from raybroker.model.block import Block
from raybroker.model.bounds import message_bytes_max
from raybroker.model.errors import BrokerError, InvalidDestinationError, StoreDamagedError, StoreError
from raybroker.model.record import BLOCK, NOTE, Entry
from raybroker.model.settings import ConfigView, DestinationAttributes, updated_attributes

ATTACHMENT_BITS = 40
"""Attachments of one life of a host; the bits above are its incarnation, so numbers are never used twice."""


class Attachment:
    """A producer or consumer on a connection. Its number is the *epoch* that deliveries and acknowledgements carry."""

    __slots__ = ("eager", "first_tag", "handle", "number", "outbox", "peer", "queue")

    def __init__(self, number: int, queue: Queue, peer: Peer, handle: int, outbox: Outbox, *, eager: bool) -> None:
        self.number = number
        self.queue = queue
        self.peer = peer
        self.handle = handle
        self.outbox = outbox
        self.first_tag = 1
        """Deliveries tagged below were decided before the consumer gave everything back: they are not its any more."""
        self.eager = eager
        """Deliveries leave with the release that decides them, since nothing holds their bytes afterwards (R-10)."""


class Outbox:
    """What is decided for one connection and not written yet, because the connection is full."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: list[tuple[Attachment, Deliver]] = []


class Host:
    """See the module. ``incarnation`` grows with every start over the same store."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        config: ConfigView,
        *,
        incarnation: int = 1,
        idle: Callable[[str], None] | None = None,
        failed: Callable[[BrokerError], None] | None = None,
    ) -> None:
        self.store = store
        self.clock = clock
        self.config = config
        self.queues: dict[str, Queue] = {}
        self.definitions: dict[int, Definition] = {}
        self.dormant: dict[str, tuple[Definition, Queue]] = {}
        """Auto-created queues that a restart found empty: not there (D-22), but not forgotten before their reap time.
        A producer that has not heard what became of its sends opens them again, and must not be stored twice."""
        self.attachments: dict[int, Attachment] = {}
        self.sessions: dict[Any, None] = {}
        """A set in order of arrival, so that the same things happen in the same order every time."""
        self.halted: dict[int, StoreDamagedError] = {}
        """Queues with a message that the store cannot give back whole: nobody is served until it is purged."""
        self.failure: BrokerError | None = None
        self.payloads = Payloads(store, config["raybroker.memory.block_cache_bytes"])
        self.incarnation = incarnation
        self.message_bytes_max = message_bytes_max(config["imq.message.max_size"])
        self._next_number = 1
        self._next_attachment = (incarnation << ATTACHMENT_BITS) + 1
        self._wakes: dict[int, int] = {}
        self._checkpointing = False
        self._idle = idle
        self._failed = failed
        self._committer: Committer
        self._runner: Runner

    # ---- life ------------------------------------------------------------------------------------------------------

    def start(self, committer: Committer) -> None:
        """Rebuild every destination from the store, then take commands (B-20). Raises StoreDamagedError."""
        self._committer = committer
        self._runner = Runner(committer)
        found = read_back(self.store.recover())
        self._next_number = found.next_number
        gone: list[int] = []
        for number, recovery in sorted(found.recoveries.items()):
            definition = found.definitions.get(number)
            if definition is not None:
                queue = recovery.finish(definition.name, definition.attributes, reap_ms=self._reap_ms(definition))
                if definition.auto_created and not queue.ledger.messages:
                    if queue.producers.taken:
                        self.dormant[definition.name] = definition, queue
                        self._wakes[number] = self._reap_at(queue)
                    else:
                        gone.append(number)
                else:
                    self._install(queue, definition)
            dead = found.dead(number)
            if dead:
                self.store.free(number, dead)
        if gone:
            self._runner.carry([Entry(NOTE, n, 0, notes.encode_gone()) for n in gone], (), (), _nothing)

    def fail(self, error: BrokerError) -> None:
        """Stop for good: tell every peer why, release nothing more (P-05)."""
        if self.failure is not None:
            return
        self.failure = error
        for session in list(self.sessions):
            session.peer.close(error.code, str(error))
        if self._failed is not None:
            self._failed(error)

    def tick(self) -> None:
        """Let destinations act whose time has come; called about once a second."""
        now_ms = self.clock.now_ms()
        for number in [n for n, at in self._wakes.items() if at <= now_ms]:
            queue = self.queues.get(self.definitions[number].name) if number in self.definitions else None
            self._wakes.pop(number, None)
            if queue is not None:
                self.perform(queue, cmd.Tick())
            for name in [name for name, (_, q) in self.dormant.items() if q.number == number]:
                del self.dormant[name]
                self._note(number, notes.encode_gone(), _nobody)

    # ---- destinations ----------------------------------------------------------------------------------------------

    def create(
        self, name: str, attributes: DestinationAttributes, *, auto_created: bool, done: Callable[[], None]
    ) -> None:
        """Create a queue unless it is there; ``done`` when it is durable (D-03, D-21)."""
        self._require_running()
        if name in self.queues:
            self._barrier(done)
            return
        definition = Definition(name, auto_created, attributes)
        if name in self.dormant:
            _, queue = self.dormant.pop(name)
            queue.attributes, queue.reap_ms = attributes, self._reap_ms(definition)
            self._wakes.pop(queue.number, None)
        else:
            queue = Queue(self._next_number, name, attributes, reap_ms=self._reap_ms(definition))
            self._next_number += 1
        self._install(queue, definition)
        self._note(queue.number, notes.encode_attributes(definition.encode()), done)

    def update(self, name: str, changes: dict[str, object], done: Callable[[], None]) -> None:
        """Change attributes, all or none; raises ConfigError (D-03, F-03)."""
        self._require_running()
        queue = self.named(name)
        old = self.definitions[queue.number]
        new = Definition(name, old.auto_created, updated_attributes(old.attributes, changes))
        self.definitions[queue.number] = new
        self.perform(queue, cmd.Update(new.attributes))
        self._note(queue.number, notes.encode_attributes(new.encode()), done)

    def destroy(self, name: str, done: Callable[[], None]) -> None:
        """Remove a queue and its messages; its producers and consumers are told."""
        self._require_running()
        queue = self.named(name)
        del self.queues[name]
        del self.definitions[queue.number]
        self._wakes.pop(queue.number, None)
        for attachment in [a for a in self.attachments.values() if a.queue is queue]:
            del self.attachments[attachment.number]
            attachment.peer.event("destroyed", {"handle": attachment.handle, "name": name})
        ordinals = list(queue.ledger.held)

        def gone() -> None:
            self.store.free(queue.number, ordinals)
            for ordinal in ordinals:
                self.payloads.drop(queue.number, ordinal)
            done()

        self._note(queue.number, notes.encode_gone(), gone)

    def purge(self, name: str, done: Callable[[], None]) -> None:
        """Discard the messages that wait in a queue; those with consumers stay theirs."""
        self._require_running()
        queue = self.named(name)
        self.perform(queue, cmd.Purge())
        self.halted.pop(queue.number, None)
        self._barrier(done)

    def queue(self, name: str) -> Queue:
        """A queue that can be used. Raises InvalidDestinationError, or StoreDamagedError when it is halted."""
        found = self.named(name)
        if found.number in self.halted:
            raise self.halted[found.number]
        return found

    def named(self, name: str) -> Queue:
        found = self.queues.get(name)
        if found is None:
            raise InvalidDestinationError(f"queue {name!r} does not exist; create it, or allow imq.autocreate.queue")
        return found

    # ---- the path of every command ---------------------------------------------------------------------------------

    def attach(self, queue: Queue, peer: Peer, handle: int, outbox: Outbox, *, eager: bool = False) -> Attachment:
        """A number for a new producer or consumer; the caller then performs Attach… and detaches if that raises."""
        attachment = Attachment(self._next_attachment, queue, peer, handle, outbox, eager=eager)
        self._next_attachment += 1
        self.attachments[attachment.number] = attachment
        return attachment

    def perform(self, queue: Queue, command: cmd.Command, block: Block | None = None) -> None:
        """Step, append, release. Raises what the core raises; then nothing has changed."""
        if self.failure is not None:
            return
        outcome = queue.step(command, now_ms=self.clock.now_ms())
        records: Sequence[Entry] = outcome.records
        if outcome.accepted is not None:
            assert block is not None
            records = self._keep(queue, outcome, block)
        if outcome.wake_at is not None:
            self._wakes[queue.number] = outcome.wake_at
        self._runner.carry(records, outcome.after_durable, outcome.immediate, lambda e: self._release(queue, e))
        if not self._checkpointing and self.store.checkpoint_due():
            self._checkpoint()

    def has_room(self, nbytes: int) -> bool:
        """Whether the store would take so much more; refusing early keeps room for acknowledgements (P-05)."""
        return self.store.has_room(self._committer.pending_bytes + nbytes)

    def writable(self, outbox: Outbox) -> None:
        """A connection can take more: hand over what waited for it."""
        waiting, outbox.waiting = outbox.waiting, []
        for index, (attachment, effect) in enumerate(waiting):
            if attachment.peer.congested():
                outbox.waiting += waiting[index:]
                return
            # A consumer may have acknowledged what it never got; then its block may be gone.
            if attachment.number in self.attachments and effect.ordinal in attachment.queue.ledger.held:
                self._hand_over(attachment, effect)

    # ---- internals -------------------------------------------------------------------------------------------------

    def _keep(self, queue: Queue, outcome: Outcome, block: Block) -> list[Entry]:
        assert outcome.accepted is not None
        self.payloads.put(queue.number, outcome.accepted, block.view, persistent=block.persistent)
        return [
            Entry(BLOCK, e.destination, e.ordinal, e.meta, (block.view,)) if e.kind == BLOCK else e
            for e in outcome.records
        ]  # fmt: skip

    def _release(self, queue: Queue, effects: Sequence[Effect]) -> None:
        if self.failure is not None:
            return
        for effect in effects:
            if isinstance(effect, Retire):
                self._retire(queue, effect)
            elif isinstance(effect, Idle):
                if self._idle is not None:
                    self._idle(queue.name)
            else:
                attachment = self.attachments.get(effect.attachment)
                if attachment is not None:
                    self._tell(attachment, effect)

    def _tell(self, attachment: Attachment, effect: Sent | Deliver | Acked | Released | Promoted) -> None:
        peer = attachment.peer
        if isinstance(effect, Deliver):
            if effect.tag < attachment.first_tag:
                return
            if not attachment.eager and (attachment.outbox.waiting or peer.congested()):
                attachment.outbox.waiting.append((attachment, effect))
            else:
                self._hand_over(attachment, effect)
        elif isinstance(effect, Sent):
            peer.sent(attachment.handle, effect.first_seq, effect.messages, effect.refused)
        elif isinstance(effect, Acked):
            peer.acked(effect.request, effect.unknown)
        elif isinstance(effect, Released):
            attachment.first_tag = effect.next_tag
            attachment.outbox.waiting = [w for w in attachment.outbox.waiting if w[0] is not attachment]
            peer.released(attachment.handle, effect.request, effect.next_tag)
        else:
            peer.promoted(attachment.handle)

    def _hand_over(self, attachment: Attachment, effect: Deliver) -> None:
        try:
            block = self.payloads.get(attachment.queue.number, effect.ordinal)
        except StoreDamagedError as error:
            self._halt(attachment.queue, error)
            return
        except StoreError as error:
            self.fail(error)
            return
        room = attachment.peer.room()
        if 0 < room < effect.end - effect.start and not attachment.eager:
            rest = effect._replace(tag=effect.tag + room, start=effect.start + room)
            attachment.outbox.waiting.insert(0, (attachment, rest))
            effect = effect._replace(end=rest.start)
        parts = block.part(effect.start, effect.end)
        attachment.peer.deliver(attachment.handle, attachment.number, effect.tag, effect.attempt, parts)

    def _halt(self, queue: Queue, error: StoreDamagedError) -> None:
        """A message is damaged, not absent: its queue stops and says so, all others go on."""
        self.halted[queue.number] = error
        ended = [a for a in self.attachments.values() if a.queue is queue]
        for attachment in ended:
            del self.attachments[attachment.number]
            attachment.peer.event("halted", {"handle": attachment.handle, "code": error.code, "text": str(error)})
        for attachment in ended:
            self.perform(queue, cmd.DetachConsumer(attachment.number))
            self.perform(queue, cmd.DetachProducer(attachment.number, forget=False))

    def _retire(self, queue: Queue, effect: Retire) -> None:
        for ordinal in effect.ordinals:
            self.payloads.drop(queue.number, ordinal)
        if effect.persistent:
            self.store.free(queue.number, effect.ordinals)

    def _install(self, queue: Queue, definition: Definition) -> None:
        queue.message_bytes_max = self.message_bytes_max
        self.queues[definition.name] = queue
        self.definitions[queue.number] = definition
        if queue.reap_ms is not None:
            self._wakes[queue.number] = self._reap_at(queue)

    def _reap_at(self, queue: Queue) -> int:
        return self.clock.now_ms() + (queue.reap_ms or 0)

    def _reap_ms(self, definition: Definition) -> int | None:
        return self.config["imq.autocreate.reaptime"] * 1000 if definition.auto_created else None

    def _checkpoint(self) -> None:
        """Write the state of all destinations, so that the store can forget what came before."""
        self._checkpointing = True

        def done() -> None:
            self._checkpointing = False

        rows = [*((self.definitions[q.number], q) for q in self.queues.values()), *self.dormant.values()]
        self._append([encode_checkpoint(self._next_number, rows)], done)

    def _note(self, number: int, meta: bytes, done: Callable[[], None]) -> None:
        self._append([Entry(NOTE, number, 0, meta)], done)

    def _barrier(self, done: Callable[[], None]) -> None:
        """``done`` once everything appended so far is durable."""
        self._append([], done)

    def _append(self, entries: list[Entry], done: Callable[[], None]) -> None:
        self._runner.carry(entries, (_DONE,), (), lambda _: done())

    def _require_running(self) -> None:
        if self.failure is not None:
            raise StoreError(f"the host has stopped: {self.failure}")


_DONE = Idle()
"""Stands in the place of an effect where only the moment of its release matters."""


def _nobody() -> None:
    """Nobody waits for it."""


def _nothing(effects: Sequence[Effect]) -> None:
    """Nothing to release."""
