"""Export and import of definitions: what a broker has, and the plan carried out step by step.

``raybroker.model.definitions.definitions`` says what definitions are, ``definition_plan`` which steps an import takes;
each step is an administrative verb, carried out as if an administrator had asked for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from raybroker.broker.cluster.record_application import ONLY_HERE
from raybroker.broker.destinations.destination_registry import DMQ, Key
from raybroker.broker.host_listing import require_whole
from raybroker.cluster.change_record import RecordState
from raybroker.cluster.compatibility import EQUAL
from raybroker.config.live import LIVE, LiveConfig
from raybroker.core.selector import compile_selector, normalised
from raybroker.hosting.host_port import Row
from raybroker.model.definitions.definition_plan import Plan, plan
from raybroker.model.definitions.definitions import definitions_of, plain
from raybroker.model.definitions.kinds.destination import QUEUE, TOPIC
from raybroker.model.definitions.kinds.kind import KindPlace, KindStep, Reading
from raybroker.model.definitions.kinds.properties import shared_properties
from raybroker.model.definitions.kinds.table import KINDS
from raybroker.model.definitions.values import Defaults, Definitions, Pause
from raybroker.model.errors import BrokerError, ConfigError, IllegalStateError
from raybroker.model.listing import Listing

TURN_S: Final = 10.0
"""How long one call begins steps; a call of an administrator is answered in three times as long, or counts as lost."""

log = logging.getLogger("raybroker.broker")


@dataclass(frozen=True)
class TransferBrokers:
    """``up``: broker → changed and configured, see :meth:`OwnDefinitions.properties`; ``down``: those that cannot be
    asked."""

    up: Mapping[str, Row]
    down: tuple[str, ...]


class OwnDefinitions:
    """What one broker has; ``made``: destinations that administrators have made, with their attributes; ``paused``:
    what of them is paused until resumed; ``automatic``: those that were created automatically; ``lists`` carries out a
    verb that lists something."""

    def __init__(
        self,
        config: LiveConfig,
        made: Callable[[], Awaitable[list[tuple[Key, Row]]]],
        paused: Callable[[], Awaitable[list[Pause]]],
        automatic: Callable[[], Iterable[Key]],
        lists: Callable[[str], Awaitable[list[Row]]],
        *,
        broker: str,
    ) -> None:
        self._config = config
        self._made = made
        self._paused = paused
        self._broker = broker
        self._automatic = automatic
        self._lists = lists

    def defaults(self) -> Defaults:
        return Defaults.from_config(self._config)

    def place(self, brokers: TransferBrokers, *, agents: bool, users: bool) -> KindPlace:
        """Return the place that an import is for."""
        configured = {name: row["configured"] for name, row in brokers.up.items()}
        automatic = frozenset(self._automatic())
        return KindPlace(self.defaults(), configured, automatic, agents, brokers.down, EQUAL, users)

    def properties(self) -> Row:
        """changed: what differs from the configuration; configured: what that says of what may change."""
        return {
            "changed": dict(self._config.changed),
            "configured": {name: self._config.base[name] for name in LIVE},
        }

    async def brokers(self) -> TransferBrokers:
        """Return the broker, which is alone."""
        return TransferBrokers({self._broker: self.properties()}, ())

    async def all(self) -> Definitions:
        """Raises ConnectionLostError when a host cannot be asked."""
        found, reading = Definitions(properties=dict(self._config.changed)), Reading(self.defaults())
        for kind in KINDS:
            rows = await self._lists(kind.lists) if kind.lists else []
            if isinstance(rows, Listing):
                require_whole(rows, f"which {kind.section} there are")
            for row in rows:
                kind.table(found).update(kind.listed(row, reading))
        for key, attributes in await self._made():
            _put(found, key, attributes, reading)
        found.pauses.update({key: {} for key in await self._paused()})
        return found

    async def of_cluster(self, record: RecordState) -> Definitions:
        """What the cluster has agreed on, and what this broker has beside it."""
        found, reading = Definitions(properties=dict(self._config.changed)), Reading(self.defaults())
        for kind in KINDS:
            for key, row in record.table(kind.recorded).items() if kind.recorded else ():
                kind.table(found).update(kind.of_record(key, row, reading))
        for own, attributes in await self._made():
            if own == DMQ or attributes.get(ONLY_HERE):
                _put(found, own, attributes, reading)
        return found


def _put(found: Definitions, key: Key, attributes: Row, reading: Reading) -> None:
    for kind in (QUEUE, TOPIC):
        kind.table(found).update(kind.of_record(key, attributes, reading))


class Transfer:
    """The two verbs. ``now``: the definitions that there are, but for users and properties; ``brokers``: what these
    have; ``carry`` carries out another verb; ``clock_s``: a clock that only goes forward."""

    def __init__(
        self,
        own: OwnDefinitions,
        now: Callable[[], Awaitable[Definitions]],
        brokers: Callable[[], Awaitable[TransferBrokers]],
        carry: Callable[[str, Row], Awaitable[Any]],
        clock_s: Callable[[], float],
        *,
        agents: bool,
    ) -> None:
        self._own = own
        self._now = now
        self._brokers = brokers
        self._carry = carry
        self._clock_s = clock_s
        self._agents = agents
        self._busy = asyncio.Lock()

    async def export_definitions(self, users: bool = False) -> Row:
        found, brokers = await self._gathered(users)
        if apart := sorted(name for name, row in found.users.items() if not row):
            raise IllegalStateError(
                f"user {apart[0]!r} is not the same on all brokers, which have files of their own: make them alike, by"
                " raybroker usermgr or an import with users"
            )
        for kind in KINDS:
            table = kind.table(found)
            for key in [key for key in table if not kind.is_defined(found, key)]:
                del table[key]
        return plain(replace(found, missing=brokers.down))

    async def import_definitions(
        self,
        definitions: Row,
        dry_run: bool = False,
        prune: bool = False,
        keep_going: bool = False,
        users: bool = False,
    ) -> Row:
        """See the table of verbs."""
        wanted = definitions_of(definitions, self._own.defaults(), _selector)
        if wanted.users and not users:
            raise ConfigError("users: there are some among these definitions; import them with users, or take them out")
        if users and prune and not wanted.users:
            raise ConfigError("users: there are none among these definitions, and prune would delete all there are")
        if dry_run:
            return _report(await self._plan(wanted, prune, users), [], "planned")
        if self._busy.locked():
            raise IllegalStateError("another import is under way; try again when it is over")
        async with self._busy:
            made = await self._plan(wanted, prune, users)
            blocked = any(step.blocked for step in made.steps)
            if blocked and not keep_going:
                return _report(made, [], "not done")
            rows, more = await self._carry_out(made.steps, keep_going)
            return {**_report(made, rows, "not done"), "more": more}

    async def _plan(self, wanted: Definitions, prune: bool, users: bool) -> Plan:
        found, brokers = await self._gathered(users)
        return plan(found, wanted, self._own.place(brokers, agents=self._agents, users=users), prune=prune)

    async def _gathered(self, users: bool) -> tuple[Definitions, TransferBrokers]:
        """What there is; a user whom brokers have differently has no fields."""
        brokers = await self._brokers()
        properties, own = shared_properties({name: row["changed"] for name, row in brokers.up.items()})
        found = replace(await self._now(), properties=properties, brokers=own)
        if users:
            rows = await self._carry("list_users", {"verifiers": True})
            found.users.update(_users(rows, brokers.up))
        return found, brokers

    async def _carry_out(self, steps: Iterable[KindStep], keep_going: bool) -> tuple[list[tuple[str, str]], bool]:
        """(state, reason) of the steps that were looked at, and whether the time was over before the others."""
        found: list[tuple[str, str]] = []
        until_s = self._clock_s() + TURN_S
        for step in steps:
            if self._clock_s() >= until_s:
                return found, True
            found.append(("blocked", step.blocked) if step.blocked else await self._try(step))
            if found[-1][0] != "done" and not keep_going:
                break
        return found, False

    async def _try(self, step: KindStep) -> tuple[str, str]:
        try:
            answer = await self._carry(step.verb, dict(step.args))
        except BrokerError as error:
            log.warning("import of definitions: %s %s %s: %s", step.action, step.kind, step.name, error)
            return ("failed" if error.definite else "unknown"), str(error)
        log.info("import of definitions: %s %s %s", step.action, step.kind, step.name)
        if isinstance(answer, Mapping) and answer.get("down"):
            down = ", ".join(answer["down"])
            return "failed", f"brokers that are not up keep what they had: {down}; import again when they are"
        return "done", ""


def _users(rows: Iterable[Row], brokers: Iterable[str]) -> dict[str, Row]:
    at: dict[str, dict[str, Row]] = {}
    for row in rows:
        fields = {"verifier": row["verifier"], "group": row["group"], "active": row["active"]}
        at.setdefault(row["user"], {})[row["broker"]] = fields
    return {
        name: first if all(of.get(broker) == first for broker in brokers) else {}
        for name, of in at.items()
        for first in [next(iter(of.values()))]
    }


def _selector(text: str) -> str:
    found = normalised(text)
    if found:
        compile_selector(found)
    return found or ""


def _report(made: Plan, looked_at: list[tuple[str, str]], rest: str) -> Row:
    """``rest``: the state of steps that were not looked at."""
    states = [
        *looked_at,
        *(("blocked", step.blocked) if step.blocked else (rest, "") for step in made.steps[len(looked_at) :]),
    ]
    return {
        "steps": [
            {
                "action": step.action,
                "kind": step.kind,
                "name": step.name,
                "changes": {key: {"old": old, "new": new} for key, (old, new) in step.changes.items()},
                "state": state,
                "reason": reason,
            }
            for step, (state, reason) in zip(made.steps, states, strict=True)
        ],
        "same": made.same,
        "left": list(made.left),
        "more": False,
        "complete": all(state in ("done", "planned") for state, _ in states),
    }
