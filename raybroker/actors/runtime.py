"""Access to Ray: every Ray call that is not an actor definition is made here.

Ray's errors become ours: what an actor raised arrives as it was raised, an actor that is gone or restarting as
ConnectionLostError, which is worth another try.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import ray
from ray.exceptions import (
    ActorAlreadyExistsError,
    ActorUnschedulableError,
    GetTimeoutError,
    RayActorError,
    RayError,
    RayTaskError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raybroker.actors import ray_inside
from raybroker.config import places
from raybroker.config.layers import variable
from raybroker.model.errors import BrokerError, ConnectionLostError, NoClusterError
from raybroker.system.clock import SystemClock
from raybroker.transport.daemon_calls import in_daemon_thread

NAMESPACE: Final = "raybroker"
PROBE_S: Final = 2.0
"""How long a Ray may take to accept a connection before it counts as gone."""
RESOURCE: Final = "broker"
"""Custom resource of nodes that are meant to have a broker: one a unit."""
CALL_TIMEOUT_S: Final = 30.0
"""How long a control call may take; after that its outcome is unknown."""
NODE_TIMEOUT_S: Final = 10.0
"""How long a node may take to run a function; Ray needs longer than that to notice that a node has died."""

log = logging.getLogger("raybroker.ray")


def broker_name(cluster: str, broker: str, tenure: int = 0) -> str:
    """Return the name of the actor of a broker; ``tenure``: of one that another may take over, whose name stays taken
    for up to a minute when its node is lost."""
    return f"{cluster}/broker/{_in_tenure(broker, tenure)}"


def host_name(cluster: str, broker: str, host: str, tenure: int = 0) -> str:
    """Return the name of the actor of a host; without ``host``, what those of its broker begin with."""
    return f"{cluster}/host/{_in_tenure(broker, tenure)}/{host}"


def _in_tenure(broker: str, tenure: int) -> str:
    return f"{broker}@{tenure}" if tenure else broker


def agent_name(cluster: str, agent: str) -> str:
    """Return the name of the actor of a forwarding agent; without ``agent``, what the names of all of them begin
    with."""
    return f"{cluster}/agent/{agent}"


def pool_name(cluster: str, pool: str) -> str:
    """Return the name of the actor of a pool of listeners that has a name; without ``pool``, what the names of all of
    them begin with."""
    return f"{cluster}/pool/{pool}"


def demand_name(key: str) -> str:
    """Return the key under which a pool notes what it needs of nodes; without ``key``, what all of them begin with."""
    return f"demand/{key}"


def path_name(cluster: str, keeper: str = "", tenure: int = 0) -> str:
    """Return the name of the actor of the path service; ``keeper``: the broker in whose ``tenure`` it runs."""
    return f"{cluster}/paths/{_in_tenure(keeper, tenure)}" if tenure else f"{cluster}/paths"


def standby_name(cluster: str, broker: str, tenure: int, what: str = "") -> str:
    """Return the name of the actor of a standby process, which says for which broker it was started and not whom it
    becomes: see :func:`also_name`.  Without ``what``, what those of that tenure begin with."""
    return f"{cluster}/standby/{_in_tenure(broker, tenure)}/{what}"


def initialized() -> bool:
    return bool(ray.is_initialized())


_joining = threading.Lock()
"""Held by the thread that connects this process to Ray: Ray itself allows it once, and fails for the others."""


def join_ray(cluster: str = "default") -> None:
    """Connect this process to the Ray cluster it belongs to, which is that of ``cluster`` where ``raybroker up`` noted
    one for this user; may be called by several threads. Raises NoClusterError when there is none."""
    if ray.is_initialized():
        return
    with _joining:
        if ray.is_initialized():
            return
        place = places.for_program(cluster)
        if place is not None:
            places.use(place)
            ray_inside.read_environment_again()
        try:
            where = _probe()
        except (OSError, RayError, RuntimeError) as error:
            raise NoClusterError(f"no Ray cluster can be reached ({error}); start one with: raybroker up") from None
        try:
            ray_inside.knock(where)
            _init(address="auto")
        except (OSError, RayError, RuntimeError, ValueError) as error:
            raise NoClusterError(_why_not_let_in(where, error)) from None


def _why_not_let_in(where: str, error: Exception) -> str:
    """The error for a Ray that accepts connections and refuses this process."""
    mode, path = variable("RAY_AUTH_MODE"), variable("RAY_AUTH_TOKEN_PATH")
    said = str(error).strip().partition("\n")[0].partition(". ")[0] or type(error).__name__
    if mode != "token":
        access = "without a token: RAY_AUTH_MODE is not set"
    elif path is not None:
        access = f"with the token in {path}"
    else:
        access = "with the token of RAY_AUTH_TOKEN, or of ~/.ray/auth_token"
    return (
        f"the Ray at {where} accepts connections and has not let us in, {access} ({said}). If it asks for a token, set"
        " RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH as 'raybroker up' printed them where that Ray was started"
    )


def _probe() -> str:
    """The address of the Ray that would be joined; raises ConnectionError when it is gone: Ray itself would try for
    minutes."""
    found = ray_inside.address_of_environment()
    host, separator, port = found.rpartition(":")
    if separator and port.isdigit():
        with socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_S):
            pass
    return found


_MANY_WORKERS: Final = "PYTHON worker processes have been started on node"


INSTANCE: Final = "ConsumerActor"
"""The class of the instances of ``rb.deploy``, whose actors Ray names by it."""
_ours: Final = threading.Event()
"""This process was connected to Ray here, and not by the program."""


def _init(**options: Any) -> None:
    """``ray.init``: of what actors print the program shows what handlers of ``rb.deploy`` do; brokers have logs."""
    _ours.set()
    ray.init(namespace=NAMESPACE, log_to_driver=True, logging_level=logging.ERROR, **options)


def _fewer_lines(data: dict[str, Any]) -> dict[str, Any] | None:
    """Keep Ray's warning of many worker processes off the program's output: brokers and consumers are meant to be many
    actors. It goes to the log "raybroker.ray" at level DEBUG, as does what other actors print than those of
    ``rb.deploy`` where the program has left the connecting to us."""
    kept = not _ours.is_set() or str(data.get("actor_name") or "").startswith(INSTANCE)
    lines = [line for line in data.get("lines", ()) if kept and _MANY_WORKERS not in str(line)]
    if len(lines) == len(data.get("lines", ())):
        return data
    log.debug("%s", data["lines"])
    return {**data, "lines": lines} if lines else None


ray_inside.narrow_output(_fewer_lines)
keep_quiet = ray_inside.keep_quiet


def takes_programs(where: str) -> bool:
    """Whether a program can be connected to the Ray at ``where`` at once; true also where the Ray does not say, so that
    whoever connects hears why."""
    ray_inside.read_environment_again()
    try:
        return ray_inside.has_node(where)
    except (OSError, RayError, RuntimeError):
        return True


def leave_ray() -> None:
    """Disconnect from Ray; a Ray that this process started ends."""
    ray.shutdown()


def start_local_ray(**options: Any) -> None:
    """Connect to Ray, or start one for this process alone; ``options`` are those of ``ray.init``."""
    with _joining:
        if ray.is_initialized():
            return
        _init(include_dashboard=False, **options)


def address() -> str:
    return str(ray.get_runtime_context().gcs_address)


def node_ip() -> str:
    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]  # Ray


def node_id() -> str:
    return str(ray.get_runtime_context().get_node_id())


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the Ray cluster that is alive."""

    id: str
    ip: str
    name: str
    brokers: float
    """How much of the resource "broker" it has in all."""


def nodes() -> list[Node]:
    """The live nodes, the head first."""
    rows = [row for row in ray.nodes() if row["Alive"]]  # type: ignore[no-untyped-call]  # Ray
    rows.sort(key=lambda row: ("node:__internal_head__" not in row["Resources"], row["NodeID"]))
    return [
        Node(r["NodeID"], r["NodeManagerAddress"], r.get("NodeName", ""), float(r["Resources"].get(RESOURCE, 0)))
        for r in rows
    ]


def on_nodes(nodes: Iterable[str], function: Callable[..., Any], *args: Any) -> dict[str, Any]:
    """Call a function in a process of each node; what it returned, of those that answered in time."""
    tasks = {}
    for node in nodes:
        pinned = NodeAffinitySchedulingStrategy(node, soft=False)
        task = ray.remote(function).options(num_cpus=0, scheduling_strategy=pinned, max_retries=0)
        tasks[node] = task.remote(*args)
    ready, _ = ray.wait(list(tasks.values()), num_returns=len(tasks), timeout=NODE_TIMEOUT_S)
    found = {}
    for node, task in tasks.items():
        if task in ready:
            try:
                found[node] = ray.get(task)
            except RayError as error:
                log.warning("node %s could not be asked: %s", node, str(error).splitlines()[0])
    return found


_NAMED: Final = "named "
"""What the keys begin with under which Ray keeps further names of actors: each is followed by the name and, behind
:data:`_AS`, that of the actor."""
_AS: Final = " as "


def also_name(name: str, actor_name: str, told: str) -> None:
    """Have a running actor be found by a further name, for as long as it lives: Ray itself gives an actor its name when
    it is made.  ``told``: what it was told with that, for :func:`told`."""
    ray_inside.remember(f"{_NAMED}{name}{_AS}{actor_name}", told, NAMESPACE)


def told(actor_name: str) -> str | None:
    """What an actor was told with its further name; None for one that has none."""
    for key in ray_inside.remembered_keys(_NAMED, NAMESPACE):
        if key.endswith(f"{_AS}{actor_name}"):
            return ray_inside.remembered(key, NAMESPACE)
    return None


def unname(name: str) -> None:
    """Have nobody be found by a further name any more."""
    for key in ray_inside.remembered_keys(f"{_NAMED}{name}{_AS}", NAMESPACE):
        ray_inside.forget(key, NAMESPACE)


def _further_names(prefix: str) -> list[tuple[str, str]]:
    """(further name that begins so, name of the actor, which may have ended)."""
    keys = ray_inside.remembered_keys(f"{_NAMED}{prefix}", NAMESPACE)
    parts = (key.removeprefix(_NAMED).partition(_AS) for key in keys)
    return [(name, actor) for name, _, actor in parts]


def find_actor(name: str) -> Any | None:
    """A live named actor, by its name or a further one; None where there is none."""
    return _made_as(name) or named_since(name)


def _made_as(name: str) -> Any | None:
    try:
        return ray.get_actor(name, namespace=NAMESPACE)
    except ValueError:
        return None


def named_since(name: str) -> Any | None:
    """A live actor that has this as a further name."""
    found = (_made_as(actor_name) for _, actor_name in _further_names(f"{name}{_AS}"))
    return next((actor for actor in found if actor is not None), None)


def find_broker(cluster: str, broker: str) -> Any | None:
    """The actor of a broker, that of its latest tenure; None when there is none."""
    actor = find_actor(broker_name(cluster, broker))
    if actor is None and (name := brokers_of(cluster).get(broker)) is not None:
        actor = find_actor(name)
    return actor


def brokers_of(cluster: str) -> dict[str, str]:
    """Broker → the name of its actor, that of its latest tenure."""
    found: dict[str, tuple[int, str]] = {}
    for name in list_actors(broker_name(cluster, "")):
        broker, tenure = _owner(name)
        found[broker] = max(found.get(broker, (0, "")), (tenure, name))
    return {broker: name for broker, (_, name) in found.items()}


def find_paths(cluster: str) -> Any | None:
    """The actor of the path service; None when there is none."""
    plain = path_name(cluster)
    actor = find_actor(plain)
    if actor is None and (names := list_actors(f"{plain}/")):
        actor = find_actor(max(names, key=lambda name: _owner(name)[1]))
    return actor


def end_older(cluster: str, broker: str, tenure: int) -> None:
    """End what runs of a broker in an earlier tenure: its actor, its hosts, the path service if it keeps that, and what
    stood by for it; what has become another broker is that broker's."""
    further = _further_names(f"{cluster}/")
    taken = {actor_name for _, actor_name in further}
    kinds = (broker_name(cluster, ""), f"{cluster}/host/", f"{path_name(cluster)}/", f"{cluster}/standby/")
    for name in [*list_actors(f"{cluster}/"), *(name for name, _ in further)]:
        if name.startswith(kinds) and name not in taken:
            of, its = _owner(name)
            if of == broker and its < tenure:
                if (actor := find_actor(name)) is not None:
                    kill(actor)
                unname(name)


def _owner(name: str) -> tuple[str, int]:
    """(broker, tenure) of an actor's name."""
    broker, _, tenure = name.split("/")[2].partition("@")
    return broker, int(tenure or 0)


def list_actors(prefix: str) -> list[str]:
    """Names of live actors of our namespace that start with ``prefix``, also further ones, ascending."""
    rows = ray.util.list_named_actors(all_namespaces=True)
    live = {str(row["name"]) for row in rows if row["namespace"] == NAMESPACE}
    further = {name for name, actor_name in _further_names(prefix) if actor_name in live}
    return sorted({*further, *(name for name in live if name.startswith(prefix))})


def create_actor(
    cls: type, *args: Any, name: str | None, node: str | None = None, concurrency: int | None = None, **options: Any
) -> Any:
    """A new actor, or the one that has the name already. Named actors outlive their creator and restart for ever."""
    chosen: dict[str, Any] = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": 0, **options}
    if name is not None:
        chosen = {"get_if_exists": True, **chosen, "name": name, "namespace": NAMESPACE, "lifetime": "detached"}
    if node is not None:
        chosen["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node, soft=False)
    if concurrency is not None:
        chosen["max_concurrency"] = concurrency
    return _actor_class(cls).options(**chosen).remote(*args)


NODE_LABEL: Final = "ray.io/node-id"
"""Ray's label of a node that has its id."""


def elsewhere(options: dict[str, Any], nodes: Sequence[str]) -> dict[str, Any]:
    """Options of an actor that is not to begin on these nodes, unless they say themselves where it is to be."""
    selector = options.get("label_selector") or {}
    if not nodes or "scheduling_strategy" in options or NODE_LABEL in selector:
        return options
    return {**options, "label_selector": {**selector, NODE_LABEL: f"!in({', '.join(nodes)})"}}


@cache
def _actor_class(cls: type) -> Any:
    """Return the class of Ray, which stores each that is made, with its methods, for good: here and in the cluster."""
    return ray.remote(cls)


def create_new_actor(cls: type, *args: Any, name: str, concurrency: int | None = None) -> Any | None:
    """Do what :func:`create_actor` does, with a name that no actor has; return None when one has it."""
    try:
        return create_actor(cls, *args, name=name, concurrency=concurrency, get_if_exists=False)
    except (ActorAlreadyExistsError, ValueError):
        if find_actor(name) is None:
            raise
        return None


def own_actor() -> Any:
    """The handle of the actor that runs here."""
    return ray.get_runtime_context().current_actor


def was_restarted() -> bool:
    """Whether Ray has started the actor that runs here again."""
    return bool(ray.get_runtime_context().was_current_actor_reconstructed)


def remember(key: str, value: str) -> None:
    """Keep a text for an actor that may be started again; it goes with this Ray."""
    ray_inside.remember(key, value, NAMESPACE)


def remembered(key: str) -> str | None:
    return ray_inside.remembered(key, NAMESPACE)


def remembered_under(prefix: str) -> list[str]:
    """The keys of what is remembered that begin so."""
    return ray_inside.remembered_keys(prefix, NAMESPACE)


def request_bundles(bundles: list[dict[str, float]]) -> None:
    """Tell Ray's autoscaler that there has to be room for these, in place of what it was told before; none: nothing."""
    from ray.autoscaler.sdk import request_resources  # It imports the whole autoscaler: few processes have such pools.

    request_resources(bundles=bundles)


def forget(key: str) -> None:
    ray_inside.forget(key, NAMESPACE)


_OURS: Final = f"{BrokerError.__module__}."
"""What the line of a traceback begins with that has one of our errors."""


def translated(
    error: Exception, gone: type[BrokerError] = ConnectionLostError, timeout_s: float = CALL_TIMEOUT_S
) -> BrokerError:
    """Ray's error as ours; ``gone`` when the actor itself did not answer, within ``timeout_s``."""
    if isinstance(error, RayTaskError) and isinstance(error.cause, BrokerError):
        return error.cause
    if isinstance(error, BrokerError):
        return error
    if isinstance(error, RayActorError | ActorUnschedulableError):
        said = str(error).splitlines()
        raised = [line.strip() for line in said if line.strip().startswith(_OURS)]
        if raised:  # By its constructor, whose traceback Ray shows.
            return gone(f"the actor could not start: {raised[-1].partition(': ')[2]}")
        return gone(f"the actor is gone or restarting: {said[0]}")
    if isinstance(error, GetTimeoutError | TimeoutError):
        return gone(f"no answer from the actor within {timeout_s:g} s")
    return BrokerError(f"an actor call failed: {error}")


def answered(call: Any) -> Any:
    """What an actor has answered; None: nothing yet.  Raises our errors."""
    ready, _ = ray.wait([call], timeout=0)
    if not ready:
        return None
    try:
        return ray.get(call)
    except RayError as error:
        raise translated(error) from None


def put_object(value: Any) -> Any:
    """Copy a value into the object store of this node; its reference, which this process owns; raises our errors."""
    try:
        return ray.put(value)
    except RayError as error:
        raise translated(error) from None


def object_of(ref: Any, timeout_s: float) -> Any:
    """The value of a reference, on this node without a copy; raises our errors."""
    try:
        return ray.get(ref, timeout=timeout_s)
    except RayError as error:
        raise translated(error, timeout_s=timeout_s) from None


def object_in_thread(ref: Any, timeout_s: float) -> Any:
    """Do what :func:`object_of` does, in a thread beside the loop of an actor, which Ray warns of a blocking get."""
    try:
        return ref.future().result(timeout_s)
    except (RayError, TimeoutError) as error:
        raise translated(error, timeout_s=timeout_s) from None


def resolved(value: Any, timeout_s: float) -> Any:
    """The value of a reference; any other value is returned as it is."""
    return object_of(value, timeout_s) if isinstance(value, ray.ObjectRef) else value


def copied(ref: Any) -> Any:
    """A reference that this process owns, to a copy of what another one owns."""
    return ray.put(ray.get(ref))


def object_store_bytes() -> float:
    """The size of the object store of this node."""
    own = node_id()
    return next(float(row["Resources"].get("object_store_memory", 0)) for row in ray.nodes() if row["NodeID"] == own)  # type: ignore[no-untyped-call]  # Ray


async def call(
    method: Any, *args: Any, timeout_s: float = CALL_TIMEOUT_S, gone: type[BrokerError] = ConnectionLostError
) -> Any:
    """Call an actor's method and wait without blocking the loop; raises our errors, ``gone`` for an actor that is."""
    try:
        future = await in_daemon_thread(lambda: method.remote(*args).future())
        return await asyncio.wait_for(asyncio.wrap_future(future), timeout_s)
    except (RayError, TimeoutError) as error:
        raise translated(error, gone, timeout_s) from None


def call_blocking(method: Any, *args: Any, timeout_s: float = CALL_TIMEOUT_S) -> Any:
    """Call an actor's method and wait; raises our errors."""
    try:
        return ray.get(method.remote(*args), timeout=timeout_s)
    except RayError as error:
        raise translated(error, timeout_s=timeout_s) from None


def call_patiently(method: Any, *args: Any, timeout_s: float, turn_s: float, meanwhile: Callable[[], None]) -> Any:
    """Do what :func:`call_blocking` does, and call ``meanwhile`` whenever another ``turn_s`` have passed."""
    clock = SystemClock()
    asked, until_ns = method.remote(*args), clock.monotonic_ns() + int(timeout_s * 1e9)
    try:
        while not ray.wait([asked], timeout=min(turn_s, max((until_ns - clock.monotonic_ns()) / 1e9, 0.0)))[0]:
            if clock.monotonic_ns() >= until_ns:
                raise GetTimeoutError
            meanwhile()
        return ray.get(asked)
    except RayError as error:
        raise translated(error, timeout_s=timeout_s) from None


def begin(method: Any, *args: Any, failed: Callable[[], None]) -> None:
    """Call an actor's method and do not wait; ``failed`` is called in some thread when nothing came of it."""
    future = method.remote(*args).future()
    future.add_done_callback(lambda done: failed() if done.exception() is not None else None)


def tell(method: Any, *args: Any) -> None:
    """Call an actor's method and do not wait."""
    method.remote(*args)


def kill(actor: Any, *, restart: bool = False) -> None:
    """End an actor now."""
    ray.kill(actor, no_restart=not restart)
