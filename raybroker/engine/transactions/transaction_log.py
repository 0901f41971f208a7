"""Journal records of transactions, as notes of destination 0.

    PREPARED   number, key, kind, coordinator, when: its parts are in notes and blocks of destinations
    DECIDED    number, key, commit or not, whether other hosts took part: read after a restart it ends what was
               prepared, and answers who asks
    HEURISTIC  number, key, commit or not, when: an administrator ended a prepared XA branch
    FORGOTTEN  key: nobody will ask again

A checkpoint carries the rows that still matter.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from raybroker.model.blocks.record import NOTE, LogEntry
from raybroker.model.errors import StoreDamagedError

PREPARED: Final = "prepared"
DECIDED: Final = "decided"
FORGOTTEN: Final = "forgotten"
HEURISTIC: Final = "heuristic"


class PreparedRow(NamedTuple):
    """A transaction that waits for its decision; ``coordinator``: place of the host that decides it, "" for XA."""

    number: int
    key: bytes
    kind: str
    coordinator: str
    created_ms: int


class HeuristicRow(NamedTuple):
    """A prepared XA branch that an administrator ended; ``created_ms``: when the branch began."""

    number: int
    key: bytes
    commit: bool
    created_ms: int

    @property
    def state(self) -> str:
        return "HEURISTICALLY_COMMITTED" if self.commit else "HEURISTICALLY_ROLLED_BACK"


PREFIX_BYTES: Final = 8
"""What the keys of one session's local transactions have in common: it asks for the latest one only."""
LOCAL_KEY_BYTES: Final = 16
SESSIONS_MAX: Final = 10_000
"""Sessions whose latest outcome is remembered."""
SHARED_MAX: Final = 10_000
"""Outcomes that other hosts may still ask for, because nobody has said that all of them know."""
HEURISTICS_MAX: Final = 10_000
"""Heuristic outcomes that no transaction manager has forgotten yet."""


@dataclass(slots=True)
class TxLog:
    """The rows that still matter.

    prepared  number → what waits for its decision
    outcomes  key → committed?, of a session's latest local transaction, and of XA branches
    shared    the same for those in which other hosts took part
    decided   number → committed?, for what the log holds of it
    heuristic key → what an administrator decided, until it is forgotten
    """

    next_number: int = 1
    prepared: dict[int, PreparedRow] = field(default_factory=dict)
    outcomes: dict[bytes, bool] = field(default_factory=dict)
    shared: dict[bytes, bool] = field(default_factory=dict)
    decided: dict[int, bool] = field(default_factory=dict)
    heuristic: dict[bytes, HeuristicRow] = field(default_factory=dict)
    _latest: dict[bytes, bytes] = field(default_factory=dict)

    def outcome(self, key: bytes) -> bool | None:
        if key in self.heuristic:
            return self.heuristic[key].commit
        found = self.shared.get(key)
        return self.outcomes.get(key) if found is None else found

    def remember(self, key: bytes, commit: bool, shared: bool, most: int = SESSIONS_MAX) -> None:
        """How a transaction ended; ``most`` outcomes are kept beside the shared ones."""
        if shared:
            self.shared[key] = commit
            while len(self.shared) > SHARED_MAX:
                del self.shared[next(iter(self.shared))]
            return
        if len(key) == LOCAL_KEY_BYTES:
            before = self._latest.pop(key[:PREFIX_BYTES], key)
            if before > key:
                self._latest[key[:PREFIX_BYTES]] = before
                return
            self.outcomes.pop(before, None)
            self._latest[key[:PREFIX_BYTES]] = key
        self.outcomes.pop(key, None)
        self.outcomes[key] = commit
        while len(self.outcomes) > most:
            oldest = next(iter(self.outcomes))
            del self.outcomes[oldest]
            if self._latest.get(oldest[:PREFIX_BYTES]) == oldest:
                del self._latest[oldest[:PREFIX_BYTES]]

    def superseded(self, key: bytes) -> bool:
        """A later transaction of the same session has ended: this one was given up (keys of a session count up)."""
        latest = self._latest.get(key[:PREFIX_BYTES]) if len(key) == LOCAL_KEY_BYTES else None
        return latest is not None and latest > key

    def forget_transaction(self, key: bytes) -> bool:
        """Nobody will ask again; True when it was remembered."""
        found = [self.shared.pop(key, None), self.outcomes.pop(key, None), self.heuristic.pop(key, None)]
        return any(outcome is not None for outcome in found)

    def apply(self, meta: bytes) -> None:
        """One note, in the order of the log. Raises StoreDamagedError."""
        try:
            word, number, key, *rest = json.loads(meta)
            key = bytes.fromhex(key)
        except (ValueError, TypeError) as error:
            raise StoreDamagedError(f"a stored note about a transaction does not decode: {error!r}") from None
        self.next_number = max(self.next_number, number + 1)
        if word == PREPARED:
            self.prepared[number] = PreparedRow(number, key, *rest)
        elif word == DECIDED:
            self.prepared.pop(number, None)
            commit, shared = rest
            if number:
                self.decided[number] = commit
            self.remember(key, commit, shared)
        elif word == HEURISTIC:
            self.heuristic[key] = HeuristicRow(number, key, *rest)
        else:
            self.forget_transaction(key)

    def encode(self) -> bytes:
        """Encode the log for a checkpoint; ``decided`` is in the snapshots of the destinations by then."""
        return json.dumps(
            {
                "next": self.next_number,
                "prepared": [
                    [r.number, r.key.hex(), r.kind, r.coordinator, r.created_ms] for r in self.prepared.values()
                ],
                "outcomes": [[key.hex(), commit] for key, commit in self.outcomes.items()],
                "shared": [[key.hex(), commit] for key, commit in self.shared.items()],
                "heuristic": [[r.number, r.key.hex(), r.commit, r.created_ms] for r in self.heuristic.values()],
            }
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> TxLog:
        try:
            fields = json.loads(data)
            rows = [PreparedRow(n, bytes.fromhex(key), *rest) for n, key, *rest in fields["prepared"]]
            found = cls(fields["next"], {row.number: row for row in rows})
            for shared in (False, True):
                for key, commit in fields["shared" if shared else "outcomes"]:
                    found.remember(bytes.fromhex(key), commit, shared)
            for number, key, commit, created_ms in fields.get("heuristic", ()):  # Older checkpoints have none.
                row = HeuristicRow(number, bytes.fromhex(key), commit, created_ms)
                found.heuristic[row.key] = row
            return found
        except (ValueError, TypeError, KeyError) as error:
            raise StoreDamagedError(f"a checkpoint's transactions do not decode: {error!r}") from None


def decided(number: int, key: bytes, commit: bool, shared: bool) -> LogEntry:
    """The note of every commit: :func:`note` for it, at a third of the cost."""
    meta = f'["{DECIDED}",{number},"{key.hex()}",{_WORDS[commit]},{_WORDS[shared]}]'
    return LogEntry(NOTE, 0, 0, meta.encode())


_WORDS: Final = ("false", "true")


def note(word: str, number: int, key: bytes, *rest: Any) -> LogEntry:
    return LogEntry(NOTE, 0, 0, json.dumps([word, number, key.hex(), *rest], separators=(",", ":")).encode())
