"""A cluster of brokers in this process: the production services over memory pipes, with brokers that can be lost.

Each broker has one host with a journal, and the machine that keeps the cluster together with its record file.  A broker
can be killed and started again, or cut off from the others and from clients.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any

from raybroker.actors.connection_services import TAKING, ServicesOfBroker
from raybroker.actors.join import shared_table
from raybroker.broker.broker import Broker, BrokerHosts, BrokerKept, BrokerProcess
from raybroker.broker.cluster.cluster_shell import Clustering
from raybroker.broker.cluster.join_settings import settings_of
from raybroker.broker.cluster.path_service import PathService
from raybroker.broker.cluster_broker import ClusterBroker, others_in
from raybroker.broker.copies.copy_port import CopyMaker
from raybroker.broker.definitions.named import Saved as SavedDefinitions
from raybroker.broker.services.auditing import audit_of
from raybroker.client.blocking.handles import Connection, XaConnection
from raybroker.client.cluster.cluster_directory import ClusterDirectory
from raybroker.client.cluster.directory import LED_BY, DestinationPlace
from raybroker.client.connection.connection import ConnectionCore, identified
from raybroker.client.io.io_thread import IoThread
from raybroker.cluster.member import Member
from raybroker.cluster.member_messages import Envelope
from raybroker.config import Config
from raybroker.config.brokers import BrokerPlan, plan_of
from raybroker.config.live import LiveConfig, Saved
from raybroker.hosting.host_port import HostPort
from raybroker.hosting.host_service import HostBroker, HostService, HostStorage
from raybroker.model.errors import BrokerGoneError
from raybroker.services.native.native import NativeService
from raybroker.store.journal import Journal
from raybroker.store.record import RecordFile
from raybroker.system import entropy
from raybroker.system.clock import SystemClock
from raybroker.transport.link import Link, memory_pair
from raybroker.wire.native.connection import TOKEN_BYTES

_numbers = itertools.count(1)
NODE_IP = "127.0.0.2"
"""The machine's address in the cluster: services listen there as well where they listen everywhere."""
FAST = {
    "raybroker.cluster.heartbeat_ms": 50,
    "raybroker.cluster.suspect_ms": 150,
    "raybroker.cluster.down_ms": 400,
    "raybroker.cluster.master_retry_ms": 50,
    "raybroker.cluster.table_poll_ms": 1000,
    "raybroker.hosting.default": "shared",
    "imq.cluster.dynamicChangeMasterBrokerEnabled": True,
}


class RigBroker:
    """One broker while it lives."""

    def __init__(self, rig: ClusterRig, name: str) -> None:
        self.rig = rig
        self.name = name
        self.token = entropy.token(TOKEN_BYTES)
        self.halted: str | None = None
        self._gone = False
        self._asked: set[asyncio.Task[Any]] = set()
        """Calls that are not answered yet."""
        self.maker: CopyMaker | None = None
        """Makes copies of logs, where there are any."""
        self.host: HostService
        self.cluster: ClusterBroker
        self.config: LiveConfig

    async def start(self, host: HostService | None = None) -> None:
        """``host``: one that has outlived the process of the broker before."""
        rig, clock = self.rig, SystemClock()
        config = self.config = LiveConfig(rig.config, rig.changed.get(self.name))
        directory = rig.directory / self.name
        self.host = host = host or await self._make_host(directory, clock)
        self.token = host.service.token

        async def save(field: str, saved: Any) -> None:
            kept: dict[str, dict[str, Any]] = {
                "properties": rig.changed,
                "templates": rig.templates,
                "quotas": rig.quotas,
                "policies": rig.policies,
            }
            if field in kept:
                kept[field][self.name] = saved

        self.local = Broker(
            config,
            BrokerHosts(self.host_of, self.drop_host),
            BrokerKept(
                rig.templates.get(self.name, {}), rig.quotas.get(self.name, {}), rig.policies.get(self.name, {}), save
            ),
            others_in(lambda: self.cluster, self._elsewhere),
            name=self.name,
            process=BrokerProcess(audit=audit_of(config, rig.directory, self.name, lambda: clock.now_ms() / 1e3)),
        )
        file = RecordFile(directory / "record")
        frames = file.open()
        table = shared_table(rig.plan, config)
        member = Member(
            self.name,
            settings_of(config, "rig", rig.plan, table),
            frames,
            now_ms=clock.now_ms(),
            new_id=entropy.token(8).hex(),
        )
        applying = self.local.applying(self._take_brokers)
        clustering = Clustering(member, file, clock, carry=self._carry, applier=applying, halt=self._halt, table=table)
        self.cluster = ClusterBroker(
            self.local, clustering, RigPeers(rig, self.name), rig.paths, dict, maker=self.maker
        )
        await self.local.placement.adopt(host)
        await self.local.placement.ready()
        clustering.start()
        self._bootstrap = asyncio.get_running_loop().create_task(self.cluster.bootstrap())
        self._forwarding = asyncio.get_running_loop().create_task(self.cluster.forwarding.run())
        self.services = ServicesOfBroker(
            config,
            self.local.services,
            RigAsked(self),
            RigPeers(rig, self.name),
            self.cluster,
            near=None,
            node_ip=lambda: rig.nodes.get(self.name, NODE_IP),
            own=rig.directory / self.name,
        )
        await self.services.run()

    async def host_of(self, hosting: str) -> HostPort:
        """The one host, whatever kind is asked for."""
        return self.host

    async def drop_host(self, host: HostPort) -> None:
        """The host stays."""

    async def _make_host(
        self, directory: Path, clock: SystemClock, name: str = "h1", hosting: str = "shared"
    ) -> HostService:
        rig, config = self.rig, self.config
        journal = Journal(
            directory / name,
            sync=False,
            segment_bytes=config["raybroker.store.segment_bytes"],
            monotonic_ns=clock.monotonic_ns,
            entropy=entropy.token,
        )
        host = HostService(
            HostStorage(journal, journal.incarnation),
            clock,
            config,
            token=self.token,
            key=f"{self.name}/{name}",
            hosting=hosting,
            broker=HostBroker(
                self.name,
                self._forgotten,
                quotas=rig.quotas.get(self.name, {}),
                policies=rig.policies.get(self.name, {}),
            ),
        )
        await host.start(threaded=True)
        return host

    async def _elsewhere(self) -> dict[str, str]:
        return await self.services.elsewhere()

    def _forgotten(self, kind: str, name: str) -> None:
        self.local.placement.forget_destination(kind, name)

    def _take_brokers(self) -> None:
        asyncio.get_running_loop().call_soon(self.cluster.take_brokers)

    def _halt(self, reason: str) -> None:
        self.halted = reason

    def _carry(self, to: str, envelope: Envelope) -> None:
        target = self.rig.reachable(self.name, to)
        if target is not None:
            asyncio.get_running_loop().call_soon(target.cluster.receive, envelope)

    async def answer(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What a call brings; raises BrokerGoneError when the broker goes before it is answered."""
        asked = asyncio.get_running_loop().create_task(work)
        self._asked.add(asked)
        asked.add_done_callback(self._asked.discard)
        try:
            return await asked
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if not self._gone or caller is None or caller.cancelling():
                raise
            raise BrokerGoneError(f"broker {self.name} is gone, and has not answered") from None

    def _answer_no_more(self) -> None:
        self._gone = True
        for asked in list(self._asked):
            asked.cancel()

    async def stop(self, *, kill: bool, with_host: bool = True) -> None:
        if with_host:
            for connection in list(self.host.service.connections):
                connection.link.abort()
        if kill:
            self.cluster.clustering._ended = True  # No goodbye to the others.
            self._cut_off()
            self._answer_no_more()
        self.services.close()
        self._bootstrap.cancel()
        self._forwarding.cancel()
        await self.cluster.clustering.stop()
        if with_host:
            await self.host.close()
        self._answer_no_more()

    def _cut_off(self) -> None:
        """Clients of the services are told nothing."""
        services = self.local.services.services
        for listener in services.listeners.values() if services is not None else ():
            for control in list(listener._open):
                control.link.abort()


class RigPeers:
    def __init__(self, rig: ClusterRig, me: str) -> None:
        self._rig = rig
        self._me = me

    async def call_broker(self, broker: str, method: str, args: dict[str, Any], *, timeout_s: float) -> Any:
        target = self._rig.reachable(self._me, broker)
        if target is None:
            raise BrokerGoneError(f"broker {broker} does not answer")
        if method == "doors":
            return target.services.own()
        if method == TAKING:
            return target.services.taking()
        asks = target.local.measuring.counts() if method == "counts" else target.cluster.peer(method, args)
        asked = asyncio.ensure_future(target.answer(asks))
        asked.add_done_callback(lambda done: done.cancelled() or done.exception())  # Who asked may have given up.
        done, _ = await asyncio.wait([asked], timeout=timeout_s)
        if not done:  # It goes on, as what an actor does.
            raise BrokerGoneError(f"broker {broker} has not answered within {timeout_s:g} s")
        return asked.result()


class RigAsked:
    """A broker, as its connection services ask it."""

    def __init__(self, broker: RigBroker) -> None:
        self._broker = broker
        self.exists = broker.local.registry.has
        self.given = dict
        self.counts = broker.local.measuring.counts

    def hosts(self) -> Any:
        return self._broker.local.registry.hosts

    def whole(self) -> bool:
        return True

    async def placed(self, kind: str, name: str, create: bool, guest: bool) -> tuple[Any, str, Any]:
        host, traits = await self._broker.cluster.locate(kind, name, create, guest)
        return host, self._broker.name, traits

    async def answer_service(self, method: str, args: list[Any]) -> Any:
        cluster = self._broker.cluster
        if method == "subscribe":
            return await cluster.subscribe(**args[0])
        own = getattr(cluster, method, None)
        return await (own if own is not None else getattr(cluster.local, method))(*args)

    async def admin(self, verb: str, args: Any) -> Any:
        return await self._broker.cluster.admin(verb, args)


class RigCalls:
    """How a client asks brokers; ``first`` are tried before the others."""

    def __init__(self, rig: ClusterRig, first: str) -> None:
        self._rig = rig
        self._first = first

    async def call(self, broker: str, method: str, *args: Any) -> Any:
        target = self._rig.reachable("", broker)
        if target is None:
            raise BrokerGoneError(f"broker {broker} is not running")
        return await target.answer(self._answer(target, broker, method, *args))

    async def _answer(self, target: RigBroker, broker: str, method: str, *args: Any) -> Any:
        cluster = target.cluster
        if method == "locate":
            host, traits = await cluster.locate(*args)
            return host, str(traits.get(LED_BY, broker)), target, traits
        if method == "subscribe":
            return await cluster.subscribe(**args[0])
        if method == "settings":
            return {}
        own = getattr(cluster, method, None)
        return await (own if own is not None else getattr(cluster.local, method))(*args)

    async def names(self) -> list[str]:
        return sorted(self._rig.brokers, key=lambda name: name != self._first)

    def led_by(self, found: Sequence[Any]) -> str:
        return ""

    def place(self, found: Sequence[Any]) -> DestinationPlace:
        host, broker, target, traits = found
        service = host.service
        return DestinationPlace(
            f"{host.key}@{id(target)}",
            service.token,
            lambda factory: self._dial(target, service, factory),
            broker,
            traits,
        )

    outside = False

    async def identify(self, broker: str, client_id: str, instance: str) -> None:
        await self.call(broker, "identify", client_id, instance)

    def close(self) -> None:
        """Brokers keep nothing for who asks them."""

    async def _dial(self, target: RigBroker, service: NativeService, factory: Callable[[], Link]) -> object:
        if self._rig.reachable("", target.name) is not target:
            raise OSError(f"nobody listens for {target.name}")
        protocol = factory()
        memory_pair(asyncio.get_running_loop(), protocol, service.accept())
        return protocol


class ClusterRig:
    """``brokers``: how many; ``start``: which of them at once, without a name all; ``properties``: of all of them.

    Methods may be called from any thread but the IO loop's.
    """

    kind = RigBroker

    def __init__(
        self, directory: Path, brokers: int = 3, *, start: Iterable[str] | None = None, **properties: object
    ) -> None:
        self.directory = directory
        self.config = Config.from_values(
            {**FAST, **{name.replace("__", "."): value for name, value in properties.items()}}
        )
        self.plan: BrokerPlan = plan_of(self.config, brokers)
        self.io = IoThread.shared()
        self.brokers: dict[str, RigBroker] = {}
        self.changed: dict[str, Saved] = {}
        """What each broker has kept of changed properties, as its disk would."""
        self.templates: dict[str, SavedDefinitions] = {}
        self.quotas: dict[str, SavedDefinitions] = {}
        self.policies: dict[str, SavedDefinitions] = {}
        self.nodes: dict[str, str] = {}
        """Broker → address of its machine, of those that are not on that of all others."""
        self.cuts: set[frozenset[str]] = set()
        self._connections: list[Any] = []
        self.paths: PathService = self.io.run(self._make_paths())
        for name in start if start is not None else self.plan.names:
            self.start(name)
        if start is None:
            self.wait_until_open()

    async def _make_paths(self) -> PathService:
        file = RecordFile(self.directory / "paths" / "map")
        service = PathService(
            file.open(),
            file,
            SystemClock(),
            lease_ms=self.config["raybroker.path.lease_ms"],
            live=self._live_units,
            failed=lambda reason: None,
        )
        service.start()
        return service

    async def _live_units(self, broker: str, kind: str, name: str, units: list[str]) -> list[str]:
        target = self.reachable("", broker)
        if target is None:
            raise BrokerGoneError(f"broker {broker} is not running")
        found: list[str] = await target.cluster.peer("units", {"type": kind, "name": name, "names": units})
        return found

    def wait_until_open(self) -> None:
        """Until all brokers take clients, and know of one another."""
        self.io.run(self._opened())

    async def _opened(self) -> None:
        async with asyncio.timeout(60):
            for broker in self.brokers.values():
                await broker.cluster.clustering.opened.wait()
            for broker in self.brokers.values():
                version = -1
                while set(broker.cluster.live()) != set(self.brokers):
                    version = await broker.cluster.brokers_changed(version, 1.0)

    # ---- brokers that come and go ----------------------------------------------------------------------------------

    def start(self, name: str, host: HostService | None = None) -> RigBroker:
        """``host``: what :meth:`kill_process` left."""
        broker = self.kind(self, name)

        async def work() -> None:
            await broker.start(host)
            self.brokers[name] = broker

        self.io.run(work())
        return broker

    def stop(self, name: str) -> None:
        """In order."""
        self.io.run(self.brokers[name].stop(kill=False))
        del self.brokers[name]

    def kill(self, name: str) -> None:
        """Without a word to anybody."""
        self.io.run(self.brokers.pop(name).stop(kill=True))

    def kill_process(self, name: str) -> HostService:
        """The broker's process without a word to anybody; its host goes on."""
        broker = self.brokers.pop(name)
        self.io.run(broker.stop(kill=True, with_host=False))
        return broker.host

    def cut(self, *groups: Iterable[str]) -> None:
        """Brokers of different groups do not reach each other any more."""
        sides = [set(group) for group in groups]
        self.cuts = {frozenset((a, b)) for one, other in itertools.combinations(sides, 2) for a in one for b in other}

    def heal(self) -> None:
        self.cuts = set()

    def reachable(self, sender: str, to: str) -> RigBroker | None:
        """A broker, unless it is gone or cut off from the sender ("": a client)."""
        if frozenset((sender, to)) in self.cuts or (sender and sender not in self.brokers):
            return None
        return self.brokers.get(to)

    # ---- clients ---------------------------------------------------------------------------------------------------

    def name(self) -> str:
        return f"queue{next(_numbers)}"

    def connect(
        self,
        home: str | None = None,
        *,
        started: bool = True,
        pinned: bool = False,
        client_id: str | None = None,
        xa: bool = False,
        **attributes: object,
    ) -> Any:
        """A blocking connection with a home broker; ``pinned``: it never moves to another one."""
        first = home or self.plan.names[0]
        directory = ClusterDirectory(RigCalls(self, first), first, pinned=pinned)
        given = {name.replace("__", "."): value for name, value in attributes.items()}
        core = identified(
            ConnectionCore(directory, Config.from_values({**FAST, **given}), client_id=client_id, io=self.io)
        )
        connection = (XaConnection if xa else Connection)(core)
        self._connections.append(connection)
        if started:
            connection.start()
        return connection

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        for name in list(self.brokers):
            self.stop(name)
        self.io.run(self.paths.close())

    def __enter__(self) -> ClusterRig:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
