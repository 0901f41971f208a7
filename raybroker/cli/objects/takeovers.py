"""The takeover of a lost broker on the command line: takeover bkr."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from raybroker.cli import output
from raybroker.cli.command import command
from raybroker.cli.grid_words import Force, ask
from raybroker.client.admin.admin import Admin
from raybroker.model.errors import ConnectionLostError, IllegalStateError, RequestTimeoutError
from raybroker.system.clock import SystemClock

LOOK_S: Final = 0.5
WAIT_S: Final = 330.0
"""How long the command waits: longer than a takeover may take where nobody has set it
(imq.cluster.ha.takeoverWaitTimeout)."""

Lost = Annotated[str, typer.Option("-n", "--name", metavar="BROKER", help="The broker that is lost.")]


@command("takeover", "bkr")
def takeover_bkr(admin: Admin, name: Lost, force: Force = False) -> None:
    """Have another broker start a lost one, with what it has stored: raybroker takeover bkr -n b2

    Brokers that share a database (imq.cluster.ha) do that by themselves; this is the last word, for one that was
    stopped, or whose takeover has failed. The broker that is asked starts it on its own node. What lives is refused.
    Of queues with copies (replicas) another copy leads at once what the lost broker has led, without the 30 s that are
    between two changes of leader.
    """
    ask(force, f"take broker {name} over? Whoever still writes its messages cannot write any more.")
    begun = admin.takeover_broker(name)
    if "destinations" in begun:
        led = ", ".join(begun["destinations"]) or "nothing: all that has copies is led by another one"
        output.say(f"of what broker {name} has copies of, other copies are to lead: {led}")
        return
    output.say(f"broker {begun['taker']} takes broker {name} over, tenure {begun['tenure']}")
    wait_until_taken(admin, begun)


def wait_until_taken(admin: Admin, begun: dict[str, Any]) -> None:
    """Wait until a broker takes clients in the tenure that has begun."""
    name, tenure = begun["broker"], begun["tenure"]
    clock = SystemClock()
    until_ns = clock.monotonic_ns() + round(WAIT_S * 1e9)
    while (row := broker_row(admin, name)).get("store_state") != "OPERATING" or row["tenure"] < tenure:
        if row.get("store_state") == "TAKEOVER_FAILED" and row["tenure"] == tenure:
            raise IllegalStateError(f"the takeover of broker {name} has failed: {row.get('store_reason', '')}")
        if clock.monotonic_ns() > until_ns:
            raise RequestTimeoutError(
                f"broker {name} is {row.get('store_state', 'UNKNOWN')} after {WAIT_S:g} s; look: raybroker list bkr"
            )
        clock.sleep(LOOK_S)
    output.say(f"broker {name} takes clients on node {row['store_node']}")


def broker_row(admin: Admin, name: str) -> dict[str, Any]:
    """Return what the cluster says of a broker; nothing while whoever is asked is the one that goes."""
    try:
        return next((row for row in admin.list_brokers() if row["broker"] == name), {})
    except ConnectionLostError:
        return {}
