"""Starting and stopping a cluster of brokers (``rb.start``)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from raybroker.actors import runtime
from raybroker.actors.broker_actor import BrokerActor
from raybroker.actors.broker_spec import BrokerSpec
from raybroker.actors.forwarding_agents import end_all
from raybroker.actors.join import check_table, shared_table
from raybroker.actors.placement import place
from raybroker.actors.stores.shared_stores import begin_tenure
from raybroker.actors.stores.store_tables import HA, check_shared, check_tables
from raybroker.cluster.member_state import MemberState
from raybroker.config import Config, instance_of, store_directory
from raybroker.config.brokers import BrokerPlan, plan_of
from raybroker.logs.channels import check
from raybroker.model.errors import (
    BrokerError,
    ConfigError,
    ConnectionLostError,
    IllegalStateError,
    MasterUnavailableError,
    StartingError,
    StoreError,
    from_code,
)
from raybroker.system.clock import SystemClock

OPEN_WAIT_S: Final = 120.0
"""How long ``start`` waits until a broker that it started takes clients: processes may take half a minute to start."""
ALONE_WAIT_S: Final = 3.0
"""The same for one that is started alone: whoever starts it is told what it waits for."""
FAULTY_WAIT_S: Final = 15.0
"""How long the same reason not to take part has to last: brokers that start together may disagree for a moment."""
OPEN_POLL_S: Final = 0.02
TELL_S: Final = 5.0
"""How often it is said what the start waits for."""
HOW_FAR_S: Final = 2.0
"""How long a broker may take to say how far it has come; one that takes longer has no process yet."""

log = logging.getLogger("raybroker.cluster")


class Cluster:
    """A running cluster. ``brokers``: names; ``address``: of the Ray cluster."""

    def __init__(self, name: str, brokers: list[str]) -> None:
        self.name = name
        self.brokers = brokers
        self.address = runtime.address()

    @property
    def metrics_urls(self) -> list[str]:
        """Return where Prometheus finds the metrics of each broker that answers now."""
        return list(self.endpoints().values())

    def endpoints(self) -> dict[str, str]:
        """Broker → where its metrics are, of those that answer now."""
        found = {}
        for broker in self.brokers:
            try:
                found[broker] = runtime.call_blocking(self._broker(broker).ready)["metrics_url"]
            except BrokerError:
                continue  # It is down, or between two lives.
        return {broker: url for broker, url in found.items() if url}

    def pids(self, broker: str | None = None) -> dict[str, int]:
        """Process ids of one broker, without a name the first ("broker"), of its hosts and its copies of logs."""
        found: dict[str, int] = runtime.call_blocking(self._broker(broker or self.brokers[0]).pids)
        return found

    def state(self, broker: str) -> dict[str, Any]:
        """What one broker says of itself: state, master, node and process id."""
        found: dict[str, Any] = runtime.call_blocking(self._broker(broker).ready)
        return found

    def troubles(self) -> dict[str, str]:
        """Broker → why it takes no clients now, in words, of those that take none."""
        found = {}
        for broker in self.brokers:
            try:
                row = self.state(broker)
            except BrokerError as error:
                found[broker] = str(error)
                continue
            if not row["operating"]:
                found[broker] = str(row["refusal"] or f"broker {broker} takes no clients yet")
        return found

    def silent_services(self) -> dict[str, str]:
        """Broker → why connection services that it was asked for do not listen, of those that answer now."""
        found = {}
        for broker in self.brokers:
            try:
                found[broker] = str(self.state(broker).get("services", ""))
            except BrokerError:
                continue
        return {broker: why for broker, why in found.items() if why}

    def consoles(self) -> dict[str, list[str]]:
        """Broker → where browsers find its console, of those that answer now and have one."""
        found = {}
        for broker in self.brokers:
            try:
                found[broker] = list(self.state(broker).get("consoles", ()))
            except BrokerError:
                continue
        return {broker: addresses for broker, addresses in found.items() if addresses}

    def hosts_away(self) -> list[str]:
        """Why hosts of brokers that answer do not start; the others serve without them."""
        found = []
        for broker in self.brokers:
            try:
                found += self.state(broker).get("away", ())
            except BrokerError:
                continue
        return found

    def contradictions(self) -> list[str]:
        """Return where the configuration of a broker that answers names another master than the record."""
        found = []
        for broker in self.brokers:
            try:
                text = self.state(broker)["contradiction"]
            except BrokerError:
                continue
            if text:
                found.append(f"broker {broker}: {text}")
        return found

    def stop(self) -> None:
        """Stop all brokers cleanly; everything acknowledged stays in their stores.

        Raises what the first one has answered that could not be stopped so, after the others have been.
        """
        failed: BrokerError | None = None
        for broker in self.brokers:
            try:
                self.stop_broker(broker)
            except BrokerError as error:
                failed = failed or error
        end_all(self.name)
        paths = runtime.find_paths(self.name)
        if paths is not None:
            try:
                runtime.call_blocking(paths.stop)
            finally:
                runtime.kill(paths)
        if failed is not None:
            raise failed

    def stop_broker(self, broker: str) -> None:
        """Stop one broker cleanly; the others go on, and what it stores comes back with it."""
        actor = runtime.find_broker(self.name, broker)
        if actor is None:
            return
        try:
            runtime.call_blocking(actor.stop)
        finally:
            runtime.kill(actor)

    def _broker(self, broker: str) -> Any:
        actor = runtime.find_broker(self.name, broker)
        if actor is None:
            raise BrokerError(f"broker {broker} of cluster {self.name} is not running")
        return actor

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Cluster {self.name!r} of brokers {', '.join(self.brokers)} in Ray at {self.address}>"


def start(
    name: str | None = None,
    brokers: int | None = None,
    config: Config | Mapping[str, object] | str | Path | None = None,
    *,
    only: str | None = None,
    told: Callable[[str], None] = log.info,
) -> Cluster:
    """Start a cluster, or what of it does not run; one that runs already is found. All its hosts serve when it returns,
    but for those that refuse their stores or wait for a database.

    Raises StartingError, which names them, where hosts have not started within OPEN_WAIT_S: the cluster runs, and goes
    on starting them.

    Uses the Ray this process is connected to; without one, connects to a running Ray or starts one for this process.
    name     None: imq.instancename of the configuration, or "default"
    brokers  how many, without a list in the configuration: b1, b2, …; one to a node as long as there are nodes
    config   a file (TOML), a mapping of properties, or a Config; raises ConfigError for what is unknown in it
    only     start this broker alone, on this node: for a node that came back with its stores
    told     is called now and then with what is waited for
    """
    chosen = _config(config)
    name = instance_of(chosen, name)
    check(chosen.__getitem__)
    runtime.start_local_ray()
    there = _running(name)
    plan = plan_of(chosen, brokers)
    beside = store_directory(chosen, name, plan.names[0]).parent
    check_shared(chosen, plan)
    shared_table(plan, chosen, beside)  # What is wrong with it is said here, and not by an actor that does not start.
    if only is not None and only not in plan.brokers and there:
        plan = _plan_that_runs(name, next(iter(there)))
    if only is not None and only not in plan.brokers:
        raise ConfigError(
            f"broker {only!r} is none of the brokers {', '.join(plan.names)}; say how many there are (--brokers N), or"
            " which (imq.cluster.brokerlist)"
        )
    nodes = {broker: str(row["node"]) for broker, row in there.items()}
    places = {only: runtime.node_id()} if only is not None else place(plan, chosen, name, nodes)
    if set(places) - set(there):
        check_table(plan, chosen, beside)
        check_tables(plan, chosen, name)
    if there and set(places) - set(there):
        _announce(name, next(iter(there)), [*there, *(broker for broker in plan.names if broker not in there)])
    made = [_make(name, plan, chosen, broker, node) for broker, node in places.items() if broker not in there]
    try:
        for actor in made:
            _wait_open(actor, told, alone=only is not None)
    except (ConfigError, IllegalStateError, StoreError):  # One that refuses what it is given gets no better by waiting.
        for actor in made:
            _end(actor)
        raise
    for broker in (broker for broker, row in there.items() if row["starting"]):
        _wait_open(runtime.find_broker(name, broker), told, alone=only is not None)
    return Cluster(name, sorted({*there, *places}, key=lambda broker: _rank(plan, broker)))


def _end(actor: Any) -> None:
    """End a broker that was just started, with what it has started."""
    try:
        runtime.call_blocking(actor.stop)
    except BrokerError as error:
        log.info("a broker that is given up was not stopped cleanly: %s", error)
    finally:
        runtime.kill(actor)


def _announce(name: str, broker: str, brokers: list[str]) -> None:
    """Tell a running cluster which brokers it is going to have; those it knows stay."""
    actor: Any = runtime.find_broker(name, broker)
    known = [row["broker"] for row in runtime.call_blocking(actor.admin, "list_brokers", {})]
    if set(brokers) - set(known):
        wanted = list(dict.fromkeys([*known, *brokers]))
        runtime.call_blocking(actor.admin, "reload_cluster", {"brokers": wanted})


def _plan_that_runs(name: str, broker: str) -> BrokerPlan:
    """The plan of a cluster that runs, with the brokers that its record has besides."""
    actor: Any = runtime.find_broker(name, broker)
    plan: BrokerPlan = runtime.call_blocking(actor.plan)
    known = [str(row["broker"]) for row in runtime.call_blocking(actor.admin, "list_brokers", {})]
    return replace(plan, brokers={**dict.fromkeys(known, ""), **plan.brokers})


def _make(name: str, plan: BrokerPlan, config: Config, broker: str, node: str) -> Any:
    directory = store_directory(config, name, broker)
    tenure = begin_tenure(config, directory, name, broker, node) if config[HA] else 0
    spec = BrokerSpec(name, broker, str(directory), config, plan, tenure)
    return runtime.create_actor(BrokerActor, spec, name=runtime.broker_name(name, broker, tenure), node=node)


def _wait_open(actor: Any, told: Callable[[str], None], *, alone: bool) -> None:
    """Wait until a broker takes clients; one that is started alone may have to wait for its master.

    Raises MasterUnavailableError in the end, which is sooner when other brokers refuse it, or the record cannot be
    used: that takes somebody who does something about it. What a host raises that refuses its store is raised at once.
    """
    clock = SystemClock()
    opening = ClusterOpening(clock.monotonic_ns(), alone=alone)
    while True:
        left_s = max(opening.left_s(clock.monotonic_ns()), OPEN_POLL_S)
        row = runtime.call_patiently(
            actor.ready, timeout_s=left_s, turn_s=TELL_S, meanwhile=lambda: told(_how_far(actor))
        )
        if opening.is_over(row, clock.monotonic_ns()):
            return
        clock.sleep(OPEN_POLL_S)


def _how_far(actor: Any) -> str:
    try:
        return str(runtime.call_blocking(actor.how_far, timeout_s=HOW_FAR_S))
    except BrokerError:
        return "the process of a broker is starting"


class ClusterOpening:
    """The wait for a broker that takes clients.

    A broker that gets on (it recovers its stores, replays the record) has OPEN_WAIT_S. One that cannot get on by itself
    has less: FAULTY_WAIT_S; and started alone, ALONE_WAIT_S, after which it is left to wait for what it lacks.
    """

    def __init__(self, began_ns: int, *, alone: bool) -> None:
        self._began_ns = began_ns
        self._alone = alone
        self._faulty_ns = 0
        self._masterless_ns = 0

    def left_s(self, now_ns: int) -> float:
        """Seconds until the wait is over in any case; negative afterwards."""
        return OPEN_WAIT_S - (now_ns - self._began_ns) / 1_000_000_000

    def is_over(self, row: Mapping[str, Any], now_ns: int) -> bool:
        """Whether nothing is to be waited for any more, by what the broker says of itself: `Clustering.cluster_row`.

        Raises MasterUnavailableError where a broker that is not started alone should have taken clients, StartingError
        where hosts have not started in time, and the error of a host that refuses its store: that stays so until
        somebody does something about it.
        """
        for code, text in row["refusals"]:
            raise from_code(code, text)
        waited_s = (now_ns - self._began_ns) / 1_000_000_000
        if row["operating"]:
            if row["starting"] and self.left_s(now_ns) < 0:
                raise StartingError(
                    f"broker {row['broker']} takes clients, and hosts {', '.join(row['starting'])} have not started"
                    f" after {waited_s:.0f} s: it goes on starting them; raybroker query bkr shows when they serve"
                )
            return not row["starting"]
        self._faulty_ns = (self._faulty_ns or now_ns) if row["faults"] else 0
        waits = row["state"] == MemberState.WAITING_FOR_MASTER
        self._masterless_ns = (self._masterless_ns or now_ns) if waits else 0
        stuck = (self._faulty_ns, self._masterless_ns)
        if self._alone and any(self._lasts(since_ns, ALONE_WAIT_S, now_ns) for since_ns in stuck):
            return True
        if self.left_s(now_ns) < 0 or self._lasts(self._faulty_ns, FAULTY_WAIT_S, now_ns):
            raise MasterUnavailableError(
                f"broker {row['broker']} does not take clients after {waited_s:.0f} s: {row['refusal']}"
            )
        return False

    def _lasts(self, since_ns: int, limit_s: float, now_ns: int) -> bool:
        return since_ns > 0 and now_ns > since_ns + limit_s * 1_000_000_000


def _running(name: str) -> dict[str, dict[str, Any]]:
    """Broker → what it says of itself, of the brokers that answer."""
    found = {}
    for broker, actor_name in runtime.brokers_of(name).items():
        actor = runtime.find_actor(actor_name)
        try:
            if actor is not None:
                found[broker] = runtime.call_blocking(actor.ready)
        except ConnectionLostError:
            continue
    return found


def _rank(plan: BrokerPlan, broker: str) -> tuple[int, str]:
    return (plan.names.index(broker) if broker in plan.names else len(plan.names), broker)


def find(name: str = "default") -> Cluster | None:
    """The running cluster of that name in this process's Ray, or None."""
    brokers = list(runtime.brokers_of(name))
    return Cluster(name, brokers) if brokers else None


def _config(config: Config | Mapping[str, object] | str | Path | None) -> Config:
    if isinstance(config, Config):
        return config
    if config is None:
        return Config.load()
    if isinstance(config, str | Path):
        return Config.load(cluster_file=config)
    if isinstance(config, Mapping):
        return Config.load(values=config, origin="rb.start")
    raise ConfigError(f"config is a {type(config).__name__}; it is a file name, a mapping or a Config")
