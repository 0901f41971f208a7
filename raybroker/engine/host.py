"""A destination host: the destinations that share one store, and the way from a command to its effects.

This file composes the parts of a host, and is the only one that knows all of them; each part gets the few others that
it works with.  A host knows nothing of sockets or Ray; it runs in an actor, in the loopback and in the simulator alike.
It is not thread safe: one thread (an event loop) calls it, and the committer posts back into that thread.

After a store error the host *fails stop*: no further effect is released, every peer is told and closed, and the owner's
``failed`` callback decides about the process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from raybroker.core import command as cmd
from raybroker.core.admission.pool_share import PoolShare
from raybroker.core.destination import Destination
from raybroker.core.durable import records
from raybroker.core.outcome import Compose, DeadLetter, Idle, Retire
from raybroker.engine.checkpoint import encode_checkpoint, read_back
from raybroker.engine.counted_lines import CountedLines
from raybroker.engine.dead_letters.dead_letter_log import DeadLetterLog
from raybroker.engine.dead_letters.dead_letter_moves import DeadLetterMoves
from raybroker.engine.dead_letters.dead_letter_policy import DeadLetterPolicy
from raybroker.engine.dead_letters.dead_letters import DeadLetters
from raybroker.engine.dead_letters.death_records import DeathRecords
from raybroker.engine.destinations.destination_administration import DestinationAdministration
from raybroker.engine.destinations.destination_installation import DestinationInstallation
from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.destinations.destination_removal import DestinationRemoval
from raybroker.engine.destinations.inspection import Inspection
from raybroker.engine.destinations.message_composition import MessageComposition
from raybroker.engine.destinations.message_moves import MessageMoves
from raybroker.engine.destinations.policies import HostPolicies
from raybroker.engine.destinations.pools import Pools
from raybroker.engine.destinations.subscription_administration import SubscriptionAdministration
from raybroker.engine.destinations.temporary_destinations import TemporaryDestinations
from raybroker.engine.destinations.transfer import MessageTransfer
from raybroker.engine.live_settings import LiveSettings
from raybroker.engine.measured_time import MeasuredTime
from raybroker.engine.measuring.counter_baselines import CounterBaselines
from raybroker.engine.measuring.life_cycle import LifeCycle
from raybroker.engine.measuring.meters import Meters
from raybroker.engine.measuring.metrics import HostMetrics, MetricRows
from raybroker.engine.memory.block_cache import BlockCache
from raybroker.engine.memory.block_compression import BlockCompression
from raybroker.engine.memory.block_reader import BlockReader
from raybroker.engine.memory.large_bodies import LargeBodies
from raybroker.engine.memory.memory_protection import MemoryProtection
from raybroker.engine.memory.pager import PageFiles, Pager
from raybroker.engine.memory.quarantine import Quarantine
from raybroker.engine.path.block_intake import BlockIntake
from raybroker.engine.path.blocked_sends import BlockedSends
from raybroker.engine.path.client_effects import ClientEffects
from raybroker.engine.path.effect_dispatcher import EffectDispatcher
from raybroker.engine.path.executor import Executor, ExecutorOwner, unawaited
from raybroker.engine.path.observers import Observers
from raybroker.engine.path.own_sends import OwnSends
from raybroker.engine.path.producer_signals import ProducerSignals
from raybroker.engine.path.wakeups import Durations, WakeupRetries, Wakeups
from raybroker.engine.ports import (
    BodyStore,
    Clock,
    Codec,
    Committer,
    Fault,
    Forward,
    Memory,
    Peer,
    Store,
    TakeBody,
    Worker,
)
from raybroker.engine.schedules.schedules import Schedules
from raybroker.engine.sessions.attachments import Attachments
from raybroker.engine.sessions.connection_requests import ConnectionRequests, ProducerRequests
from raybroker.engine.sessions.consumer_requests import ConsumerRequests
from raybroker.engine.sessions.consumer_watch import HostConsumerWatch, WatchRequests
from raybroker.engine.sessions.drained_nodes import NodeDrains
from raybroker.engine.sessions.schedule_requests import ScheduleRequests
from raybroker.engine.sessions.session import Operation, Session, SessionParts
from raybroker.engine.sessions.sessions import Sessions
from raybroker.engine.sessions.transaction_requests import TransactionRequests
from raybroker.engine.transactions.transactions import Transactions
from raybroker.model.blocks.record import NOTE, LogEntry
from raybroker.model.errors import BrokerError
from raybroker.model.settings.settings import ConfigView

if TYPE_CHECKING:
    from raybroker.engine.destinations.explaining import Explaining

WRITTEN_EVERY_MS: Final = 10_000
"""A clock that is set again and again makes the host write its whole state no more often than that."""


class HostIdentity(NamedTuple):
    """Which host it is.

    incarnation  grows with every start over the same store
    producer     64 bits that nobody else has: the producer of what the host itself sends (dead messages, moved ones)
    broker       its broker's name, for what is written on dead messages
    """

    incarnation: int = 1
    producer: int = 1
    broker: str = ""


class BodyPlaces(NamedTuple):
    """The places of bodies.

    memory  what is protected by memory levels; None: nothing is
    paging  where bodies go that are not stored and do not fit into ``buffer_bytes``; None: they stay in memory
    bodies  where large bodies are, and ``worker`` who writes and reads them; None: they come whole
    given   large bodies that come by reference; None: none do
    """

    memory: Memory | None = None
    paging: PageFiles | None = None
    buffer_bytes: int = 0
    bodies: BodyStore | None = None
    worker: Worker | None = None
    given: TakeBody | None = None


class Surroundings(NamedTuple):
    """Whoever runs a host, as the host calls it.

    idle      takes (type, name) of a destination that is over: auto-created and unused, or temporary and left
    failed    takes the error by which the host has stopped
    alarm     takes a time, measured milliseconds, at which ``tick`` should be called at the latest
    forward   the way to destinations of other hosts
    lease     asks the broker for more of a pool; None: the host is the whole broker
    relieved  called when senders need not wait any more for paging files
    report    takes a line for the log
    life      takes a row for each event of a message's life
    may_dispatch  whether nobody else can be serving this host's messages, where its log has copies elsewhere
    """

    idle: Callable[[str, str], None] | None = None
    failed: Callable[[BrokerError], None] | None = None
    alarm: Callable[[int], None] | None = None
    forward: Forward | None = None
    lease: Callable[[PoolShare], None] | None = None
    relieved: Callable[[], None] = unawaited
    report: Callable[[str], None] | None = None
    life: Callable[[dict[str, Any]], None] | None = None
    may_dispatch: Callable[[], bool] | None = None


FIRST_LIFE: Final = HostIdentity()
IN_MEMORY: Final = BodyPlaces()
NOBODY: Final = Surroundings()


class Host:
    """See the module. ``codec``: what is in blocks."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        config: ConfigView,
        *,
        codec: Codec,
        identity: HostIdentity = FIRST_LIFE,
        places: BodyPlaces = IN_MEMORY,
        surroundings: Surroundings = NOBODY,
    ) -> None:
        self.store = store
        self.clock = clock
        self.time = MeasuredTime(clock)
        self.config = config
        self.codec = codec
        self.incarnation = incarnation = identity.incarnation
        self.report = surroundings.report or _unheard
        self._unwritten, self._written_ms = False, 0
        self._broker = identity.broker
        self._surroundings = surroundings
        self.registry = DestinationRegistry()
        self.attachments = Attachments(incarnation)
        self.sessions = Sessions()
        self.signals = ProducerSignals(self.attachments, self.registry.destinations)
        self.pager = None
        if places.paging is not None:
            self.pager = Pager(
                places.paging, places.buffer_bytes, self.time, self.report, codec.unpacked, surroundings.relieved
            )
        cached = config["raybroker.memory.block_cache_bytes"]
        self.cache = BlockCache(store, cached, self.pager, places.bodies, codec.unpacked)
        self.own = OwnSends(self.registry, codec, identity.producer)
        self._observers = Observers()
        self.watch = HostConsumerWatch(self.attachments, self._observers)
        self._wakeups = Wakeups(surroundings.alarm)
        self._durations = Durations(self._wakeups, self.time)
        self._lines = CountedLines(self._durations.now_ms, self.report)
        self._compose_executor(places)
        self.compression = BlockCompression(codec, config, store, self.executor, places.paging, self.report)
        self._compose_pools()
        self._compose_memory(places.memory)
        self._compose_messages()
        self._compose_administration()
        self._compose_sessions()

    # ---- composition -----------------------------------------------------------------------------------------------

    def _compose_executor(self, places: BodyPlaces) -> None:
        """What carries commands out, and what is counted of them."""
        life = LifeCycle(self.cache, self.codec, self.clock, self.sessions, self._surroundings.life)
        timing = self.config["raybroker.metrics.timing"]
        self.meters = Meters(
            self.time, life, self._observers, self.report, self.signals, broker=self._broker, timing=timing
        )
        self._effects = EffectDispatcher()
        self.executor = Executor(
            self.store,
            self.time,
            self.cache,
            self._wakeups,
            self._effects,
            self._observers,
            ExecutorOwner(self.meters.kept, self._check_block, self._checkpoint, self._tell_failure, self.report),
        )
        self.blocks = BlockReader(
            self.executor,
            self.registry,
            self.attachments,
            self.cache,
            self.codec,
            self._halting,
        )
        self._bodies = LargeBodies(self.registry, self.blocks, places.bodies, places.worker, places.given)

    def _compose_pools(self) -> None:
        """What holds messages against limits that destinations share."""
        destinations = self.registry.destinations
        self.pools = Pools(
            self.config,
            destinations.values,
            self._observers,
            lambda: self._blocked,
            self._durations,
            self.time.now_ms(),
            self.report,
            self._surroundings.lease,
        )
        self._blocked = BlockedSends(
            self.executor, self.attachments, self._durations, self.pools.ask_if_wanted, self.codec.content
        )

    def _compose_memory(self, memory: Memory | None) -> None:
        """What guards the memory."""
        self.memory = MemoryProtection(
            memory, self.config, self.time.now_ms, self.cache, self.signals, self.executor, self._wakeups, self.report
        )

    def _compose_messages(self) -> None:
        """What puts messages into destinations and takes them out, and who carries out which effect."""
        executor, registry, own, codec, clock = self.executor, self.registry, self.own, self.codec, self.clock
        dead: WakeupRetries[tuple[Destination, DeadLetter]] = WakeupRetries(self._durations)
        self._death_records = DeathRecords(own, codec, clock, self._broker)
        self.dead_letters = DeadLetters(
            executor,
            registry,
            self.blocks,
            DeadLetterPolicy(codec, self.config),
            DeadLetterMoves(executor, registry, own, self._death_records, self._surroundings.forward),
            DeadLetterLog(codec, self.config, self.meters.life, self.report, self._lines),
            dead,
        )
        full: WakeupRetries[tuple[Destination, Compose]] = WakeupRetries(self._durations)
        self.composition = MessageComposition(executor, registry, self.blocks, own, codec, full, self.dead_letters.move)
        self.schedules = Schedules(
            executor, registry, self.cache, own, self._wakeups, self.time, self.report, self.memory
        )
        self.transactions = Transactions(
            executor, registry, self.attachments, self._durations, self.meters, clock, self.config, self.report
        )
        self.transfer = MessageTransfer(executor, registry, self.transactions, self.cache, own, self._durations, codec)
        self.moves = MessageMoves(executor, registry, own, codec, clock, self.report)
        self.outgoing = ClientEffects(
            executor,
            self.attachments,
            self.blocks,
            self.meters,
            self.memory.holds,
            self._surroundings.may_dispatch,
        )
        self._effects.register(self.outgoing.handlers())
        self._effects.register(
            {
                DeadLetter: self.dead_letters.died,
                Compose: self.composition.completed,
                Retire: self._retire,
                Idle: self._destination_idle,
            }
        )

    def _compose_administration(self) -> None:
        """What administrators ask of a host."""
        self.policies = HostPolicies(self.config)
        self.settings = LiveSettings(
            self.config,
            self.time,
            self.registry,
            self._wakeups,
            (self.meters.thresholds.apply_attributes, self.pools.assign),
        )
        self.baselines = CounterBaselines(self.meters, self.clock)
        self.metrics = MetricRows(self.time, self.registry, self.schedules, self.meters, self.baselines)
        self.own_metrics = HostMetrics(
            self.store, self.cache, self.transactions.by_number, self.meters, self.compression
        )
        self.inspection = Inspection(
            self.registry,
            self.attachments,
            self.schedules,
            self.baselines,
            broker=self._broker,
            now_ms=self.time.now_ms,
            bytes_elsewhere=self.cache.bytes_elsewhere,
        )
        self.quarantine = Quarantine(
            self.executor,
            self.registry,
            self.cache,
            self.store,
            self.own,
            self._death_records,
            self.settings,
            self._surroundings.forward,
        )
        self.installation = DestinationInstallation(
            self.registry,
            self.cache,
            self.blocks,
            self._wakeups,
            self.time,
            self.config,
            self.settings,
            self.policies.hold,
        )
        self.administration = DestinationAdministration(
            self.executor,
            self.registry,
            self.installation,
            self.attachments,
            self.quarantine,
            self.meters,
            self.report,
            self.pools.assign,
        )
        self.subscriptions = SubscriptionAdministration(self.executor, self.registry)
        self.removal = DestinationRemoval(
            self.executor,
            self.registry,
            self.attachments,
            self.cache,
            self._wakeups,
            self.schedules,
            (
                self.transactions.without,
                self.quarantine.forget_destination,
                self.metrics.destroyed,
                self.pools.forget_destination,
            ),
        )
        self.temporary = TemporaryDestinations(
            self.registry,
            self._durations,
            prepared=self.transactions.prepared_in,
            over=self._surroundings.idle or self._destroy,
        )

    def _compose_sessions(self) -> None:
        connections = ConnectionRequests(
            self.sessions,
            self.clock,
            self.temporary.found,
            self.report,
            incarnation=self.incarnation,
            pieces=self._bodies.taken,
        )
        producers = ProducerRequests(self.registry, self.attachments, self.memory, self.meters.thresholds.armed)
        self.drained_nodes = NodeDrains(self.attachments, self.executor, self.clock)
        consumers = ConsumerRequests(
            self.registry,
            self.attachments,
            self.blocks,
            self.meters,
            self.codec,
            self.clock,
            self.drained_nodes,
            broker=self._broker,
        )
        operations: Mapping[str, Operation] = {
            **connections.operations(),
            **producers.operations(),
            **consumers.operations(),
            **TransactionRequests(self.transactions, self.meters).operations(),
            **ScheduleRequests(self.schedules, self.attachments, self.clock).operations(),
            **WatchRequests(self.registry, self.watch).operations(),
            **self._bodies.operations(),
        }
        intake = BlockIntake(self.executor, self.registry, self.codec, self.time, self.memory)
        self._session_parts = SessionParts(
            self.executor,
            self.attachments,
            self.sessions,
            self.outgoing,
            intake,
            self.meters,
            self.transactions,
            self._blocked,
            operations,
            self._bodies.give_body,
            self._bodies.writable,
            (self.watch.left, self._bodies.left),
            self.temporary.lost,
        )

    # ---- life ------------------------------------------------------------------------------------------------------

    @cached_property
    def explaining(self) -> Explaining:
        """What says why something waits; it is imported when somebody asks for the first time."""
        from raybroker.engine.destinations.explaining import Explaining

        return Explaining(
            self.registry,
            self.blocks,
            self.transactions.transaction_rows,
            self.transactions.by_number,
            self.time,
            self.executor.has_room,
            self.memory.require,
        )

    def open_session(self, peer: Peer) -> Session:
        """Open a session for a connection that has authenticated; who opens it closes it when the connection ends."""
        return Session(self._session_parts, peer)

    @property
    def failure(self) -> BrokerError | None:
        """Why the host has stopped; None while it runs."""
        return self.executor.failure

    def start(self, committer: Committer) -> None:
        """Rebuild every destination from the store, then take commands. Raises StoreDamagedError."""
        self.executor.start(committer)
        found = read_back(self.store.recover_runs())
        self.pools.configure()
        self.transactions.restore(found.transactions)
        gone = self.installation.restore(found)
        if gone:
            entries = [LogEntry(NOTE, number, 0, records.encode(records.GONE, 0)) for number in gone]
            self.executor.append(entries, unawaited)
        self.metrics.started()
        self.transactions.recovered()
        self.schedules.restore(found.schedules)

    def tick(self) -> None:
        """Let whatever act whose time has come; called about once a second, and when the alarm says so."""
        now_ms = self.time.read()
        self._take_step(now_ms)
        for number in self._wakeups.due(now_ms):
            self._wakeups.cancel(number)
            destination = self.registry.by_number(number)
            if destination is not None:
                self.executor.perform(destination, cmd.Tick())
            self.administration.forget_dormant(number)
        self.temporary.end_expired()
        self.transactions.roll_back_overdue()
        self._blocked.end_overdue()
        self.dead_letters.offer_again()
        self.composition.try_again()
        self.schedules.fire_due()
        self.transfer.keep_overdue()
        self.memory.check_if_due(now_ms)
        if self.pager is not None:
            self.pager.page_out_waiting()
        self._lines.tell_due()
        self._write_times(now_ms)
        self._wakeups.remind()

    def count(self) -> None:
        """Take counters and averages further; called about once a second."""
        self.meters.update_averages(self.registry.destinations.values())
        self.pools.ask_for_room()
        self.compression.follow_store()

    def reconfigured(self) -> None:
        """The configuration has changed."""
        self.settings.apply_changes()
        self.compression.configure()
        self.pools.configure()
        self.transactions.configure()
        self.memory.configure()

    def state(self) -> dict[str, Any]:
        """The host's store and memory, for administrators."""
        stats, destinations = self.store.stats(), self.registry.destinations.values()
        return {
            "incarnation": self.incarnation,
            "failure": str(self.failure) if self.failure else None,
            "destinations": len(destinations),
            "connections": len(self.sessions.open),
            "transactions": len(self.transactions.by_number),
            "messages": sum(destination.block_index.messages for destination in destinations),
            "bytes": sum(destination.block_index.bytes_held for destination in destinations),
            "limits": self.pools.system_row(),
            "cached_bytes": self.cache.kept_bytes,
            "read_back": self.cache.read_back,
            "compression_saved_bytes": self.compression.saved_bytes,
            "paging_compression_saved_bytes": self.compression.paging_saved_bytes,
            **(self.pager.paging_row() if self.pager is not None else {}),
            **self.memory.memory_row(),
            "store": stats._asdict(),
        }

    # ---- internals -------------------------------------------------------------------------------------------------

    def _take_step(self, now_ms: int) -> None:
        """The wall clock was set: destinations look when what they do by it is due, and what is written is wrong."""
        by_ms = self.time.take_step()
        if not by_ms:
            return
        self.report(
            f"[B2176] the clock of this machine was put {'forward' if by_ms > 0 else 'back'} by {abs(by_ms) / 1000:.3f}"
            " s: expirations, deliveries later and schedules follow it; leases, delays and time-outs last as before"
        )
        for destination in self.registry.destinations.values():
            self._wakeups.wake(destination.number, now_ms)
        self._unwritten = True

    def _write_times(self, now_ms: int) -> None:
        """Have what rests and what was taken written by the clock as it is now, after a step of the clock."""
        if self._unwritten and now_ms >= self._written_ms + WRITTEN_EVERY_MS and self.executor.checkpoint_now():
            self._unwritten, self._written_ms = False, now_ms

    def _halting(self, destination: Destination, why: str) -> None:
        self.pools.halted(destination, why)
        self.report(
            Fault(
                f"[B3182] {destination.kind} {destination.name} is halted: {why}; query dst names what is damaged, "
                "skip msg sets it aside"
            )
        )

    def _checkpoint(self) -> LogEntry:
        registry = self.registry
        return encode_checkpoint(registry.next_number, self.transactions.log, self.schedules.log, registry.defined())

    def _tell_failure(self, error: BrokerError) -> None:
        """Tell every peer why the host has stopped."""
        for session in list(self.sessions.open):
            session.peer.close(error.code, str(error))
        if self._surroundings.failed is not None:
            self._surroundings.failed(error)

    def _check_block(self, destination: Destination, ordinal: int) -> None:
        """A block's headers could not be read: a damaged block halts its destination."""
        self.blocks.read(destination, ordinal)

    def _retire(self, destination: Destination, effect: Retire) -> None:
        self.cache.retire(destination.number, effect.ordinals, stored=effect.persistent)

    def _destroy(self, kind: str, name: str) -> None:
        self.removal.destroy(name, unawaited, kind)

    def _destination_idle(self, destination: Destination, effect: Idle) -> None:
        if self._surroundings.idle is not None:
            self._surroundings.idle(destination.kind, destination.name)


def _unheard(line: str) -> None:
    """Nobody reads the log."""
