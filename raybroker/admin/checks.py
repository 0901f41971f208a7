"""Graded checks: what a look at a broker shows, judged by thresholds.  Pure: rows in, rows out.

A row has ``check`` (its name), ``of`` (what was looked at), ``grade`` and ``text``; one of a figure has ``value``, and
``warn`` and ``critical`` where it has thresholds.  Grades are those of Nagios' plugins, and their exit codes those of
``raybroker check``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from raybroker.model.errors import ConfigError
from raybroker.model.listing import Row
from raybroker.model.naming.nearest import nearest


class Grade(StrEnum):
    """The grade of a check."""

    OK = "ok"
    WARNING = "warning"
    CRITICAL = "critical"
    UNKNOWN = "unknown"


EXIT_CODES: Final = {Grade.OK: 0, Grade.WARNING: 1, Grade.CRITICAL: 2, Grade.UNKNOWN: 3}
_ORDER: Final = (Grade.OK, Grade.WARNING, Grade.UNKNOWN, Grade.CRITICAL)
LEAST: Final = frozenset({"disk_free_percent", "certificate_days", "consumers", "producers"})
"""Figures of which less is worse."""
OF_BROKER: Final = ("memory_percent", "disk_free_percent")
OF_SERVICES: Final = ("clients_percent", "certificate_days")
OF_DESTINATION: Final = (
    "messages",
    "bytes",
    "oldest_s",
    "full_percent",
    "dead",
    "consumers",
    "producers",
)
DEFAULTS: Final = {"clients_percent": (90.0, 100.0), "certificate_days": (30.0, 7.0)}
"""Figure → thresholds of those who give none."""
_LEVELS: Final = {"GREEN": Grade.OK, "YELLOW": Grade.WARNING, "ORANGE": Grade.WARNING, "RED": Grade.CRITICAL}
_MEMBERS: Final = {
    "UP": Grade.OK,
    "SUSPECT": Grade.WARNING,
    "JOINING": Grade.WARNING,
    "LEFT": Grade.WARNING,
    "STOPPING": Grade.WARNING,
    "RESTARTING": Grade.WARNING,
}
"""One that was stopped on purpose is no fault, but what it stores waits there; others are critical."""
READY: Final = frozenset({"broker", "open", "hosts", "services"})
"""Checks of a broker that say whether clients can use it now."""


def worst(rows: Iterable[Mapping[str, Any]]) -> Grade:
    """The grade of all of them together; unknown when there are none."""
    grades = [Grade(row["grade"]) for row in rows]
    return max(grades, key=_ORDER.index) if grades else Grade.UNKNOWN


def failing(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a probe has to be told that it is not well."""
    return worst(rows) in (Grade.CRITICAL, Grade.UNKNOWN)


def row(check: str, of: str, grade: Grade, text: str, **more: Any) -> Row:
    return {"check": check, "of": of, "grade": str(grade), "text": text, **more}


class Limits:
    """Thresholds by figure: those that were given, and DEFAULTS. Raises ConfigError for a figure that is none of
    ``known``, for what is no number, and for a warning that is worse than critical."""

    def __init__(
        self, known: Iterable[str], warn: Mapping[str, object] | None, critical: Mapping[str, object] | None
    ) -> None:
        names = tuple(known)
        self._warn = _numbers("warn", names, warn)
        self._critical = _numbers("critical", names, critical)
        for name in self._warn.keys() & self._critical.keys():
            if _reaches(name, self._warn[name], self._critical[name]) and self._warn[name] != self._critical[name]:
                raise ConfigError(
                    f"{name}: warn={self._warn[name]:g} is beyond critical={self._critical[name]:g}, so that nothing"
                    " would be a warning"
                )

    def judged(self, name: str, value: float, of: str, text: str, check: str = "", least: Grade = Grade.OK) -> Row:
        """A row for a figure; ``least``: its grade is not better than that, whatever thresholds say."""
        warn, critical = self._bounds_of(name)
        grade = Grade.OK
        if critical is not None and _reaches(name, value, critical):
            grade = Grade.CRITICAL
        elif warn is not None and _reaches(name, value, warn):
            grade = Grade.WARNING
        worse = max(grade, least, key=_ORDER.index)
        more = {key: limit for key, limit in (("warn", warn), ("critical", critical)) if limit is not None}
        return row(check or name, of, worse, text, value=value, **more)

    def _bounds_of(self, name: str) -> tuple[float | None, float | None]:
        """(warn, critical) of a figure: who gives one of them has no default for the other."""
        if name in self._warn or name in self._critical:
            return self._warn.get(name), self._critical.get(name)
        return DEFAULTS.get(name, (None, None))


def _reaches(name: str, value: float, limit: float) -> bool:
    """Whether a value is at a threshold or beyond it; what has to be there at least is beyond below it."""
    return value < limit if name in LEAST else value >= limit


def _numbers(what: str, known: tuple[str, ...], given: Mapping[str, object] | None) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in (given or {}).items():
        if name not in known:
            near = nearest(str(name), known)
            hint = f"did you mean {near}? " if near else ""
            raise ConfigError(f"{what}: there is no figure {str(name)!r:.80} here; {hint}there are {', '.join(known)}")
        try:
            number = float(str(value)) if not isinstance(value, bool) else math.nan
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or number < 0:
            raise ConfigError(f"{what}: {name}={value!r:.80}; it is a number from 0")
        found[name] = number
    return found


# ---- what is looked at -----------------------------------------------------------------------------------------------


def of_broker(found: Row, hosts: Iterable[Row], limits: Limits) -> list[Row]:
    """``found``: broker, state, memory and thresholds, as query_broker has them; ``hosts``: a row a host, with a
    ``failure`` of those that do not answer."""
    broker, rows = str(found["broker"]), list(hosts)
    running = found["state"] == "UP"
    checks = [row("broker", broker, Grade.OK if running else Grade.WARNING, f"broker {broker} is {found['state']}")]
    if "now_ms" in found:
        shown = datetime.fromtimestamp(found["now_ms"] / 1000, UTC).isoformat(timespec="milliseconds")
        checks.append(row("clock", broker, Grade.OK, f"its clock shows {shown}", now_ms=found["now_ms"]))
    silent = [host for host in rows if host.get("failure")]
    checks += [
        row("hosts", host["host"], Grade.CRITICAL, f"host {host['host']} does not answer: {host['failure']}")
        for host in silent
    ]
    if not silent:
        checks.append(row("hosts", broker, Grade.OK, f"{len(rows)} of {len(rows)} hosts answer"))
    if "memory_level" in found:
        checks.append(_memory(found, broker, limits))
    else:
        checks += [_memory(host, host["host"], limits) for host in rows if "memory_level" in host]
    for host in rows:
        checks += _disk(host, limits)
    checks += _loops(found, rows)
    thresholds = found.get("thresholds") or {}
    if thresholds:
        over = thresholds.get("over") or []
        text = f"over its threshold of {' and '.join(over)}: producers are slowed" if over else "below its thresholds"
        checks.append(row("load", broker, Grade.WARNING if over else Grade.OK, f"broker {broker} is {text}"))
    return checks


def _loops(found: Row, hosts: Iterable[Row]) -> list[Row]:
    """A row a loop that has ended lately; a host in the broker's process says the same as the broker."""
    broker = str(found["broker"])
    own = [(broker, loop) for loop in found.get("loops") or ()]
    told = {(loop["owner"], loop["loop"]) for _, loop in own}
    of_hosts = [(str(host["host"]), loop) for host in hosts for loop in host.get("loops") or ()]
    failing = own + [(host, loop) for host, loop in of_hosts if (loop["owner"], loop["loop"]) not in told]
    if not failing:
        return [row("loops", broker, Grade.OK, "all loops run")]
    text = (
        "{owner} is degraded: its loop {loop!r} ended {ago_s:g} s ago and is started again, {count} times so far:"
        " {reason}; the log has the traceback"
    )
    return [row("loops", of, Grade.WARNING, text.format(**loop)) for of, loop in failing]


def _memory(found: Row, of: str, limits: Limits) -> Row:
    level, used, limit = str(found["memory_level"]), found["memory_used_bytes"], found["memory_limit_bytes"]
    percent = round(100 * used / limit, 1) if limit else 0.0
    text = f"memory level {level}: {used} of {limit} bytes are used"
    return limits.judged("memory_percent", percent, of, text, "memory", _LEVELS.get(level, Grade.UNKNOWN))


def _disk(host: Row, limits: Limits) -> list[Row]:
    """None of a host that stores nothing, or does not answer."""
    found, of = [], str(host["host"])
    if host.get("disk_total_bytes"):
        free, total = host["disk_free_bytes"], host["disk_total_bytes"]
        text, least = f"{free} of {total} bytes of the disk are free", Grade.OK
        if free == 0 or host.get("disk_critical"):
            text, least = f"{text}: persistent messages are refused, or will be soon", Grade.CRITICAL
        elif host.get("disk_low"):
            text, least = f"{text}, which is low", Grade.WARNING
        found.append(limits.judged("disk_free_percent", round(100 * free / total, 1), of, text, "disk", least))
    if "disk_slow" in host:
        slow = bool(host["disk_slow"])
        text = "one of a hundred commits takes longer than 100 ms" if slow else "commits are quick"
        found.append(row("disk_speed", of, Grade.WARNING if slow else Grade.OK, text))
    return found


def of_cluster(cluster: Row) -> list[Row]:
    """``cluster``: as query_cluster has it."""
    checks = [
        row("members", other["broker"], _MEMBERS.get(other["state"], Grade.CRITICAL), _member_text(other))
        for other in cluster["brokers"]
    ]
    checks += [_stored(other) for other in cluster["brokers"] if "store_state" in other]
    checks += [_drained(other) for other in cluster["brokers"] if "drain" in other]
    broker = str(cluster["broker"])
    lost = str(cluster["state"]) == "MASTER_LOST"
    if lost:
        text = f"master {cluster['master'] or '(unknown)'} is not there: nothing can be created or destroyed"
        checks.append(row("master", broker, Grade.CRITICAL, text))
    elif not cluster["operating"]:
        why = cluster.get("refusal") or cluster["state"]
        checks.append(row("master", broker, Grade.CRITICAL, f"broker {broker} takes no clients yet: {why}"))
    else:
        who = f"{cluster['master']} is the master" if cluster["master"] else "there is none, and none is needed"
        checks.append(row("master", broker, Grade.OK, who))
    faults = [str(cluster["contradiction"])] if cluster.get("contradiction") else []
    faults += [str(fault) for fault in cluster.get("faults") or ()]
    text = "; ".join(faults) or "nothing is wrong with it"
    checks.append(row("record", broker, Grade.CRITICAL if faults else Grade.OK, text))
    return checks


def _stored(member: Row) -> Row:
    """What the store that brokers share has of one: a takeover that has failed waits for somebody who looks at it."""
    name, state = str(member["broker"]), str(member["store_state"])
    reason = str(member.get("store_reason", ""))
    grade = Grade.OK if state == "OPERATING" and not reason else Grade.WARNING
    text = f"broker {name} is {state} in the shared store, tenure {member['tenure']}"
    if member["takeovers"]:
        text += f", taken over {member['takeovers']} times, last by {member['taken_by']}"
    return row(
        "store", name, Grade.CRITICAL if state == "TAKEOVER_FAILED" else grade, f"{text}: {reason}" if reason else text
    )


def _drained(member: Row) -> Row:
    """A broker that somebody is about to take away: the others have its part until that is over."""
    name, stuck = str(member["broker"]), member["stuck"]
    text = f"broker {name} is {member['drain']}: it leads {member['leads']} queues with copies"
    if stuck:
        text += f", of which nobody else can lead {', '.join(stuck)} now"
    return row("drain", name, Grade.WARNING, f"{text}; raybroker drain bkr -n {name} --off ends that")


def _member_text(member: Row) -> str:
    text = f"broker {member['broker']} is {member['state']}"
    return f"{text}: {member['reason']}" if member.get("reason") else text


def of_destination(found: Row, oldest_s: float | None, limits: Limits) -> list[Row]:
    """``found``: as query_destination has it; ``oldest_s``: None where that is not known."""
    of = f"{found['type']} {found['name']}"
    state = str(found["state"])
    grades = {"RUNNING": Grade.OK, "HALTED": Grade.CRITICAL, "UNKNOWN": Grade.CRITICAL}
    checks = [row("state", of, grades.get(state, Grade.WARNING), f"{of} is {state}")]
    for broker, why in sorted((found.get("missing") or {}).items()):
        text = f"what {of} has at broker {broker} waits there and is not counted: {why}"
        checks.append(row("members", of, Grade.WARNING, text))
    if "messages" not in found:
        return checks
    figures = {
        "messages": found["messages"],
        "bytes": found["bytes"],
        "oldest_s": oldest_s,
        "full_percent": _full_percent(found),
        "dead": found.get("dead"),
        "consumers": found.get("active_consumers"),
        "producers": found.get("producers"),
    }
    texts = {
        "messages": "{} messages",
        "bytes": "{} bytes",
        "oldest_s": "the oldest message is {} s old",
        "full_percent": "{} % of its limit",
        "dead": "{} messages have died",
        "consumers": "{} active consumers",
        "producers": "{} producers",
    }
    for name, value in figures.items():
        if value is not None:
            checks.append(limits.judged(name, value, of, texts[name].format(value)))
    if "starved_ms" in found:
        checks.append(_starvation(found, of))
    return checks


def _starvation(found: Row, of: str) -> Row:
    """Judge whether a queue with bounded staleness starves."""
    starved_ms = found["starved_ms"]
    text = f"a consumer of {of} that has nothing has waited for {starved_ms / 1000:g} s"
    if not starved_ms:
        text = f"consumers of {of} do not starve"
    return row("starvation", of, Grade.WARNING if starved_ms else Grade.OK, text, value=starved_ms / 1000)


def _full_percent(found: Row) -> float | None:
    """None for a destination without limits."""
    attributes = found.get("attributes") or {}
    limits = (("messages", "maxNumMsgs"), ("bytes", "maxTotalMsgBytes"))
    parts = [
        100 * found[held] / attributes[limit]
        for held, limit in limits
        if isinstance(attributes.get(limit), int) and attributes[limit] > 0
    ]
    return round(max(parts), 1) if parts else None


def of_services(rows: Iterable[Row], limits: Limits) -> list[Row]:
    """``rows``: of active services, as list_services has them, with ``refusal``: why its port accepts nothing, "" when
    it does, and ``certificate_days`` of those with TLS."""
    checks: list[Row] = []
    for found in rows:
        of, state = str(found["service"]), str(found["state"])
        checks.append(row("state", of, Grade.OK if state == "RUNNING" else Grade.WARNING, f"service {of} is {state}"))
        refusal = found["refusal"]
        text = f"port {found['port']} accepts no connection: {refusal}" if refusal else f"port {found['port']} accepts"
        checks.append(row("listener", of, Grade.CRITICAL if refusal else Grade.OK, text))
        here, most = found["connections"], found["connections_max"]
        if most:
            text = f"{here} of at most {most} clients"
            checks.append(limits.judged("clients_percent", round(100 * here / most, 1), of, text, "clients"))
        days = found.get("certificate_days")
        if days is not None:
            least = Grade.CRITICAL if days < 0 else Grade.OK
            text = f"the certificate is good for {days} days" if days >= 0 else "the certificate has expired"
            checks.append(limits.judged("certificate_days", days, of, text, "certificate", least))
    return checks
