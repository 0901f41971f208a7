"""Pools of listeners that have a name, on the command line: list and destroy pool."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from raybroker.cli import connecting, output
from raybroker.cli.answers import show_list, things
from raybroker.cli.command import command
from raybroker.cli.exits import UsageError
from raybroker.cli.grid_words import Cluster, Force, Json, ask
from raybroker.cli.outside import way
from raybroker.client.admin.admin import Admin

COLUMNS: Final = (
    "pool, function, type, name: destination, subscription, instances, running, scaling, messages, state, reason"
)
Name = Annotated[str, typer.Option("-n", "--name", metavar="NAME", help="Name of the pool.")]


@command("list", "pool")
def list_pool(admin: Admin, cluster: Cluster = "default", json: Json = False) -> None:
    """List the pools of listeners that programs have deployed with a name, and which outlive them."""
    _join_ray("list pool", cluster)
    from raybroker.actors.pools import named_pool

    show_list(named_pool.pools(cluster=cluster), COLUMNS, empty="no pools with a name", json=json)


@command("destroy", "pool")
def destroy_pool(admin: Admin, name: Name, force: Force = False, cluster: Cluster = "default") -> None:
    """Stop a pool of listeners after the messages in hand; what is buffered goes back to its destination."""
    _join_ray("destroy pool", cluster)
    from raybroker.actors.pools import named_pool

    found = named_pool.pool(name, cluster=cluster)
    ask(force, f"stop the pool {name}?")
    ended = found.stop()
    output.say(f"stopped pool {name}, {things(len(ended), 'instance')}")


def _join_ray(what: str, cluster: str) -> None:
    """Pools are actors, and no part of a broker."""
    if way.get() is not None:
        raise UsageError(f"{what}: pools are known inside the Ray cluster alone; run it there, without -b")
    connecting.require_ray(cluster)
    from raybroker.actors import runtime

    runtime.keep_quiet()
    runtime.join_ray(cluster)
