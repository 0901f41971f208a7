"""Definitions on the command line: export and import everything that administrators have made."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from raybroker.cli import output
from raybroker.cli.answers import things
from raybroker.cli.command import command
from raybroker.cli.exits import Exit, UsageError
from raybroker.cli.grid_words import Json
from raybroker.cli.objects import definition_file
from raybroker.client.admin.admin import Admin
from raybroker.model.listing import Row

File = Annotated[
    str,
    typer.Argument(metavar="FILE", help="TOML, or JSON when its name ends in .json; - for standard input or output."),
]
DONE: Final = {"create": "created", "update": "updated", "destroy": "destroyed"}


@command("export", "definitions")
def export_definitions(
    admin: Admin,
    file: File,
    force: Annotated[bool, typer.Option("-f", "--force", help="Replace the file if it is there.")] = False,
    users: Annotated[
        bool, typer.Option("--users", help="Also the users, with what is kept of their passwords; a file of mode 600.")
    ] = False,
    json: Json = False,
) -> None:
    """Write everything that administrators have made to a file: raybroker export definitions cluster.toml

    Destinations, templates, quotas, policies, durable subscriptions, forwarding agents, pauses until resumed, and
    properties that update bkr has changed, of all brokers and of each; each with what is not the default. No messages,
    and no recurring schedules, which are messages; no users without --users, and never a password. Whoever has a
    file with users can try passwords without asking a broker. Exit code 3 when a broker could not be asked for what it
    has alone.
    """
    definition_file.check_target(file, overwrite=force)
    found = admin.export_definitions(users=users)
    definition_file.write(file, found, overwrite=force, as_json=json)
    if file != definition_file.STANDARD:
        count = sum(len(entries) for section, entries in found.items() if section != "raybroker")
        output.say(f"wrote {count} {'entry' if count == 1 else 'entries'} to {file}")
    if missing := found["raybroker"].get("missing"):
        output.error(f"what brokers have alone is not whole: {', '.join(missing)} cannot be asked")
        raise typer.Exit(Exit.UNREACHABLE)


@command("import", "definitions")
def import_definitions(
    admin: Admin,
    file: File,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done; exit code 4 when that is anything.")
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Destroy what the file does not have, with its messages.")
    ] = False,
    keep_going: Annotated[bool, typer.Option("--keep-going", help="Go on after a step that fails.")] = False,
    users: Annotated[
        bool, typer.Option("--users", help="Also the users of the file; --prune deletes others then.")
    ] = False,
    json: Json = False,
) -> None:
    """Create and change what differs from a file: raybroker import definitions cluster.toml --dry-run

    An entry of the file says all of an object: what it does not say has its default. What is as the file says is left
    alone, and what the file does not have stays, unless --prune is given. It ends at the first step that fails, and
    says what was done; import again to go on. Exit code 1 when not all of it was done.
    """
    given = definition_file.read(file)
    if given.get("users") and not users:
        raise UsageError(f"{file} has users: give --users to take them, or remove them from the file")
    report = carry_out(admin, given, dry_run=dry_run, prune=prune, keep_going=keep_going, users=users)
    if json:
        output.as_json(report)
    else:
        show(report, dry_run=dry_run)
    if not report["complete"]:
        raise typer.Exit(Exit.REFUSED)
    if dry_run and report["steps"]:
        raise typer.Exit(Exit.CHANGES)


def carry_out(
    admin: Admin,
    given: Row,
    *,
    dry_run: bool = False,
    prune: bool = False,
    keep_going: bool = False,
    users: bool = False,
) -> Row:
    """Import, by as many calls as it takes; the report of all of them."""
    done: list[Row] = []
    while True:
        report = admin.import_definitions(given, dry_run=dry_run, prune=prune, keep_going=keep_going, users=users)
        made = [row for row in report["steps"] if row["state"] == "done"]
        if not report["more"] or not made:
            return {**report, "steps": [*done, *report["steps"]]}
        done += made


def show(report: Row, *, dry_run: bool) -> None:
    """The steps, what is wrong with them on standard error, and how many there are."""
    for row in report["steps"]:
        what = f"{row['kind']} {row['name']}{_changes(row)}"
        if row["state"] == "done":
            output.say(f"{DONE[row['action']]} {what}")
        elif row["state"] == "planned":
            output.say(f"would {row['action']} {what}")
        elif row["state"] == "not done":
            output.error(f"not done: {row['action']} {row['kind']} {row['name']}")
        else:
            word = {"unknown": "may or may not be done", "blocked": "cannot be done"}.get(row["state"], row["state"])
            output.error(f"{word}: {row['action']} {row['kind']} {row['name']}: {row['reason']}")
    for what in report["left"]:
        output.say(f"left alone: {what}, which the file does not have")
    ready = sum(row["state"] in ("done", "planned") for row in report["steps"])
    if not report["steps"]:
        output.say(f"nothing to do: {things(report['same'], 'object')} as the file says")
        return
    rest = len(report["steps"]) - ready
    verb, same = "would be taken" if dry_run else "taken", things(report["same"], "object")
    output.say(f"{things(ready, 'step')} {verb}, {rest} not; {same} as the file says already")


def _changes(row: Row) -> str:
    if row["action"] == "destroy" or not row["changes"]:
        return ""
    pairs = row["changes"].items()
    if row["action"] == "create":
        return ": " + " ".join(f"{key}={_plain(pair['new'])}" for key, pair in pairs)
    return ": " + ", ".join(f"{key} {_plain(pair['old'])} -> {_plain(pair['new'])}" for key, pair in pairs)


def _plain(value: Any) -> str:
    return "-" if value is None or value == "" else output.plain(value)
