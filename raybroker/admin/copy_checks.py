"""Copies of logs, judged: from what query_destination shows of them, rows of checks and reasons. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from raybroker.admin.checks import Grade, row
from raybroker.model.copies import SHOWN_OF_BROKER
from raybroker.model.listing import Row

BEHIND_MAX: Final = 1000
"""Entries that a copy may lack before that is a warning: what is under way is behind, too."""
_ORDINALS: Final = {2: "a second", 3: "a third"}
SILENT_MS: Final = 1000
"""A copy that is there, and has answered nothing for longer, holds up the sends that need it."""

Counts = dict[str, dict[str, int]]


def needed(shown: Mapping[str, Any]) -> int:
    """How many copies have to have an entry before its send is confirmed."""
    voters = sum(bool(one["voter"]) for one in shown["copies"])
    return max(voters // 2 + 1, int(shown.get("min_in_sync") or 0))


def reached(shown: Mapping[str, Any]) -> int:
    """How many copies with a vote the leader reaches, itself among them."""
    return sum(bool(one["voter"] and one["connected"]) for one in shown["copies"])


def is_short(shown: Mapping[str, Any]) -> bool:
    """Whether no send can be confirmed: the leader reaches too few copies."""
    return bool(shown.get("copies")) and reached(shown) < needed(shown)


def short_text(shown: Mapping[str, Any]) -> str:
    """Which copies a send waits for."""
    away = ", ".join(_named(one) for one in shown["copies"] if one["voter"] and not one["connected"])
    return (
        f"a send waits for another copy: the leader at broker {shown['leader']} reaches {reached(shown)} of the"
        f" {needed(shown)} that have to have it; not there: {away}"
    )


def waiting_text(shown: Mapping[str, Any]) -> str:
    """Why a send is not confirmed now; "" when nothing says that one waits for longer than the way takes."""
    if is_short(shown):
        return short_text(shown)
    voters = sorted((one for one in shown.get("copies", ()) if one["voter"]), key=lambda one: -int(one["index"]))
    if not voters:
        return ""
    decides = voters[min(needed(shown), len(voters)) - 1]
    lacks, silent_ms = int(shown["index"]) - int(decides["index"]), int(decides["answered_ms_ago"])
    if lacks <= 0 or (0 <= silent_ms <= SILENT_MS and not decides["trouble"]):
        return ""
    since = f"answered {silent_ms / 1000:.1f} s ago" if silent_ms >= 0 else "has answered nothing yet"
    why = f": {decides['trouble']}" if decides["trouble"] else ""
    which, least = _ORDINALS.get(needed(shown), "another"), needed(shown)
    return (
        f"what was sent last waits for {which} copy: {lacks} entries are in fewer than the {least} that have to have"
        f" them; the copy at {_named(decides)} {since}{why}"
    )


def of_copies(of: str, shown: Mapping[str, Any]) -> list[Row]:
    """Rows about one destination. ``shown``: ``replication`` of query_destination; empty where its copies cannot be
    asked."""
    if not shown or not shown.get("leader"):
        why = str(shown.get("why", "")) or "no broker that keeps a copy could be asked"
        return [row("copies", of, Grade.CRITICAL, f"no copy leads: {why}")]
    if waits := waiting_text(shown):
        return [row("copies", of, Grade.CRITICAL, waits)]
    if changing := shown.get("changing"):
        return [row("copies", of, Grade.WARNING, f"its copies change: {'; '.join(changing)}")]
    faults = [text for one in shown["copies"] if (text := _fault(one))]
    if faults:
        return [row("copies", of, Grade.WARNING, "; ".join(faults))]
    text = f"{len(shown['copies'])} copies are there, led at broker {shown['leader']}"
    return [row("copies", of, Grade.OK, text)]


def _named(copy: Mapping[str, Any]) -> str:
    return f"broker {copy['broker']}" if copy["broker"] else f"copy {copy['copy']}"


def _fault(copy: Mapping[str, Any]) -> str:
    """What is wrong with one copy; "" when nothing is."""
    who = f"the copy at {_named(copy)}"
    if copy["trouble"]:
        return f"{who}: {copy['trouble']}"
    if not copy["connected"]:
        return f"{who} is not there"
    if int(copy["behind"]) > BEHIND_MAX:
        return f"{who} lacks {copy['behind']:,} entries"
    return "" if copy["voter"] else f"{who} has no vote yet"


def figures_of_log(me: str, shown: Mapping[str, Any]) -> dict[str, Any]:
    """What metrics say of the copies of one destination's log; nothing where another broker's copy leads.  ``shown``:
    as query_destination has it."""
    if not shown or shown["leader"] != me:
        return {}
    lag = {copy["broker"]: int(copy["behind"]) for copy in shown["copies"] if copy["broker"] not in ("", me)}
    return {"copy_lag_entries": lag, "leader_term": int(shown["term"])}


def led_at(shown: Sequence[Mapping[str, Any]]) -> Row:
    """What a broker tells others of the logs that are led there: which, which of them confirm nothing, and broker → how
    many of its copies are not there, far behind or without a vote. ``shown``: of each, as query_destination has it."""
    behind: dict[str, int] = {}
    for copy in (copy for one in shown for copy in one["copies"] if copy["broker"] and _fault(copy)):
        behind[copy["broker"]] = behind.get(copy["broker"], 0) + 1
    logs, short = [one["log"] for one in shown], [one["log"] for one in shown if is_short(one)]
    return {"led": logs, "short": short, "behind": behind}


def of_brokers(placed: Mapping[str, Sequence[str]], told: Mapping[str, Mapping[str, Any]], *, all_told: bool) -> Counts:
    """Broker → how many copies it keeps, leads, has behind, and of how many nothing is confirmed now.

    ``placed``: log → the brokers that keep a copy; ``told``: broker → its :func:`led_at`; ``all_told`` False: one that
    was asked has not answered, and what it leads is not taken for leaderless.
    """
    led_by = {log: broker for broker, row in told.items() for log in row["led"]}
    unconfirmed = {log for row in told.values() for log in row["short"]}
    if all_told:
        unconfirmed |= placed.keys() - led_by.keys()
    found: Counts = {}
    for log, brokers in placed.items():
        for broker in brokers:
            row = found.setdefault(broker, dict.fromkeys(SHOWN_OF_BROKER, 0))
            row["copies"] += 1
            row["copies_led"] += led_by.get(log) == broker
            row["copies_unconfirmed"] += log in unconfirmed
    for row_of_leader in told.values():
        for broker, count in row_of_leader["behind"].items():
            if broker in found:
                found[broker]["copies_behind"] += count
    return found


def drain_figures(heirs: Sequence[str], *, drained: bool) -> dict[str, Any]:
    """What metrics of a broker say of its drain. ``heirs``: of each log that it leads, who leads it next, "" where
    nobody can."""
    stuck = sum(not heir for heir in heirs)
    left = {"handing_over": len(heirs) - stuck, "stuck": stuck}
    return {"drained": int(drained), "drained_logs": left if drained else dict.fromkeys(left, 0)}


def figures_of(me: str, shown: Sequence[Mapping[str, Any]], changes: int) -> dict[str, Any]:
    """What metrics of a broker say of the copies that it keeps. ``shown``: of each, as query_destination has it;
    ``changes``: how often it saw another leader than before."""
    led = [one for one in shown if one["leader"] == me]
    behind: dict[str, int] = {}
    for copy in (copy for one in led for copy in one["copies"] if copy["broker"] != me):
        behind[copy["broker"]] = max(behind.get(copy["broker"], 0), int(copy["behind"]))
    leaderless = sum(not one["leader"] for one in shown)
    return {
        "copied_logs": {"led": len(led), "followed": len(shown) - len(led) - leaderless, "leaderless": leaderless},
        "copied_logs_short": sum(map(is_short, led)),
        "copy_behind_entries": behind,
        "leader_changes_total": changes,
    }
