"""Brokers and Ray nodes that are about to go, on the command line: drain bkr, drain node."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from raybroker.cli import output
from raybroker.cli.answers import show_list
from raybroker.cli.command import command
from raybroker.cli.exits import Exit
from raybroker.cli.grid_words import Force, Json, ask, moment
from raybroker.cli.objects import takeovers
from raybroker.cli.outside import way
from raybroker.client.admin.admin import Admin
from raybroker.model.errors import ConfigError, RequestTimeoutError
from raybroker.system.clock import SystemClock

HANDED_S: Final = 60.0
"""How long the command waits until others lead what a drained broker has led."""
IN_HAND_S: Final = 30.0
"""How long it waits until consumers on a drained node have settled what they have begun, where no deadline is said."""
NODE_ID_CHARS: Final = 56
"""Of the ids that Ray gives."""


@command("drain", "bkr")
def drain_bkr(
    admin: Admin,
    name: Annotated[str, typer.Option("-n", "--name", metavar="BROKER", help="The broker that is to go.")],
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="BROKER", help="Where brokers share a database: the one beside which it starts."),
    ] = None,
    off: Annotated[bool, typer.Option("--off", help="Maintenance is over: it may lead queues again.")] = False,
    force: Force = False,
) -> None:
    """Have others serve what a broker serves, before maintenance of its node: raybroker drain bkr -n b2

    Queues with copies that it leads are led by other brokers from then on; the command waits until they are, and names
    what has one copy and stays. The broker goes on, and leads nothing until --off, also after a restart.

    Where brokers share a database (imq.cluster.ha) the broker is moved: it takes no new clients, its consumers have
    raybroker.shutdown.delivery seconds to acknowledge what they were given, and it is started beside the other one as
    soon as it is down, with what it has stored. Clients go on there.
    """
    if off:
        ended = admin.drain_broker(name, to, off=True)
        output.say(f"broker {name} {'may lead queues again' if ended['was_drained'] else 'was not drained'}")
        return
    ask(force, f"drain broker {name}? Its clients go on at other brokers.")
    begun = admin.drain_broker(name, to)
    if "taker" in begun:
        output.say(f"broker {name} is drained to broker {begun['taker']}")
        takeovers.wait_until_taken(admin, begun)
        return
    for row in begun["staying"]:
        output.say(f"{row['type']} {row['name']} has one copy: {row['messages']} messages stay at broker {name}")
    if begun["stays"] > len(begun["staying"]):
        output.say(f"so do those of {begun['stays'] - len(begun['staying'])} other destinations")
    _wait_handed_over(admin, name)


def _wait_handed_over(admin: Admin, name: str) -> None:
    """Wait until a broker leads nothing more that another one can lead, and say how far that is."""
    clock = SystemClock()
    until_ns = clock.monotonic_ns() + round(HANDED_S * 1e9)
    told = None
    while (row := takeovers.broker_row(admin, name)).get("drain") != "DRAINED":
        leads = row.get("leads")
        if clock.monotonic_ns() > until_ns:
            raise RequestTimeoutError(
                f"broker {name} is {row.get('drain', 'UNKNOWN')} after {HANDED_S:g} s: it leads {leads} queues, and of"
                f" {row.get('unled')} it hears no leader; look: raybroker list bkr, and raybroker check dst"
            )
        if leads and leads != told:
            output.say(f"broker {name} leads {leads} queues with copies")
            told = leads
        clock.sleep(takeovers.LOOK_S)
    if row["stuck"]:
        output.error(f"no other broker can lead now, and broker {name} leads still: {', '.join(row['stuck'])}")
        raise typer.Exit(Exit.REFUSED)
    output.say(f"broker {name} is drained: it leads no queue")


@command("drain", "node")
def drain_node(
    admin: Admin,
    node: Annotated[str, typer.Argument(metavar="NODE", help="Its id in Ray, the beginning of that, or its address.")],
    deadline: Annotated[
        int, typer.Option("--deadline", metavar="SECONDS", min=0, help="When it is taken away; 0: nobody knows.")
    ] = 0,
    off: Annotated[bool, typer.Option("--off", help="The node stays after all.")] = False,
) -> None:
    """Have nothing new begin on a Ray node that is to be taken away: raybroker drain node NODE --deadline 120

    Consumers there get nothing more, and give back what they have not begun; their programs are told and can keep
    checkpoints (Message.draining). Pools have their instances elsewhere, and brokers there are drained. The command
    waits until what is in hand is settled, at most until the deadline. A notice of preemption can call it, or
    conn.admin().drain_node(…).
    """
    chosen = _node(node)
    if off:
        was_drained = admin.drain_node(chosen, off=True)["was_drained"]
        output.say(f"node {chosen} {'stays' if was_drained else 'was not drained'}")
        return
    begun = admin.drain_node(chosen, deadline)
    for broker, why in sorted(begun["trouble"].items()):
        output.error(f"broker {broker} is not drained: {why}")
    for broker in sorted(set(begun["brokers"]) - set(begun["trouble"])):
        output.say(f"broker {broker} is drained with its node; look: raybroker list bkr")
    _wait_settled(admin, chosen, float(deadline) or IN_HAND_S)
    if begun["trouble"]:
        raise typer.Exit(Exit.REFUSED)


@command("list", "node")
def list_node(admin: Admin, json: Json = False) -> None:
    """List the Ray nodes that are drained, since when, and when they go. All nodes: ray status"""
    show_list(
        admin.list_drained_nodes(),
        "node, since, until",
        empty="no drained nodes",
        json=json,
        shown=lambda row: {
            **row,
            "since": moment(row["since_ms"]),
            "until": moment(row["until_ms"]) if row["until_ms"] else "-",
        },
    )


def _node(said: str) -> str:
    """The id of the node that is meant; from outside the Ray cluster it has to be said in full."""
    if way.get() is not None:
        return said
    from raybroker.actors import runtime

    nodes = runtime.nodes()
    found = [one.id for one in nodes if said in (one.id, one.ip, one.name) or (said and one.id.startswith(said))]
    if len(found) == 1:
        return found[0]
    if not found and len(said) == NODE_ID_CHARS:
        return said  # It is gone by now.
    known = ", ".join(f"{one.id} ({one.ip})" for one in nodes)
    which = f"is {len(found)} nodes" if found else "is no node"
    raise ConfigError(f"{said!r} {which} of this Ray cluster: say the id, or more of it; there are {known}")


def _wait_settled(admin: Admin, node: str, wait_s: float) -> None:
    """Wait until consumers on a node have settled what they had begun; what is left is said."""
    clock = SystemClock()
    until_ns = clock.monotonic_ns() + round(wait_s * 1e9)
    told = None
    while in_hand := _in_hand(admin, node):
        if clock.monotonic_ns() > until_ns:
            output.error(
                f"{in_hand} messages are with consumers on the node still, after {wait_s:g} s: they come again"
                " elsewhere when it is gone"
            )
            raise typer.Exit(Exit.REFUSED)
        if in_hand != told:
            output.say(f"{in_hand} messages are with consumers on the node")
            told = in_hand
        clock.sleep(takeovers.LOOK_S)
    output.say(f"node {node} is drained: consumers there have nothing in hand")


def _in_hand(admin: Admin, node: str) -> int:
    rows: list[dict[str, Any]] = admin.list_consumers()
    return sum(row["unacknowledged"] for row in rows if node in row["labels"])
