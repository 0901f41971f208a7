"""Tables in databases on the command line: raybroker dbmgr.

    sharecc_tbl    the table that brokers share instead of a master, with the configuration change record
    tbl            the tables with the messages of brokers (imq.persist.store = sql); ``all`` with their database

The commands go to the database that the configuration names, and need no broker.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from raybroker.cli import connecting, output
from raybroker.cli.answers import without
from raybroker.cli.exits import Commands, UsageError
from raybroker.cli.grid_words import Instance, Json, ask
from raybroker.cli.objects.cluster import ClusterFile, File, check_new, write_new
from raybroker.cli.tools.up import BrokersPassfile, DatabaseUser, Define, flags_of
from raybroker.config import Config, instance_of
from raybroker.model.errors import ConfigError

TABLE: Final = "sharecc_tbl"
STORE: Final = "tbl"
ALL: Final = "all"
OLDER: Final = "oldtbl"
LOCK: Final = "lck"
SHARED_STORE: Final = "hastore"
BROKER: Final = "bkr"


def _what(*words: str) -> Any:
    return typer.Argument(metavar="|".join(words), help="Which tables.")


Force = Annotated[bool, typer.Option("--force", help="Do not ask, also while brokers run.")]
OfBroker = Annotated[
    str | None, typer.Option("-b", "--broker", metavar="BROKER", help="Only of this broker; without it of all brokers.")
]
Shared = Annotated[str, _what(STORE, TABLE)]

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    short_help="Tables in databases: messages, and the shared change record.",
    help="Tables in databases, which the cluster file or the environment name: tbl are those with the messages of "
    "brokers (imq.persist.store = sql), sharecc_tbl is the one with the configuration change record that brokers "
    "share instead of a master (imq.cluster.sharecc.persist.jdbc.url).",
)


_flags: ContextVar[tuple[str, ...]] = ContextVar("raybroker_dbmgr_flags", default=())
"""Properties of the command that runs, over those of files and of the environment."""


@app.callback()
def given(
    define: Define = None,
    passfile: BrokersPassfile = None,
    dbuser: DatabaseUser = None,
) -> None:
    """Take the options that all commands have, before their names: raybroker dbmgr -D PROP=VALUE create tbl"""
    try:
        _flags.set((*(define or ()), *flags_of(passfile, dbuser, None, define)))
    except ConfigError as error:
        raise UsageError(str(error)) from None


def _check(what: str, *words: str) -> None:
    if what not in words:
        raise UsageError(f"dbmgr: {what!r} is not known here; there is {' and '.join(words)}")


def _record(cluster: str | None, config: Path | None) -> Any:
    """The shared table; raises UsageError."""
    from raybroker.actors.stores.record_tables import TableManager

    try:
        found = Config.load(cluster_file=config, flags=_flags.get())
        return TableManager(found, instance_of(found, cluster))
    except ConfigError as error:
        raise UsageError(str(error)) from None


def _store(cluster: str | None, config: Path | None, broker: str | None) -> Any:
    """The tables with messages; raises UsageError."""
    from raybroker.actors.stores.store_tables import StoreManager

    try:
        found = Config.load(cluster_file=config, flags=_flags.get())
        return StoreManager(found, instance_of(found, cluster), broker)
    except ConfigError as error:
        raise UsageError(str(error)) from None


@app.command()
def create(
    what: Annotated[str, _what(STORE, ALL, TABLE)],
    config: ClusterFile = None,
    broker: OfBroker = None,
    cluster: Instance = None,
) -> None:
    """Make the tables, empty; with all also the database, by imq.persist.jdbc.postgresql.createdburl.

    raybroker dbmgr create tbl --config cluster.toml
    """
    _check(what, STORE, ALL, TABLE)
    if what == TABLE:
        manager = _record(cluster, config)
        manager.create()
        output.say(f"created table {manager.shown}")
        return
    for made in _store(cluster, config, broker).create(database=what == ALL):
        output.say(f"created tables {made}")


@app.command()
def delete(
    what: Annotated[str, _what(STORE, OLDER, TABLE)],
    config: ClusterFile = None,
    broker: OfBroker = None,
    force: Force = False,
    cluster: Instance = None,
) -> None:
    """Remove the tables and what is in them; oldtbl: those that older releases have left.

    Brokers that run and share the removed record refuse changes from then on.
    """
    _check(what, STORE, OLDER, TABLE)
    if what == TABLE:
        _lose(_record(cluster, config), "delete", "deleted", force, lambda manager: manager.delete())
        return
    manager = _store(cluster, config, broker)
    if what == OLDER:
        gone = manager.delete_older()
        for one in gone or ["nothing: there are no tables of older versions"]:
            output.say(f"deleted {one}")
        return
    _lose_messages(manager, "delete", force)
    manager.delete(force=force)
    output.say("\n".join(f"deleted tables {shown}" for shown in manager.shown))


@app.command()
def recreate(
    what: Shared,
    config: ClusterFile = None,
    broker: OfBroker = None,
    force: Force = False,
    cluster: Instance = None,
) -> None:
    """Empty tables instead of those that there are; of the record: destinations stay on the brokers that have them."""
    _check(what, STORE, TABLE)
    if what == TABLE:
        _lose(_record(cluster, config), "recreate", "recreated", force, lambda manager: manager.recreate())
        return
    manager = _store(cluster, config, broker)
    _lose_messages(manager, "recreate", force)
    manager.recreate(force=force)
    output.say("\n".join(f"recreated tables {shown}" for shown in manager.shown))


@app.command()
def query(config: ClusterFile = None, broker: OfBroker = None, json: Json = False, cluster: Instance = None) -> None:
    """Show the tables with messages: version, id, address, user, whether they are there, hosts and sizes."""
    rows = _store(cluster, config, broker).query()
    if json:
        output.as_json(rows)
        return
    for row in rows:
        output.fields(without(row, "hosts"))
        if "hosts" in row:
            columns = output.columns("name: host, hosting, held: open, owner: process, blocks, nbytes: bytes")
            output.table(row["hosts"], columns, empty="no host has stored anything yet")


@app.command()
def backup(
    what: Shared, file: File, config: ClusterFile = None, broker: OfBroker = None, cluster: Instance = None
) -> None:
    """Write the record, or the messages of one broker, to a file: raybroker dbmgr backup tbl -f messages.backup

    Brokers may run meanwhile; the file has what was committed at one moment.
    """
    _check(what, STORE, TABLE)
    check_new(file)
    if what == TABLE:
        data = _record(cluster, config).backup()
        write_new(file, data)
        output.say(f"wrote {len(data)} bytes to {file}")
        return
    hosts, blocks = _store(cluster, config, broker).backup(file)
    output.say(f"wrote {blocks} blocks of {hosts} hosts, {file.stat().st_size} bytes, to {file}")


@app.command()
def restore(
    what: Shared,
    file: File,
    config: ClusterFile = None,
    broker: OfBroker = None,
    force: Force = False,
    cluster: Instance = None,
) -> None:
    """Put a backup in place of what there is; tables are made where there are none.

    Changes made since the backup are lost; of the record, also from 'backup cls': destinations that the backup does not
    know keep their messages and are ORPHANED: adopt dst puts one into the record again, destroy dst drops it.
    """
    _check(what, STORE, TABLE)
    if what == STORE:
        if not file.is_file():
            raise UsageError(f"-f {file}: there is no such file")
        manager = _store(cluster, config, broker)
        _lose_messages(manager, "restore", force)
        hosts, blocks = manager.restore(file, force=force)
        output.say(f"restored {blocks} blocks of {hosts} hosts to {manager.shown[0]}")
        return
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"-f {file}: {error}") from None
    manager = _record(cluster, config)
    _check_stopped(manager.instance, "restore", force)
    ask(force, f"restore table {manager.shown}? Changes made since the backup are lost.")
    entries = manager.restore(data)
    output.say(f"restored {entries} destinations and subscriptions to {manager.shown}")


@app.command()
def reset(
    what: Annotated[str, _what(LOCK)],
    config: ClusterFile = None,
    broker: OfBroker = None,
    force: Force = False,
    cluster: Instance = None,
) -> None:
    """Clear the locks of the tables with messages, when the broker that has them is gone for good with its machine.

    A host that lives all the same cannot write any more, and stops.
    """
    _check(what, LOCK)
    manager = _store(cluster, config, broker)
    _check_stopped(manager.instance, "reset", force, "a host whose lock is taken stops, and starts again")
    ask(force, f"reset the locks of {', '.join(manager.shown)}? A broker that still uses them stops.")
    broken = manager.reset_lock()
    output.say(f"reset the locks of {', '.join(manager.shown)}; {', '.join(broken) or 'no host'} had them open")


@app.command()
def upgrade(
    what: Annotated[str, _what(STORE, SHARED_STORE)],
    config: ClusterFile = None,
    broker: OfBroker = None,
    cluster: Instance = None,
) -> None:
    """Bring tables with messages to the newest version that this release makes; releases before refuse them then. With
    hastore, have brokers with imq.cluster.ha = true take over from each other in the tables that they have.

    Tables are of version 1, and of version 2 from the first message on that was compressed where it is stored
    (raybroker.store.message_compression_enabled). Of use for tables in which a release before has compressed messages
    without that version, and where the user of brokers may not make tables: these keep messages as they come until a
    user who may has run this.
    """
    _check(what, STORE, SHARED_STORE)
    manager = _store(cluster, config, broker)
    if what == SHARED_STORE:
        _check_stopped(manager.instance, f"upgrade {what}", force=False)
        for done in _shared(manager.share) or ["nothing: brokers share these tables already"]:
            output.say(done)
        return
    for shown in manager.upgrade() or ["nothing: the tables have the newest version"]:
        output.say(f"upgraded {shown}")


@app.command()
def remove(
    what: Annotated[str, _what(BROKER)],
    config: ClusterFile = None,
    broker: OfBroker = None,
    force: Force = False,
    cluster: Instance = None,
) -> None:
    """Remove a broker that is over from the store that brokers share, with its tables: raybroker dbmgr remove bkr -b b3

    It has to be stopped, and its messages consumed or moved: --force loses them. The others go on. Take it out of
    imq.cluster.brokerlist as well (raybroker reload cls).
    """
    _check(what, BROKER)
    if broker is None:
        raise UsageError("dbmgr remove bkr: say which broker, with -b")
    manager = _store(cluster, config, broker)
    ask(force, f"remove broker {broker} and its tables {', '.join(manager.shown)}?")
    blocks = _shared(lambda: manager.remove_broker(force=force))
    output.say(f"removed broker {broker}, with {blocks} blocks of messages")


def _shared(work: Callable[[], Any]) -> Any:
    """What a part of the store that brokers share answers; raises UsageError where they share none."""
    try:
        return work()
    except ConfigError as error:
        raise UsageError(str(error)) from None


def _lose(manager: Any, verb: str, done: str, force: bool, work: Callable[[Any], None]) -> None:
    _check_stopped(manager.instance, verb, force)
    ask(force, f"{verb} table {manager.shown}? The record that is in it is lost.")
    work(manager)
    output.say(f"{done} table {manager.shown}")


def _lose_messages(manager: Any, verb: str, force: bool) -> None:
    _check_stopped(manager.instance, verb, force, "a host whose tables are changed stops")
    ask(force, f"{verb} tables {', '.join(manager.shown)}? All messages that are in them are lost.")


def _check_stopped(cluster: str, verb: str, force: bool, then: str = "they take what the table has then") -> None:
    """Raises UsageError while brokers run that use the table, unless ``force``."""
    there = [] if force else connecting.running(cluster)
    if there:
        raise UsageError(
            f"dbmgr {verb}: brokers {', '.join(there)} of cluster {cluster} run and use the table; stop them first"
            f" (raybroker down --name {cluster}), or say --force: {then}"
        )
