"""Instances on this machine while they are down: what ``up --reset`` empties first, and ``remove``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from raybroker.cli import connecting, output
from raybroker.cli.answers import things
from raybroker.cli.exits import Exit, UsageError
from raybroker.cli.grid_words import Force, Instance, ask
from raybroker.cli.objects.cluster import ClusterFile
from raybroker.config import Config, instance_of, places
from raybroker.model.errors import BrokerError, ConfigError

DURABLES: Final = "durables"
RESETS: Final = ("store", "messages", DURABLES, "props")
LOST: Final = {
    "store": "everything that is stored: destinations, messages, subscriptions and transactions",
    "messages": "all messages",
    DURABLES: "all durable subscriptions with their messages",
    "props": "what update bkr has changed",
}
"""What a reset is about → what is lost by it."""
Reset = Annotated[
    list[str] | None,
    typer.Option(
        "--reset",
        metavar="|".join(RESETS),
        help="First empty that, of the brokers with stores on this machine; durables: of the cluster, once it runs.",
    ),
]


def _checked(what: list[str], cluster: str, force: bool) -> list[str]:
    for one in what:
        if one not in RESETS:
            raise UsageError(f"--reset {one}: it is one of {', '.join(RESETS)}")
    _check_down(cluster, "--reset is for the start")
    ask(force, f"reset cluster {cluster}, and lose {' and '.join(LOST[one] for one in what)}?")
    return what


def _check_down(cluster: str, why: str) -> None:
    if there := connecting.running(cluster):
        raise UsageError(
            f"{why}, and brokers {', '.join(there)} of cluster {cluster} run; stop them first: raybroker down --name"
            f" {cluster}"
        )


def reset_before(what: list[str] | None, config: Config, cluster: str, broker: str | None, force: bool) -> None:
    """Empty what is to be, before brokers start; raises UsageError."""
    if not what:
        return
    from raybroker.actors.stores.instance import InstanceStores

    wanted = [one for one in _checked(what, cluster, force) if one != DURABLES]
    if not wanted:
        return
    found = InstanceStores(config, cluster, broker)
    found.check_whole()
    for one in wanted:
        for done in found.reset(one):
            output.say(f"reset {one} of broker {done.broker}: {done.what}")
            for left in done.left:
                output.error(f"broker {done.broker} keeps {left}; end it with commit txn or rollback txn")
    if not found.brokers:
        output.say(f"nothing is stored in {found.folder}")


def reset_after(what: list[str] | None, cluster: str) -> None:
    """End all durable subscriptions, once the brokers run; those that are in use by then stay, and the status says
    so."""
    if DURABLES not in (what or ()):
        return
    count, failed = 0, 0
    with connecting.administering(cluster) as admin:
        for row in admin.list_subscriptions():
            if row["durable"]:
                try:
                    admin.destroy_subscription(row["name"], client_id=row["client_id"] or None, topic=row["topic"])
                    count += 1
                except BrokerError as error:
                    failed += 1
                    output.error(str(error))
    output.say(f"reset {DURABLES}: {things(count, 'durable subscription')} ended")
    if failed:
        raise typer.Exit(Exit.REFUSED)


def remove(
    broker: Annotated[
        str | None, typer.Option("--broker", metavar="B", help="Only this one's; without it the whole instance.")
    ] = None,
    config: ClusterFile = None,
    force: Force = False,
    cluster: Instance = None,
) -> None:
    """Delete an instance that is down from this machine: raybroker remove --cluster old

    Its stores with all messages, logs, users and keys, and what update bkr has changed. What the configuration has in
    other places is named, and stays; so does what the brokers of the cluster have on other nodes.
    """
    from raybroker.actors.stores.instance import InstanceStores

    try:
        chosen = Config.load(cluster_file=config)
        name = instance_of(chosen, cluster)
        found = InstanceStores(chosen, name, broker)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    if not found.folder.is_dir():
        raise UsageError(f"there is no instance {name!r} here: {found.folder} is not there")
    _check_down(name, "an instance is removed while it is down")
    if broker is None:
        _check_ray(name, found.folder)
    ask(force, f"remove {_what(name, broker)} with all messages in {found.folder}?")
    if broker is None:
        places.forget(name)
    for path in found.remove():
        output.say(f"removed {path}")
    for left in found.outside():
        output.error(f"left as it is: {left}")


def _check_ray(cluster: str, folder: Path) -> None:
    """Raises UsageError while a Ray runs that nobody could end, or reach, without what is removed."""
    from raybroker.cli.tools.ray_process import end_abandoned

    end_abandoned(places.directory(cluster))
    own = places.load(cluster)
    if own is not None and own.pid is not None and own.alive():
        raise UsageError(
            f"the Ray at {own.address}, which was started for cluster {cluster}, runs; end it first: raybroker down"
            f" --name {cluster}"
        )
    for other in places.others(cluster):
        if other.token_path and Path(other.token_path).is_relative_to(folder) and other.alive():
            raise UsageError(
                f"another cluster runs in the Ray at {other.address}, whose token is {other.token_path}; stop that"
                " cluster first: raybroker down --name NAME"
            )


def _what(cluster: str, broker: str | None) -> str:
    return f"cluster {cluster}" if broker is None else f"broker {broker} of cluster {cluster}"
