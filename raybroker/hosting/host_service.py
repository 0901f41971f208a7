"""A running host: engine, committer and listening service on one event loop, with what a broker asks of it.

The same object serves in a destination host actor and in the loopback; what differs is the store it is given and
whether it listens on a network address.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from raybroker.config.live import live
from raybroker.core.admission.pool_share import PoolShare, Room
from raybroker.core.memory_level import Level
from raybroker.core.subscription import Subscription
from raybroker.engine.host import Host
from raybroker.engine.measuring import metrics
from raybroker.engine.measuring.disk_alarm import DiskAlarm
from raybroker.engine.measuring.slow_store import SlowStoreLog
from raybroker.engine.measuring.thresholds import held_of
from raybroker.engine.measuring.unit_figures import live_units
from raybroker.engine.memory.pager import PageFiles
from raybroker.engine.path.committer import InlineCommitter, ThreadCommitter
from raybroker.engine.path.executor import unawaited
from raybroker.engine.ports import BodyStore, Clock, Committer, Fault, Notice, Store
from raybroker.hosting.block_codec import WireCodec
from raybroker.hosting.disk_worker import DiskWorker
from raybroker.hosting.host_memory import HostMemory, memory_limit
from raybroker.hosting.host_port import Row
from raybroker.hosting.message_administration import HostMessages
from raybroker.hosting.paging import message_buffer_bytes
from raybroker.hosting.store_administration import StoreAdministration
from raybroker.metrics import process
from raybroker.model.definitions.quota import Quota
from raybroker.model.errors import BrokerError
from raybroker.model.naming.names import check_destination_type, is_metrics_topic
from raybroker.model.settings.setting import PortRange
from raybroker.model.settings.settings import ConfigView, DestinationAttributes, destination_attributes
from raybroker.services.clients.clients_inside import ClientsInside
from raybroker.services.listening.socket_handing import SocketReceiver
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
POLICIES_STEP: Final = 50
"""Destinations that are held against new policies before messages get a turn."""
METRICS_STEP: Final = 50
"""Destinations that are looked at for metrics before messages get a turn."""


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
Forwarder = Callable[[str, str, bytes], Awaitable[None]]
"""Puts a block into (type, name), wherever that is; raises a BrokerError when it is not stored there."""


def _tls(config: ConfigView, directory: Path) -> ServerTls:
    from raybroker.security.tls import ServerTls

    return ServerTls.of(config, directory)


class HostService(HostMessages):
    """Everything here runs on the loop on which :meth:`start` was awaited.

    bodies  where large bodies are that come in pieces; None: they come whole
    paging  makes the files for bodies that are not stored and that memory has no room for; None: they stay in memory
    hosts   how many hosts share the memory
    quotas  those there are, until the broker says it; so with ``policies``
    process_of_its_own  else the figures of the process are not the host's to tell
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        config: ConfigView,
        *,
        token: bytes,
        incarnation: int,
        broker: str = "",
        failed: Callable[[BrokerError], None] | None = None,
        forgotten: Callable[[str, str], None] | None = None,
        forwarder: Forwarder | None = None,
        paging: Callable[[Post], PageFiles] | None = None,
        hosts: Callable[[], int] = lambda: 1,
        disk: Path | None = None,
        lease: Lease | None = None,
        quotas: Mapping[str, Quota] | None = None,
        policies: Mapping[str, Row] | None = None,
        bodies: BodyStore | None = None,
        process_of_its_own: bool = True,
    ) -> None:
        super().__init__()
        self._forgotten = forgotten
        self._forwarder = forwarder
        self._when_failed = failed
        self._config = live(config)
        self._alarm_at_ms = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._hosts = hosts
        self._paging = None if paging is None else paging(self._post)
        self._memory = HostMemory(self._config)
        self._worker = DiskWorker(self._post)
        self.host = Host(
            store,
            clock,
            self._config,
            codec=WireCodec(),
            incarnation=incarnation,
            identity=int.from_bytes(entropy.token(8), "little"),
            broker=broker,
            idle=self._idle,
            failed=self._failed,
            alarm=self._wake_at,
            forward=self._forward if forwarder is not None else None,
            report=_report,
            paging=self._paging,
            buffer_bytes=message_buffer_bytes(self._config, hosts()),
            memory=self._memory,
            bodies=bodies,
            worker=self._worker,
        )
        self._upkeep = StoreAdministration(store, self.host.executor, self.host.registry, self.host.compression, self)
        self._process_of_its_own = process_of_its_own
        self._lease = lease
        if lease is not None:
            self.host.pools.ask = self._ask_lease
        self.host.pools.quotas = dict(quotas or {})
        self.host.policies.define(policies or {})
        self.service = NativeService(self.host.open_session, clock, self._config, token=token)
        self.guests_in = Guests(
            self.service,
            lambda: clock.monotonic_ns() / 1e9,
            lambda directory: _tls(self._config, directory),
            lambda: clock.now_ms() / 1e3,
        )
        self.clients_inside = ClientsInside(self.service)
        self._receiver: SocketReceiver | None = None
        self._store = store
        self._committer: Committer | None = None
        self._slow_store: SlowStoreLog | None = None
        self._disk = None if disk is None else DiskAlarm(partial(disk_space, disk), self._config, str(disk), _report)
        self.more_metrics: list[Callable[[], Row]] = []
        """Rows of whoever runs the host."""
        self._loops = Supervisor(f"a host of broker {broker}" if broker else "a host")
        self._loop: asyncio.AbstractEventLoop

    async def start(self, *, threaded: bool, inline: bool = True) -> None:
        """Recover and take commands. ``threaded``: commits wait for a disk, in a thread of their own; without
        ``inline`` also those that would be quick."""
        loop = self._loop = asyncio.get_running_loop()
        committer: Committer
        if threaded:
            committer = ThreadCommitter(
                self._store,
                post=loop.call_soon_threadsafe,
                soon=self.service.turn.soon,
                monotonic_ns=self.host.clock.monotonic_ns,
                relieved=self.service.relieved,
                failed=self.host.executor.fail,
                full=self.host.executor.disk_full,
                release=self.service.turn.release,
                inline=inline,
            )
            clock = self.host.clock
            self._slow_store = SlowStoreLog(committer, committer.meter, clock.monotonic_ns, _report)
        else:
            committer = InlineCommitter(self._store, failed=self.host.executor.fail)
        self._committer = committer
        pager = self.host.pager
        if pager is not None:
            pager.relieved = self.service.relieved
        self.service.use(committer, *([pager] if pager is not None else []))
        self.host.start(committer)
        self._loops.keep("ticks", self._tick)
        self._loops.keep("rights of guests", self.guests_in.watch_rights)

    async def listen(
        self, ip: str, ports: PortRange, tls: Callable[[], ssl.SSLContext] | None = None
    ) -> tuple[str, int]:
        return await self.service.listen(ip, ports, tls)

    async def close(self) -> None:
        """Stop cleanly: connections end, what was submitted becomes durable, the store is closed."""
        self._loops.close()
        if self._alarm is not None:
            self._alarm.cancel()
        if self._receiver is not None:
            self._receiver.close()
        await self.service.close()
        await asyncio.sleep(0)
        if self._committer is not None:
            await asyncio.to_thread(self._committer.close)
        await asyncio.to_thread(self._worker.close)
        if self._paging is not None:
            await asyncio.to_thread(self._paging.close)
        self._store.close()

    async def _tick(self) -> None:
        ticks, was_low, commits = 0, False, -1
        while True:
            await asyncio.sleep(TICK_S)
            self.host.tick()
            self.host.count()
            if self._slow_store is not None:
                self._slow_store.tick()
            if self._disk is not None:
                self._disk.tick()
            before, commits = commits, self._store.stats().commits
            self.host.executor.give_back(idle=commits == before)
            ticks += 1
            low = self.host.memory.level > Level.GREEN
            if ticks % BUFFER_TICKS == 0 or low is not was_low:
                self._resize_buffer()
            was_low = low
            if self.host.meters.timing and ticks % ROUND_TRIP_TICKS == 0:
                self.service.measure()

    def _resize_buffer(self) -> None:
        if self.host.pager is not None:
            low = self.host.memory.level > Level.GREEN
            self.host.pager.limit_bytes = 0 if low else message_buffer_bytes(self._config, self._hosts())

    def _post(self, action: Callable[[], None]) -> None:
        """Run something on the loop, from any thread."""
        self._loop.call_soon_threadsafe(action)

    def _failed(self, error: BrokerError) -> None:
        """The store has failed: nothing more becomes durable."""
        self.fail_waiting(error)
        if self._when_failed is not None:
            self._when_failed(error)

    def _idle(self, kind: str, name: str) -> None:
        """An auto-created destination was unused for its reap time, or a temporary one has lost its owner."""

        def gone() -> None:
            if self._forgotten is not None:
                self._forgotten(kind, name)

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
            assert self._forwarder is not None
            try:
                await self._forwarder(kind, name, block)
            except BrokerError as error:
                LOG.debug("dead messages did not reach %s %s: %s", kind, name, error)  # Each; the host counts them.
                done(False)
            else:
                done(True)

        self._loops.once("dead messages go to another host", send())

    def _ask_lease(self, share: PoolShare) -> None:
        """A pool may be short here: ask the broker for more."""
        said, pool = share.ask(self.host.pools.now_ms()), share.name
        row = {
            "pool": pool,
            "version": said.version,
            "lease": tuple(said.lease),
            "need": tuple(said.need),
            "waiting": said.waiting,
        }

        async def ask() -> None:
            assert self._lease is not None
            try:
                answer = await asyncio.wait_for(self._lease(row), LEASE_TIMEOUT_S)
            except (BrokerError, TimeoutError) as error:
                LOG.info("the broker was not asked for room in pool %s: %s", pool, error)
                self.host.pools.unanswered(pool)
                return
            if "newest" in answer:
                self.host.pools.refused(pool, answer["newest"])
                return
            self.host.pools.granted(
                pool, answer["version"], Room(*answer["lease"]), Room(*answer["ahead"]), short=answer["short"]
            )

        self._loops.once("a lease of a pool", ask())

    # ---- what a broker asks: see hosting.host_port -------------------------------------------------------------------

    async def create(
        self,
        type: str,
        name: str,
        attributes: dict[str, Any],
        auto_created: bool,
        owner: str | None = None,
    ) -> None:
        checked = destination_attributes(attributes, type=check_destination_type(type), name=name)
        await self.durable(
            lambda done: self.host.administration.create(
                name, checked, auto_created=auto_created, done=done, kind=type, owner=owner
            )
        )

    async def create_many(self, rows: list[dict[str, Any]]) -> list[str]:
        failed: list[str] = []
        parsed: dict[tuple[Any, ...], DestinationAttributes] = {}  # Most of them have the same.
        for row in rows:
            kind = check_destination_type(row["type"])
            try:
                given = (kind, *row["attributes"].items())
                checked = parsed.get(given)
                if checked is None:
                    checked = destination_attributes(row["attributes"], type=kind, name=row["name"])
                    parsed[given] = checked
                self.host.administration.create(row["name"], checked, auto_created=False, done=unawaited, kind=kind)
            except BrokerError as error:
                failed.append(f"{kind} {row['name']}: {error}")
        await self._barrier()
        return failed

    async def update(self, type: str, name: str, changes: dict[str, Any]) -> None:
        await self.durable(lambda done: self.host.administration.update(name, changes, done, type))

    async def destroy(self, type: str, name: str) -> None:
        await self.durable(lambda done: self.host.removal.destroy(name, done, type))

    async def purge_destination(self, type: str, name: str) -> None:
        await self.durable(lambda done: self.host.administration.purge(name, done, type))

    async def query(self, type: str, name: str) -> dict[str, Any]:
        row = self.host.inspection.describe(type, name)
        if row["state"] == "HALTED":
            row["damaged"] = await self.damaged_messages(type, name)
        return row

    async def stored(self) -> list[Row]:
        return [await self._upkeep.stored()]

    async def compact(self, keys: Sequence[tuple[str, str]]) -> Row:
        return await self._upkeep.compact(keys)

    async def expect_guest(self, secret: bytes, claims: Row) -> None:
        self.guests_in.expect(secret, claims)

    async def guests(self) -> list[Row]:
        return self.guests_in.rows()

    async def guest_traffic(self) -> dict[str, dict[str, int]]:
        return self.guests_in.traffic()

    async def close_guest(self, connection: str, reason: str) -> int:
        return self.guests_in.close(connection, reason)

    async def pause_guests(self, service: str, paused: bool) -> None:
        self.guests_in.pause(service, paused)

    async def clients(self) -> list[Row]:
        return self.clients_inside.rows()

    async def end_clients(self, ids: list[str], why: str) -> list[str]:
        return self.clients_inside.end(ids, why)

    def take_guest(self, taken: socket.socket, service: str, security: Path | None) -> None:
        """A socket from a connection service of this process; ``security``: the broker's security directory."""
        self.guests_in.take(taken, service, security)

    async def guest_address(self, security: str) -> str:
        if self._receiver is None:
            address = f"raybroker-{entropy.token(16).hex()}"
            self._receiver = SocketReceiver(
                address, lambda taken, service: self.take_guest(taken, service, Path(security))
            )
            self._receiver.start()
        return self._receiver.address

    async def live_units(self, type: str, name: str, names: list[str]) -> list[str]:
        return live_units(self.host.registry.find(type, name), names)

    async def pause(self, type: str, name: str, which: str, until_ms: int) -> None:
        await self.durable(lambda done: self.host.administration.pause(name, which, until_ms, type, done))

    async def resume(self, type: str, name: str, which: str) -> None:
        await self.durable(lambda done: self.host.administration.resume(name, which, type, done))

    async def reset(self, type: str, name: str) -> None:
        home = self.host.registry.named(type, name)
        record = self.host.baselines.reset(home)
        if self.host.registry.definition(home).owner is None:
            await self.durable(lambda done: self.host.executor.note(home.number, record, done))

    async def destinations(self) -> list[dict[str, Any]]:
        return [
            {
                "type": d.kind,
                "name": d.name,
                "auto_created": d.auto_created,
                "temporary": d.owner is not None,
                "traits": d.attributes.as_dict(check_destination_type(d.kind)),
                "paused": dict(self.host.registry.destinations[d.key].paused),
            }
            for d in self.host.registry.definitions.values()
        ]

    async def consumers(self, type: str | None, name: str | None) -> list[dict[str, Any]]:
        return self.host.inspection.consumers(type, name)

    async def state(self) -> dict[str, Any]:
        disk = self._disk.row() if self._disk is not None else {}
        slow = {"disk_slow": self._slow_store.slow} if self._slow_store is not None else {}
        return {**self.host.state(), **disk, **slow, "loops": supervision.failing()}

    async def recall(self, pool: str, owed: list[int]) -> Row:
        return self.host.pools.recall(pool, Room(*owed))

    async def define_quotas(self, quotas: Row) -> None:
        self.host.pools.define(quotas)

    async def effective(self, type: str, name: str) -> Row:
        registry = self.host.registry
        return self.host.policies.row(registry.definition(registry.named(type, name)))

    async def define_policies(self, policies: Row) -> None:
        self.host.policies.define(policies)
        for number, key in enumerate(list(self.host.registry.destinations), 1):
            self.host.administration.follow_policies(*key)
            if number % POLICIES_STEP == 0:
                await asyncio.sleep(0)

    async def pools(self) -> list[Row]:
        return self.host.pools.rows()

    async def stop_intake(self) -> None:
        self.host.memory.end()

    async def configure(self, changed: Row) -> None:
        self._config.replace(changed)
        self.host.reconfigured()
        self._resize_buffer()

    async def memory_elsewhere(self, nbytes: int) -> None:
        self._memory.elsewhere_bytes = nbytes
        self.host.memory.look()

    async def thresholds(self, over: bool) -> Row:
        homes = list(self.host.registry.destinations.values())
        self.host.meters.thresholds.broker_is(over=over, destinations=homes)
        return held_of(homes)

    async def metrics(self, names: str | None) -> Row:
        """See HostPort.metrics. Yields to the loop between parts, so that messages do not wait for it."""
        host, counted = self.host, []
        # Metrics messages are not counted: their traffic is the broker's own.
        homes = [home for home in list(host.registry.destinations.values()) if not is_metrics_topic(home.name)]
        rows: list[Row] = []
        lasting = host.metrics.lasting(())
        stats = host.store.stats()
        disk = {"disk_reserved": stats.reserved_bytes, "disk_used": stats.used_bytes} if stats.segments else {}
        for start in range(0, len(homes), METRICS_STEP):
            for home in homes[start : start + METRICS_STEP]:
                counted.append((home, {**host.metrics.totals(home), **host.metrics.gauges(home)}))
                if names is not None and fnmatchcase(home.name, names) and home.number in host.registry.definitions:
                    rows.append({**host.metrics.destination_row(home), **disk})
            await asyncio.sleep(0)
            lasting.add(homes[start : start + METRICS_STEP])
        total, there = metrics.Sum(), {home.number for home in host.registry.destinations.values()}
        for kind, row in host.meters.gone.items():
            total.add(kind, row)
        for home, row in counted:
            if home.number in there:
                total.add(home.kind, row)
        own = {
            **host.metrics.host_row(self._committer),
            **host.pools.metrics(),
            **self.service.metrics(),
            **host.memory.figures(),
            **(process.row("host", memory_limit(self._config)) if self._process_of_its_own else {}),
            **(self._disk.figures() if self._disk is not None else {}),
            **({"store_slow": int(self._slow_store.slow)} if self._slow_store is not None else {}),
        }
        for more in self.more_metrics:
            own.update(more())
        age_s = (host.clock.monotonic_ns() - host.meters.start_ns) / 1e9
        return {
            "incarnation": host.incarnation,
            "age_s": age_s,
            "host": own,
            "types": total.done(),
            "destinations": rows,
            "recovered": host.metrics.recovered.rows,
            "lasting": lasting.rows,
        }

    async def subscriptions(self, name: str | None) -> list[dict[str, Any]]:
        return self.host.inspection.subscriptions(name)

    async def subscribe(
        self, topic: str, client_id: str, name: str, shared: bool, selector: str | None, no_local: bool
    ) -> None:
        wanted = Subscription(client_id, name, True, shared, selector, no_local, client_id if no_local else "")
        await self.durable(lambda done: self.host.subscriptions.subscribe(topic, wanted, done))

    async def unsubscribe(self, topic: str, client_id: str, name: str) -> None:
        await self.durable(lambda done: self.host.subscriptions.unsubscribe(topic, client_id, name, done))

    async def purge_subscription(self, topic: str, client_id: str, name: str) -> None:
        await self.durable(lambda done: self.host.subscriptions.purge(topic, client_id, name, done))

    async def schedules(self, type: str | None, name: str | None) -> list[dict[str, Any]]:
        return self.host.schedules.rows(type, name)

    async def destroy_schedule(self, id: str) -> None:
        await self.durable(lambda done: self.host.schedules.destroy(id, done))

    async def transactions(self) -> list[dict[str, Any]]:
        from raybroker.model.naming.xid import Xid

        rows = self.host.transactions.rows()
        for row in rows:
            row["xid"] = str(Xid.unpack(bytes.fromhex(row["key"]))) if row["kind"] == "xa" and row["key"] else None
        return rows

    async def settle_transaction(self, id: int, commit: bool) -> None:
        await self.durable(lambda done: self.host.transactions.settle(id, commit, done))

    async def outcome(self, key: str) -> str:
        return self.host.transactions.outcome(bytes.fromhex(key))

    async def decide(self, key: str, commit: bool) -> None:
        await self.durable(lambda done: self.host.transactions.decide(bytes.fromhex(key), commit, done))

    async def forget(self, key: str) -> None:
        await self.durable(lambda done: self.host.transactions.forget(bytes.fromhex(key), done))
