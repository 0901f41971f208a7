"""The words of the verbs × objects grid, as arguments: object names, types, ``name=value`` attributes.

The grid is that of MQ's own program.  What this version does not have of it is still read, so that the answer is a
reason and not a usage error.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from raybroker.cli.exits import UsageError
from raybroker.model.errors import InvalidDestinationError, NotSupportedError
from raybroker.model.naming.names import DestinationType, check_destination_type
from raybroker.system.clock import SystemClock

OBJECTS: Final[dict[str, str]] = {
    "dst": "destinations",
    "bkr": "brokers",
    "con": "consumers",
    "svc": "connection services",
    "cxn": "connections",
    "dur": "durable subscriptions",
    "txn": "transactions",
    "cls": "the cluster",
}
VERBS: Final = ("create", "list", "query", "update", "destroy", "purge", "pause", "resume", "compact", "metrics")
"""The verbs that every object could have."""
Cluster = Annotated[str, typer.Option("--cluster", metavar="C", help="Name of the cluster.")]
Instance = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="C",
        help="Name of the cluster; without it imq.instancename, else default.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Name = Annotated[str, typer.Option("-n", "--name", metavar="NAME", help="Name of the destination.")]
Attributes = Annotated[
    list[str] | None,
    typer.Option("-o", "--option", metavar="ATTR=VALUE", help="Such as consumerFlowLimit=20. Repeatable."),
]


Force = Annotated[bool, typer.Option("-f", "--force", help="Do not ask; needed without a terminal.")]
Selector = Annotated[
    str | None, typer.Option("-s", "--selector", metavar="SQL", help='Only messages that match, such as "price > 5".')
]
Ids = Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="This message. Repeatable.")]

_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,3})?)(ms|s|m|h|d)", re.ASCII)
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(option: str, text: str) -> int:
    """Milliseconds that "500ms", "30s", "10m", "1.5h" or "2d" mean; raises UsageError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{option} {text}: write a number and its unit, such as 500ms, 30s, 10m, 2h or 1d")
    return round(float(match[1]) * _UNITS_MS[match[2]])


def until_ms(option: str, text: str) -> int:
    """Milliseconds since 1970 of a time from now ("10m") or of a date and time ("2030-01-31T12:00"); raises
    UsageError, also for one that is over."""
    now = SystemClock().now_ms()
    try:
        when = round(datetime.fromisoformat(text.strip()).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError):
        when = now + duration_ms(option, text)
    if when <= now:
        raise UsageError(f"{option} {text}: that time is over")
    return when


def moment(ms: Any) -> str:
    """Milliseconds since 1970 as date and time here, to the second; a dash for none."""
    return datetime.fromtimestamp(ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S") if ms else "-"


def show_version(asked: bool) -> None:
    """Print the version, and end."""
    if asked:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"raybroker {version('raybroker')}")
        except PackageNotFoundError:
            typer.echo("raybroker (run from its sources, not installed)")
        raise typer.Exit


def ask(force: bool, question: str) -> None:
    """Ask before something is lost; with -f nobody is asked. Raises UsageError without a terminal to ask at."""
    if force:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} There is no terminal to ask at; say yes with --force")
    typer.confirm(question, abort=True)


def destination_type(text: str) -> DestinationType:
    """'queue' or 'topic'; raises UsageError."""
    try:
        return check_destination_type(text)
    except InvalidDestinationError as error:
        raise UsageError(f"-t: {error}") from None


if TYPE_CHECKING:
    TypeText = Literal["queue", "topic", "q", "t"]
else:  # typer reads annotations at run time.
    TypeText = str

Type = Annotated[
    TypeText,
    typer.Option(
        "-t", "--type", metavar="q|t", help="Type of the destination: queue or topic.", parser=destination_type
    ),
]
AnyType = Annotated[
    TypeText | None, typer.Option("-t", "--type", metavar="q|t", help="Only this type.", parser=destination_type)
]


def attributes(texts: Sequence[str] | None, such_as: str = "consumerFlowLimit=20") -> dict[str, str]:
    """``name=value`` texts as a dict; values stay texts, which the broker parses; raises UsageError."""
    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"-o {text}: write attribute=value, such as -o {such_as}")
        if name.strip() in found:
            raise UsageError(f"-o {text}: {name.strip()} is given twice")
        found[name.strip()] = value
    return found


def properties(texts: Sequence[str] | None) -> dict[str, Any]:
    """``name=value`` texts as message properties: numbers, true and false as such, everything else as text."""
    found: dict[str, Any] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--property {text}: write name=value")
        found[name] = _property(value)
    return found


def _property(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, str | int | float | bool) else text


def missing(verb: str, name: str) -> NotSupportedError:
    """The answer for a pair of the grid that this version does not have."""
    return NotSupportedError(f"{verb} {name}: this version cannot {verb} {OBJECTS[name]} yet; nothing was done")


def missing_words(verb: str, present: Sequence[str]) -> list[str]:
    """The rest of a verb's row, for which there are commands that say that they are not there."""
    return [name for name in OBJECTS if name not in present] if verb in VERBS else []


def refusal(verb: str, name: str) -> Callable[[], None]:
    """The command of a pair that is missing."""

    def refuse() -> None:
        raise missing(verb, name)

    refuse.__doc__ = f"Not in this version: {verb} {OBJECTS[name]}."
    return refuse
