"""``check bkr|cls|dst|svc``: graded checks for monitoring and probes, with the exit codes of Nagios' plugins.

    0 ok   1 warning   2 critical   3 unknown

Here alone 1 and 2 mean that; a broker that does not answer is critical, a usage error unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from raybroker.admin.checks import (
    EXIT_CODES,
    OF_BROKER,
    OF_DESTINATION,
    OF_SERVICES,
    Grade,
    row,
    worst,
)
from raybroker.cli import output
from raybroker.cli.checks import checked_name
from raybroker.cli.command import command
from raybroker.cli.exits import UsageError
from raybroker.cli.grid_words import Json, Name, Type, attributes
from raybroker.cli.objects.brokers import Broker
from raybroker.cli.objects.services import SERVICES
from raybroker.client.admin.admin import Admin
from raybroker.model.listing import Listing

COLUMNS: Final = output.columns("grade, check, of, text: what")


def _exits() -> str:
    return "Exit codes: 0 ok, 1 warning, 2 critical (a broker that does not answer, too), 3 unknown."


def _option(name: str, short: str, figures: Sequence[str]) -> Any:
    known = ", ".join(figures)
    grade = "A warning" if name == "warn" else "Critical"
    return typer.Option(short, f"--{name}", metavar="FIGURE=N", help=f"{grade} from there on: {known}. Repeatable.")


@command("check", "bkr", epilog=_exits)
def check_bkr(
    admin: Admin,
    only: Broker = None,
    warn: Annotated[list[str] | None, _option("warn", "-w", OF_BROKER)] = None,
    critical: Annotated[list[str] | None, _option("critical", "-c", OF_BROKER)] = None,
    json: Json = False,
) -> None:
    """Check brokers: they run and take clients, hosts answer, memory, disks, services that should listen.

    All of the cluster, or one: raybroker check bkr -b b2 -w disk_free_percent=20
    """
    rows = _with_missing(admin.check_broker(*_thresholds(warn, critical)))
    brokers = {str(found["broker"]) for found in rows}
    if only is not None and only not in brokers:
        raise UsageError(f"-b {only}: there is no such broker in the cluster; it has {', '.join(sorted(brokers))}")
    _end([found for found in rows if only in (None, found["broker"])], json=json)


@command("check", "cls", epilog=_exits)
def check_cls(admin: Admin, json: Json = False) -> None:
    """Check the cluster: all brokers are up, the master is there, the record is in order: raybroker check cls"""
    _end(admin.check_cluster(), json=json)


@command("check", "dst", epilog=_exits)
def check_dst(
    admin: Admin,
    name: Name,
    type: Type = "q",
    warn: Annotated[list[str] | None, _option("warn", "-w", OF_DESTINATION)] = None,
    critical: Annotated[list[str] | None, _option("critical", "-c", OF_DESTINATION)] = None,
    json: Json = False,
) -> None:
    """Check a destination: its state, and figures: raybroker check dst -t q -n orders -w oldest_s=60 -c messages=10000

    A figure is worse from the threshold on; consumers and producers below it: -c consumers=1 is critical without one.
    Dead messages of all destinations: raybroker check dst -n mq.sys.dmq -w messages=1
    """
    checked_name("-n", name)
    _end(admin.check_destination(type, name, *_thresholds(warn, critical)), json=json)


@command("check", "svc", epilog=_exits)
def check_svc(
    admin: Admin,
    name: Annotated[
        str | None, typer.Option("-n", "--name", metavar="NAME", help=f"This one, of {SERVICES}; without it: all.")
    ] = None,
    warn: Annotated[list[str] | None, _option("warn", "-w", OF_SERVICES)] = None,
    critical: Annotated[list[str] | None, _option("critical", "-c", OF_SERVICES)] = None,
    json: Json = False,
) -> None:
    """Check the services that are active: not paused, the port accepts, room for clients, certificate.

    Certificates with less than 30 days are a warning and with less than 7 critical, unless -w and -c say otherwise:
    raybroker check svc -n ssljms -w certificate_days=60
    """
    _end(_with_missing(admin.check_services(name, *_thresholds(warn, critical))), json=json)


def _thresholds(
    warn: list[str] | None, critical: list[str] | None
) -> tuple[dict[str, str] | None, dict[str, str] | None]:
    return tuple(_figures(option, texts) for option, texts in (("-w", warn), ("-c", critical)))  # type: ignore[return-value]  # one for each option


def _figures(option: str, texts: list[str] | None) -> dict[str, str] | None:
    if not texts:
        return None
    try:
        return attributes(texts, such_as="messages=1000")
    except UsageError as error:
        raise UsageError(str(error).replace("-o", option).replace("attribute=value", "figure=number")) from None


def _with_missing(rows: Listing) -> list[dict[str, Any]]:
    """Brokers that were not asked are not well."""
    silent = [
        {**row("answers", name, Grade.CRITICAL, f"it does not answer: {why}"), "broker": name.partition("/")[0]}
        for name, why in sorted(rows.missing.items())
    ]
    return [*rows, *silent]


def _end(rows: list[dict[str, Any]], *, json: bool) -> None:
    """Print the checks, the worst first, and end with the exit code of the worst."""
    grade = worst(rows)
    if json:
        output.as_json({"grade": str(grade), "checks": rows})
    else:
        output.say(f"{grade.upper()}: {_summary(rows)}")
        ordered = sorted(rows, key=lambda found: -EXIT_CODES[Grade(found["grade"])] % 3)
        output.table(ordered, COLUMNS, empty="no checks")
    raise typer.Exit(EXIT_CODES[grade])


def _summary(rows: list[dict[str, Any]]) -> str:
    """One line, as monitoring shows it: what is wrong, or how much was looked at."""
    wrong = [found["text"] for found in rows if found["grade"] != Grade.OK]
    if wrong:
        return "; ".join(wrong)
    return f"{len(rows)} checks" if rows else "there is nothing to check"
