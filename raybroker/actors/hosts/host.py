"""The destination host actor: a shell around hosting.host_service.

Survives a crash: everything acknowledged, from its store; the actor restarts, recovers and listens on a new port, which
clients learn from the broker.  A failed call means that the change may or may not have been made; all calls may be
repeated.  Messages do not come through actor calls but over the data socket, which has an event loop of its own in a
thread beside the actor's, so that a slow control call costs messages nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from raybroker.actors import runtime
from raybroker.actors.failpoints import arm_failpoints, with_steps
from raybroker.actors.given_bodies import bodies_of_this_process
from raybroker.actors.hosts.heartbeat_replies import HeartbeatReplies
from raybroker.actors.hosts.host_spec import HostSpec
from raybroker.actors.standby import assignment
from raybroker.broker.cluster.database_passwords import store_password
from raybroker.broker.services.link_security import cluster_tls
from raybroker.config.live import LiveConfig
from raybroker.engine.ports import LogCopies, Store
from raybroker.hosting.host_port import Row, method_of
from raybroker.hosting.host_service import HostBroker, HostProcess, HostService, HostStorage, Post
from raybroker.hosting.paging import directory_of
from raybroker.logs import channels
from raybroker.logs.channels import Log
from raybroker.logs.messages import MessagesLog
from raybroker.model.definitions.quota import Quota
from raybroker.model.errors import BrokerError, ConnectionLostError, StoreError
from raybroker.security.tls import ServerTls
from raybroker.store import ownership
from raybroker.store.advice import advised
from raybroker.store.catalogue import Catalogue
from raybroker.store.journal import Journal
from raybroker.store.journal.own_files import OwnFileOptions
from raybroker.store.memory import MemoryStore
from raybroker.store.paging import PagingFiles
from raybroker.store.sql.database import UnreachableError
from raybroker.store.sql.opening import holder_of, holder_of_tenure, is_sql, open_store
from raybroker.store.sql.registration import TakenOverError
from raybroker.system import entropy
from raybroker.system.clock import SystemClock
from raybroker.system.failpoint import failpoint
from raybroker.system.memory import collect_seldom, keep_freed_memory
from raybroker.system.priority import normal_priority, normal_priority_throughout
from raybroker.transport.daemon_calls import in_daemon_thread
from raybroker.transport.datagrams import Address
from raybroker.transport.loops import new_event_loop

if TYPE_CHECKING:
    from raybroker.copies.copy import Copy
    from raybroker.store.sql.store import SqlStore

LOCK_WAIT_S: Final = 5.0
"""How long a restarted host waits for its predecessor to let go of the store."""
SWITCH_S: Final = 0.0005
"""How long one thread of a host may keep another from running: by default 5 ms, in which a disk could have synced
twenty times. The commit thread was waiting for its turn rather than for the disk."""
LEAD_LOOK_S: Final = 0.02
"""How often a host whose log has copies looks whether its own leads."""
FIRST_RETRY_S: Final = 1.0
LAST_RETRY_S: Final = 30.0
"""How long a host waits that could not start before it tries again; twice as long each time in between."""
EXIT_FAILED: Final = 3
"""Exit status after a store error (fail stop)."""

log = logging.getLogger("raybroker.host")


class DatabaseAwaitedError(ConnectionLostError):
    """The host cannot reach its database, and tries again: so does whoever wants something of it."""

    code = ConnectionLostError.code


@dataclass(frozen=True)
class KeptState:
    """What a broker has told its hosts: the configuration with what was changed since, the quotas and the policies."""

    config: LiveConfig
    quotas: Mapping[str, Quota]
    policies: Mapping[str, Any]


class DataPlane(threading.Thread):
    """The thread with the data socket's loop. ``failure`` is set when the host could not start; ``loop``: one that
    another thread runs, None: a new one, which :meth:`run` runs; ``life``: where the lives of messages are logged;
    ``metrics``: rows of whoever runs the host; ``copy``: of the log, where others have copies too: the host serves once
    that leads."""

    process_of_its_own = True
    """The process is the host's alone, and so are its figures."""

    def __init__(
        self,
        spec: HostSpec,
        kept: KeptState,
        ip: str,
        forgotten: Callable[[str, str], None],
        life: MessagesLog,
        metrics: Callable[[], Row] = dict,
        loop: asyncio.AbstractEventLoop | None = None,
        copy: Copy | None = None,
    ) -> None:
        super().__init__(name="raybroker-data", daemon=True)
        self.copy = copy
        self.spec = spec
        self.kept = kept
        self.config = kept.config
        self.ip = ip
        self.loop = loop or new_event_loop()
        self.service: HostService | None = None
        self.address: tuple[str, int] | None = None
        self.tls: ServerTls | None = None
        """Of the data socket, where the cluster has its connections encrypted."""
        self.failure: BrokerError | None = None
        self.ready = threading.Event()
        self._life = life
        self._metrics = metrics
        self._forgotten = forgotten
        self._broker: Any = None
        """The actor of the broker, once it was asked for something."""

    def _state(self) -> Row:
        return {"pid": os.getpid(), "address": self.address}

    def run(self) -> None:
        normal_priority()
        keep_freed_memory()
        sys.setswitchinterval(SWITCH_S)
        asyncio.set_event_loop(self.loop)
        self.loop.create_task(self._start())
        self.loop.run_forever()

    async def _start(self) -> None:
        """Serve; what fails is said to whoever asks, and tried again, more seldom each time."""
        pause_s = FIRST_RETRY_S
        while not await self._serves():
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_RETRY_S)

    async def _serves(self) -> bool:
        """One attempt; False: it failed, and may be tried again."""
        before, store = self.failure, None
        try:
            tls = self.tls = await asyncio.to_thread(self._keystore)
            store, incarnation, copies = await self._open_store()
            failpoint("host.open")
            self.service = HostService(
                HostStorage(
                    with_steps(store),
                    incarnation,
                    store.bodies if isinstance(store, Journal) else None,
                    self._paging(),
                    Path(self.spec.directory) if isinstance(store, Journal) or copies is not None else None,
                    copies,
                    bodies_of_this_process().take_body,
                ),
                SystemClock(),
                self.config,
                token=self.spec.token,
                key=self.spec.key,
                hosting=self.spec.hosting,
                broker=HostBroker(
                    self.spec.broker,
                    self._forgotten,
                    self._forward,
                    self._lease,
                    self._hosts,
                    self.kept.quotas,
                    self.kept.policies,
                ),
                process=HostProcess(self._failed, self.process_of_its_own, self._state, self._metrics, self._life),
            )
            with advised(self._damaged_files):
                # Where a commit may be as quick as its sync.
                on_disk = isinstance(store, Journal) or copies is not None
                await self.service.start(threaded=not isinstance(store, MemoryStore), inline=on_disk)
            for line in store.notices() if isinstance(store, Journal) else ():
                log.warning("host %s: %s", self.spec.key, line)
            self.address = await self.service.listen(
                self.ip, self.spec.config["raybroker.data.ports"], None if tls is None else tls.context
            )
            if self.process_of_its_own:
                collect_seldom()
            self.failure = None
            failpoint("host.serving")
            if before is not None:
                log.warning("host %s has started at last", self.spec.key)
            return True
        except UnreachableError as error:
            self._failed(error)  # The next process of this host tries again.
            return True
        except TakenOverError as error:
            log.critical("[B3192] host %s ends: %s", self.spec.key, error)
            self.failure = ConnectionLostError(f"host {self.spec.key} has ended: {error}")
            self._taken_over()
            return True
        except BrokerError as error:
            self.failure = error
        except Exception as error:  # noqa: BLE001 - a host that cannot start says why to whoever asks
            self.failure = StoreError(f"host {self.spec.key} could not start: {error!r}")
        finally:
            self.ready.set()
        if str(before) != str(self.failure):
            log.critical("[B3181] host %s does not start and tries again: %s", self.spec.key, self.failure)
        await self._give_up(store)
        return False

    def _taken_over(self) -> None:
        """End the process, which Ray does not start again: its broker serves its messages elsewhere."""
        spec = self.spec
        actor = runtime.find_actor(runtime.host_name(spec.cluster, spec.broker, spec.host, spec.tenure))
        if self.process_of_its_own and actor is not None:
            runtime.kill(actor)

    async def _give_up(self, store: Store | None) -> None:
        """Let go of what an attempt has opened."""
        service, self.service = self.service, None
        try:
            if service is not None:
                await service.close()
            elif store is not None:
                store.close()
        except Exception:
            log.exception("host %s could not let go of its store", self.spec.key)

    def _awaits_database(self, line: str) -> None:
        """The database cannot be reached. Whoever asks is told so, and to ask again: so it is between two lives of a
        host. Called in another thread."""
        log.warning("host %s: %s", self.spec.key, line)
        self.failure = DatabaseAwaitedError(f"host {self.spec.key} waits for its database: {line}")
        self.ready.set()

    def _keystore(self) -> ServerTls | None:
        return cluster_tls(self.spec.config, Path(self.spec.directory).parent.parent.parent)

    def _paging(self) -> Callable[[Post], PagingFiles] | None:
        spec = self.spec
        directory = directory_of(spec.config, Path(spec.directory), spec.cluster, spec.broker, spec.host)
        if directory is None:
            return None
        return partial(PagingFiles, directory, spec.config["raybroker.paging.file_bytes"])

    def _hosts(self) -> int:
        """How many hosts the broker has, by the directories of their stores."""
        try:
            return len(os.listdir(Path(self.spec.directory).parent))
        except OSError:
            return 1

    async def _until_it_leads(self, copy: Copy) -> tuple[Store, int, LogCopies]:
        """Wait until the copy leads; whoever asks meanwhile is told to come again, and what is waited for."""
        from raybroker.copies.replicated_store import ReplicatedStore  # Few hosts have copies.

        while not copy.leads:
            status = copy.status()
            who = f"copy {status.leader} leads" if status.leader else "no copy has a majority of promises"
            self.failure = ConnectionLostError(f"host {self.spec.key} waits to lead its log: {status.trouble or who}")
            self.ready.set()
            await asyncio.sleep(LEAD_LOOK_S)
        store = ReplicatedStore(copy)
        return cast(Store, store), store.incarnation, store

    async def _open_store(self) -> tuple[Store, int, LogCopies | None]:
        """Return the store, the number of this life of it, and the copies of its log, None where there are none."""
        config = self.spec.config
        if self.copy is not None:
            return await self._until_it_leads(self.copy)
        if config["imq.persist.store"] == "memory":
            return MemoryStore(), int.from_bytes(entropy.token(2), "little") + 1, None
        sql = is_sql(config)
        deadline = self.loop.time() + LOCK_WAIT_S
        while True:
            try:
                store = await asyncio.to_thread(self._open_sql) if sql else self._open_journal()
            except StoreError as error:
                if "is open in process" not in str(error) or self.loop.time() > deadline:
                    raise
                await asyncio.sleep(0.05)
                continue
            return cast(Store, store), store.incarnation, None

    @property
    def _damaged_files(self) -> Path | None:
        """The directory of the store whose damage an administrator can set aside; None: it is not in files."""
        config = self.spec.config
        in_files = config["imq.persist.store"] != "memory" and not is_sql(config)
        return Path(self.spec.directory) if in_files else None

    def _open_journal(self) -> Journal:
        config, directory, owner = self.spec.config, Path(self.spec.directory), f"{self.spec.cluster}/{self.spec.key}"
        ownership.check(directory, owner)
        with advised(directory):
            journal = Journal(
                directory,
                sync=config["imq.persist.file.sync.enabled"],
                segment_bytes=config["raybroker.store.segment_bytes"],
                own_files=OwnFileOptions.from_config(config),
                monotonic_ns=SystemClock().monotonic_ns,
                entropy=entropy.token,
            )
        try:
            ownership.claim(directory, owner)
        except StoreError:
            journal.close()
            raise
        return journal

    def _open_sql(self) -> SqlStore:
        spec, clock = self.spec, SystemClock()
        return open_store(
            spec.config,
            Path(spec.directory).parent.parent,
            cluster=spec.cluster,
            broker=spec.broker,
            host=spec.host,
            hosting=spec.hosting,
            holder=holder_of_tenure(spec.tenure) if spec.tenure else holder_of(spec.token),
            monotonic_ns=clock.monotonic_ns,
            sleep=clock.sleep,
            report=self._awaits_database,
            password=store_password(spec.config, Path(spec.directory).parent.parent.parent),
        )

    async def _forward(self, type: str, name: str, block: bytes) -> None:
        """Hand messages for a destination of another host to the broker; raises unless they are stored there."""
        broker = await in_daemon_thread(runtime.find_broker, self.spec.cluster, self.spec.broker)
        if broker is None:
            raise ConnectionLostError(f"broker {self.spec.broker} is not running")
        await runtime.call(broker.forward, type, name, block)

    async def _lease(self, row: dict[str, Any]) -> dict[str, Any]:
        """Ask the broker for more of a pool; raises when it cannot be asked."""
        broker = self._broker
        if broker is None:
            broker = await in_daemon_thread(runtime.find_broker, self.spec.cluster, self.spec.broker)
            self._broker = broker
        if broker is None:
            raise ConnectionLostError(f"broker {self.spec.broker} is not running")
        try:
            answer: dict[str, Any] = await runtime.call(broker.lease, self.spec.key, row)
        except BrokerError:
            self._broker = None  # Another actor may have its name by now.
            raise
        return answer

    def _failed(self, error: BrokerError) -> None:
        """Fail stop: the process ends at once, and the restarted one trusts nothing but the files. Until it has ended
        clients are told to come again, and not why: they would take that for the end of their handles."""
        log.critical("host %s stops: %s", self.spec.key, error)
        self.failure = ConnectionLostError(f"host {self.spec.key} has stopped, and starts again: {error}")
        if self.service is not None:
            self.service.service.stop_listening()
        self.loop.call_later(0.2, os._exit, EXIT_FAILED)

    def end_process(self, error: BrokerError, *, waiting: bool) -> None:
        """End the process, as after an error of the store; on the data loop.  ``waiting``: also one that does not serve
        yet, because its copy has ended; else it goes on waiting, because another copy leads."""
        if waiting or self.service is not None:
            self._failed(error)

    async def on_loop(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the data loop, from the actor's loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))


def _kept(spec: HostSpec) -> KeptState:
    """Read what the broker's file says; the broker tells it too, as soon as it knows of this process."""
    try:
        kept = Catalogue.load(Path(spec.directory).parent.parent)
    except StoreError:
        kept = None  # The broker says what is wrong with its file.
    if kept is None:
        return KeptState(LiveConfig(spec.config, {}), {}, {})
    return KeptState(LiveConfig(spec.config, kept.properties), kept.quotas, kept.policies)


def _log(spec: HostSpec, config: LiveConfig) -> Log:
    """The host's log, beside that of its broker."""
    where = channels.directory_of(config.__getitem__, Path(spec.directory).parent.parent, spec.broker, spec.host)
    return Log(config.__getitem__, where, {"cluster": spec.cluster, "broker": spec.broker, "host": spec.host})


class DestinationHost:
    """See the module.  ``stands_by``: the actor's name, of one that is to become the host of a lost broker."""

    def __init__(self, spec: HostSpec, stands_by: str = "") -> None:
        self._spec = spec
        self._stands_by = stands_by
        self._plane: DataPlane | None = None
        collect_seldom()  # What Ray and the imports have left stays: to look through it once takes as long as to start.
        normal_priority_throughout()
        told = assignment.told(stands_by)
        if stands_by and told is None:
            assignment.warm_up(spec.config, Path(spec.directory).parent, spec.cluster)
            return
        self._begin_as(spec if told is None else assignment.host_spec(spec, told)).ready.wait()

    def _begin_as(self, spec: HostSpec) -> DataPlane:
        self._spec = spec
        arm_failpoints(spec.key)
        kept = _kept(spec)
        log = self._log = _log(spec, kept.config)
        log.start()
        self._heartbeat_replies = HeartbeatReplies(spec.key, spec.token, os.getpid())
        life = MessagesLog(log.directory, kept.config.__getitem__)
        plane = self._plane = DataPlane(
            spec,
            kept,
            runtime.node_ip(),
            self._forgotten,
            life,
            lambda: {"log_records_total": dict(log.counts)},
            copy=self._open_copy(spec),
        )
        plane.start()
        return plane

    def _open_copy(self, spec: HostSpec) -> Copy | None:
        """Open this process' copy of the host's log; None: it has none."""
        return None

    async def stand_by(self) -> None:
        """Answer: the process runs."""

    async def become(self, name: str, told: str) -> None:
        """Be the host of a lost broker from now on, also in the next process of this actor, which has that name; does
        not wait until it serves."""
        if self._plane is None:
            runtime.also_name(name, self._stands_by, told)
            self._begin_as(assignment.host_spec(self._spec, told))

    def _forgotten(self, type: str, name: str) -> None:
        broker = runtime.find_broker(self._spec.cluster, self._spec.broker)
        if broker is not None:
            runtime.tell(broker.forget, type, name)

    def _begun(self) -> DataPlane:
        """Raises ConnectionLostError while this process stands by."""
        if self._plane is None:
            raise ConnectionLostError(f"process {os.getpid()} stands by, and is no host yet")
        return self._plane

    async def _serving(self) -> tuple[DataPlane, HostService]:
        """The plane waits until it has read its store; raises what kept it from starting."""
        plane = self._begun()
        if not plane.ready.is_set():
            await in_daemon_thread(plane.ready.wait)
        if plane.failure is not None:
            raise plane.failure
        assert plane.service is not None
        return plane, plane.service

    async def where(self) -> tuple[str, int, int, bytes]:
        """(ip, port, process id, the certificate that it shows or b""); raises what kept the host from starting."""
        plane, _ = await self._serving()
        assert plane.address is not None
        return (*plane.address, os.getpid(), b"" if plane.tls is None else plane.tls.certificate())

    async def alive(self) -> tuple[int, Address | None]:
        """The process id and where pings go, at once, whatever the data socket has to do."""
        plane = self._begun()
        return os.getpid(), await self._heartbeat_replies.address(plane.spec.config["raybroker.data.ports"])

    async def hold_body(self, token: str, key: str, refs: list[Any]) -> None:
        """Keep the reference of a body, until the host is told its token over the connection of its message."""
        bodies_of_this_process().hold(token, key, refs[0])

    async def find_body(self, key: str) -> list[Any]:
        """The reference of a body that this process owns; empty when it does not."""
        return bodies_of_this_process().find(key)

    async def call_role(self, role: str, method: str, *args: Any) -> Any:
        """Call a method of one of the roles of hosting.host_port.HostPort by name."""
        plane, service = await self._serving()
        call = method_of(service, role, method)
        failpoint(f"ask.{role}.{method}")
        answer = await plane.on_loop(call(*args))
        failpoint(f"asked.{role}.{method}")
        return answer

    async def stop(self) -> None:
        """Close the store cleanly; the actor is ended by its broker after that."""
        plane = self._plane
        if plane is not None and plane.service is not None and plane.failure is None:
            await plane.on_loop(plane.service.close())
