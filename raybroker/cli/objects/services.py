"""Connection services and their clients on the command line: the verbs of svc and cxn, and why-denied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

import typer

from raybroker.cli import connecting, output
from raybroker.cli.answers import show_list, show_one, things
from raybroker.cli.command import command
from raybroker.cli.exits import UsageError
from raybroker.cli.grid_words import AnyType, Attributes, Cluster, Force, Json, Type, ask, attributes
from raybroker.cli.objects.brokers import Broker
from raybroker.cli.plain import opt
from raybroker.client.admin.admin import Admin
from raybroker.model.errors import ConfigError
from raybroker.model.settings.setting_services import SERVICE_KINDS
from raybroker.wire.port_map import MAPPER

SERVICES: Final = ", ".join(SERVICE_KINDS)
KNOWN: Final = (*SERVICE_KINDS, MAPPER)
COLUMNS: Final = "service, kind, protocol, port, state, connections, accepted, refused, broker"
CHOICE: Final = {
    "service": opt("-svn", "--service", metavar="NAME", help="Only of this service; inside: those in the Ray cluster."),
    "user": opt("--by", metavar="USER", help="Only of this user."),
    "address": opt("--from", metavar="ADDRESS", help="Only from this address, or network: 10.0.0.0/8."),
    "client_id": opt("--client-id", metavar="ID", help="Only with this client id."),
    "destination": opt("-d", "--destination", metavar="NAME", help="Only with a producer or consumer of it."),
    "consumer": opt("--consumer", metavar="ID", help="Only with this consumer, as list con shows it."),
}
"""What narrows clients down, those that are listed and those that are destroyed."""
ServiceName = Annotated[str, typer.Option("-n", "--name", metavar="NAME", help=f"One of {SERVICES}.")]
ConnectionId = Annotated[str, typer.Option("-n", "--id", metavar="ID", help="The id that list cxn shows.")]


@command("query", "svc")
def query_svc(admin: Admin, name: ServiceName, json: Json = False) -> None:
    """Show one service, of each broker that has it."""
    if name not in KNOWN:
        raise UsageError(f"query svc: there is no service {name!r}; there are {', '.join(KNOWN)}")
    rows = [row for row in admin.list_services() if row["service"] == name]
    if not rows:
        raise ConfigError(f"no broker has service {name} (imq.service.activelist)")
    console = ", console" if any(row["console"] for row in rows) else ""
    show_list(rows, f"{COLUMNS}, connections_max: at most{console}", empty="", json=json)


@command("update", "svc")
def update_svc(admin: Admin, name: ServiceName, option: Attributes = None, broker: Broker = None) -> None:
    """Change a service until the broker is restarted: raybroker update svc -n jms -o maxThreads=200

    Half of maxThreads is how many clients it has at most; those that are there stay. For good: imq.jms.max_threads.

    With -o port=7700 it listens there, and then at the old port no more; clients that are there stay, and the port
    mapper tells the new one. 0 is any free port; -b says of which broker, where there are several. For good:
    imq.jms.tcp.port.
    """
    changes = attributes(option, such_as="maxThreads=200")
    if not changes:
        raise UsageError("update svc: nothing to change; give -o port=…, -o minThreads=… or -o maxThreads=…")
    if broker is None and str(changes.get("port", "0")).strip() != "0":
        active = (row for row in admin.list_services() if row["service"] == name and row["state"] != "UNKNOWN")
        having = sorted(str(row["broker"]) for row in active)
        if len(having) > 1:
            raise UsageError(f"update svc: brokers {', '.join(having)} have service {name}; say with -b which one")
    admin.update_service(name, broker, **changes)
    rows = [row for row in admin.list_services() if row["service"] == name and broker in (None, row["broker"])]
    ports = ", ".join(str(row["port"]) for row in rows if row["state"] != "UNKNOWN")
    output.say(f"updated service {name}" + (f", port {ports}" if "port" in changes else ""))


@command("pause", "bkr")
def pause_bkr(admin: Admin) -> None:
    """Pause all services but those for administration, of all brokers: raybroker pause bkr"""
    _each(admin, "paused", admin.pause_service)


@command("quiesce", "bkr")
def quiesce_bkr(admin: Admin) -> None:
    """Take no new clients by any service but those for administration; the others go on: raybroker quiesce bkr"""
    _each(admin, "quiesced", admin.quiesce_service)


@command("resume", "bkr")
def resume_bkr(admin: Admin) -> None:
    """Undo pause bkr and quiesce bkr: raybroker resume bkr"""
    _each(admin, "resumed", admin.resume_service)


@command("unquiesce", "bkr")
def unquiesce_bkr(admin: Admin) -> None:
    """Undo quiesce bkr: raybroker unquiesce bkr"""
    _each(admin, "resumed", admin.resume_service)


def _each(admin: Admin, done: str, change: Callable[[str], None]) -> None:
    """Do that with every service that carries messages and is active."""
    rows = admin.list_services()
    names = sorted({row["service"] for row in rows if row["kind"] == "NORMAL" and row["state"] != "UNKNOWN"})
    if not names:
        raise ConfigError("there is no service to change; imq.service.activelist names those that listen")
    for name in names:
        change(name)
    output.say(f"{done} service {', '.join(names)}")


@command("query", "cxn")
def query_cxn(admin: Admin, id: ConnectionId, json: Json = False) -> None:
    """Show one client, with its client id and platform; of one inside the Ray cluster its process and hosts, too."""
    found = next((row for row in admin.list_connections() if row["id"] == id), None)
    if found is None:
        raise ConfigError(f"there is no connection {id!r}; list cxn shows those there are")
    show_one(found, json=json)


@command("destroy", "cxn")
def destroy_cxn(
    admin: Admin,
    id: Annotated[str | None, typer.Option("-n", "--id", metavar="ID", help="The id that list cxn shows.")] = None,
    service: Annotated[str | None, CHOICE["service"].info] = None,
    user: Annotated[str | None, CHOICE["user"].info] = None,
    address: Annotated[str | None, CHOICE["address"].info] = None,
    client_id: Annotated[str | None, CHOICE["client_id"].info] = None,
    destination: Annotated[str | None, CHOICE["destination"].info] = None,
    type: AnyType = None,
    consumer: Annotated[str | None, CHOICE["consumer"].info] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="What the client is told, and the log has.")
    ] = None,
    force: Force = False,
) -> None:
    """Close clients' connections; they are told, and do not come back by themselves: raybroker destroy cxn -n ID

    Instead of -n all that the options fit, as list cxn shows them: raybroker destroy cxn --by bob --reason "call 4711"
    Clients of services for administration are closed by their id alone. A client inside the Ray cluster is ended at all
    hosts of all brokers; those that do not answer are named, and the command fails.
    """
    given = zip(CHOICE, (service, user, address, client_id, destination, consumer), strict=True)
    wanted = {name: value for name, value in given if value is not None}
    if (id is None) == (not wanted):
        raise UsageError("destroy cxn: name one with -n, or say which with --by, --from, -d and so on; not both")
    if id is not None:
        ask(force, f"destroy connection {id}?")
        admin.destroy_connection(id, reason)
        output.say(f"destroyed connection {id}")
        return
    ask(force, "destroy the connections of " + ", ".join(f"{name} {value}" for name, value in wanted.items()) + "?")
    count = admin.destroy_connections(reason, type=type, **wanted)
    output.say(f"destroyed {things(count, 'connection')}")


def why_denied(
    user: Annotated[str, typer.Argument(metavar="USER", show_default=False)],
    operation: Annotated[
        str, typer.Argument(metavar="OPERATION", help="produce, consume, browse, create, connect.", show_default=False)
    ],
    destination: Annotated[str | None, typer.Argument(metavar="[DESTINATION]")] = None,
    type: Type = "q",
    service: Annotated[str, typer.Option("--service", metavar="NAME", help=f"One of {SERVICES}.")] = "jms",
    json: Json = False,
    cluster: Cluster = "default",
) -> None:
    """Say whether a user may do something, and which rule decides: raybroker why-denied ann consume orders

    For connect, a service or a kind of them stands where the destination does: raybroker why-denied ann connect ADMIN
    """
    with connecting.administering(cluster) as admin:
        found = admin.why_denied(user, operation, destination, type, service)
    show_one(found, json=json)
