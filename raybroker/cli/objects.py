"""The words of the verbs × objects grid, as arguments: object names, types, ``name=value`` attributes.

The grid is the seeds' own.  What of it this version does not have is still understood, so that the answer is a reason
and not a usage error.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from raybroker.cli.exits import UsageError
from raybroker.model.errors import InvalidDestinationError, NotSupportedError
from raybroker.model.names import DestinationType, check_destination_type

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

Cluster = Annotated[
    str, typer.Option("--cluster", metavar="C", help="Name of the cluster.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Name = Annotated[str, typer.Option("-n", "--name", metavar="NAME", help="Name of the destination.")]
Type = Annotated[str, typer.Option("-t", "--type", metavar="q|t", help="Type of the destination: queue or topic.")]
Attributes = Annotated[
    list[str] | None,
    typer.Option("-o", "--option", metavar="ATTR=VALUE", help="Such as consumerFlowLimit=20. Repeatable."),
]


def destination_type(text: str) -> DestinationType:
    """'queue' or 'topic'; raises UsageError."""
    try:
        return check_destination_type(text)
    except InvalidDestinationError as error:
        raise UsageError(f"-t: {error}") from None


def attributes(texts: Sequence[str] | None) -> dict[str, str]:
    """``name=value`` texts as a dict; values stay texts, which the broker parses; raises UsageError."""
    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"-o {text}: write attribute=value, such as -o consumerFlowLimit=20")
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


def add_missing(group: typer.Typer, verb: str, present: Sequence[str]) -> None:
    """Commands for the rest of a verb's row, which say that they are not there; they are not shown in the help."""
    for name in OBJECTS:
        if name not in present:
            group.command(
                name, hidden=True, context_settings={"ignore_unknown_options": True, "allow_extra_args": True}
            )(_refusal(verb, name))


def _refusal(verb: str, name: str) -> Any:
    def refuse() -> None:
        raise missing(verb, name)

    refuse.__doc__ = f"Not in this version: {verb} {OBJECTS[name]}."
    return refuse
