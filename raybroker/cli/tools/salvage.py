"""raybroker salvage: bring out what is intact in the store of a host that does not start because it is damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from raybroker.cli import output
from raybroker.cli.exits import Exit
from raybroker.cli.grid_words import Force, Json, ask

Directory = Annotated[
    Path, typer.Argument(metavar="DIRECTORY", help="The folder of the store; the host's error names it.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be set aside, and change nothing; exit code 4 if anything.")
]


def salvage(directory: Directory, dry_run: DryRun = False, force: Force = False, json: Json = False) -> None:
    """Bring out what is intact in the damaged store of a host, and set the rest aside.

    For a host that does not start because of its store, after a backup, if there is none: messages of ranges that
    cannot be read are lost, and messages before these may come again, flagged as redelivered. The broker may run; the
    host starts by itself afterwards. Damaged files are kept in a folder set-aside-N of the store, with a record.json
    that says what was lost. Run it as the user whose brokers use the store.
    """
    from raybroker.actors.stores.salvage import salvage_store

    def confirm(report: Any) -> None:
        if not json:
            _show(report)
        ask(force, f"set aside what is damaged in {directory}? Its messages are lost.")

    report = salvage_store(directory, dry_run=dry_run, confirm=confirm)
    if json:
        output.as_json(report.as_dict())
    elif not report.why:
        output.say(f"the store {directory} opens: there is nothing to set aside")
    elif dry_run:
        _show(report)
    else:
        output.say(f"done: {report.summary}; the record is {report.folder}/record.json")
    if report.why and dry_run:
        raise typer.Exit(Exit.CHANGES)


def _show(report: Any) -> None:
    """What is damaged, lost and kept."""
    output.say(f"the store does not open: {report.why}")
    for fault in report.faults:
        output.say(f"damaged: {fault}")
    for lost in report.ranges:
        known = f", {lost.blocks_kept} blocks of which are known" if lost.blocks_kept else ""
        output.say(
            f"lost: {lost.file or 'no file'}, segment {lost.segment}, {lost.nbytes} bytes at {lost.offset}:"
            f" entries {lost.first_seq} to {lost.end_seq - 1}{known} ({lost.why})"
        )
    columns = {
        "type": "type",
        "name": "name",
        "lost_blocks": "lost blocks",
        "kept_messages": "kept",
        "maybe_again": "maybe again",
    }
    output.table(report.destinations, columns, empty="no destination is known")
    for row in report.destinations:
        if row["definition_lost"]:
            output.say(f"{row['type']} {row['name']}: its definition is lost; move msg takes its messages elsewhere")
        if row["which"]:
            output.say(
                f"{row['type']} {row['name']}: blocks {row['which']} are lost, or were acknowledged in a lost range"
            )
        for note in row["notes"]:
            output.say(f"{row['type']} {row['name']}: {note}")
    for note in report.notes:
        output.say(note)
    if report.moved:
        output.say(f"to be kept in {report.folder}: {', '.join(report.moved)}")
