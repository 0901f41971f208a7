"""Contexts on the command line: raybroker context add, use, list, delete."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from raybroker.cli import contexts, output
from raybroker.cli.answers import show_list
from raybroker.cli.contexts import Context
from raybroker.cli.exits import Commands, UsageError
from raybroker.cli.grid_words import Json
from raybroker.cli.outside import require_way
from raybroker.config.layers import CONTEXT

_COLUMNS: Final = "name, in_use: in use, broker, user, passfile, token_file: token file, cluster, more"

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    short_help="Names for brokers, with who you are there.",
    help="Names for brokers, with who you are there: raybroker --context NAME … takes one, in place of -b, -u and "
    f"--passfile. Without --context the one of {CONTEXT} holds, or the one in use.",
)


def names() -> list[str]:
    """The names that there are, for completion; none where the file cannot be read."""
    try:
        return sorted(contexts.load().contexts)
    except UsageError:
        return []


Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.", autocompletion=names)]


@app.command()
def add(
    name: Name,
    broker: Annotated[
        str | None, typer.Option("-b", "--broker", metavar="HOST:PORT", help="As -b of commands; none: inside Ray.")
    ] = None,
    user: Annotated[str | None, typer.Option("-u", "--user", metavar="NAME", help="The user there.")] = None,
    passfile: Annotated[
        Path | None, typer.Option("--passfile", metavar="FILE", help="File with the password; else it is asked.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="File with a token, in place of -u.")
    ] = None,
    secure: Annotated[bool, typer.Option("--secure", help="The services with TLS.")] = False,
    define: Annotated[
        list[str] | None, typer.Option("-D", metavar="ATTR=VALUE", help="An attribute of the connection. Repeatable.")
    ] = None,
    cluster: Annotated[str | None, typer.Option("--cluster", metavar="C", help="Name of the cluster.")] = None,
    use: Annotated[bool, typer.Option("--use", help="Use it from now on where no other is named.")] = False,
) -> None:
    """Keep how a broker is reached; one of that name is replaced."""
    if broker is None and cluster is None:
        raise UsageError("a context has a broker (-b HOST:PORT) or the name of a cluster (--cluster)")
    context = Context(broker, user, _absolute(passfile), _absolute(token_file), secure, tuple(define or ()), cluster)
    require_way(context)
    with contexts.changing() as there:
        found = there.with_context(name, context)
        contexts.save(found._replace(in_use=name) if use else found)
    output.say(f"context {name} is kept" + (", and in use" if use else ""))


def _absolute(path: Path | None) -> str | None:
    """Commands may run in another directory."""
    return None if path is None else str(path.expanduser().absolute())


@app.command()
def use(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", autocompletion=names)] = None,
    none: Annotated[bool, typer.Option("--none", help="Use none.")] = False,
) -> None:
    """Take one wherever no other is named."""
    if none == (name is not None):
        raise UsageError("name one context, or say --none")
    with contexts.changing() as found:
        if name is not None:
            found.named(name)
        contexts.save(found._replace(in_use=name or ""))
    output.say("no context is in use" if name is None else f"context {name} is in use")


@app.command("list")
def show(json: Json = False) -> None:
    """List them."""
    found = contexts.load()
    rows = [
        {"name": name, "in_use": name == found.in_use, **context._asdict(), "define": list(context.define)}
        for name, context in sorted(found.contexts.items())
    ]
    for row in rows:
        if not json:
            row["in_use"] = "yes" if row["in_use"] else ""
            row["more"] = " ".join([*(["--secure"] if row["secure"] else []), *(f"-D{text}" for text in row["define"])])
    show_list(rows, _COLUMNS, empty="no contexts; raybroker context add makes one", json=json)


@app.command()
def delete(name: Name) -> None:
    """Forget one."""
    with contexts.changing() as found:
        contexts.save(found.without(name))
    output.say(f"context {name} is deleted")
