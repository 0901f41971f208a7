"""Answers of plain commands that are shown in a way of their own: rows with words in place of codes, second tables."""

from __future__ import annotations

from raybroker.cli import output
from raybroker.cli.answers import show_list, show_one, without
from raybroker.cli.exits import end_of_list
from raybroker.cli.grid_words import moment
from raybroker.model.listing import Row


def destination(found: Row, json: bool, given: Row) -> None:
    """The destination, or with --effective a row each attribute with what holds and why."""
    if not given["effective"]:
        show_one(found, json=json, shown=lambda row: without(row, "effective", "origins"), attributes="attributes")
        return
    origins = found["origins"]
    rows = [
        {"attribute": key, "value": value, "origin": origins.get(key, "default")}
        for key, value in found["effective"].items()
    ]
    show_list(rows, "attribute, value, origin", empty="no attributes", json=json)


def compacted(rows: list[Row], json: bool, given: Row) -> None:
    """The stores, and which of them go on."""
    show_list(
        rows,
        "host, freed_bytes: given back, reserved_bytes: reserved, used_bytes: used, garbage_before, "
        "garbage_bytes: garbage, ratio: ratio %",
        empty="no destinations",
        json=json,
    )
    for row in rows:
        if not row["done"]:
            output.error(f"host {row['host']} is not done yet and goes on; look again: raybroker query store")


def stores(rows: list[Row], json: bool, given: Row) -> None:
    """Each store, with its destinations below."""
    if json:
        output.as_json(rows)
    for row in () if json else rows:
        output.fields(without(row, "host", "destinations"), title=f"store of host {row['host']}")
        output.table(row["destinations"], output.columns("type, name, blocks, bytes"), empty="no destinations")
    end_of_list(rows)


def quota(row: Row, json: bool, given: Row) -> None:
    """The quota, and below it a row for each part of its limits."""
    users = ", ".join(row["users"]) or "none"
    attributes = output.cell(row["attributes"])
    show_one(row, json=json, shown=lambda row: without(row, "pools") | {"users": users, "attributes": attributes})
    if not json:
        pools = [{**pool, "destinations": ", ".join(pool["destinations"])} for pool in row["pools"]]
        shown = output.columns("broker, messages, bytes, waiting, refused, destinations")
        output.table(pools, shown, empty="no destination refers to it")


def transaction(row: Row) -> Row:
    """Show the transaction under an id that is unique, with the time as people read it."""
    return {**row, "id": f"{row['host']}:{row['id']}", "created": moment(row.get("created_ms"))}


def subscription(row: Row) -> Row:
    """Show the subscription with the word for whether somebody uses it."""
    return {**row, "state": "ACTIVE" if row["active"] else "INACTIVE"}


def schedule(row: Row) -> Row:
    """Show the schedule with how often it was sent, and when next."""
    fired = str(row["fired"]) if row["repeat"] is None else f"{row['fired']} of {row['repeat']}"
    return {**row, "fired": fired, "next": moment(row["next_ms"])}


def schedule_in_full(row: Row) -> Row:
    """Show the schedule with its times as people read them."""
    times = {name: moment(row[f"{name}_ms"]) for name in ("last", "next", "created")}
    return without(row, *(f"{name}_ms" for name in times)) | times


def policies(rows: list[Row], json: bool, given: Row) -> None:
    """The policies, or with --conflicts each pair once; of equal priorities the first name of the alphabet holds."""
    kinds = {row["name"]: "operator" if row["operator"] else "user" for row in rows}
    if not given["conflicts"]:
        columns = "name, kind, pattern, applyTo: apply to, priority, attributes"
        show_list(rows, columns, empty="no policies", json=json, shown=lambda row: {**row, "kind": kinds[row["name"]]})
        return
    pairs = [
        {
            "name": row["name"],
            "other": other,
            "kind": kinds[row["name"]],
            "priority": row["priority"],
            "example": example,
            "holds": row["name"],
        }
        for row in rows
        for other, example in sorted(row["conflicts"].items())
        if row["name"] < other
    ]
    show_list(pairs, "name, other, kind, priority, example: both match, holds", empty="no conflicts", json=json)
