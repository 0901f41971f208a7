"""A record in a table that all brokers share: no broker is the master, every one may append.

A broker keeps a copy, as it would of a master's record.  It decides on a change by the copy and puts it into the table
as the next entry; another broker may have been first, and then it reads what came and decides again.  It refuses a
change only by a copy that it has read anew since the change was wanted.  One call to the table is under way at a time.

What became of a change is unknown when the end of its transaction was not seen.  It is tried again as the same entry by
the same *writer*, which the table has once: the entry is found there, or another one is, and then it was never made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from raybroker.cluster.backup import dump
from raybroker.cluster.change_record import ChangeRecord, Entry, chained, differences
from raybroker.cluster.events import Answer, AppendTable, Propose, ReadTable, ShortenTable, TableDone
from raybroker.cluster.follower import recorded
from raybroker.cluster.member_messages import Beat
from raybroker.cluster.member_state import COMPRESS_MIN, HISTORY_RATIO, MemberContext, MemberState
from raybroker.cluster.record_application import Applier
from raybroker.cluster.record_rows import check, entry_of, record_of, row_of
from raybroker.cluster.saved_record import entry_frame
from raybroker.cluster.term import Leadership
from raybroker.model.errors import (
    BrokerError,
    ConfigError,
    MasterUnavailableError,
    ProtocolError,
    RequestTimeoutError,
    StoreDamagedError,
)
from raybroker.model.shared_record import FoundRecord, TableRow

BATCH: Final = 100
"""Changes that go into the table at once."""
PROPOSALS_MAX: Final = 10_000
TRIES_MAX: Final = 100
"""How often other brokers may be first before a change is refused."""
SAID_MAX: Final = 10
"""Reasons that the log names of one outage."""
RESTORE: Final = "restore a backup: raybroker dbmgr restore sharecc_tbl"


@dataclass(slots=True)
class TableProposal:
    """A change that is wanted here.

    doubt   entries up to this number tell what became of an attempt whose end was not seen; 0: there is none
    record  of that attempt
    number  of its entry, 0 while it is not in the table
    """

    propose: Propose
    sequence: int
    writer: str
    until_ms: int
    tries: int = 0
    doubt: int = 0
    record: str = ""
    number: int = 0


class Sharer:
    """``beat`` tells the others that there is something new; ``take`` makes a whole record the copy.

    target: the entry that the copy has to reach before this broker is integrated; None: not known.
    """

    def __init__(
        self, life: MemberContext, applier: Applier, beat: Callable[[], None], take: Callable[[ChangeRecord], None]
    ) -> None:
        self._life = life
        self._applier = applier
        self._beat = beat
        self._take = take
        self.target: int | None = None
        self._token = 0
        self._call: ReadTable | AppendTable | ShortenTable | None = None
        self._batch: list[tuple[TableProposal, Entry]] = []
        self._proposals: dict[int, TableProposal] = {}
        self._sequence = 0
        self._reading = self._seen = 0
        """The last change that was wanted before the reading under way, and before the last complete one."""
        self._read_ms = 0
        self._told = False
        """Another broker has announced newer entries since the last reading began."""
        self._vain_ms = 0
        """The earliest time to read again after a reading without news."""
        self._shorten_now = False
        self._base_number = 0
        self._said: set[str] = set()
        """The reasons that the log already has for this outage."""
        self._newer: tuple[Leadership, int] = Leadership(), 0
        """The latest term that another broker knows of, and when it said so."""

    # ---- what is wanted

    def propose(self, event: Propose) -> None:
        """A change that is wanted on this broker; the next :meth:`pump` goes on with it."""
        life = self._life
        if len(self._proposals) >= PROPOSALS_MAX:
            text = f"{PROPOSALS_MAX} changes are under way already; try again in a moment"
            life.out.append(Answer(event.request, MasterUnavailableError(text)))
            return
        self._sequence += 1
        writer = f"{life.name}.{life.incarnation}.{self._sequence}"
        self._proposals[self._sequence] = TableProposal(
            event, self._sequence, writer, life.now_ms + life.settings.request_ms
        )

    def compress(self) -> None:
        """Make the history that the table has its base."""
        self._shorten_now = True

    def beaten(self, message: Beat) -> None:
        """Another broker lives and says how far its copy is."""
        life, position = self._life, message.position
        if message.claim.beats(life.claim):
            self._newer = message.claim, life.now_ms
        if position.record != life.record.id or position.number > life.record.number:
            self._told = True

    def tick(self) -> None:
        """Answer changes that waited for too long."""
        life = self._life
        why = f"{life.keeper} has not answered in time"
        late = [one for one in self._proposals.values() if life.now_ms >= one.until_ms]
        for proposal in [one for one in late if not one.number]:  # The applier says what becomes of the others.
            under_way = any(proposal is one for one, _ in self._batch)
            if proposal.doubt or under_way:
                self._unknown(proposal, why)
            else:
                self._refuse(proposal, MasterUnavailableError(f"{why}; nothing was changed"))

    # ---- calls to the table

    def pump(self) -> None:
        """Begin the next call to the table, if one is due."""
        life = self._life
        if self._call is not None or life.state in (MemberState.STARTING, MemberState.STOPPED):
            return
        told = self._told and life.table_heard and life.now_ms >= self._vain_ms
        if told or life.now_ms >= self._read_ms:
            self._read()
        elif life.keeper_heard and not self._append():
            self._shorten()

    def _next(self) -> int:
        self._token += 1
        return self._token

    def _read(self) -> None:
        life = self._life
        mine = life.record.id == life.claim.record
        self._reading, self._told = self._sequence, False
        self._call = ReadTable(self._next(), life.record.id if mine else "", life.record.number if mine else 0)
        life.out.append(self._call)

    def _append(self) -> bool:
        """Put changes that can be made now into the table; True when a call is under way."""
        life, record = self._life, self._life.record
        undecided = [proposal for proposal in self._proposals.values() if not proposal.number]
        if not undecided:
            return False
        state, number, digest, stale = record.state.copy(), record.number, record.digest, False
        for proposal in undecided:
            try:
                state.make(proposal.propose.change)
            except BrokerError as error:
                if proposal.sequence > self._seen:
                    stale = True
                elif not proposal.doubt:
                    self._refuse(proposal, error)
                continue
            number += 1
            entry = Entry(number, record.term, proposal.propose.change, "")
            entry = replace(entry, digest=chained(digest, entry.body()))
            digest = entry.digest
            self._batch.append((proposal, entry))
            if len(self._batch) >= BATCH:
                break
        if self._batch:
            rows = tuple(row_of(entry, proposal.writer) for proposal, entry in self._batch)
            self._call = AppendTable(self._next(), record.id, rows)
            life.out.append(self._call)
        elif stale:
            self._read()
        return self._call is not None

    def _shorten(self) -> None:
        life, record = self._life, self._life.record
        if not self._shorten_now or life.durable.number != record.number or self._base_number >= record.number:
            return
        self._shorten_now = False
        base = dump(record.compress()).decode("ascii")
        self._call = ShortenTable(self._next(), record.id, self._base_number, record.number, record.digest, base)
        life.out.append(self._call)

    def done(self, event: TableDone) -> None:
        """The table has answered, or cannot be used."""
        call, self._call = self._call, None
        batch, self._batch = self._batch, []
        if call is None or event.token != call.token:
            self._call, self._batch = call, batch
        elif isinstance(call, ReadTable):
            self._read_done(event)
        elif isinstance(call, AppendTable):
            self._append_done(call, batch, event)
        elif event.error:
            self._lost(event.error)
        elif event.done:
            self._base_number = call.number

    # ---- what came of an append

    def _append_done(self, call: AppendTable, batch: list[tuple[TableProposal, Entry]], event: TableDone) -> None:
        life = self._life
        if event.error:
            for proposal, _ in batch:
                if event.unknown:
                    proposal.doubt, proposal.record = max(proposal.doubt, call.rows[0].number), call.record
            self._lost(event.error)
        elif event.done:
            self._made(batch)
        else:
            self._read_ms = life.now_ms
            for proposal, _ in batch:
                proposal.tries += 1
                if proposal.tries >= TRIES_MAX and not proposal.doubt:
                    text = f"other brokers were first {TRIES_MAX} times; nothing was changed, try again"
                    self._refuse(proposal, MasterUnavailableError(text))

    def _made(self, batch: list[tuple[TableProposal, Entry]]) -> None:
        """These entries are durable in the table."""
        entries = [entry for _, entry in batch]
        for entry in entries:
            self._life.record.accept(entry)
        self.target = max(self.target or 0, entries[-1].number)
        self._keep(entries, self._beat)
        for proposal, entry in batch:
            self._decided(proposal, entry.number)

    def _keep(self, entries: list[Entry], then: Callable[[], None] = lambda: None) -> None:
        """Entries that were accepted; once they are on disk here they are carried out, and ``then`` is called."""
        life = self._life

        def durable() -> None:
            life.entries_durable(entries)
            then()

        if entries:
            life.persist([entry_frame(entry) for entry in entries], durable)
            life.compress_when_long()

    def _decided(self, proposal: TableProposal, number: int) -> None:
        proposal.number = number
        self._applier.when(number, lambda failure: self._applied(proposal, failure))

    def _applied(self, proposal: TableProposal, failure: str) -> None:
        if self._proposals.pop(proposal.sequence, None) is not None:
            error = recorded(failure, proposal.number)
            self._life.out.append(Answer(proposal.propose.request, error, proposal.number))

    # ---- what was read

    def _read_done(self, event: TableDone) -> None:
        life = self._life
        before = life.record.id, life.record.number
        try:
            if event.error:
                raise MasterUnavailableError(event.error)
            if event.found is None:
                raise ConfigError("there is no such table; create it: raybroker dbmgr create sharecc_tbl")
            check(event.found)
            self._take_in(event.found)
        except BrokerError as error:
            self._lost(str(error))
            return
        found = event.found
        life.trouble, life.table_heard = "", True
        self._said.clear()
        whole = life.record.number >= found.last
        self._read_ms = life.now_ms + life.settings.table_poll_ms if whole else life.now_ms
        if whole:
            self._seen = self._reading
        if before == (life.record.id, life.record.number):
            self._vain_ms = life.now_ms + life.settings.heartbeat_ms
        self.target = found.last
        self._base_number = found.head.base_number
        long = found.last - self._base_number > COMPRESS_MIN + HISTORY_RATIO * life.record_rows
        if long and life.membership.coordinator() == life.name:
            self._shorten_now = True
        self._resolve(found)

    def _take_in(self, found: FoundRecord) -> None:
        """Raises a BrokerError when the table is not the one that the copy here is of."""
        life, head = self._life, found.head
        if life.cluster and head.cluster != life.cluster:
            raise ConfigError(
                f"it belongs to cluster {head.cluster!r}, and this is cluster {life.cluster!r};"
                " each cluster has a database of its own"
            )
        (newer, said_ms), claim = self._newer, life.claim
        if newer.term > head.term and life.now_ms - said_ms < life.settings.down_ms:
            raise ConfigError(
                f"another broker knows record {newer.record[:8]} of term {newer.term}, and the table has"
                f" {head.record[:8]} of term {head.term}: they do not use the same table"
            )
        if head.record == claim.record:
            self._go_on(found)
            return
        if claim.record and head.term <= claim.term:
            raise ConfigError(
                f"it has record {head.record[:8]} of term {head.term}, and the copy here is of record"
                f" {claim.record[:8]} of term {claim.term}: it was set back or made anew; {RESTORE}"
            )
        record, state = record_of(found), life.record.state
        lost = differences(state, record.state)
        if lost and state:
            life.note(
                f"the configuration record is replaced by that of {life.keeper}; {len(lost)} changes:"
                f" {', '.join(map(str, lost[:10]))}",
                warning=True,
            )
        life.cluster = life.cluster or head.cluster
        life.claim, life.configured = Leadership(head.term, "", head.record), ""
        self._take(record)

    def _go_on(self, found: FoundRecord) -> None:
        """More of the record that the copy is of."""
        record = self._life.record
        text = (
            f"it ends at entry {found.last}, and the copy here at {record.number} with another history: the table"
            f" was set back; {RESTORE}"
        )
        if found.base:
            longer = record_of(found)
            if longer.id == record.id and (
                longer.number < record.number or longer.digest_at(record.number) not in (None, record.digest)
            ):
                raise StoreDamagedError(text)
            self._take(longer)
            return
        if found.last < record.number or found.digest != record.digest:
            raise StoreDamagedError(text)
        new: list[Entry] = []
        try:
            for row in found.rows:
                entry = entry_of(row)
                record.accept(entry)
                new.append(entry)
            if record.number < found.last and not new:
                raise ProtocolError(f"entry {record.number + 1} is missing")
        except ProtocolError as error:
            raise StoreDamagedError(f"{error}; {RESTORE}") from None
        finally:
            self._keep(new)

    def _resolve(self, found: FoundRecord) -> None:
        """What became of changes whose attempts were not seen to end."""
        record = self._life.record
        written = {row.writer: row for row in found.rows}
        for proposal in [proposal for proposal in self._proposals.values() if proposal.doubt and not proposal.number]:
            row: TableRow | None = written.get(proposal.writer)
            if row is not None:
                self._decided(proposal, row.number)
            elif proposal.record != record.id or (found.base and found.head.base_number >= proposal.doubt):
                self._unknown(proposal, f"the history of {self._life.keeper} was replaced or shortened meanwhile")
            elif record.number >= proposal.doubt:
                proposal.doubt = 0  # Another entry stands where it could only have been.

    # ---- the end

    def _lost(self, text: str) -> None:
        """The table cannot be reached, or not be used: nothing of what waits was made, but what is in doubt."""
        life = self._life
        if text not in self._said and len(self._said) < SAID_MAX:
            self._said.add(text)
            life.note(f"{life.keeper} cannot be used: {text}", warning=True)
        life.trouble, life.table_heard = text, False
        self._read_ms = life.now_ms + life.settings.retry_ms
        for proposal in [
            proposal for proposal in self._proposals.values() if not proposal.number and not proposal.doubt
        ]:
            self._refuse(proposal, MasterUnavailableError(f"{life.keeper} cannot be used: {text}; nothing was changed"))

    def _refuse(self, proposal: TableProposal, error: BrokerError) -> None:
        if self._proposals.pop(proposal.sequence, None) is not None:
            self._life.out.append(Answer(proposal.propose.request, error))

    def _unknown(self, proposal: TableProposal, why: str) -> None:
        text = f"{why}; whether the change '{proposal.propose.change}' was made is unknown"
        if self._proposals.pop(proposal.sequence, None) is not None:
            self._life.out.append(Answer(proposal.propose.request, RequestTimeoutError(text), proposal.number))
