"""Connection of a command: the Ray that it talks to. Tests put a loopback in the place of ``connect``.

Ray reads how it is to be let in when it is imported, so every import of it here comes after ``find_ray``.

In this order: the Ray of RAY_ADDRESS; the one that ``raybroker up`` noted for the cluster; one that it noted for
another cluster; the one that the last ``ray start`` of this machine left word of.  Ray's own way of finding one is not
used: it takes any Ray of the machine, and tries for minutes to reach one that is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, Final, TypeVar

from raybroker.cli import output
from raybroker.cli.exits import UsageError
from raybroker.cli.outside import Way, way
from raybroker.cli.patience import Patience, patience
from raybroker.client.admin.admin import Admin
from raybroker.config import places
from raybroker.model.copies import SHOWN_OF_BROKER
from raybroker.model.errors import BrokerError, ConfigError, NoClusterError, RequestTimeoutError
from raybroker.model.settings.settings import lookup
from raybroker.system.clock import SystemClock

T = TypeVar("T")
HOW_TO_START = "start one with: raybroker up"
AGAIN_S: Final = 0.2
"""Before a login that was too slow is tried again."""


def find_ray(cluster: str) -> places.FilePlace | None:
    """The Ray of a cluster, or one it could be in; the process then belongs to it. None when there is none.

    Raises NoClusterError when RAY_ADDRESS names one that does not answer.
    """
    named = places.from_environment()
    if named is not None:
        if not places.answers(named.address):
            raise NoClusterError(f"nothing answers at RAY_ADDRESS={named.address}")
        return named
    for place in (places.load(cluster), *places.others(cluster), places.last_started()):
        if place is not None and place.alive():
            places.use(place)
            return place
    return None


def require_ray(cluster: str) -> places.FilePlace:
    """Do what :func:`find_ray` does; raises NoClusterError, which says how to start one, when there is none."""
    noted = places.load(cluster)
    place = find_ray(cluster)
    if place is not None:
        return place
    if find_spec("ray") is None:
        raise NoClusterError(
            "Ray is not installed here, so that brokers are reached from outside: -b HOST:PORT -u USER, the port of a"
            " broker's port mapper; for brokers here pip install 'raybroker[server]'"
        )
    up = "raybroker up" if cluster == "default" else f"raybroker up --name {cluster}"
    gone = "no Ray runs here" if noted is None else f"cluster {cluster!r} was started at {noted.address} and is gone"
    raise NoClusterError(f"{gone}; start one with: {up}   (or name a Ray that runs: RAY_ADDRESS=host:port)")


def connect(cluster: str, broker: str | None = None) -> Any:
    """A connection, not started, to that broker or to any; raises NoClusterError."""
    require_ray(cluster)
    import raybroker as rb
    from raybroker.actors import runtime

    runtime.keep_quiet()
    return rb.connect(cluster=cluster, broker=broker)


def _outside(broker: str | None, open: Callable[[], T]) -> T:
    """Open the way to the service of a broker; Ray is not imported. A login that was too slow is tried again for as
    long as the command waits for its first answer: nothing was asked for yet."""
    if broker is not None:
        raise UsageError(f"broker {broker}: with -b host:port the address says which broker is meant")
    clock, waiting = SystemClock(), patience.get() or Patience()
    until_ns = clock.monotonic_ns() + round(waiting.first_s * 1e9)
    while True:
        try:
            return open()
        except RequestTimeoutError as error:
            if clock.monotonic_ns() > until_ns:
                raise
            output.error(f"{error}; trying again")
        clock.sleep(AGAIN_S)


def _connect_to(through: Way) -> Any:
    from raybroker.client.connection.factory import connect

    return connect(through.url("jms"), **{**through.attributes, **through.secret})


@contextmanager
def connected(cluster: str, broker: str | None = None, *, started: bool = False) -> Iterator[Any]:
    """A connection for one command."""
    through = way.get()
    connection = connect(cluster, broker) if through is None else _outside(broker, partial(_connect_to, through))
    try:
        if started:
            connection.start()
        yield connection
    finally:
        connection.close()


@contextmanager
def _asking(cluster: str, broker: str | None) -> Iterator[Admin]:
    """Open the way of the verbs; from outside they need nothing of a connection but its login."""
    through = way.get()
    if through is None:
        with connected(cluster, broker) as connection:
            yield connection.admin()
        return
    from raybroker.client.admin.from_outside import logged_in

    log_in = partial(logged_in, through.url("admin"), through.attributes, **through.secret)
    with _outside(broker, log_in) as admin:
        yield admin


STORED: Final = frozenset(
    {
        "store_state",
        "store_reason",
        "tenure",
        "takeovers",
        "taken_by",
        "store_node",
        "silent_ms",
        "standby_brokers",
        "standby_hosts",
        *SHOWN_OF_BROKER,
        "drain",
        "drained_since_ms",
        "leads",
        "unled",
        "stuck",
    }
)
"""What list_brokers has of a broker where brokers take over from each other, and of one that is drained."""
STATES: Final = {"OPERATING": "UP"}
"""State of a broker's membership → the word of list_brokers and query_broker for it."""


@contextmanager
def administering(cluster: str, broker: str | None = None) -> Iterator[Admin]:
    """``conn.admin()`` for one command, of that broker or of any; it connects when it is first called."""
    with ExitStack() as opened:

        @cache
        def admin() -> Admin:
            return opened.enter_context(_asking(cluster, broker))

        def call(verb: str, args: dict[str, Any]) -> Any:
            waiting = patience.get()
            if waiting is None:
                return admin()._call(verb, args)
            return waiting.wait(lambda: admin()._call(verb, args))

        yield Admin(call)


def brokers(cluster: str) -> list[dict[str, Any]]:
    """One row a broker of the cluster, also of those that are down; raises NoClusterError."""
    if way.get() is not None:
        with administering(cluster) as admin:
            return admin.list_brokers()
    names = _broker_names(cluster)
    from raybroker.actors import runtime

    found: dict[str, dict[str, Any]] = {}
    stored: dict[str, dict[str, Any]] = {}
    for name in names:
        row: dict[str, Any] = {"broker": name, "cluster": cluster, "state": "UNKNOWN", "address": runtime.address()}
        try:
            row |= runtime.call_blocking(_actor(cluster, name).ready)
            row["state"] = STATES.get(row["state"], row["state"])
            others = runtime.call_blocking(_actor(cluster, name).admin, "list_brokers", {})
        except BrokerError as error:
            row["refusal"] = row.get("refusal") or str(error)
            others = ()
        found[name] = row
        for other in others:
            stored[other["broker"]] = {key: value for key, value in other.items() if key in STORED}
            if other["broker"] not in names:
                found[other["broker"]] = {
                    "broker": other["broker"],
                    "cluster": cluster,
                    "state": "DOWN",
                    "refusal": other["reason"],
                    "address": runtime.address(),
                }
    return [{**found[name], **stored.get(name, {})} for name in sorted(found)]


def explain(cluster: str, broker: str | None = None) -> list[dict[str, Any]]:
    """Each property of that broker, or of the first, with its value and origin; raises NoClusterError."""
    if way.get() is not None:
        raise UsageError("--explain is for commands inside the Ray cluster; leave out -b")
    first = _broker_names(cluster)[0] if broker is None else broker
    require_ray(cluster)
    from raybroker.actors import runtime

    rows = runtime.call_blocking(_actor(cluster, first).explain)
    return [explained(name, value, origin) for name, value, origin in rows]


def explained(name: str, value: Any, origin: str) -> dict[str, Any]:
    """What one property is, and what it is for; a property of a broker of another release has no meaning here."""
    row: dict[str, Any] = {"property": name, "value": value, "origin": origin}
    try:
        setting = lookup(name, "broker")
    except ConfigError:
        return row
    return {
        **row,
        "default": setting.default,
        "unit": setting.unit,
        "allowed": setting.bounds(),
        "live": setting.reload == "live",
        "meaning": setting.help,
    }


def _broker_names(cluster: str) -> list[str]:
    require_ray(cluster)
    from raybroker.actors import cluster as clusters
    from raybroker.actors import runtime

    runtime.keep_quiet()
    runtime.join_ray()
    found = clusters.find(cluster)
    if found is None:
        raise NoClusterError(f"no cluster named {cluster!r} in the Ray at {runtime.address()}; {HOW_TO_START}")
    return found.brokers


def running(cluster: str) -> list[str]:
    """The brokers of a cluster that are there; none where no Ray can be reached."""
    try:
        return _broker_names(cluster)
    except NoClusterError:
        return []


def _actor(cluster: str, broker: str) -> Any:
    from raybroker.actors import runtime

    actor = runtime.find_broker(cluster, broker)
    if actor is None:
        raise NoClusterError(f"broker {broker} of cluster {cluster!r} is not running")
    return actor
