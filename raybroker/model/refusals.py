"""Refusals: why an administrator's change is not done in the state that something is in.

A verb raises what is said here, and the console shows it beside a button before anybody asks: one decision and one text
in one place.  Each function answers "" where the change is done.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from raybroker.model.definitions.pauses import CONSUMPTION, PRODUCTION
from raybroker.model.errors import IllegalStateError
from raybroker.model.naming.names import DEAD_MESSAGE_QUEUE
from raybroker.model.settings.setting_services import SERVICE_KINDS

Row = dict[str, Any]
MOVABLE: Final = ("CONSUMERS_PAUSED", "PAUSED")
"""States in which messages of a destination may be taken away from its consumers."""
ABSENT: Final = "UNKNOWN"
"""The state of a service that is not active."""
WHOLE: Final = frozenset({PRODUCTION, CONSUMPTION})
"""What has to be paused before a destination is compacted."""


def refuse(why: str) -> None:
    """Raises IllegalStateError where there is a reason."""
    if why:
        raise IllegalStateError(why)


def of_dead_letters(kind: str, name: str, done: str) -> str:
    """``done``: what would be done to a destination, if it were not the dead message queue."""
    if (kind, name) != ("queue", DEAD_MESSAGE_QUEUE):
        return ""
    return f"{DEAD_MESSAGE_QUEUE} cannot be {done}: dead messages always have a place"


def of_destroying(kind: str, name: str, *, temporary: bool) -> str:
    if temporary:
        return f"{kind} {name!r} is temporary: it goes when its connection ends"
    return of_dead_letters(kind, name, "destroyed")


def of_compacting(kind: str, name: str, paused: Collection[str]) -> str:
    """``paused``: the work that is."""
    if set(paused) >= WHOLE:
        return ""
    return f"{kind} {name} is not paused; pause it first: raybroker pause dst -t {kind[0]} -n {name}"


def of_moving(kind: str, name: str, state: str, paused: Collection[str] = ()) -> str:
    """Messages are deleted, moved or sent back. ``paused``: the work that is, for one that is HALTED besides."""
    if name == DEAD_MESSAGE_QUEUE or state in MOVABLE or CONSUMPTION in paused:
        return ""
    return f"{kind} {name!r} is {state}; pause its consumers before its messages are moved or deleted"


def of_not_durable(name: str | None, client_id: str | None, topic: str | None) -> str:
    """A subscription by the name of one that ends with its consumers."""
    whose = f" of client {client_id!r}" if client_id else ""
    where = f" on topic {topic!r}" if topic else ""
    return f"there is no durable subscription {name!r}{whose}{where}"


def of_ending_subscription(name: str, topic: str, *, active: bool) -> str:
    return f"subscription {name!r} of topic {topic} is in use; close its consumers first" if active else ""


def of_settling(number: int, state: str, *, commit: bool) -> str:
    """A transaction is committed or rolled back."""
    if state.startswith("HEURISTIC"):
        return f"transaction {number} is {state} already; its manager removes it with xa.forget"
    if commit and state != "PREPARED":
        return f"transaction {number} is {state}; only PREPARED ones can be committed"
    return ""


def of_absent_service(name: str) -> str:
    """A service that does not listen here."""
    state = f"is {ABSENT} here: it is not in imq.service.activelist" if name in SERVICE_KINDS else "is unknown"
    return f"service {name!r} {state}; services are {', '.join(SERVICE_KINDS)}"


def of_pausing_service(name: str, kind: str) -> str:
    return f"service {name!r} is for administration and is never paused" if kind == "ADMIN" else ""


def of_ending_broker(verb: str, broker: str) -> str:
    """A broker that is no actor is ended."""
    return (
        f"{verb}: broker {broker} was started by a program, inside of its process, and ends with its last connection"
        " there; close that instead"
    )


# ---- of a row, as administrators are given it: verb → why it is refused now


def _only(reasons: dict[str, str]) -> dict[str, str]:
    return {verb: why for verb, why in reasons.items() if why}


def destination(row: Row) -> dict[str, str]:
    kind, name = row["type"], row["name"]
    moving = of_moving(kind, name, row["state"])
    return _only(
        {
            "destroy_destination": of_destroying(kind, name, temporary=bool(row.get("temporary"))),
            "pause_destination": of_dead_letters(kind, name, "paused"),
            "resume_destination": of_dead_letters(kind, name, "resumed"),
            "compact_destination": of_dead_letters(kind, name, "compacted")
            or of_compacting(kind, name, row.get("paused") or ()),
            "delete_messages": of_moving(kind, name, row["state"], row.get("paused") or ()),
            **dict.fromkeys(("move_messages", "retry_messages"), moving),
        }
    )


def subscription(row: Row) -> dict[str, str]:
    name, topic = row["name"], row["topic"]
    gone = "" if row["durable"] else of_not_durable(name, row["client_id"], topic)
    ending = gone or of_ending_subscription(name, topic, active=row["active"])
    return _only({"purge_subscription": gone, "destroy_subscription": ending})


def transaction(row: Row) -> dict[str, str]:
    number, state = row["id"], str(row["state"])
    return _only(
        {
            "commit_transaction": of_settling(number, state, commit=True),
            "rollback_transaction": of_settling(number, state, commit=False),
        }
    )


def service(row: Row) -> dict[str, str]:
    name, kind = row["service"], row["kind"]
    gone = of_absent_service(name) if row["state"] == ABSENT or name not in SERVICE_KINDS else ""
    return _only({"pause_service": gone or of_pausing_service(name, kind), "resume_service": gone})


def broker(row: Row) -> dict[str, str]:
    verbs = ("restart_broker", "shutdown_broker") if row.get("alone") else ()
    return {verb: of_ending_broker(verb, row["broker"]) for verb in verbs}
