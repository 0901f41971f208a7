"""The table that brokers share instead of a master, on the command line: raybroker dbmgr … sharecc_tbl.

The commands go to the database that the configuration names, and need no broker.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from raybroker.cli import connecting, output
from raybroker.cli.cluster import ClusterFile, File, check_new, write_new
from raybroker.cli.exits import Commands, UsageError
from raybroker.cli.objects import Cluster, ask
from raybroker.config import Config
from raybroker.model.errors import ConfigError

TABLE: Final = "sharecc_tbl"
What = Annotated[str, typer.Argument(metavar=TABLE, help="The table of the configuration change record.")]
Force = Annotated[bool, typer.Option("--force", help="Do not ask, also while brokers run.")]

app = typer.Typer(
    cls=Commands, no_args_is_help=True, short_help="The shared table of the configuration change record.",
    help="The table that has the configuration change record instead of a master broker: "
         "imq.cluster.sharecc.persist.jdbc.url, from the cluster file or the environment, says in which database.",
)  # fmt: skip


def _manager(what: str, cluster: str, config: Path | None) -> Any:
    if what != TABLE:
        raise UsageError(f"dbmgr: {what!r} is not known; there is {TABLE}")
    from raybroker.actors.record_tables import TableManager

    try:
        return TableManager(Config.load(cluster_file=config), cluster)
    except ConfigError as error:
        raise UsageError(str(error)) from None


@app.command()
def create(what: What, config: ClusterFile = None, cluster: Cluster = "default") -> None:
    """Make the table, with an empty record: raybroker dbmgr create sharecc_tbl --config cluster.toml"""
    manager = _manager(what, cluster, config)
    manager.create()
    output.say(f"created table {manager.shown}")


@app.command()
def delete(what: What, config: ClusterFile = None, force: Force = False, cluster: Cluster = "default") -> None:
    """Remove the table and the record that is in it; brokers that run refuse changes from then on."""
    _lose(_manager(what, cluster, config), cluster, "delete", "deleted", force, lambda manager: manager.delete())


@app.command()
def recreate(what: What, config: ClusterFile = None, force: Force = False, cluster: Cluster = "default") -> None:
    """An empty record instead of the one that there is; destinations stay on the brokers that have them."""
    _lose(_manager(what, cluster, config), cluster, "recreate", "recreated", force, lambda manager: manager.recreate())


def _lose(manager: Any, cluster: str, verb: str, done: str, force: bool, work: Callable[[Any], None]) -> None:
    _check_stopped(cluster, verb, force)
    ask(force, f"{verb} table {manager.shown}? The record that is in it is lost.")
    work(manager)
    output.say(f"{done} table {manager.shown}")


def _check_stopped(cluster: str, verb: str, force: bool) -> None:
    """Raises UsageError while brokers run that use the table, unless ``force``."""
    there = [] if force else connecting.running(cluster)
    if there:
        raise UsageError(
            f"dbmgr {verb}: brokers {', '.join(there)} of cluster {cluster} run and use the table; stop them first"
            f" (raybroker down --name {cluster}), or say --force: they take what the table has then"
        )


@app.command()
def backup(what: What, file: File, config: ClusterFile = None, cluster: Cluster = "default") -> None:
    """Write the record to a file: raybroker dbmgr backup sharecc_tbl -f record.backup"""
    check_new(file)
    data = _manager(what, cluster, config).backup()
    write_new(file, data)
    output.say(f"wrote {len(data)} bytes to {file}")


@app.command()
def restore(
    what: What, file: File, config: ClusterFile = None, force: Force = False, cluster: Cluster = "default"
) -> None:
    """Make a backup the record, also one of 'backup cls'; the table is made where there is none.

    Changes made since the backup are lost; destinations that the backup does not know keep their messages and are
    ORPHANED: adopt dst puts one into the record again, destroy dst drops it.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"-f {file}: {error}") from None
    manager = _manager(what, cluster, config)
    _check_stopped(cluster, "restore", force)
    ask(force, f"restore table {manager.shown}? Changes made since the backup are lost.")
    entries = manager.restore(data)
    output.say(f"restored {entries} destinations and subscriptions to {manager.shown}")
