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
from typing import Any, Final

from raybroker.model.definitions.kinds.destination import DESTINATION
from raybroker.model.definitions.kinds.kind import Recorded
from raybroker.model.definitions.kinds.table import RECORDED
from raybroker.model.errors import ConfigError, IllegalStateError, InvalidDestinationError, ProtocolError
from raybroker.model.settings.settings import go_on

Key = tuple[str, ...]
Attributes = Mapping[str, object]
Table = dict[Key, dict[str, object]]
DIGEST_BYTES: Final = 16
NO_DIGEST: Final = ""
"""Before the first entry."""
VERSION: Final = "version"
"""Field of a row that several change: a change names the version after it, and is refused unless that is the next."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change.  ``attributes`` are plain values: what is created or set, or what an update replaces.

    key   (type, name) of a destination, (client id or "", name) of a durable subscription, (name,) of a template or
          a quota or a policy or a broker or a service or a forwarding agent; (type, name) of a destination whose
          log has copies; ("broker", name) or ("node", id) of what is drained

    A pause names what it stops as attributes, each with the time in milliseconds at which it ends by itself, 0 for
    never; what a resume names goes on.
    """

    kind: str
    key: Key
    attributes: Attributes = field(default_factory=dict)

    def canonical(self) -> list[object]:
        """Return it as JSON has it."""
        return [self.kind, list(self.key), dict(self.attributes)]

    @staticmethod
    def from_canonical(found: Any) -> Change:
        """Raises ProtocolError for what is no change."""
        try:
            kind, key, attributes = found
            if kind not in KIND_OF or not all(isinstance(part, str) for part in key):
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
    an auto-created one.  A service has the field broker: where it keeps its data.  ``copies`` says
    of a destination whose log has copies which brokers keep those, and goes with it.  ``pauses`` holds what
    of a destination is paused and until when; the destination may be in no record as well.  ``drains``: the brokers and
    nodes that are about to go for a while, see raybroker.broker.cluster.drains.

    ``past``: destinations and subscriptions that were destroyed, and may still be on the broker whose copy this is.  It
    says nothing of the cluster: copies are equal whatever theirs is.
    """

    destinations: Table
    subscriptions: Table
    templates: Table
    added: Table
    services: Table
    copies: Table
    drains: Table
    forwardings: Table
    pauses: Table
    quotas: Table
    policies: Table

    def __init__(self) -> None:
        for kind in RECORDED:
            setattr(self, kind.table, {})
        self.past: set[Key] = set()

    def table(self, kind: Recorded) -> Table:
        found: Table = getattr(self, kind.table)
        return found

    def staying(self) -> set[Key]:
        """Destinations and subscriptions, as ``past`` would have them."""
        return {past_key(kind, key) for kind in RECORDED if kind.stays for key in self.table(kind)}

    @property
    def brokers(self) -> list[str]:
        return [key[0] for key in self.added]

    def check(self, change: Change) -> None:
        """Raises InvalidDestinationError or ConfigError when the change cannot be made now."""
        kind = KIND_OF[change.kind]
        there = change.key in self.table(kind)
        label = f"{kind.word} {' '.join(repr(part) for part in change.key if part)}"
        error = InvalidDestinationError if kind.stays else ConfigError
        if not there and change.kind != kind.make and not kind.parts:
            raise error(f"{label} does not exist")
        if there and change.kind == kind.make != kind.change and not kind.parts:
            raise error(f"{label} exists already")

    def make(self, change: Change) -> None:
        """Apply a change that is wanted now; raises as :meth:`check`, ConfigError for an error destination that leads
        back and a quota that does not exist, IllegalStateError for a quota in use that is to be destroyed and for a row
        that was changed meanwhile (VERSION).  An entry of the record is never refused for that: it was made."""
        self.check(change)
        kind = KIND_OF[change.kind]
        version = change.attributes.get(VERSION)
        if change.kind == kind.change and version is not None:
            now = int(str(self.table(kind)[change.key].get(VERSION, 0)))
            if version != now + 1:
                raise IllegalStateError(f"{change}: it was changed meanwhile, and is at version {now}; try again")
        quota = kind.naming(change.attributes).get("quota")
        if quota and change.kind != kind.end and (str(quota),) not in self.quotas:
            raise ConfigError(f"{change}: there is no quota {quota!r} (any more)")
        if kind.referred and change.kind == kind.end:
            self._refuse_used(change.key[0])
        way, after = [change.key[-1]], change.attributes.get("errorDestination")
        while after and change.key[0] == "queue":
            go_on(way, str(after))
            after = self.destinations.get(("queue", way[-1]), {}).get("errorDestination")
        self.apply(change)

    def _refuse_used(self, quota: str) -> None:
        for kind in reversed(RECORDED):
            for key, row in self.table(kind).items():
                if kind.naming(row).get("quota") == quota:
                    user = " ".join(key if kind is DESTINATION else (kind.word, *key))
                    raise IllegalStateError(f"quota {quota!r} is in use by {user}; give that another quota first")

    def apply(self, change: Change) -> None:
        """Raises as :meth:`check`, and then changes nothing."""
        self.check(change)
        kind, key = KIND_OF[change.kind], change.key
        table = self.table(kind)
        if change.kind == kind.end:
            row = table.pop(key, {})
            if left := {part: row[part] for part in row if kind.parts and part not in change.attributes}:
                table[key] = left
        elif kind.parts or change.kind == kind.change != kind.make:
            table[key] = {**table.get(key, {}), **change.attributes}
        else:
            table[key] = dict(change.attributes)
        if kind.stays and change.kind == kind.end:
            self.past.add(past_key(kind, key))
        elif kind.stays and change.kind == kind.make:
            self.past.discard(past_key(kind, key))
        if change.kind == DESTINATION.end:
            self.pauses.pop(key, None)
            self.copies.pop(key, None)
        if change.kind == DESTINATION.end and key[0] == "topic":
            for of_topic in [k for k, fields in self.subscriptions.items() if fields.get("topic") == key[1]]:
                del self.subscriptions[of_topic]
                self.past.add(of_subscription(of_topic))

    def copy(self) -> RecordState:
        """Independent of this one but for the attribute dicts, which are never changed in place."""
        other = RecordState()
        for kind in RECORDED:
            other.table(kind).update(self.table(kind))
        other.past.update(self.past)
        return other

    def canonical(self) -> dict[str, object]:
        """Return it as JSON has it: for each table the rows as [key, attributes], in order of creation."""
        kept = (kind for kind in RECORDED if self.table(kind) or not kind.seldom)
        return {kind.table: [[list(k), dict(v)] for k, v in self.table(kind).items()] for kind in kept}

    @staticmethod
    def from_canonical(found: Any) -> RecordState:
        """Raises ProtocolError for what is none."""
        state = RecordState()
        try:
            for kind in RECORDED:
                for key, attributes in found.get(kind.table, ()) if kind.later else found[kind.table]:
                    state.table(kind)[tuple(key)] = dict(attributes)
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"not a state of the configuration: {error!r}") from None
        return state

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same rows, whatever came first."""
        return isinstance(other, RecordState) and all(self.table(kind) == other.table(kind) for kind in RECORDED)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __bool__(self) -> bool:
        return any(self.table(kind) for kind in RECORDED)


KIND_OF: Final = {change: kind for kind in RECORDED for change in (kind.make, kind.change, kind.end) if change}
"""Change → what it is of."""


def of_subscription(key: Key) -> Key:
    """The key of a durable subscription among those of the past, where destinations are as well."""
    return ("subscription", *key)


def past_key(kind: Recorded, key: Key) -> Key:
    """The key of what was ended, among those of the past."""
    return of_subscription(key) if kind.in_topic else key


def differences(have: RecordState, want: RecordState) -> tuple[Change, ...]:
    """The changes that lead from ``have`` to ``want``: removals first, each change after those that it needs.

    A destination whose attributes differ is updated; a subscription that differs is destroyed and made again.
    """
    gone: list[Change] = []
    come: list[Change] = []
    unused: list[Change] = []
    topics_gone = {key[1] for key in have.destinations if key[0] == "topic" and key not in want.destinations}
    for kind in RECORDED:
        before, after = have.table(kind), want.table(kind)
        if kind.parts:
            come += _parts(kind, have, want)
            continue
        goes_along = {key: kind.in_topic and row.get("topic") in topics_gone for key, row in before.items()}
        ended = [
            Change(kind.end, key)
            for key, row in before.items()
            if not goes_along[key] and (key not in after or (row != after[key] and not kind.change))
        ]
        for key, row in after.items():
            if key not in before or goes_along[key] or (row != before[key] and not kind.change):
                come.append(Change(kind.make, key, row))
            elif row != before[key]:
                come.append(Change(kind.change, key, row))
        if kind.referred:
            unused += ended
        else:
            gone = [*ended, *gone]
    return (*gone, *come, *unused)


def _parts(kind: Recorded, have: RecordState, want: RecordState) -> list[Change]:
    """The changes of parts of destinations; a destroyed destination needs none."""
    found = []
    before, after = have.table(kind), want.table(kind)
    for key, fields in before.items():
        ended = {part: 0 for part in fields if part not in after.get(key, {})}
        if ended and (key in want.destinations or key not in have.destinations):
            found.append(Change(kind.end, key, ended))
    for key, fields in after.items():
        gone = key in have.destinations and key not in want.destinations
        known = {} if gone else before.get(key, {})
        begun = {part: until for part, until in fields.items() if known.get(part) != until or part not in known}
        if begun:
            found.append(Change(kind.make, key, begun))
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
        """The number of the last entry."""
        return self.base_number + len(self.entries)

    @property
    def digest(self) -> str:
        """The digest of everything."""
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
            self.remember(old.state.past | old.state.staying())

    def remember(self, past: Iterable[Key]) -> None:
        """These were in a longer copy of this record, and may still be here; see RecordState."""
        keys = set(past)
        for state in (self.base_state, self.state):
            state.past |= keys - state.staying()

    def forget_past(self) -> None:
        """All of the record is carried out here."""
        self.base_state.past.clear()
        self.state.past.clear()

    def compress(self, number: int | None = None) -> ChangeRecord:
        """Return the same record with its history up to entry ``number``, or all of it, as its base; the numbers go on.

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
