"""The work of the actor of a broker: a shell around broker.cluster_broker, whose hosts and other brokers are actors.

Survives a crash: the list of hosts, the cluster's token and the templates, from the catalogue; its copy of the
configuration change record; what each host serves is asked of the host.  Hosts are detached actors: messages flow on
while a broker restarts.  A failed call means that the change may or may not have been made; all calls may be repeated,
but an import of messages then makes duplicates.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ray

from raybroker.actors import runtime
from raybroker.actors.at_once import in_parallel
from raybroker.actors.broker_peers import START_S, STARTING_S, Brokers, Carrier, RayPaths, RayPeers
from raybroker.actors.broker_spec import BrokerSpec
from raybroker.actors.connection_services import TAKING, AskedActor, FreePorts, ServicesOfBroker
from raybroker.actors.failpoints import arm_failpoints
from raybroker.actors.forwarding_agents import RayHands
from raybroker.actors.given_bodies import bodies_of_this_process
from raybroker.actors.heartbeats import Signs
from raybroker.actors.hosts.copy_maker import LedHost, RayCopies, RemoteCopy, host_of
from raybroker.actors.hosts.host import DatabaseAwaitedError, DestinationHost, KeptState
from raybroker.actors.hosts.host_in_broker import HostInBroker, HostsInBroker, OwnBroker
from raybroker.actors.hosts.host_spec import HostSpec
from raybroker.actors.hosts.remote import RemoteHost
from raybroker.actors.hosts.spare_host import SpareHost
from raybroker.actors.join import opened, shared_table
from raybroker.actors.object_keeper import keeper_of_this_broker
from raybroker.actors.observation import Observing
from raybroker.actors.path_service import PathActor
from raybroker.actors.standby import assignment
from raybroker.actors.stores.store_tables import hosts_of, remove_host
from raybroker.actors.tenure import Tenure, no_takeovers
from raybroker.broker.broker import Broker, BrokerHosts, BrokerKept, BrokerProcess, HostPort
from raybroker.broker.cluster.cluster_shell import Clustering
from raybroker.broker.cluster.join_settings import settings_of
from raybroker.broker.cluster_broker import LED_BY, BrokerRows, ClusterBroker, others_in
from raybroker.broker.observing.broker_metrics import BrokerFigures
from raybroker.broker.observing.memory import BrokerMemory
from raybroker.broker.services.auditing import audit_of, audited
from raybroker.broker.services.link_security import cluster_tls
from raybroker.cluster.change_record import Change, RecordState
from raybroker.cluster.events import HostBack
from raybroker.cluster.member import Member
from raybroker.cluster.member_messages import Envelope
from raybroker.cluster.saved_record import life_frame
from raybroker.config.brokers import BrokerPlan
from raybroker.config.live import LiveConfig
from raybroker.logs.audit import Audit
from raybroker.logs.channels import Log, directory_of
from raybroker.logs.messages import MessagesLog
from raybroker.model.errors import (
    BrokerError,
    ConnectionLostError,
    NotOpenError,
    RequestTimeoutError,
    StartingError,
    StoreError,
)
from raybroker.model.settings.setting_table import IN_BROKER
from raybroker.store import ownership
from raybroker.store.catalogue import Catalogue
from raybroker.store.record import RecordFile
from raybroker.store.sql.database import UnreachableError
from raybroker.store.sql.opening import holder_of
from raybroker.system import entropy
from raybroker.system.clock import SystemClock
from raybroker.system.failpoint import failpoint
from raybroker.system.priority import normal_priority_throughout
from raybroker.system.supervision import Run, Supervisor
from raybroker.transport.daemon_calls import in_daemon_thread
from raybroker.wire.native.connection import TOKEN_BYTES

MAKE_TIMEOUT_S: Final = 120.0
"""How long a new host may take to start; on a busy machine a process of Ray takes half a minute."""
DATABASE_LOOK_S: Final = 0.5
"""How often a new host that waits for its database is asked whether it serves."""
HOSTS_AT_ONCE: Final = max(2, min(16, len(os.sched_getaffinity(0))))
"""How many hosts a broker starts, asks or stops at a time: a process takes a second of a processor to start, and more
of them than processors only wait for each other."""
SWEEP_S: Final = 2.0
"""How often the broker looks for transactions that dead clients left open."""

SPARE: Final = "raybroker.hosting.spare"

VERB_STARTING_S: Final = 20.0
"""How long a verb waits for hosts that are starting, before whoever wants it is told so: less than a call waits."""
WHY_TIMEOUT_S: Final = 5.0
"""How long a host that does not serve may take to say why."""
START_AGAIN_S: Final = 15.0
"""Until a broker whose start has failed half-way begins anew, in another process."""
FAILED: Final = "FAILED"
"""State of a broker that has not started, and tries again."""
EXIT_FAILED: Final = 3
"""Exit status of a broker that begins anew in another process."""
EXIT_HALTED: Final = 4
"""Exit status of a broker that another instance has replaced, or whose record cannot be written."""

log = logging.getLogger("raybroker.broker")


class _WhenReady:
    """Carries the record out once every host was asked what it serves, or said why it does not start: what is not
    known may be there.  So may copies of what the record destroyed, which end afterwards: it has not forgotten those by
    then."""

    def __init__(self, actor: BrokerShell) -> None:
        self._actor = actor
        self._applying = actor._broker.applying(actor._take_brokers)

    async def apply(self, changes: tuple[Change, ...]) -> bool:
        await self._require_started()
        return await self._applying.apply(changes) or self._actor._cluster.copies.keeps_destroyed()

    async def apply_whole(self, wanted: RecordState) -> bool:
        await self._require_started()
        return await self._applying.apply_whole(wanted) or self._actor._cluster.copies.keeps_destroyed()

    def awaited(self) -> str:
        return self._applying.awaited()

    async def _require_started(self) -> None:
        (await self._actor._ready()).registry.require_started("what the record changes")
        self._actor._applied_partly |= bool(self._actor._broker.registry.unasked)


class BrokerShell:
    """See the module."""

    def __init__(self, spec: BrokerSpec, stands_by: str, actor: type) -> None:
        """``stands_by``: the actor's name, of one that is to become a lost broker, else ""; ``actor``: its class."""
        self._spec = spec
        self._actor = actor
        self._stands_by = stands_by
        normal_priority_throughout()
        self._node = runtime.node_id()
        self._joined = False
        self._failure: BrokerError | None = None
        """Why the broker has not started; it is tried again."""
        told = assignment.told(stands_by)
        if stands_by and told is None:
            self._failure = NotOpenError(f"process {os.getpid()} stands by, and is no broker yet")
            assignment.warm_up(spec.config, Path(spec.directory).parent, spec.cluster)
            return
        self._begin_as(spec if told is None else assignment.broker_spec(spec, told))

    def _begin_as(self, spec: BrokerSpec) -> None:
        self._spec = spec
        self._failure = None
        self._stands_by = ""
        arm_failpoints(spec.broker)
        self._directory = Path(spec.directory)
        try:
            self._open_files()
        except Exception as error:  # noqa: BLE001 - Ray does not try again, and tells nobody why
            self._not_started(error)

    async def stand_by(self) -> None:
        """Answer: the process runs."""

    async def become(self, name: str, told: str) -> None:
        """Be a lost broker from now on, also in the next process of this actor, which has that name; does not wait
        until it takes clients.  Who asks it something meanwhile waits, as while an actor is made."""
        if self._stands_by:
            runtime.also_name(name, self._stands_by, told)
            asyncio.get_running_loop().call_soon(self._begin_as, assignment.broker_spec(self._spec, told))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """What a broker has that has started: whoever asks another one for it hears why it has not."""
            failure = self.__dict__.get("_failure")
            if failure is None or name.startswith("__"):
                raise AttributeError(name)
            raise NotOpenError(f"broker {self._spec.broker} has not started: {failure}")

    def _not_started(self, error: Exception) -> None:
        """Say why, in the log and to whoever asks, and try again, more seldom each time."""
        spec = self._spec
        self._failed(error)
        where = directory_of(spec.config.__getitem__, self._directory, spec.broker)
        self._log_until_started = Log(spec.config.__getitem__, where, {"cluster": spec.cluster, "broker": spec.broker})
        if ownership.is_free(self._directory, f"{spec.cluster}/{spec.broker}"):
            self._log_until_started.start()
        log.critical("[B3180] broker %s does not start and tries again: %s", spec.broker, self._failure, exc_info=error)
        self._attempts = Supervisor(f"broker {spec.broker}")
        self._attempts.attempt("start", self._start_again)

    def _failed(self, error: Exception) -> None:
        self._failure = error if isinstance(error, BrokerError) else StoreError(repr(error))

    async def _start_again(self) -> None:
        if self._joined:  # What it has begun by then ends with the process alone.
            await asyncio.sleep(START_AGAIN_S)
            os._exit(EXIT_FAILED)
        try:
            self._open_files()
        except Exception as error:
            self._failed(error)
            raise
        self._failure = None
        self._log_until_started.stop()
        log.warning("broker %s has started at last", self._spec.broker)

    def _audit_log(self) -> Audit:
        clock = SystemClock()
        return audit_of(self._config, self._directory.parent, self._spec.broker, lambda: clock.now_ms() / 1e3)

    def _open_files(self) -> None:
        """Everything that may fail: files are opened before anything runs."""
        spec = self._spec
        owner = f"{spec.cluster}/{spec.broker}"
        ownership.check(self._directory, owner)
        saved = Catalogue.load(self._directory)
        self._tenure = Tenure(spec) if spec.tenure else None
        if saved is None or self._tenure is not None:
            saved = self._whole_catalogue(saved)
            saved.save(self._directory)
        ownership.claim(self._directory, owner)
        self._catalogue = saved
        self._config = LiveConfig(spec.config, saved.properties)
        self._spare = SpareHost(self._start_spare, self._end_host, partial(self._config.__getitem__, SPARE))
        self._inside = HostsInBroker(
            OwnBroker(self.forget, self.forward, self.lease), self._told_to_hosts, self._messages_log
        )
        self._memory = BrokerMemory(
            self._config,
            self._processes,
            broker=spec.broker,
            inside=lambda: {one.key: one for one in self._inside.hosts if one.guests_in is not None},
        )
        self._broker = Broker(
            self._config,
            BrokerHosts(self._make_host, self._drop_host, lambda: [*self._spare.hosts]),
            BrokerKept(saved.templates, saved.quotas, saved.policies, self._save),
            others_in(lambda: self._cluster, self._elsewhere),
            name=spec.broker,
            process=BrokerProcess(self._memory, self._end_actor, self._audit_log()),
            figures=BrokerFigures(
                spec.cluster,
                {"version": metadata.version("raybroker"), "ray": ray.__version__},
                (
                    lambda: {**self._observing.broker_row(), "host_restarts_total": self._watch.restarts},
                    self._memory.figures,
                    self._tenure.figures if self._tenure is not None else no_takeovers,
                    self._copy_figures,
                ),
            ),
        )
        self._adopted = self._keyed = False
        self._refusals: dict[str, str] = {}
        """Host → code of the error by which it does not start; the text is in ``registry.away.refused``."""
        self._applied_partly = False
        """The record was carried out while hosts were away: it is once more when they are back."""
        self._adopting = asyncio.Lock()
        self._awaited: asyncio.Task[Broker] | None = None
        """What all clients wait for that came while hosts were starting."""
        self._nodes: dict[str, str] = {spec.broker: self._node}
        self._learnt: dict[str, int] = {}
        """Other broker → its incarnation when it was asked for its node."""
        self._signs = Signs(spec.broker, saved.token, self._heard)
        self._cluster = self._join()
        self._watch = watch = self._signs.watching(
            lambda: [*self._broker.registry.hosts, *self._spare.hosts],
            spec.config["raybroker.host.hung_ms"],
            self._observing.log_of,
        )
        registry = self._broker.registry
        self._services = ServicesOfBroker(
            FreePorts(self._config) if spec.moved else self._config,
            self._broker.services,
            AskedActor(
                self,
                exists=self._exists,
                hosts=lambda: registry.hosts,
                given=self._given,
                whole=self._whole,
                counts=self._broker.measuring.counts,
            ),
            self._peers,
            self._cluster,
            near=self._inside,
            node_ip=runtime.node_ip,
            own=self._directory,
        )
        self._loops = loops = Supervisor(f"broker {spec.broker}")
        for name, run in (
            ("open transactions", self._sweep),
            ("host watch", watch.run),
            ("brokers' endpoints", self._observing.learn),
            ("metrics topics", self._broker.publishing.run),
            ("message forwarding", self._cluster.forwarding.run),
            ("memory levels", self._memory.run),
            ("thresholds", self._broker.thresholds.run),
            *self._tenure_loops(),
        ):
            loops.keep(name, run)
        self._attempt(loops)

    def _exists(self, kind: str, name: str) -> bool:
        return self._broker.registry.has(kind, name) or self._cluster.copies.placed((kind, name)) is not None

    async def _run_copies(self) -> None:
        """Look after copies of logs, once the hosts of this broker were asked."""
        await self._ready()
        await self._cluster.copies.run()

    async def _replace_copies(self) -> None:
        """Replace copies that are gone for good."""
        await self._ready()
        await self._cluster.placing.run(lambda: int(self._config["raybroker.replicas.replace_after"]))

    async def _move_members(self) -> None:
        """Move members of destinations that get copies."""
        await self._ready()
        await self._cluster.moves.run()

    def _tenure_loops(self) -> tuple[tuple[str, Run], ...]:
        tenure = self._tenure
        return (
            () if tenure is None else (("shared store", tenure.watch.run), ("standby processes", tenure.standbys.run))
        )

    def _attempt(self, loops: Supervisor) -> None:
        """Begin what is done when it returns."""
        loops.attempt("forwarding agents", self._cluster.agents.run)  # It returns where agents do not run.
        loops.attempt("bootstrap", self._bootstrap)
        loops.attempt("copies", self._run_copies)  # It returns where there are none.
        loops.attempt("lost copies", self._replace_copies)
        loops.attempt("moves into copies", self._move_members)
        loops.attempt("connection services", self._services.run)
        loops.once("signs of life", self._signs.open(self._spec.config["raybroker.data.ports"]))

    def _whole_catalogue(self, saved: Catalogue | None) -> Catalogue:
        """The catalogue of a broker that has none here, or has it in the database."""
        token = entropy.token(TOKEN_BYTES)
        made = partial(self._new_catalogue, token)
        return made() if self._tenure is None else self._tenure.catalogue(saved, made, token)

    def _new_catalogue(self, token: bytes) -> Catalogue:
        """Make the catalogue of a broker that has none: a new one, or one whose tables in a database have outlived its
        machine."""
        spec = self._spec
        holder = spec.holder or holder_of(token)
        hosts = hosts_of(spec.config, self._directory, spec.cluster, spec.broker, holder)
        return Catalogue(token, next_id=1 + max((int(host[1:]) for host in hosts), default=0), hosts=hosts)

    def _processes(self) -> dict[str, tuple[HostPort, int]]:
        """Hosts with their process ids, as far as those are known."""
        hosts = [*self._broker.registry.hosts, *self._spare.hosts]
        found = ((host, self._watch.process_of(host.key)) for host in hosts)
        return {host.key: (host, pid) for host, pid in found if pid is not None}

    def _join(self) -> ClusterBroker:
        """Take up the record and find the other brokers."""
        spec, clock = self._spec, SystemClock()
        file = RecordFile(self._directory / "record")
        frames = opened(file)
        if not frames and spec.after:  # The others would take an incarnation that is not later for the one before.
            frames = [life_frame(spec.after, "")]
        try:
            table = shared_table(spec.plan, self._config, self._directory.parent)
            member = Member(
                spec.broker,
                settings_of(self._config, spec.cluster, spec.plan, table),
                frames,
                now_ms=clock.now_ms(),
                new_id=entropy.token(8).hex(),
            )
        except BaseException:
            file.close()
            raise
        self._joined = True
        others = Brokers(spec.cluster)
        self._peers = RayPeers(others)
        self._signs.follow(self._peers)
        clustering = Clustering(
            member,
            file,
            clock,
            carry=Carrier(others, self._signs.beats),
            applier=_WhenReady(self),
            halt=self._halt,
            table=table,
        )
        paths = RayPaths(spec.cluster, self._ensure_paths)
        self._copies = RayCopies(spec, self._node, lambda: self._catalogue, self._save_catalogue)
        if self._tenure is not None:
            self._tenure.begin(
                clustering,
                self._config,
                clock,
                actor=self._actor,
                node=self._node,
                ending=lambda: self._broker.ending,
                hosts=lambda: (host for host, how in self._catalogue.hosts.items() if how != IN_BROKER),
                whole=self._whole,
            )
        cluster = ClusterBroker(
            self._broker,
            clustering,
            self._peers,
            paths,
            lambda: self._nodes,
            RayHands(spec.cluster),
            None if self._tenure is None else self._tenure.watch,
            None if self._tenure is not None else self._copies,
        )
        self._observing = Observing(spec.cluster, self._directory, self._broker, cluster, self._peers, paths)
        self._observing.start()
        clustering.start()
        return cluster

    async def _elsewhere(self) -> dict[str, str]:
        return await self._services.elsewhere()

    def _heard(self, envelope: Envelope) -> None:
        """Another broker has given a sign of life."""
        self._cluster.receive(envelope)

    def _whole(self) -> bool:
        return self._adopted and not self._broker.registry.unasked

    def _take_brokers(self) -> None:
        asyncio.get_running_loop().call_soon(self._cluster.take_brokers)

    def _halt(self, reason: str) -> None:
        """Another instance of this broker has taken over, or the record cannot be written: end at once."""
        log.critical("broker %s stops: %s", self._spec.broker, reason)
        asyncio.get_running_loop().call_later(0.2, os._exit, EXIT_HALTED)

    def _copy_figures(self) -> dict[str, Any]:
        """What metrics say of the copies that are kept here."""
        return dict(self._cluster.copies.figures())

    async def _bootstrap(self) -> None:
        try:
            await self._ready()
            await self._cluster.bootstrap()
        except BrokerError:
            log.exception("what this broker had before there was a record is not all in it")

    async def _ensure_paths(self) -> None:
        """Have the path service started where its map is; the record says where that is, from its first use on."""
        if await in_daemon_thread(runtime.find_paths, self._spec.cluster) is not None:
            return
        keeper = await self._cluster.keeper_of_paths()
        if keeper == self._spec.broker:
            await in_daemon_thread(self._make_paths)
        else:
            await self._peers.call_broker(keeper, "ensure_paths", {}, timeout_s=START_S)

    def _make_paths(self) -> None:
        spec = self._spec
        directory, lease_ms = str(self._directory / "paths"), spec.config["raybroker.path.lease_ms"]
        name = runtime.path_name(spec.cluster, spec.broker, spec.tenure)
        shared = (spec.config, spec.broker, spec.tenure) if spec.tenure else None
        actor = runtime.create_actor(PathActor, spec.cluster, directory, lease_ms, shared, name=name, node=self._node)
        runtime.call_blocking(actor.path_row, timeout_s=START_S)

    async def _ready(self, *, again: bool = False) -> Broker:
        """Adopt the hosts that the catalogue names, once; those that cannot be reached now are tried again, those that
        do not start with ``again`` alone: whoever wants something else does not wait for them.

        Raises ConfigError where their connections are to be encrypted, and there is no key.
        """
        if not self._keyed:
            await asyncio.to_thread(cluster_tls, self._spec.config, self._directory.parent)
            self._keyed = True
        if self._adopted and not self._unasked_rows(again):
            return self._broker
        async with self._adopting:
            if not self._adopted:
                self._broker.registry.unasked = dict(self._catalogue.hosts)
                self._broker.registry.away.starting.update(self._catalogue.hosts)
            before = len(self._broker.registry.unasked)
            await in_parallel(HOSTS_AT_ONCE, (partial(self._adopt, *row) for row in self._unasked_rows(again)))
            self._adopted = True
            if self._applied_partly and len(self._broker.registry.unasked) < before:
                self._applied_partly = False
                self._cluster.clustering.feed(HostBack())
            await self._spare.keep()  # Not before: until then it would be one of the hosts that are asked.
            try:
                await self._broker.placement.ready()
            except BrokerError as error:
                log.warning("broker %s has no mq.sys.dmq yet: %s", self._spec.broker, error)
        return self._broker

    async def _soon(self, known: bool = False, *, verb: bool = False) -> Broker:
        """Do what :meth:`_ready` does, for clients, who give up a broker that they hear nothing of.

        ``known``: what is asked for has a host that serves; others are waited for at the start alone. ``verb``:
        whoever asks does not ask again. Raises StartingError, which says how far the start has come, after STARTING_S
        or VERB_STARTING_S.
        """
        if self._keyed and self._adopted and (known or not self._unasked_rows(again=False)):
            return self._broker
        if self._awaited is None or self._awaited.done():
            self._awaited = self._loops.once("hosts that clients wait for", self._ready())
        awaited = self._awaited
        await asyncio.wait({awaited}, timeout=VERB_STARTING_S if verb else STARTING_S)
        if awaited.cancelled():
            raise ConnectionLostError(f"broker {self._spec.broker} stops")
        if awaited.done():
            return awaited.result()
        raise StartingError(self._how_far(named=verb))

    def _how_far(self, *, named: bool) -> str:
        """``named``: with the hosts that are waited for; to clients another text is progress, of which there is so
        much as there are hosts."""
        hosts, registry = self._catalogue.hosts, self._broker.registry
        serving = sum(name not in registry.unasked for name in hosts) if self._keyed else 0
        waits = registry.away.under_way() if named else ""
        text = f"broker {self._spec.broker} is starting: {serving} of its {len(hosts)} hosts serve"
        return f"{text}; {waits}" if waits else text

    def _unasked_rows(self, again: bool) -> list[tuple[str, str]]:
        registry = self._broker.registry
        return [(name, how) for name, how in registry.unasked.items() if again or name not in registry.away.refused]

    async def _adopt(self, host: str, hosting: str) -> None:
        """One host, whose process starts if it does not run; one that cannot be asked now stays unasked."""
        remote = await self._find_host(host, hosting)
        try:
            await self._broker.placement.adopt(remote)
        except BrokerError:
            await self._ask_why(remote)
            return
        self._refusals.pop(host, None)
        self._broker.registry.note_answered(host)

    async def _ask_why(self, host: RemoteHost | HostInBroker) -> None:
        """A host that answers, and has not opened its store, says why; one that tries again by itself is waited for, as
        is one whose process starts."""
        away, name = self._broker.registry.away, host.spec.host
        try:
            if isinstance(host, RemoteHost):
                await host.where(WHY_TIMEOUT_S, gone=StartingError)
            else:
                await host.where(WHY_TIMEOUT_S)
            return  # It serves by now, and is asked at the next look.
        except StartingError:
            away.starting.add(name)
            refusal = None
        except (ConnectionLostError, RequestTimeoutError, UnreachableError):
            away.starting.discard(name)
            refusal = None
        except BrokerError as error:
            away.starting.discard(name)
            refusal = error
        if refusal is None:
            self._refusals.pop(name, None)
            away.refused.pop(name, None)
            return
        why = f"host {host.key} does not start: {refusal}"
        if why != away.refused.get(name):
            log.error("[B3183] %s", why)
        self._refusals[name], away.refused[name] = refusal.code, why

    async def _sweep(self) -> None:
        """Settle what dead clients left open, for as long as the broker lives, also when nobody calls it."""
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                broker = await self._ready(again=True)
                await broker.placement.ready()
                await self._spare.keep()
                await broker.properties.tell()
                await broker.quotas.tell()
                await broker.policies.tell()
                await broker.drained_nodes.tell()
                await broker.transactions.resolve()
                await self._learn_nodes()
            except Exception:  # the next sweep may fare better, and without sweeps nothing is settled
                log.exception("broker %s could not look for open transactions", self._spec.broker)

    async def _learn_nodes(self) -> None:
        """Ask each instance of another broker once on which node it is."""
        membership = self._cluster.clustering.member.membership
        for name in self._cluster.live():
            incarnation = membership.broker_row(name).incarnation
            if name == self._spec.broker or self._learnt.get(name) == incarnation:
                continue
            try:
                self._nodes[name] = str(await self._peers.call_broker(name, "node", {}, timeout_s=SWEEP_S))
            except BrokerError:
                continue  # It is gone, or busy; the next sweep asks again.
            self._learnt[name] = incarnation

    def _told_to_hosts(self) -> KeptState:
        """What a host in this process begins with; it has a configuration of its own, as those elsewhere have."""
        saved = self._catalogue
        return KeptState(LiveConfig(self._spec.config, dict(saved.properties)), saved.quotas, saved.policies)

    def _messages_log(self, spec: HostSpec, config: LiveConfig) -> MessagesLog:
        where = directory_of(config.__getitem__, self._directory, spec.broker, spec.host)
        return MessagesLog(where, config.__getitem__)

    def _host(self, host: str, hosting: str) -> RemoteHost | HostInBroker:
        spec = self._spec
        host_spec = spec.of_host(host, hosting, self._catalogue.token)
        if hosting == IN_BROKER:
            return self._inside.host(host_spec)
        name = runtime.host_name(spec.cluster, spec.broker, host, spec.tenure)
        actor = runtime.named_since(name) if spec.tenure else None  # A process that stood by may be it.
        if actor is None:
            actor = runtime.create_actor(DestinationHost, host_spec, name=name, node=self._node)
        return RemoteHost(actor, host_spec)

    async def _make_host(self, hosting: str) -> HostPort:
        made = await self._spare.take_host(self._config.changed) if hosting == "dedicated" else None
        return made or await self._answering(await self._name_host(hosting))

    async def _start_spare(self) -> RemoteHost:
        host = await self._name_host("dedicated")
        assert isinstance(host, RemoteHost)
        try:
            await self._answering(host)
        except BrokerError:
            await self._end_host(host)
            raise
        return host

    async def _name_host(self, hosting: str) -> RemoteHost | HostInBroker:
        """A host that may still be starting; the catalogue has it before it is there."""
        host = f"h{self._catalogue.next_id}"
        self._catalogue.next_id += 1
        self._catalogue.hosts[host] = hosting
        await self._save_catalogue()
        failpoint("host.named")
        return await self._find_host(host, hosting)

    async def _find_host(self, host: str, hosting: str) -> RemoteHost | HostInBroker:
        return self._host(host, hosting) if hosting == IN_BROKER else await in_daemon_thread(self._host, host, hosting)

    async def _answering(self, made: RemoteHost | HostInBroker) -> RemoteHost | HostInBroker:
        starting, name = self._broker.registry.away.starting, made.spec.host
        starting.add(name)
        try:
            pid = await self._serving(made)
        finally:
            starting.discard(name)
        if isinstance(made, RemoteHost):
            self._watch.made(made, pid)
        failpoint("host.made")
        return made

    async def _serving(self, made: RemoteHost | HostInBroker) -> int:
        """The process of a host, once it serves; a database that cannot be reached is waited for."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + MAKE_TIMEOUT_S
        while True:
            try:
                return (await made.where(MAKE_TIMEOUT_S))[2]
            except DatabaseAwaitedError:
                if loop.time() > until_s:
                    raise
            await asyncio.sleep(DATABASE_LOOK_S)

    async def _save(self, field: str, value: dict[str, Any]) -> None:
        before = getattr(self._catalogue, field)
        setattr(self._catalogue, field, value)
        try:
            await self._save_catalogue()
        except BrokerError:
            setattr(self._catalogue, field, before)
            raise

    async def _save_catalogue(self) -> None:
        """Write it, and first into the database, where another node would read it."""
        catalogue = self._catalogue
        if self._tenure is not None:
            await self._tenure.keep(catalogue)
        await asyncio.to_thread(catalogue.write, self._directory, catalogue.image())

    async def _drop_host(self, host: HostPort) -> None:
        assert isinstance(host, RemoteHost)
        if isinstance(host, RemoteCopy):
            return  # It ends where all its copies do, when the record does not have it any more.
        await runtime.call(host.actor.stop)
        await self._forget_host(host)

    async def _forget_host(self, host: RemoteHost) -> None:
        """End the process, and remove what it stored."""
        await in_daemon_thread(runtime.kill, host.actor)
        self._catalogue.hosts.pop(host.spec.host, None)
        await self._save_catalogue()
        await asyncio.to_thread(shutil.rmtree, host.spec.directory, ignore_errors=True)
        await asyncio.to_thread(self._remove_rows, host.spec.host)
        await asyncio.to_thread(self._observing.dropped, host.spec.host)

    def _remove_rows(self, host: str) -> None:
        """Nobody reads them again, because no host gets the same name: they only take room."""
        spec = self._spec
        try:
            remove_host(spec.config, self._directory, spec.cluster, spec.broker, host)
        except BrokerError as error:
            log.warning("the rows of host %s, which is gone, stay in the database: %s", host, error)

    async def _end_host(self, host: RemoteHost) -> None:
        """End a host that serves nothing, whether it answers or not."""
        try:
            await self._forget_host(host)
        except BrokerError as error:
            log.warning("host %s serves nothing and stays until the broker restarts: %s", host.key, error)

    # ---- what clients ask ------------------------------------------------------------------------------------------

    async def locate(
        self, kind: str, name: str, create: bool, guest: bool = False
    ) -> tuple[str, str, int, bytes, str, dict[str, Any], bytes]:
        """(key, ip, port, token, broker, traits, certificate) of the host of this broker's member of a destination;
        certificate: what the host shows over TLS, b"": there is no TLS."""
        host, _, traits = await self.placed(kind, name, create, guest)
        failpoint("located")
        ip, port, _, certificate = await host.where()
        broker = str(traits.get(LED_BY, self._spec.broker))  # Whose loss is that of the host, too.
        return host.key, ip, port, host.spec.token, broker, traits, certificate

    async def placed(
        self, kind: str, name: str, create: bool, guest: bool = False
    ) -> tuple[RemoteHost | HostInBroker | LedHost, str, dict[str, Any]]:
        """(host, this broker, traits) of this broker's member of a destination; see ClusterBroker.locate."""
        await self._soon(self._broker.registry.has(kind, name))
        host, traits = await self._cluster.locate(kind, name, create, guest)
        assert isinstance(host, RemoteHost | HostInBroker | LedHost)
        return host, self._spec.broker, traits

    async def brokers(self) -> BrokerRows:
        """(version of the view, this broker, rows of name, state, coordinator, node)."""
        return await self._cluster.brokers()

    async def brokers_changed(self, version: int, timeout_s: float) -> int:
        """Wait for another version of the view, for a bounded time."""
        return await self._cluster.brokers_changed(version, timeout_s)

    async def members(self, kind: str, name: str) -> dict[str, int]:
        """Broker → consumers of its member of a destination."""
        await self._soon()
        return await self._cluster.members(kind, name)

    async def routes(self, kind: str, name: str, units: list[str], owner: str) -> dict[str, str]:
        """Unit of order → broker."""
        await self._soon()
        return await self._cluster.routes(kind, name, units, owner)

    async def renew_routes(self, owner: str) -> bool:
        return await self._cluster.renew_routes(owner)

    async def release_routes(self, kind: str, name: str, units: list[str], owner: str) -> None:
        await self._cluster.release_routes(kind, name, units, owner)

    async def receive(self, envelope: Envelope) -> None:
        """What another broker's machine says."""
        self._cluster.receive(envelope)

    async def peer(self, method: str, args: dict[str, Any]) -> Any:
        """What another broker asks."""
        if method == "node":
            return self._node
        if method == "why" and self._failure is not None:
            return f"it does not start: {self._failure}"
        if method == "listens":
            return self._signs.place()
        if method == "metrics_url":
            return self._observing.url
        if method == "doors":
            return self._services.own()
        if method == TAKING:
            return self._services.taking()
        if method == "counts":
            return await self._broker.measuring.counts()
        if method == "ensure_paths":
            return await self._ensure_paths()
        await self._ready()
        return await self._cluster.peer(method, args)

    async def create_temporary(self, kind: str, owner: str) -> str:
        """The name of a new destination that lives as long as the client connection ``owner``."""
        return await (await self._soon()).create_temporary(kind, owner)

    async def destroy_temporary(self, kind: str, name: str, owner: str) -> None:
        await (await self._ready()).destroy_temporary(kind, name, owner)

    async def subscribe(self, args: dict[str, Any]) -> None:
        """Prepare the opening of a subscription; see broker.destinations.subscriptions."""
        await self._soon()
        await self._cluster.subscribe(**args)

    async def identify(self, client_id: str, instance: str) -> None:
        """A connection has the client id; see Broker.identify."""
        await (await self._ready()).identify(client_id, instance)

    async def unsubscribe(self, client_id: str | None, name: str) -> None:
        await self._soon()
        await self._cluster.unsubscribe(client_id, name)

    async def matching(self, pattern: str) -> tuple[int, list[str]]:
        """Version and names of the topics that match."""
        return await (await self._soon()).matching(pattern)

    async def changed(self, version: int, timeout_s: float) -> int:
        """Wait for another version, for a bounded time."""
        return await (await self._ready()).changed(version, timeout_s)

    async def branch_states(self, key: bytes) -> list[str]:
        """States of an XA branch on all hosts of the cluster."""
        await self._ready()
        return await self._cluster.branch_states(key)

    async def settings(self) -> dict[str, Any]:
        """What was configured for clients of this cluster."""
        return self._given()

    def _given(self) -> dict[str, Any]:
        return {**{name: value for name, value, _ in self._spec.config.given}, **self._config.changed}

    async def admin(self, verb: str, args: dict[str, Any]) -> Any:
        """A verb of a program or a shell inside the Ray cluster."""
        return await audited(self._broker.services.audit, self.carry_out, verb, args)

    async def carry_out(self, verb: str, args: dict[str, Any]) -> Any:
        """A verb; whoever asks has written it to the audit log."""
        await self._soon(verb=True)
        return await self._cluster.admin(verb, args)

    async def plan(self) -> BrokerPlan:
        """The brokers of the cluster as this one was started with them."""
        return self._spec.plan

    async def explain(self) -> list[tuple[str, Any, str]]:
        """Each property with its value and where it came from."""
        return self._config.explained(self._spec.config.explain())

    async def forget(self, type: str, name: str) -> None:
        """A host has removed a destination by itself."""
        self._broker.placement.forget_destination(type, name)

    async def lease(self, host: str, row: dict[str, Any]) -> dict[str, Any]:
        """A host asks for more of a pool; see broker.destinations.pools."""
        return await self._broker.pools.lease(host, row)

    async def forward(self, type: str, name: str, block: bytes) -> None:
        """A host's messages for a destination of another host; raises unless they are stored there."""
        await self._ready()
        await self._cluster.forward(type, name, block)

    async def ready(self) -> dict[str, Any]:
        """Wait until every host that can be reached serves; then who we are, whether clients are taken, and refusals:
        code and text of the errors of hosts that do not open their stores where no host does, or of the broker that
        does not start; ``away``: why hosts do not start; ``starting``: hosts of before whose processes have not
        answered; ``services``: why those that were asked for do not listen; ``consoles``: addresses for a browser."""
        if self._failure is not None:
            return self._row_of_failure(self._failure)
        registry = (await self._ready()).registry
        away = dict(registry.away.refused)
        return {
            "broker": self._spec.broker,
            "cluster": self._spec.cluster,
            "pid": os.getpid(),
            "node": self._node,
            "metrics_url": self._observing.url,
            **self._cluster.clustering.cluster_row(),
            "refusals": [] if registry.hosts else sorted((code, away[name]) for name, code in self._refusals.items()),
            "away": sorted(away.values()),
            "starting": sorted(registry.host_key(name) for name in registry.away.starting & registry.unasked.keys()),
            "services": await self._services.failure(),
            "consoles": self._services.consoles(),
        }

    def _row_of_failure(self, failure: BrokerError) -> dict[str, Any]:
        spec, text = self._spec, f"broker {self._spec.broker} does not start: {failure}"
        return {
            "broker": spec.broker,
            "cluster": spec.cluster,
            "pid": os.getpid(),
            "node": self._node,
            "metrics_url": "",
            "state": FAILED,
            "master": "",
            "term": 0,
            "is_master": False,
            "incarnation": 0,
            "contradiction": "",
            "refusal": text,
            "faults": [text],
            "operating": False,
            "refusals": [(failure.code, text)],
            "starting": [],
        }

    async def how_far(self) -> str:
        """How far the start has come, in words, at once."""
        broker, failure = self._spec.broker, self._failure
        return f"broker {broker} does not start: {failure}" if failure else self._how_far(named=True)

    async def object_keeper(self) -> Any:
        """The actor that owns copies of large bodies."""
        return await in_daemon_thread(keeper_of_this_broker)

    async def host_actor(self, key: str) -> Any:
        """The actor in whose process a host is, for bodies that are given to that by reference."""
        found = next((host for host in self._broker.registry.hosts if host.key == key), None)
        if found is None:
            raise ConnectionLostError(f"host {key} does not serve here")
        return found.actor if isinstance(found, RemoteHost) else runtime.own_actor()

    async def hold_body(self, token: str, key: str, refs: list[Any]) -> None:
        """Keep the reference of a body for a host in this process; see DestinationHost."""
        bodies_of_this_process().hold(token, key, refs[0])

    async def find_body(self, key: str) -> list[Any]:
        """The reference of a body that this process owns; empty when it does not."""
        return bodies_of_this_process().find(key)

    async def pids(self) -> dict[str, int]:
        """Process ids of the broker, its hosts and its copies of logs, for tests and operators."""
        found = {"broker": os.getpid()}
        for host, hosting in self._catalogue.hosts.items():
            remote = self._host(host, hosting)
            found[host] = (await remote.where())[2]
        copies = await self._cluster.copies.copy_rows()
        return {**found, **{host_of(name): int(row["pid"]) for name, row in copies.items()}}

    async def stop(self) -> None:
        """Stop every host cleanly; the caller then ends this actor."""
        if self._failure is not None:
            self._attempts.close()
            return
        self._loops.close()
        if self._tenure is not None:
            await self._tenure.stopping()
        self._observing.stop()
        self._services.close()
        await self._spare.close()
        await self._cluster.clustering.stop()
        self._signs.close()
        hosts = list(self._catalogue.hosts.items())
        await in_parallel(HOSTS_AT_ONCE, (partial(self._stop_host, *row) for row in hosts))
        logs = list(self._catalogue.copies)
        await in_parallel(HOSTS_AT_ONCE, (partial(self._copies.end_copy, log, remove=False) for log in logs))
        if self._tenure is not None:
            await self._tenure.stopped()

    async def _stop_host(self, host: str, hosting: str) -> None:
        remote = await self._find_host(host, hosting)
        if isinstance(remote, HostInBroker):
            with contextlib.suppress(BrokerError):
                await remote.stop()
            return
        try:
            await runtime.call(remote.actor.stop)
        except BrokerError as error:
            log.info("host %s was not stopped cleanly: %s", remote.key, error)
        finally:
            await in_daemon_thread(runtime.kill, remote.actor)

    async def _end_actor(self, restart: bool) -> None:
        """Stop, and end this actor, which Ray starts again where ``restart`` says so."""
        name = runtime.broker_name(self._spec.cluster, self._spec.broker, self._spec.tenure)
        try:
            await self.stop()
        except BrokerError:
            log.exception("broker %s could not be stopped cleanly", self._spec.broker)
        finally:
            await in_daemon_thread(lambda: runtime.kill(runtime.find_actor(name), restart=restart))
