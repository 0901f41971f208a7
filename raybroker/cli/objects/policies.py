"""Policies on the command line: create, list, query, update and destroy policy."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from raybroker.cli import output
from raybroker.cli.answers import show_list, show_one
from raybroker.cli.checks import attributes_help
from raybroker.cli.command import command
from raybroker.cli.exits import UsageError
from raybroker.cli.grid_words import Attributes, Force, Json, ask, attributes
from raybroker.client.admin.admin import Admin
from raybroker.model.listing import Row

COLUMNS: Final = {
    "name": "name",
    "kind": "kind",
    "pattern": "pattern",
    "applyTo": "apply to",
    "priority": "priority",
    "attributes": "attributes",
}
CONFLICT_COLUMNS: Final = {
    "name": "name",
    "other": "other",
    "kind": "kind",
    "priority": "priority",
    "example": "both match",
    "holds": "holds",
}
PolicyName = Annotated[str, typer.Option("-n", "--name", metavar="NAME", help="Name of the policy.")]
PATTERN_HELP: Final = "Names of destinations: * is one segment, ** one or more, > any number: 'orders>', '*.dead'."
PRIORITY_HELP: Final = "Of the policies that match, the highest holds."
OPERATOR_HELP: Final = "It bounds what destinations and other policies set; without it, it fills in what they do not."


class ApplyTo(StrEnum):
    """The types of destinations that a policy is for."""

    queue = "queue"
    topic = "topic"
    all = "all"


@command("create", "policy", epilog=attributes_help())
def create_policy(
    admin: Admin,
    name: PolicyName,
    pattern: Annotated[str, typer.Option("-p", "--pattern", metavar="PATTERN", help=PATTERN_HELP)],
    apply_to: Annotated[ApplyTo, typer.Option("--apply-to", help="Destinations of this type.")] = ApplyTo.all,
    priority: Annotated[int, typer.Option("--priority", metavar="N", help=PRIORITY_HELP)] = 0,
    operator: Annotated[bool, typer.Option("--operator", help=OPERATOR_HELP)] = False,
    option: Attributes = None,
) -> None:
    """Attributes for all destinations of a pattern: raybroker create policy -n small -p 'orders>' -o maxNumMsgs=1000

    It holds at once, and for destinations that are created later. query dst --effective shows what holds and why: the
    default, then the policy of the highest priority, then what the destination has itself, then the operator policy.
    """
    admin.create_policy(
        name, pattern, apply_to=apply_to.value, priority=priority, operator=operator, **attributes(option)
    )
    output.say(f"created policy {name}")


@command("list", "policy")
def list_policy(
    admin: Admin,
    conflicts: Annotated[
        bool, typer.Option("--conflicts", help="Pairs of one priority that match the same names.")
    ] = False,
    json: Json = False,
) -> None:
    """List policies: those of operators first, then by priority as they are asked."""
    rows = admin.list_policies()
    if conflicts:
        show_list(_conflicts(rows), CONFLICT_COLUMNS, empty="no conflicts", json=json)
    else:
        show_list(rows, COLUMNS, empty="no policies", json=json, shown=_shown)


def _conflicts(rows: list[Row]) -> list[Row]:
    """Each pair once; of equal priorities the first name of the alphabet holds."""
    return [
        {
            "name": row["name"],
            "other": other,
            "kind": _kind(row),
            "priority": row["priority"],
            "example": example,
            "holds": row["name"],
        }
        for row in rows
        for other, example in sorted(row["conflicts"].items())
        if row["name"] < other
    ]


def _kind(row: Row) -> str:
    return "operator" if row["operator"] else "user"


def _shown(row: Row) -> Row:
    attributes = " ".join(f"{key}={output.plain(value)}" for key, value in row["attributes"].items())
    return {**row, "kind": _kind(row), "attributes": attributes}


@command("query", "policy")
def query_policy(admin: Admin, name: PolicyName, json: Json = False) -> None:
    """Show a policy, the destinations for which it holds, and policies that it is in conflict with."""
    row = admin.query_policy(name)
    show_one(row, json=json, shown=_in_full, attributes="attributes", conflicts="conflicts (policy, both match)")


def _in_full(row: Row) -> Row:
    return {**row, "destinations": ", ".join(row["destinations"])}


@command("update", "policy", epilog=attributes_help())
def update_policy(
    admin: Admin,
    name: PolicyName,
    pattern: Annotated[str | None, typer.Option("-p", "--pattern", metavar="PATTERN", help=PATTERN_HELP)] = None,
    apply_to: Annotated[ApplyTo | None, typer.Option("--apply-to", help="Destinations of this type.")] = None,
    priority: Annotated[int | None, typer.Option("--priority", metavar="N", help=PRIORITY_HELP)] = None,
    operator: Annotated[bool | None, typer.Option("--operator/--user-policy", help=OPERATOR_HELP)] = None,
    option: Attributes = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="ATTR", help="It has this attribute no more. Repeatable.")
    ] = None,
) -> None:
    """Change a policy, all or nothing: raybroker update policy -n small -o maxNumMsgs=2000 --unset useDMQ"""
    changes: dict[str, Any] = dict(attributes(option))
    fields: dict[str, Any] = {
        "pattern": pattern,
        "apply_to": apply_to.value if apply_to is not None else None,
        "priority": priority,
        "operator": operator,
    }
    if not changes and not unset and all(value is None for value in fields.values()):
        raise UsageError("update policy: nothing to change; give -o attribute=value, --unset, -p, --priority or others")
    admin.update_policy(name, unset=unset or (), **fields, **changes)
    output.say(f"updated policy {name}")


@command("destroy", "policy")
def destroy_policy(admin: Admin, name: PolicyName, force: Force = False) -> None:
    """Remove a policy; what it said holds no more, at once."""
    ask(force, f"remove policy {name}?")
    admin.destroy_policy(name)
    output.say(f"destroyed policy {name}")
