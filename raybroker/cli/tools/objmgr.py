"""Administered objects on the command line: raybroker objmgr add, delete, list, query, update, jndi, and -i FILE.

What is done is in :mod:`raybroker.objects`; here are options, questions and tables. No broker is asked.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from raybroker.cli import output
from raybroker.cli.answers import show_list
from raybroker.cli.exits import Commands, UsageError
from raybroker.cli.grid_words import Json, ask, attributes
from raybroker.client.cluster.addresses import ATTRIBUTE, check_addresses
from raybroker.client.ways.service_address import is_service_address, service_addresses
from raybroker.model.errors import ConfigError, ObjectExistsError
from raybroker.objects.addresses import AUTHENTICATION, CREDENTIALS, PASSFILE, PRINCIPAL, URL
from raybroker.objects.administered import KINDS, AdministeredObject
from raybroker.objects.command_file import ObjectCommand, read_command, truth
from raybroker.objects.jndi import ADDRESSES, HOST, jndi_properties
from raybroker.objects.operations import list_objects as objects_of
from raybroker.objects.stores import open_store

SUCH_AS: Final = "imqAddressList=mq://broker:7676"
AMQP_PORT: Final = 5672
AMQPS_PORT: Final = 5671
LookupName = Annotated[str | None, typer.Option("-l", "--lookup-name", metavar="NAME", help="Lookup name.")]
ObjectType = Annotated[
    str | None, typer.Option("-t", "--type", metavar="TYPE", help=f"Type of the object: {', '.join(KINDS)}.")
]
ObjectAttributes = Annotated[
    list[str] | None,
    typer.Option("-o", "--option", metavar="ATTR=VALUE", help=f"Attribute, such as {SUCH_AS}. Repeatable."),
]
StoreAttributes = Annotated[
    list[str] | None,
    typer.Option(
        "-j",
        "--store",
        metavar="ATTR=VALUE",
        help="The object store: a folder or an address (ldap://…, sqlite:///…), or an attribute such as "
        f"{URL}=…, {PRINCIPAL}=… Repeatable; without it RAYBROKER_OBJECTS names the store.",
    ),
]
ReadOnly = Annotated[
    str | None,
    typer.Option("-r", "--read-only", metavar="true|false", help="Programs cannot set attributes of the object."),
]
CommandFile = Annotated[
    Path | None, typer.Option("-i", "--input", metavar="FILE", help="Command file; what options say wins over it.")
]
Preview = Annotated[bool, typer.Option("-pre", "--preview", help="Show what would be done, and do nothing.")]
Unasked = Annotated[bool, typer.Option("-f", "--force", help="Do not ask; needed without a terminal.")]
Quiet = Annotated[bool, typer.Option("-s", "--silent", help="Print nothing; errors and the exit status stay.")]

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    short_help="Connection factories and destinations that programs look up.",
    help="Administered objects: connection factories and destinations in an object store, which programs look up by "
    "name with rb.lookup. A store is a folder, a directory server or a database; no broker is asked.",
)


def run(
    said: ObjectCommand,
    file: Path | None = None,
    *,
    preview: bool = False,
    force: bool = False,
    silent: bool = False,
    json: bool = False,
) -> None:
    """Carry a command out, with what its file says beside it, and print what came of it."""
    command = said if file is None else said.over(read_command(file))
    command = _with_password(command)
    try:
        command.check()
        check_addresses(command.attributes.get(ATTRIBUTE, ""))
    except ConfigError as error:
        raise UsageError(f"objmgr: {error}") from None
    with ExitStack() as quiet:
        if silent:
            quiet.enter_context(redirect_stdout(quiet.enter_context(open(os.devnull, "w", encoding="utf-8"))))
        if preview:
            output.fields(command.shown(), title="would be done, and was not:")
            return
        if command.verb in ("delete", "update"):
            ask(force, f"{command.verb} object {command.name}?")
        with open_store(command.store or None) as store:
            try:
                found = command.carry_out(store, replace=force)
            except ObjectExistsError:
                if not sys.stdin.isatty():
                    raise
                ask(False, f"there is an object {command.name} already; replace it?")
                found = command.carry_out(store, replace=True)
            _show(command, found, store.shown, json=json)


def _show(command: ObjectCommand, found: list[AdministeredObject], store: str, *, json: bool) -> None:
    if command.verb == "list":
        rows = [_row(one) for one in found]
        show_list(rows, "name, type, class, read_only", empty=f"no objects in {store}", json=json)
        return
    (one,) = found
    if command.verb != "query":
        done = {"add": "added", "delete": "deleted", "update": "updated"}[command.verb or ""]
        output.say(f"{done} {KINDS[one.kind]} {one.name} {'to' if done == 'added' else 'in'} {store}")
    elif json:
        output.as_json({**_row(one), "attributes": one.in_full()})
    else:
        output.fields({**_row(one), "attributes": one.in_full()})


def _row(one: AdministeredObject) -> dict[str, Any]:
    return {"name": one.name, "type": one.kind, "class": KINDS[one.kind], "read_only": one.read_only}


def _with_password(command: ObjectCommand) -> ObjectCommand:
    """Ask for the password of the store's user, where nothing says it and somebody is there."""
    store = command.store
    if not store.get(PRINCIPAL) or store.get(CREDENTIALS) or store.get(PASSFILE) or not sys.stdin.isatty():
        return command
    if store.get(AUTHENTICATION, "").lower() == "none":
        return command
    password = typer.prompt(f"password of {store[PRINCIPAL]}", hide_input=True)
    return ObjectCommand(store={CREDENTIALS: password}).over(command)


def command_of(
    verb: str | None,
    name: str | None,
    kind: str | None,
    options: list[str] | None,
    store: list[str] | None,
    read_only: str | None,
) -> ObjectCommand:
    """The command that options say; raises UsageError."""
    alone = [text for text in store or () if "=" not in text.partition("://")[0] and _is_address(text)]
    given = attributes([text for text in store or () if text not in alone], f"{URL}=file:///etc/raybroker/objects")
    if alone:
        given = {**given, URL: alone[-1]}
    try:
        return ObjectCommand(
            verb,
            name,
            kind,
            attributes(options, SUCH_AS),
            given,
            None if read_only is None else truth("-r", read_only),
        )
    except ConfigError as error:
        raise UsageError(str(error)) from None


def _is_address(text: str) -> bool:
    return "://" in text or "=" not in text


@app.callback(invoke_without_command=True)
def objmgr(
    context: typer.Context,
    file: CommandFile = None,
    name: LookupName = None,
    kind: ObjectType = None,
    options: ObjectAttributes = None,
    store: StoreAttributes = None,
    read_only: ReadOnly = None,
    preview: Preview = False,
    force: Unasked = False,
    silent: Quiet = False,
    json: Json = False,
) -> None:
    if context.invoked_subcommand is not None:
        if file or name or kind or options or store or read_only or preview or force or silent or json:
            raise UsageError(f"objmgr: write options behind the command, as in objmgr {context.invoked_subcommand} …")
        return
    if file is None:
        raise UsageError("objmgr: name a command (add, delete, list, query, update), or a file with one (-i FILE)")
    said = command_of(None, name, kind, options, store, read_only)
    run(said, file, preview=preview, force=force, silent=silent, json=json)


@app.command()
def add(
    name: LookupName = None,
    kind: ObjectType = None,
    options: ObjectAttributes = None,
    store: StoreAttributes = None,
    read_only: ReadOnly = None,
    file: CommandFile = None,
    preview: Preview = False,
    force: Unasked = False,
    silent: Quiet = False,
) -> None:
    """Put an object into a store: objmgr add -t cf -l cf/orders -o imqAddressList=mq://broker:7676 -j /etc/objects"""
    said = command_of("add", name, kind, options, store, read_only)
    run(said, file, preview=preview, force=force, silent=silent)


@app.command()
def delete(
    name: LookupName = None,
    kind: ObjectType = None,
    store: StoreAttributes = None,
    file: CommandFile = None,
    preview: Preview = False,
    force: Unasked = False,
    silent: Quiet = False,
) -> None:
    """Remove an object: objmgr delete -l cf/orders -j /etc/objects"""
    run(command_of("delete", name, kind, None, store, None), file, preview=preview, force=force, silent=silent)


@app.command("list")
def list_objects(
    kind: ObjectType = None,
    store: StoreAttributes = None,
    file: CommandFile = None,
    preview: Preview = False,
    silent: Quiet = False,
    json: Json = False,
) -> None:
    """List the objects of a store, or those of one type."""
    run(command_of("list", None, kind, None, store, None), file, preview=preview, silent=silent, json=json)


@app.command()
def query(
    name: LookupName = None,
    kind: ObjectType = None,
    store: StoreAttributes = None,
    file: CommandFile = None,
    preview: Preview = False,
    silent: Quiet = False,
    json: Json = False,
) -> None:
    """Show all attributes of an object, with their defaults and without passwords."""
    run(command_of("query", name, kind, None, store, None), file, preview=preview, silent=silent, json=json)


@app.command()
def update(
    name: LookupName = None,
    kind: ObjectType = None,
    options: ObjectAttributes = None,
    store: StoreAttributes = None,
    read_only: ReadOnly = None,
    file: CommandFile = None,
    preview: Preview = False,
    force: Unasked = False,
    silent: Quiet = False,
) -> None:
    """Change attributes of an object: objmgr update -l cf/orders -o imqAckTimeout=5000; an empty value: the default."""
    said = command_of("update", name, kind, options, store, read_only)
    run(said, file, preview=preview, force=force, silent=silent)


@app.command()
def jndi(
    target: Annotated[
        Path, typer.Argument(metavar="FILE", help="What is written, such as jndi.properties; -: it is printed.")
    ],
    store: StoreAttributes = None,
    address: Annotated[
        list[str] | None,
        typer.Option(
            "-a",
            "--address",
            metavar="URL",
            help="amqp://HOST:PORT or amqps://HOST:PORT of the service for all factories; repeatable. Without it they"
            " lead to the hosts of their imqAddressList.",
        ),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65_535, help="Port of amqp at these hosts.")] = AMQP_PORT,
    tls_port: Annotated[
        int, typer.Option("--tls-port", min=1, max=65_535, help="Port of amqps at those with TLS.")
    ] = AMQPS_PORT,
    force: Unasked = False,
) -> None:
    """Write the objects as a file for Java programs with Qpid JMS: objmgr jndi jndi.properties -j /etc/objects"""
    for url in address or ():
        if not _AMQP_URL.fullmatch(url):
            raise UsageError(f"objmgr jndi: -a {url!r:.200}: write amqp://HOST:PORT or amqps://HOST:PORT")
    command = _with_password(command_of("list", None, None, None, store, None))

    def urls(factory: AdministeredObject) -> tuple[str, ...]:
        return tuple(address) if address else _amqp_urls(factory, port, tls_port)

    with open_store(command.store or None) as opened:
        try:
            written = jndi_properties(objects_of(opened), urls)
        except ConfigError as error:
            raise UsageError(f"objmgr jndi: {error}") from None
    if str(target) == "-":
        print(written.text, end="")
        return
    if target.exists():
        ask(force, f"there is a file {target} already; replace it?")
    target.write_text(written.text, encoding="ascii")
    output.say(f"wrote {target}")
    for line in written.left_out:
        output.say(f"left out: {line}")


_AMQP_URL: Final = re.compile(r"amqps?://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")


def _amqp_urls(factory: AdministeredObject, port: int, tls_port: int) -> tuple[str, ...]:
    """The services amqp and amqps at the hosts of a factory; none for brokers that are named as those inside Ray."""
    text = factory.attributes.get(ADDRESSES, "")
    if not text and factory.attributes.get(HOST):
        text = f"mq://{factory.attributes[HOST]}"
    if not is_service_address(text):
        return ()
    found = []
    for one in service_addresses(text):
        host = f"[{one.host}]" if ":" in one.host else one.host
        found.append(f"amqps://{host}:{tls_port}" if one.secure else f"amqp://{host}:{port}")
    return tuple(dict.fromkeys(found))
