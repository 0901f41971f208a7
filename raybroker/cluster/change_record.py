"""The configuration change record: each destination, subscription, quota and policy made and destroyed, in order.

The master appends, all brokers carry out.  Each entry carries a hash over itself and everything before it, so that two
copies agree up to an entry exactly when their hashes there are equal: a record that forked is seen at once.  A record
may begin with a base, the state after some entry, instead of the entries up to there; numbers go on counting.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from typing import Any, Final, Literal

from raybroker.model.definitions.error_destinations import go_on
from raybroker.model.errors import ConfigError, IllegalStateError, InvalidDestinationError, ProtocolError

Key = tuple[str, ...]
Attributes = Mapping[str, object]
Kind = Literal[
    "create_destination",
    "update_destination",
    "destroy_destination",
    "create_subscription",
    "destroy_subscription",
    "set_template",
    "drop_template",
    "add_broker",
    "remove_broker",
    "place_service",
    "drop_service",
    "create_forwarding",
    "destroy_forwarding",
    "pause_destination",
    "resume_destination",
    "create_quota",
    "update_quota",
    "destroy_quota",
    "create_policy",
    "update_policy",
    "destroy_policy",
]

DIGEST_BYTES: Final = 16
NO_DIGEST: Final = ""
"""Before the first entry."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change.  ``attributes`` are plain values: what is created or set, or what an update replaces.

    key   (type, name) of a destination, (client id or "", name) of a durable subscription, (name,) of a template or
          a quota or a policy or a broker or a service or a forwarding agent

    A pause names what it stops as attributes, each with the time in milliseconds at which it ends by itself, 0 for
    never; what a resume names goes on.
    """

    kind: Kind
    key: Key
    attributes: Attributes = field(default_factory=dict)

    def canonical(self) -> list[object]:
        """As JSON has it."""
        return [self.kind, list(self.key), dict(self.attributes)]

    @staticmethod
    def from_canonical(found: Any) -> Change:
        """Raises ProtocolError for what is no change."""
        try:
            kind, key, attributes = found
            if kind not in _RULES or not all(isinstance(part, str) for part in key):
                raise ValueError(f"{kind!r} of {key!r}")
            return Change(kind, tuple(key), dict(attributes))
        except (TypeError, ValueError) as error:
            raise ProtocolError(f"not a change of the configuration: {error}") from None

    def __str__(self) -> str:
        return f"{self.kind.replace('_', ' ')} {' '.join(part for part in self.key if part)}"


@dataclass(frozen=True, slots=True)
class Entry:
    """``number`` counts from 1; ``digest`` is the hash of this entry and all before it, in hexadecimal digits."""

    number: int
    term: int
    change: Change
    digest: str

    def body(self) -> bytes:
        """What the hash covers of this entry, and what is stored."""
        return _body(self.number, self.term, self.change)


def canonical_bytes(value: object) -> bytes:
    """One text for one value, whoever writes it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")


def chained(before: str, body: bytes) -> str:
    """The hash of ``body`` after what has the hash ``before``."""
    return blake2b(before.encode("ascii") + body, digest_size=DIGEST_BYTES).hexdigest()


def _body(number: int, term: int, change: Change) -> bytes:
    return canonical_bytes([number, term, *change.canonical()])


# ---- the state that a record leads to


class RecordState:
    """What there is after some entry.  Keys as in Change; ``brokers`` are names in the order in which they were added.

    A subscription has the fields topic, shared, selector, no_local; its topic may be one that is in no record, such as
    an auto-created one.  A service has the field broker: where it keeps its data.  ``pauses`` holds what
    of a destination is paused and until when; the destination may be in no record as well.

    ``past``: destinations and subscriptions that were destroyed, and may still be on the broker whose copy this is.  It
    says nothing of the cluster: copies are equal whatever theirs is.
    """

    def __init__(self) -> None:
        self.destinations: dict[Key, dict[str, object]] = {}
        self.subscriptions: dict[Key, dict[str, object]] = {}
        self.templates: dict[Key, dict[str, object]] = {}
        self.added: dict[Key, dict[str, object]] = {}
        self.services: dict[Key, dict[str, object]] = {}
        self.forwardings: dict[Key, dict[str, object]] = {}
        self.pauses: dict[Key, dict[str, object]] = {}
        self.quotas: dict[Key, dict[str, object]] = {}
        self.policies: dict[Key, dict[str, object]] = {}
        self.past: set[Key] = set()

    @property
    def brokers(self) -> list[str]:
        return [key[0] for key in self.added]

    def check(self, change: Change) -> None:
        """Raises InvalidDestinationError or ConfigError when the change cannot be made now."""
        table, needs, word = _RULES[change.kind]
        there = change.key in getattr(self, table)
        label = f"{word} {' '.join(repr(part) for part in change.key if part)}"
        error = InvalidDestinationError if table in ("destinations", "subscriptions") else ConfigError
        if needs is True and not there:
            raise error(f"{label} does not exist")
        if needs is False and there:
            raise error(f"{label} exists already")

    def make(self, change: Change) -> None:
        """Apply a change that is wanted now; raises as :meth:`check`, ConfigError for an error destination that leads
        back and a quota that does not exist, IllegalStateError for a quota in use that is to be destroyed.  An entry of
        the record is never refused for that: it was made."""
        self.check(change)
        quota = (
            _policy_attributes(change.attributes).get("quota")
            if change.kind in _OF_POLICIES
            else (change.attributes.get("quota"))
        )
        if quota and change.kind in (_NAMING | _OF_POLICIES) and (str(quota),) not in self.quotas:
            raise ConfigError(f"{change}: there is no quota {quota!r} (any more)")
        if change.kind == "destroy_quota":
            self._refuse_used(change.key[0])
        way, after = [change.key[-1]], change.attributes.get("errorDestination")
        while after and change.key[0] == "queue":
            go_on(way, str(after))
            after = self.destinations.get(("queue", way[-1]), {}).get("errorDestination")
        self.apply(change)

    def _refuse_used(self, quota: str) -> None:
        users = [
            *self.destinations.items(),
            *((("template", *key), row) for key, row in self.templates.items()),
            *((("policy", *key), _policy_attributes(row)) for key, row in self.policies.items()),
        ]
        for key, attributes in users:
            if attributes.get("quota") == quota:
                raise IllegalStateError(f"quota {quota!r} is in use by {' '.join(key)}; give that another quota first")

    def apply(self, change: Change) -> None:
        """Raises as :meth:`check`, and then changes nothing."""
        self.check(change)
        table: dict[Key, dict[str, object]] = getattr(self, _RULES[change.kind][0])
        match change.kind:
            case "update_destination" | "update_quota" | "update_policy":
                table[change.key] = {**table[change.key], **change.attributes}
            case "pause_destination":
                table[change.key] = {**table.get(change.key, {}), **change.attributes}
            case "resume_destination":
                paused = table.pop(change.key, {})
                left = {part: until for part, until in paused.items() if part not in change.attributes}
                if left:
                    table[change.key] = left
            case (
                "destroy_destination"
                | "destroy_subscription"
                | "drop_template"
                | "remove_broker"
                | "drop_service"
                | "destroy_forwarding"
                | "destroy_quota"
                | "destroy_policy"
            ):
                del table[change.key]
            case _:
                table[change.key] = dict(change.attributes)
        if change.kind == "create_destination":
            self.past.discard(change.key)
        elif change.kind == "destroy_destination":
            self.past.add(change.key)
            self.pauses.pop(change.key, None)
        if change.kind == "create_subscription":
            self.past.discard(of_subscription(change.key))
        elif change.kind == "destroy_subscription":
            self.past.add(of_subscription(change.key))
        if change.kind == "destroy_destination" and change.key[0] == "topic":
            for key in [k for k, fields in self.subscriptions.items() if fields.get("topic") == change.key[1]]:
                del self.subscriptions[key]
                self.past.add(of_subscription(key))

    def copy(self) -> RecordState:
        """Independent of this one but for the attribute dicts, which are never changed in place."""
        other = RecordState()
        for table in _TABLES:
            getattr(other, table).update(getattr(self, table))
        other.past.update(self.past)
        return other

    def canonical(self) -> dict[str, object]:
        """As JSON has it: for each table the rows as [key, attributes], in order of creation."""
        return {table: [[list(k), dict(v)] for k, v in getattr(self, table).items()] for table in _TABLES}

    @staticmethod
    def from_canonical(found: Any) -> RecordState:
        """Raises ProtocolError for what is none."""
        state = RecordState()
        try:
            for table in _TABLES:
                rows = getattr(state, table)
                for key, attributes in found.get(table, ()) if table in _LATER else found[table]:
                    rows[tuple(key)] = dict(attributes)
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"not a state of the configuration: {error!r}") from None
        return state

    def __eq__(self, other: object) -> bool:
        """The same rows, whatever came first."""
        return isinstance(other, RecordState) and all(getattr(self, name) == getattr(other, name) for name in _TABLES)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __bool__(self) -> bool:
        return any(getattr(self, table) for table in _TABLES)


_TABLES: Final = (
    "templates",
    "destinations",
    "subscriptions",
    "added",
    "services",
    "forwardings",
    "pauses",
    "quotas",
    "policies",
)
_LATER: Final = frozenset({"pauses", "quotas", "policies"})
"""Tables that records of earlier releases do not have."""
_RULES: Final[dict[str, tuple[str, bool | None, str]]] = {
    "create_destination": ("destinations", False, "destination"),
    "update_destination": ("destinations", True, "destination"),
    "destroy_destination": ("destinations", True, "destination"),
    "create_subscription": ("subscriptions", False, "durable subscription"),
    "destroy_subscription": ("subscriptions", True, "durable subscription"),
    "set_template": ("templates", None, "template"),
    "drop_template": ("templates", True, "template"),
    "add_broker": ("added", False, "broker"),
    "remove_broker": ("added", True, "broker"),
    "place_service": ("services", False, "service"),
    "drop_service": ("services", True, "service"),
    "create_forwarding": ("forwardings", False, "forwarding agent"),
    "destroy_forwarding": ("forwardings", True, "forwarding agent"),
    "create_quota": ("quotas", False, "quota"),
    "update_quota": ("quotas", True, "quota"),
    "destroy_quota": ("quotas", True, "quota"),
    "create_policy": ("policies", False, "policy"),
    "update_policy": ("policies", True, "policy"),
    "destroy_policy": ("policies", True, "policy"),
    "pause_destination": ("pauses", None, "pause"),
    "resume_destination": ("pauses", None, "pause"),
}
"""Kind → its table in the state, whether the key must exist before, and its name in messages."""
_NAMING: Final = frozenset({"create_destination", "update_destination", "set_template"})
"""Kinds whose attributes may name a quota."""
_OF_POLICIES: Final = frozenset({"create_policy", "update_policy"})


def _policy_attributes(fields: Mapping[str, object]) -> Mapping[str, object]:
    found = fields.get("attributes")
    return found if isinstance(found, Mapping) else {}


def of_subscription(key: Key) -> Key:
    """The key of a durable subscription among those of the past, where destinations are as well."""
    return ("subscription", *key)


def differences(have: RecordState, want: RecordState) -> tuple[Change, ...]:
    """The changes that lead from ``have`` to ``want``: removals first, each change after those that it needs.

    A destination whose attributes differ is updated; a subscription that differs is destroyed and made again.
    """
    gone: list[Change] = []
    come: list[Change] = []
    topics_gone = {k[1] for k in have.destinations if k[0] == "topic" and k not in want.destinations}
    for key, fields in have.subscriptions.items():
        if want.subscriptions.get(key) != fields and fields.get("topic") not in topics_gone:
            gone.append(Change("destroy_subscription", key))
    gone += [Change("destroy_destination", key) for key in have.destinations if key not in want.destinations]
    gone += [Change("drop_template", key) for key in have.templates if key not in want.templates]
    gone += [Change("remove_broker", key) for key in have.added if key not in want.added]
    gone += [
        Change("destroy_forwarding", key)
        for key in have.forwardings
        if want.forwardings.get(key) != have.forwardings[key]
    ]
    gone += [Change("drop_service", key) for key in have.services if want.services.get(key) != have.services[key]]
    for key, fields in want.quotas.items():
        if key not in have.quotas:
            come.append(Change("create_quota", key, fields))
        elif have.quotas[key] != fields:
            come.append(Change("update_quota", key, fields))
    gone += [Change("destroy_policy", key) for key in have.policies if key not in want.policies]
    for key, fields in want.policies.items():
        if key not in have.policies:
            come.append(Change("create_policy", key, fields))
        elif have.policies[key] != fields:
            come.append(Change("update_policy", key, fields))
    for key, fields in want.templates.items():
        if have.templates.get(key) != fields:
            come.append(Change("set_template", key, fields))
    for key, fields in want.destinations.items():
        if key not in have.destinations:
            come.append(Change("create_destination", key, fields))
        elif have.destinations[key] != fields:
            come.append(Change("update_destination", key, fields))
    come += [
        Change("create_subscription", key, fields)
        for key, fields in want.subscriptions.items()
        if have.subscriptions.get(key) != fields or fields.get("topic") in topics_gone
    ]
    come += [Change("add_broker", key, fields) for key, fields in want.added.items() if key not in have.added]
    come += [
        Change("place_service", key, fields)
        for key, fields in want.services.items()
        if have.services.get(key) != fields
    ]
    come += [
        Change("create_forwarding", key, fields)
        for key, fields in want.forwardings.items()
        if have.forwardings.get(key) != fields
    ]
    unused = (Change("destroy_quota", key) for key in have.quotas if key not in want.quotas)
    return (*gone, *come, *_pauses(have, want), *unused)


def _pauses(have: RecordState, want: RecordState) -> list[Change]:
    """The pauses and resumes that lead from ``have`` to ``want``; a destroyed destination needs none."""
    found = []
    for key, fields in have.pauses.items():
        ended = {part: 0 for part in fields if part not in want.pauses.get(key, {})}
        if ended and (key in want.destinations or key not in have.destinations):
            found.append(Change("resume_destination", key, ended))
    for key, fields in want.pauses.items():
        gone = key in have.destinations and key not in want.destinations
        known = {} if gone else have.pauses.get(key, {})
        begun = {part: until for part, until in fields.items() if known.get(part) != until or part not in known}
        if begun:
            found.append(Change("pause_destination", key, begun))
    return found


# ---- the record


class Gap(Enum):
    """Why a copy cannot be continued by entries.

    COMPRESSED  the entries after that position are part of the base: take the whole record
    AHEAD       the position is beyond the end
    FORKED      another entry stands there
    """

    COMPRESSED = "compressed"
    AHEAD = "ahead"
    FORKED = "forked"


class ChangeRecord:
    """The record of one cluster, or a copy of it.

    ``id`` is random text, given when the record was begun or restored; ``term`` is that of the next entry.
    """

    def __init__(
        self,
        id: str,
        cluster: str,
        term: int,
        *,
        number: int = 0,
        digest: str = NO_DIGEST,
        state: RecordState | None = None,
    ) -> None:
        self.id = id
        self.cluster = cluster
        self.term = term
        self.base_number = number
        self.base_digest = digest
        self.base_state = RecordState() if state is None else state
        self.entries: list[Entry] = []
        self.state = self.base_state.copy()

    @property
    def number(self) -> int:
        """Of the last entry."""
        return self.base_number + len(self.entries)

    @property
    def digest(self) -> str:
        """Of everything."""
        return self.entries[-1].digest if self.entries else self.base_digest

    def propose(self, change: Change) -> Entry:
        """Append a change; raises as RecordState.make, and then nothing was appended."""
        self.state.make(change)
        body = _body(self.number + 1, self.term, change)
        entry = Entry(self.number + 1, self.term, change, chained(self.digest, body))
        self.entries.append(entry)
        return entry

    def accept(self, entry: Entry) -> None:
        """Append the next entry of another copy; raises ProtocolError when it does not fit."""
        if entry.number != self.number + 1:
            raise ProtocolError(f"entry {entry.number} of record {self.id} does not follow entry {self.number}")
        if entry.digest != chained(self.digest, entry.body()):
            raise ProtocolError(f"entry {entry.number} of record {self.id} has another history than the copy here")
        try:
            self.state.apply(entry.change)
        except (ConfigError, InvalidDestinationError) as error:
            raise ProtocolError(f"entry {entry.number} of record {self.id} cannot be carried out: {error}") from None
        self.entries.append(entry)
        self.term = max(self.term, entry.term)

    def digest_at(self, number: int) -> str | None:
        """The hash after entry ``number``; None when it is beyond the end or within the base."""
        if number == self.base_number:
            return self.base_digest
        if self.base_number < number <= self.number:
            return self.entries[number - self.base_number - 1].digest
        return None

    def after(self, number: int, digest: str) -> Sequence[Entry] | Gap:
        """The entries that a copy lacks which ends at ``number`` with ``digest``."""
        if number > self.number:
            return Gap.AHEAD
        known = self.digest_at(number)
        if known is None:
            return Gap.COMPRESSED
        if known != digest:
            return Gap.FORKED
        return self.entries[number - self.base_number :]

    def succeed(self, old: ChangeRecord) -> None:
        """This copy takes the place of ``old``: what that had and this has not may still be here."""
        if old.id == self.id:
            there = {of_subscription(key) for key in old.state.subscriptions}
            self.remember(old.state.past | old.state.destinations.keys() | there)

    def remember(self, past: Iterable[Key]) -> None:
        """These were in a longer copy of this record, and may still be here; see RecordState."""
        keys = set(past)
        for state in (self.base_state, self.state):
            there = {of_subscription(key) for key in state.subscriptions}
            state.past |= keys - state.destinations.keys() - there

    def forget_past(self) -> None:
        """All of the record is carried out here."""
        self.base_state.past.clear()
        self.state.past.clear()

    def compress(self, number: int | None = None) -> ChangeRecord:
        """The same record with its history up to entry ``number``, or all of it, as its base; the numbers go on.

        ``number`` is not before the base and not after the end.
        """
        end = self.number if number is None else number
        digest, state = self.digest_at(end), self.base_state.copy()
        assert digest is not None, f"entry {end} of record {self.id} is not among {self.base_number} … {self.number}"
        for entry in self.entries[: end - self.base_number]:
            state.apply(entry.change)
        short = ChangeRecord(self.id, self.cluster, self.term, number=end, digest=digest, state=state)
        for entry in self.entries[end - self.base_number :]:
            short.accept(entry)
        short.term = self.term
        return short
