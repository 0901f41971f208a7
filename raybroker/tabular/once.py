"""Writes that are carried out once, however often their task is run: a ledger of what was stored.

A task has an *entry*, a message in the queue LEDGER: how many parts of its rows are stored, and a digest of them.  One
transaction takes the entry, sends a part, and puts the entry back with the part counted: all of that happens, or
nothing.  A task that is run again finds the entry as the last commit left it, and goes on behind it.  Of two runs at
the same time, one that was taken for lost and its successor, only the one that has the entry can commit; a commit whose
answer was lost is looked up there.

The rows of a run that comes again have to be those of the one before: where a digest says otherwise, nobody can tell
what of the new rows is stored, and the write is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from raybroker.client.producer.bodies.body_encoding import encode_any
from raybroker.model.errors import BrokerError, ConfigError, IllegalStateError, SecurityError
from raybroker.system import entropy

LEDGER: Final = "raybroker-written"
"""The queue of the entries."""
WINDOW_MS: Final = 24 * 3_600_000
"""How long an entry is kept: a task that is run again later writes all of its rows again."""
TASKS_MAX: Final = 1_000_000
"""Tasks whose entries are kept, at most."""
LEDGER_ATTRIBUTES: Final[dict[str, Any]] = {
    "duplicateWindowMs": WINDOW_MS,
    "duplicateIdsMax": TASKS_MAX,
    "redeliveryLimit": -1,
    "useDMQ": False,
}
PART_ROWS: Final = 1_000
"""Messages of a part: ``imq.transaction.producer.maxNumMsgs`` allows as many in one transaction."""
HELD_S: Final = 120.0
"""How long a run waits for an entry that another run has: until that is known to be lost."""
ATTEMPTS: Final = 5
"""Tries of a part, whose transactions fail as a broker is lost and comes back."""
FORGOTTEN_S: Final = 0.5
"""How long the end of a write waits for another entry of its own to remove."""


class OutgoingRow(NamedTuple):
    """A message to send, and its deduplication id, if it has one."""

    body: Any
    dedup_id: str | None = None


class LedgerEntry(NamedTuple):
    """How many parts of a task are stored, and the digest of their rows."""

    parts: int
    digest: str


class WrittenRows:
    """The digest of the rows of a task, part by part: a pure account of what a run has come to."""

    __slots__ = ("_digest", "parts")

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self.parts = 0

    def add(self, rows: Iterable[OutgoingRow]) -> None:
        """Count another part."""
        for row in rows:
            kind, body = encode_any(row.body)
            self._digest.update(b"%d %d %a " % (kind, len(body), row.dedup_id))
            self._digest.update(body)
        self.parts += 1

    def entry(self) -> LedgerEntry:
        """The entry of a task that has stored these parts."""
        return LedgerEntry(self.parts, self._digest.hexdigest())

    def is_stored(self, stored: LedgerEntry, task: str) -> bool:
        """Whether an entry has the last part; raises IllegalStateError where that was made of other rows."""
        if stored.parts == self.parts and stored != self.entry():
            raise IllegalStateError(
                f"the rows of the write {task} are not those of its run before, of which {stored.parts} parts are"
                " stored: what it is made of gives other rows, or another order, each time; store it first, or sort it"
            )
        return stored.parts >= self.parts


def open_ledger(connection: Any) -> None:
    """Make the queue of the entries, unless it is there; where this connection may not, it has to be.

    Raises ConfigError when it is not there, or does not remember ids.
    """
    try:
        connection.admin().create_destination("queue", LEDGER, if_exists="keep", **LEDGER_ATTRIBUTES)
    except SecurityError:
        _require_ledger(connection)


def _require_ledger(connection: Any) -> None:
    """A message that is sent twice under one id has to be taken once."""
    probe = entropy.token(16).hex()
    with connection.session() as session:
        producer = session.producer(LEDGER)
        for _ in range(2):
            producer.send(None, properties={"write": probe}, dedup_id=probe, ttl_ms=WINDOW_MS)
        remembered = producer.duplicates == 1
    forget_write(connection, probe)
    if not remembered:
        attributes = " ".join(f"-o {name}={json.dumps(value)}" for name, value in LEDGER_ATTRIBUTES.items())
        raise ConfigError(
            f"the queue {LEDGER}, by which each row is written once, does not remember ids, and this user may not make"
            f" it; let an administrator run: raybroker create dst -t q -n {LEDGER} {attributes}"
        )


def forget_write(connection: Any, write: str) -> None:
    """Remove the entries of a write whose tasks are not run again."""
    with connection.session() as session, session.consumer(LEDGER, f"write = {quoted(write)}") as entries:
        while entries.receive_many(timeout=FORGOTTEN_S):
            pass


class TaskWriter:
    """Stores the rows of one task of a write in a queue, each part once."""

    def __init__(self, connection: Any, queue: str, write: str, task: str) -> None:
        self._connection = connection
        self._queue = queue
        self._name = f"{write}/{task}"
        self._properties = {"write": write, "name": self._name}
        self._written = WrittenRows()
        self._stored: LedgerEntry | None = None
        """The entry as this run saw it last."""
        self._session: _WriteSession | None = None
        with connection.session() as session:
            session.producer(LEDGER).send(
                list(self._written.entry()), properties=self._properties, dedup_id=self._name, ttl_ms=WINDOW_MS
            )

    def write_part(self, rows: list[OutgoingRow]) -> None:
        """Store up to PART_ROWS rows, unless a run before has."""
        before = list(self._written.entry())
        self._written.add(rows)
        if self._stored is not None and self._written.is_stored(self._stored, self._name):
            return
        for attempt in range(ATTEMPTS):
            try:
                self._stored = self._taken()
                if self._written.is_stored(self._stored, self._name):
                    self._drop_session()
                    return
                if list(self._stored) != before:
                    raise IllegalStateError(
                        f"the write {self._name} has {self._stored.parts} parts in the queue {LEDGER}, and not the"
                        f" {before[0]} that were stored: nobody else may send or receive there"
                    )
                self._commit(rows)
                return
            except BrokerError as error:
                self._drop_session()
                if not error.retryable or attempt == ATTEMPTS - 1:
                    raise

    def finish(self) -> None:
        """All rows were written; raises IllegalStateError when a run before has stored more."""
        self._drop_session()
        if self._stored is not None and self._stored.parts > self._written.parts:
            raise IllegalStateError(
                f"the write {self._name} has {self._written.parts} parts, and {self._stored.parts} of its run before"
                " are stored: what it is made of gives fewer rows each time; store it first"
            )

    def _taken(self) -> LedgerEntry:
        """The entry, which is this transaction's from now on."""
        if self._session is None:
            self._session = _WriteSession(self._connection, self._queue, self._name)
        found = self._session.entries.receive(timeout=HELD_S)
        if found is None:
            raise IllegalStateError(
                f"the write {self._name} has no entry in the queue {LEDGER} for {HELD_S:g} s: another run of it has it,"
                " or the write is over"
            )
        return LedgerEntry(*found.body)

    def _commit(self, rows: list[OutgoingRow]) -> None:
        """Store the rows, and count them in the entry."""
        assert self._session is not None, "the entry was taken"
        self._session.send_rows(rows)
        entry = self._written.entry()
        self._session.book.send(list(entry), properties=self._properties, ttl_ms=WINDOW_MS)
        self._session.session.commit()
        self._stored = entry

    def _drop_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.session.close()


class _WriteSession:
    """The transactions of a task: its entry, and its messages."""

    def __init__(self, connection: Any, queue: str, name: str) -> None:
        self.session = connection.session(transacted=True)
        self.entries = self.session.consumer(LEDGER, f"name = {quoted(name)}", prefetch=1)
        self.book = self.session.producer(LEDGER)
        self._out = self.session.producer(queue)

    def send_rows(self, rows: list[OutgoingRow]) -> None:
        if all(row.dedup_id is None for row in rows):
            self._out.send_many(row.body for row in rows)
            return
        for row in rows:
            self._out.send(row.body, dedup_id=row.dedup_id)


def quoted(text: str) -> str:
    """A text as a literal of a selector."""
    return "'" + text.replace("'", "''") + "'"
