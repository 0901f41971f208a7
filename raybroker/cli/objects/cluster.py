"""The cluster on the command line: query, reload, changemaster, backup and restore cls."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from raybroker.cli import output
from raybroker.cli.command import command
from raybroker.cli.exits import UsageError
from raybroker.cli.grid_words import Attributes, Cluster, Instance, attributes
from raybroker.cli.groups import as_command
from raybroker.client.admin.admin import Admin
from raybroker.config import Config, instance_of
from raybroker.config.brokers import MASTER, plan_of
from raybroker.model.errors import ConfigError, IllegalStateError

File = Annotated[Path, typer.Option("-f", "--file", metavar="FILE", help="The backup.")]
ClusterFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Cluster file (TOML) that names the brokers.")
]


@command("reload", "cls")
def reload_cls(admin: Admin, config: ClusterFile = None, cluster: Cluster = "default") -> None:
    """Have all brokers take the list of brokers from a cluster file: raybroker reload cls --config cluster.toml"""
    try:
        chosen = Config.load(cluster_file=config)
        instance_of(chosen, cluster)
        plan = plan_of(chosen)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    told = admin.reload_cluster(plan.names)
    output.say(f"cluster {cluster}: brokers {', '.join(plan.names)}; told {', '.join(told)}")


@command("changemaster", "cls")
def changemaster_cls(admin: Admin, option: Attributes = None, cluster: Cluster = "default") -> None:
    """Move the record to another broker: raybroker changemaster cls -o imq.cluster.masterbroker=b2"""
    given = attributes(option)
    if set(given) != {MASTER}:
        raise UsageError(f"changemaster cls: give -o {MASTER}=BROKER and nothing else")
    answer = admin.change_master(given[MASTER])
    if answer["result"] != "OK":
        raise IllegalStateError(f"{answer['result']}: {answer['text']}")
    output.say(f"the master of cluster {cluster} is {given[MASTER]}")


def check_new(file: Path) -> None:
    """Raises UsageError when a backup cannot become this file."""
    if file.exists():
        raise UsageError(f"-f {file}: it is there already, and a backup is not overwritten")
    if not file.parent.is_dir():
        raise UsageError(f"-f {file}: there is no folder {file.parent}; make it first")


def write_new(file: Path, data: bytes) -> None:
    """Write a backup, or nothing; raises UsageError."""
    part = file.with_name(file.name + ".part")
    try:
        part.write_bytes(data)
        part.replace(file)
    except OSError as error:
        raise UsageError(f"-f {file}: it cannot be written: {error}") from None
    finally:
        part.unlink(missing_ok=True)


@command("backup", "cls")
def backup_cls(admin: Admin, file: File) -> None:
    """Write the configuration change record to a file: raybroker backup cls -f record.backup"""
    check_new(file)
    data = admin.backup_record()
    write_new(file, data)
    output.say(f"wrote {len(data)} bytes to {file}")


@as_command("restore", "cls")
def restore_cls(file: File, config: ClusterFile = None, cluster: Instance = None) -> None:
    """Make a backup the record of the master, while all brokers are down: raybroker restore cls -f record.backup

    Changes made since the backup are lost; destinations that the backup does not know keep their messages and are
    ORPHANED: adopt dst puts one into the record again, destroy dst drops it. Run it on the node of the master, before
    `raybroker up`.
    """
    from raybroker.actors.stores import restore

    try:
        chosen = Config.load(cluster_file=config)
        instance = instance_of(chosen, cluster)
        data = file.read_bytes()
    except (ConfigError, OSError) as error:
        raise UsageError(str(error)) from None
    where, entries = restore.restore(data, instance, chosen)
    output.say(f"restored {entries} destinations and subscriptions to {where}; start the cluster with: raybroker up")
