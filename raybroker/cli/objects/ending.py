"""The end of one broker on the command line: shutdown bkr and restart bkr."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from raybroker.admin.verb_types import TIME_S_MAX
from raybroker.cli import connecting, output
from raybroker.cli.command import command
from raybroker.cli.exits import UsageError
from raybroker.cli.grid_words import Cluster, Force, ask
from raybroker.cli.objects.brokers import Broker
from raybroker.cli.outside import way
from raybroker.client.admin.admin import Admin
from raybroker.model.errors import (
    ConnectionLostError,
    IllegalStateError,
    MasterUnavailableError,
    NoClusterError,
    RequestTimeoutError,
)
from raybroker.system.clock import SystemClock

CLOSED: Final = 0
LOOK_S: Final = 0.5
CLOSE_WAIT_S: Final = 120.0
"""How long a broker may take to close its stores, and to start again, before the command gives up waiting."""

Time = Annotated[
    int, typer.Option("--time", metavar="S", help="Do it in S seconds, and return at once.", min=0, max=TIME_S_MAX)
]


@command("shutdown", "bkr")
def shutdown_bkr(
    admin: Admin, broker: Broker = None, time: Time = 0, force: Force = False, cluster: Cluster = "default"
) -> None:
    """Shut one broker down: raybroker shutdown bkr -b b2 --time 30

    It takes no new clients by its services from now on, but those for administration. After --time, producers wait,
    consumers acknowledge what they were given (for at most raybroker.shutdown.delivery seconds), and it ends; what it
    has stored comes back with raybroker up. Without --time the command waits for the end. raybroker down stops all
    brokers, and the Ray that up has started.
    """
    name = _named("shutdown", cluster, broker)
    ask(force, f"shut broker {name or 'at that address'} down?")
    row = admin.shutdown_broker(name, time)
    name = str(row["broker"])
    if time:
        output.say(f"broker {name} ends in {time} s and takes no new clients")
        return
    _wait(row, lambda: _life(cluster, name) is None, f"broker {name} has not ended")
    outside = way.get() is not None
    output.say(f"broker {name} " + ("has closed its services, and ends" if outside else "is down"))


@command("restart", "bkr")
def restart_bkr(admin: Admin, broker: Broker = None, force: Force = False, cluster: Cluster = "default") -> None:
    """Shut one broker down and start it again with the options that it had: raybroker restart bkr -b b2

    What update bkr has changed stays changed. The broker is an actor of Ray, which starts it again on the same node;
    one of rb.loopback cannot be restarted, because it is a part of the program that has made it.
    """
    name = _named("restart", cluster, broker)
    ask(force, f"restart broker {name or 'at that address'}?")
    before = admin.query_broker()["started_ms"] if way.get() is not None else _life(cluster, str(name))
    row = admin.restart_broker(name)
    name = str(row["broker"])
    _wait(row, lambda: _life(cluster, name) not in (None, CLOSED, before), f"broker {name} does not run again")
    output.say(f"broker {name} was restarted")


def _named(verb: str, cluster: str, broker: str | None) -> str | None:
    """The broker that is meant: from outside that at the address; inside the Ray cluster the only one, or the named."""
    if broker is not None or way.get() is not None:
        return broker
    names = connecting.running(cluster)
    if len(names) > 1:
        raise UsageError(
            f"{verb} bkr: say which of the brokers {', '.join(names)}, as in raybroker {verb} bkr -b {names[0]};"
            " raybroker down stops all"
        )
    return names[0] if names else None


def _life(cluster: str, broker: str) -> Any:
    """Return when the broker was started that runs under that name; None when none answers, CLOSED when it takes no
    clients."""
    outside = way.get() is not None
    if not outside and broker not in connecting.running(cluster):
        return None
    try:
        with connecting.administering(cluster, None if outside else broker) as admin:
            found = admin.query_broker()
    except (NoClusterError, ConnectionLostError, RequestTimeoutError, IllegalStateError):
        return None
    except MasterUnavailableError:
        return CLOSED
    return found["started_ms"] if found["broker"] == broker else None


def _wait(row: dict[str, Any], done: Callable[[], bool], what: str) -> None:
    clock = SystemClock()
    patience_s = row["time_s"] + row["delivery_s"] + CLOSE_WAIT_S
    until_ns = clock.monotonic_ns() + round(patience_s * 1e9)
    while not done():
        if clock.monotonic_ns() > until_ns:
            raise RequestTimeoutError(f"{what} after {patience_s:g} s, and may still; look: raybroker list bkr")
        clock.sleep(LOOK_S)
