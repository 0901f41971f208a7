"""A running host: engine, committer and listening service on one event loop, with what a broker asks of it.

The same object serves in a destination host actor and in the loopback; what differs is the store it is given and
whether it listens on a network address.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from raybroker.config.live import live
from raybroker.core.admission.pool_share import PoolRoom, PoolShare
from raybroker.core.memory_level import Level
from raybroker.engine.host import BodyPlaces, Host, HostIdentity, Surroundings
from raybroker.engine.measuring.disk_alarm import DiskAlarm
from raybroker.engine.measuring.slow_store import SlowStoreLog
from raybroker.engine.memory.pager import PageFiles
from raybroker.engine.path.committer import EngineCalls, InlineCommitter, ThreadCommitter
from raybroker.engine.ports import BodyStore, Clock, Committer, Fault, LogCopies, Notice, Store, TakeBody
from raybroker.hosting.block_codec import WireCodec
from raybroker.hosting.disk_worker import DiskWorker
from raybroker.hosting.durable import Changes
from raybroker.hosting.host_memory import HostMemory, memory_limit
from raybroker.hosting.host_port import HostPort
from raybroker.hosting.paging import message_buffer_bytes
from raybroker.hosting.ports.copies import Copies
from raybroker.hosting.ports.destinations import DestinationsPort, SchedulesPort, SubscriptionsPort
from raybroker.hosting.ports.figures import FiguresPort
from raybroker.hosting.ports.messages import DamagedPort, MessagesPort
from raybroker.hosting.ports.pools import PoolsPort
from raybroker.hosting.ports.process import ProcessPort
from raybroker.hosting.ports.store import StorePort
from raybroker.hosting.ports.transactions import HandoverPort, TransactionsPort
from raybroker.hosting.ports.why import WhyPort
from raybroker.metrics import process as process_metrics
from raybroker.model.definitions.quota import Quota
from raybroker.model.errors import BrokerError
from raybroker.model.listing import Row
from raybroker.model.settings.setting import PortRange
from raybroker.model.settings.settings import ConfigView
from raybroker.services.clients.clients_inside import HostClientsInside
from raybroker.services.native.guests import Guests
from raybroker.services.native.native import NativeService
from raybroker.system import entropy, supervision
from raybroker.system.disk_space import disk_space
from raybroker.system.supervision import Supervisor

if TYPE_CHECKING:
    from raybroker.security.tls import ServerTls

LOG: Final = logging.getLogger("raybroker.host")
TICK_S: Final = 1.0
ROUND_TRIP_TICKS: Final = 5
"""How often the way to each client is measured."""
BUFFER_TICKS: Final = 10
"""How often the message buffer follows the number of hosts."""


def _report(line: str) -> None:
    """A line of the engine, for the log."""
    level = logging.INFO if isinstance(line, Notice) else logging.ERROR if isinstance(line, Fault) else logging.WARNING
    LOG.log(level, "%s", line)


Post = Callable[[Callable[[], None]], None]
"""Runs a function on the loop, soon; may be called from any thread."""
Lease = Callable[[Row], Awaitable[Row]]
"""Asks the broker for more of a pool, see broker.destinations.pools.BrokerPools.lease; raises a BrokerError."""
LEASE_TIMEOUT_S: Final = 4.0
"""How long the broker may take to say whether a pool has room."""
LEASE_LOOK_S: Final = 0.1
"""How often a host whose log has copies looks whether it may hand out again what it withheld."""
Forwarder = Callable[[str, str, bytes], Awaitable[None]]
"""Puts a block into (type, name), wherever that is; raises a BrokerError when it is not stored there."""


def _tls(config: ConfigView, directory: Path) -> ServerTls:
    from raybroker.security.tls import ServerTls

    return ServerTls.from_config(config, directory)


class HostStorage(NamedTuple):
    """The place where a host keeps what it has.

    bodies  where large bodies are that come in pieces; None: they come whole
    paging  makes the files for bodies that are not stored and that memory has no room for; None: they stay in memory
    disk    the directory whose disk may become full; None: the store is on none of this machine
    copies  of the store's log on other nodes; None: there are none
    given   large bodies that come by reference; None: none do
    """

    store: Store
    incarnation: int = 1
    bodies: BodyStore | None = None
    paging: Callable[[Post], PageFiles] | None = None
    disk: Path | None = None
    copies: LogCopies | None = None
    given: TakeBody | None = None


class HostBroker(NamedTuple):
    """The broker of a host, as far as the host asks it.

    forgotten  takes (type, name) of a destination that has ended by itself
    forward    the way to destinations of other hosts; None: there are none
    lease      asks for more of a pool; None: the host is the whole broker
    hosts      how many hosts share the memory
    quotas     those there are, until the broker says it; so with ``policies``
    """

    name: str = ""
    forgotten: Callable[[str, str], None] | None = None
    forward: Forwarder | None = None
    lease: Lease | None = None
    hosts: Callable[[], int] = lambda: 1
    quotas: Mapping[str, Quota] = MappingProxyType({})
    policies: Mapping[str, Row] = MappingProxyType({})


class HostProcess(NamedTuple):
    """The process that a host runs in.

    failed   takes the error after which nothing more becomes durable
    its_own  else the figures of the process are not the host's to tell
    state    what the process adds to the host's state, and ``metrics`` to its metrics
    life     takes a row for each event of a message's life; None: nobody is told
    """

    failed: Callable[[BrokerError], None] | None = None
    its_own: bool = True
    state: Callable[[], Row] = dict
    metrics: Callable[[], Row] = dict
    life: Callable[[Row], None] | None = None


NO_BROKER: Final = HostBroker()
NO_PROCESS: Final = HostProcess()


class HostService(HostPort):
    """One host, with its roles as objects. Everything here runs on the loop on which :meth:`start` was
    awaited."""

    def __init__(
        self,
        storage: HostStorage,
        clock: Clock,
        config: ConfigView,
        *,
        token: bytes,
        key: str = "",
        hosting: str = "shared",
        broker: HostBroker = NO_BROKER,
        process: HostProcess = NO_PROCESS,
    ) -> None:
        self.key = key
        self.hosting = hosting
        self._broker = broker
        self._process = process
        self._config = live(config)
        self._alarm_at_ms = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._paging = None if storage.paging is None else storage.paging(self._post)
        self._memory = HostMemory(self._config)
        self._worker = DiskWorker(self._post)
        self._changes = Changes()
        self.host = Host(
            storage.store,
            clock,
            self._config,
            codec=WireCodec(),
            identity=HostIdentity(storage.incarnation, int.from_bytes(entropy.token(8), "little"), broker.name),
            places=BodyPlaces(
                self._memory,
                self._paging,
                message_buffer_bytes(self._config, broker.hosts()),
                storage.bodies,
                self._worker,
                storage.given,
            ),
            surroundings=Surroundings(
                idle=self._idle,
                failed=self._failed,
                alarm=self._wake_at,
                forward=None if broker.forward is None else self._forward,
                lease=None if broker.lease is None else self._ask_lease,
                relieved=self._relieved,
                report=_report,
                life=process.life,
                may_dispatch=None if storage.copies is None else storage.copies.may_dispatch,
            ),
        )
        self.host.pools.quotas = dict(broker.quotas)
        self.host.policies.define(broker.policies)
        self.service = NativeService(self.host.open_session, clock, self._config, token=token)
        self._storage = storage
        self._committer: Committer | None = None
        self._slow_store: SlowStoreLog | None = None
        disk = storage.disk
        self._disk = None if disk is None else DiskAlarm(partial(disk_space, disk), self._config, str(disk), _report)
        self._loops = Supervisor(f"a host of broker {broker.name}" if broker.name else "a host")
        self._loop: asyncio.AbstractEventLoop
        self._compose_roles()

    def _compose_roles(self) -> None:
        """What a broker asks: see hosting.host_port."""
        host, clock, changes = self.host, self.host.clock, self._changes
        self.damaged = DamagedPort(host.registry, host.quarantine, host.report, changes)
        self.destinations = DestinationsPort(
            host.administration,
            host.removal,
            host.inspection,
            host.registry,
            host.baselines,
            host.executor,
            self.damaged.damaged_rows,
            changes,
        )
        self.subscriptions = SubscriptionsPort(host.inspection, host.subscriptions, changes)
        self.schedules = SchedulesPort(host.schedules, changes)
        self.messages = MessagesPort(
            host.registry,
            host.executor,
            host.moves,
            host.meters.life,
            Copies(host.blocks, host.codec),
            host.pools,
            host.memory.require,
            changes,
        )
        self.transactions = TransactionsPort(host.transactions, changes)
        self.handover = HandoverPort(host.registry, host.transfer, host.memory.require, changes)
        self.pools = PoolsPort(host.pools, host.policies, host.registry, host.administration)
        self.store = StorePort(self._storage.store, host.executor, host.registry, host.compression, changes)
        self.figures = FiguresPort(
            host.metrics, host.registry, host.meters, self._storage.store, clock, self._own_metrics, host.incarnation
        )
        self.why = WhyPort(lambda: host.explaining)
        self.process = ProcessPort(self._state, self._reconfigure, self._memory, host.memory, host.drained_nodes)
        self.guests = Guests(
            self.service,
            lambda: clock.monotonic_ns() / 1e9,
            lambda directory: _tls(self._config, directory),
            lambda: clock.now_ms() / 1e3,
        )
        self.clients = HostClientsInside(self.service)

    async def start(self, *, threaded: bool, inline: bool = True) -> None:
        """Recover and take commands. ``threaded``: commits wait for a disk, in a thread of their own; without
        ``inline`` also those that would be quick."""
        loop = self._loop = asyncio.get_running_loop()
        committer: Committer
        if threaded:
            calls = EngineCalls(
                post=loop.call_soon_threadsafe,
                soon=self.service.turn.soon,
                relieved=self.service.relieved,
                failed=self.host.executor.fail,
                full=self.host.executor.disk_full,
                release=self.service.turn.release,
                behind=self.service.turn.behind,
                copies=self._storage.copies,
            )
            clock = self.host.clock
            committer = ThreadCommitter(self._storage.store, calls, clock.monotonic_ns, inline=inline)
            if self._storage.copies is not None:
                self._storage.copies.tell_released(partial(loop.call_soon_threadsafe, committer.finish_released))
                self._loops.keep("dispatch where the log has copies", self._dispatch_again)
            self._slow_store = SlowStoreLog(committer, committer.meter, clock.monotonic_ns, _report)
        else:
            committer = InlineCommitter(self._storage.store, failed=self.host.executor.fail)
        self._committer = committer
        pager = self.host.pager
        self.service.use(committer, *([pager] if pager is not None else []))
        self.host.start(committer)
        self._loops.keep("ticks", self._tick)
        self.guests.start(self._loops)

    async def listen(
        self, ip: str, ports: PortRange, tls: Callable[[], ssl.SSLContext] | None = None
    ) -> tuple[str, int]:
        return await self.service.listen(ip, ports, tls)

    async def close(self) -> None:
        """Stop cleanly: connections end, what was submitted becomes durable, the store is closed."""
        self._loops.close()
        if self._alarm is not None:
            self._alarm.cancel()
        self.guests.stop()
        await self.service.close()
        await asyncio.sleep(0)
        if self._committer is not None:
            await asyncio.to_thread(self._committer.close)
        await asyncio.to_thread(self._worker.close)
        if self._paging is not None:
            await asyncio.to_thread(self._paging.remove_all)
        self._storage.store.close()

    async def _tick(self) -> None:
        ticks, was_low, commits = 0, False, -1
        while True:
            await asyncio.sleep(TICK_S)
            self.host.tick()
            self.host.count()
            if self._slow_store is not None:
                self._slow_store.tell_due()
            if self._disk is not None:
                self._disk.check_disk()
            before, commits = commits, self._storage.store.stats().commits
            self.host.executor.give_back(idle=commits == before)
            ticks += 1
            low = self.host.memory.level > Level.GREEN
            if ticks % BUFFER_TICKS == 0 or low is not was_low:
                self._resize_buffer()
            was_low = low
            if self.host.meters.timing and ticks % ROUND_TRIP_TICKS == 0:
                self.service.measure()

    async def _dispatch_again(self) -> None:
        while True:
            await asyncio.sleep(LEASE_LOOK_S)
            self.host.outgoing.dispatch_again()

    def _resize_buffer(self) -> None:
        if self.host.pager is not None:
            low = self.host.memory.level > Level.GREEN
            self.host.pager.limit_bytes = 0 if low else message_buffer_bytes(self._config, self._broker.hosts())

    def _post(self, action: Callable[[], None]) -> None:
        """Run something on the loop, from any thread."""
        self._loop.call_soon_threadsafe(action)

    def _relieved(self) -> None:
        self.service.relieved()

    def _failed(self, error: BrokerError) -> None:
        """The store has failed: nothing more becomes durable."""
        self._changes.fail(error)
        if self._process.failed is not None:
            self._process.failed(error)

    def _idle(self, kind: str, name: str) -> None:
        """An auto-created destination was unused for its reap time, or a temporary one has lost its owner."""

        def gone() -> None:
            if self._broker.forgotten is not None:
                self._broker.forgotten(kind, name)

        self.host.executor.later(lambda: self.host.removal.destroy(name, gone, kind))

    def _wake_at(self, at_ms: int) -> None:
        """Something is to happen then; between two ticks only if it is sooner than the next one."""
        if self._alarm is not None and self._alarm_at_ms <= at_ms:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        delay_s = max(at_ms + 1 - self.host.time.now_ms(), 0) / 1000  # The clock's milliseconds are rounded down.
        if delay_s > TICK_S:
            self._alarm = None
            return
        self._alarm_at_ms = at_ms
        self._alarm = asyncio.get_running_loop().call_later(delay_s, self._awake)

    def _awake(self) -> None:
        self._alarm = None
        self.host.tick()

    def _forward(self, kind: str, name: str, block: bytes, done: Callable[[bool], None]) -> None:
        """Dead messages go to a destination on another host."""

        async def send() -> None:
            assert self._broker.forward is not None
            try:
                await self._broker.forward(kind, name, block)
            except BrokerError as error:
                LOG.debug("dead messages did not reach %s %s: %s", kind, name, error)  # Each; the host counts them.
                done(False)
            else:
                done(True)

        self._loops.once("dead messages go to another host", send())

    def _ask_lease(self, share: PoolShare) -> None:
        """A pool may be short here: ask the broker for more."""
        said, pool = share.begin_question(self.host.pools.now_ms()), share.name
        row = {
            "pool": pool,
            "version": said.version,
            "lease": tuple(said.lease),
            "need": tuple(said.need),
            "waiting": said.waiting,
        }

        async def ask() -> None:
            assert self._broker.lease is not None
            try:
                answer = await asyncio.wait_for(self._broker.lease(row), LEASE_TIMEOUT_S)
            except (BrokerError, TimeoutError) as error:
                LOG.info("the broker was not asked for room in pool %s: %s", pool, error)
                self.host.pools.unanswered(pool)
                return
            if "newest" in answer:
                self.host.pools.answer_outdated(pool, answer["newest"])
                return
            self.host.pools.granted(
                pool, answer["version"], PoolRoom(*answer["lease"]), PoolRoom(*answer["ahead"]), short=answer["short"]
            )

        self._loops.once("a lease of a pool", ask())

    # ---- what its roles say of it ----------------------------------------------------------------------------------

    def _state(self) -> Row:
        disk = self._disk.disk_row() if self._disk is not None else {}
        slow = {"disk_slow": self._slow_store.slow} if self._slow_store is not None else {}
        return {**self.host.state(), **disk, **slow, "loops": supervision.failing(), **self._process.state()}

    def _reconfigure(self, changed: Row) -> None:
        self._config.replace(changed)
        self.host.reconfigured()
        self._resize_buffer()

    def _own_metrics(self) -> Row:
        return {
            **self.host.own_metrics.host_row(self._committer),
            **self.host.pools.metrics(),
            **self.service.metrics(),
            **self.host.memory.figures(),
            **(process_metrics.row("host", memory_limit(self._config)) if self._process.its_own else {}),
            **(self._disk.figures() if self._disk is not None else {}),
            **({"store_slow": int(self._slow_store.slow)} if self._slow_store is not None else {}),
            **self._process.metrics(),
        }
