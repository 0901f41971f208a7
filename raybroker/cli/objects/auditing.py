"""``audit``: numbered checks of a running system's configuration and state, each with what to do."""

from __future__ import annotations

import contextlib
import threading
from functools import partial
from typing import Annotated, Final

import typer

from raybroker.admin.audit import CHECKS, NOTE, findings, grade_of, look
from raybroker.admin.checks import EXIT_CODES
from raybroker.cli import connecting, output
from raybroker.cli.exits import UsageError
from raybroker.cli.grid_words import Cluster, Json
from raybroker.model.errors import BrokerError
from raybroker.model.listing import Row
from raybroker.system.clock import SystemClock

WATCH_S_MAX: Final = 3600.0


def audit(
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds", metavar="S", min=0, max=WATCH_S_MAX, help="Between two looks, for what grows; 0: one look."
        ),
    ] = 2.0,
    skip: Annotated[
        list[int] | None, typer.Option("--skip", metavar="NUMBER", help="Leave this check out. Repeatable.")
    ] = None,
    guess_seconds: Annotated[
        float,
        typer.Option(
            "--guess-seconds",
            metavar="S",
            min=0,
            max=WATCH_S_MAX,
            help="To try known passwords on the users of the file of users; 0: none is tried.",
        ),
    ] = 10.0,
    quiet: Annotated[bool, typer.Option("--no-notes", help="Only what is a warning or worse.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="List the checks, and look at nothing.")] = False,
    cluster: Cluster = "default",
    json: Json = False,
) -> None:
    """Find what will hurt one day: limits that are missing, dead messages that nobody reads, disks that fill,
    passwords that everybody knows.

    Each finding has the number of its check, and what to do: raybroker audit --skip 6 --no-notes

    Exit codes: 0 nothing but notes, 1 warnings, 2 critical, 3 something could not be asked.
    """
    left_out = set(skip or ())
    if unknown := left_out - {check.number for check in CHECKS}:
        raise UsageError(f"--skip {min(unknown)}: checks have the numbers 1 to {CHECKS[-1].number}; see audit --list")
    if listing:
        rows = [{"number": check.number, "name": check.name} for check in CHECKS]
        output.as_json(rows) if json else output.table(rows, output.columns("number, name"), empty="")
        return
    clock = SystemClock()
    with connecting.administering(cluster) as admin:
        since_ns = clock.monotonic_ns()
        guess = partial(_guessed, seconds=guess_seconds) if guess_seconds and 20 not in left_out else None
        seen = look(admin, clock.now_ms, guess)
        if seconds > 0:
            threading.Event().wait(seconds)
            with contextlib.suppress(BrokerError):  # That it has gone is found by the next check, not by this one.
                later_s = (clock.monotonic_ns() - since_ns) / 1e9
                seen = seen.followed(admin.query_broker(), later_s)
    rows = [row for row in findings(seen) if row["number"] not in left_out and not (quiet and row["grade"] == NOTE)]
    grade = grade_of(rows)
    if json:
        output.as_json({"grade": str(grade), "findings": rows})
    else:
        _show(rows)
    raise typer.Exit(EXIT_CODES[grade])


def _guessed(rows: list[Row], seconds: float) -> list[Row]:
    """Users with ``default``: whether one of the known passwords is theirs, None where not all were tried. Brokers of
    one machine have the same file: each user is tried once."""
    from raybroker.security.guessing import guess

    # Administrators first: with their passwords everything is open.
    users = dict.fromkeys(
        (row["user"], row["verifier"]) for row in sorted(rows, key=lambda row: row["group"] != "admin")
    )
    found = guess(list(users), seconds, SystemClock().monotonic_ns)
    numbers = {user: number for number, user in enumerate(users)}
    told = []
    for row in rows:
        number = numbers[row["user"], row.pop("verifier")]
        default = True if number in found.found else None if number in found.left else False
        told.append({**row, "default": default})
    return told


def _show(rows: list[dict[str, object]]) -> None:
    for row in rows:
        output.say(f"{row['number']:>3} {str(row['grade']).upper():8} {row['of']}: {row['text']}")
        output.say(f"{'':13}{row['do']}")
    counts = {grade: sum(row["grade"] == grade for row in rows) for grade in ("critical", "unknown", "warning", NOTE)}
    shown = ", ".join(f"{count} {grade}" for grade, count in counts.items() if count)
    output.say(f"{len(CHECKS)} checks: {shown or 'nothing was found'}")
