"""The status of a copy: what it knows of itself and, where it leads, of the others; for people and for metrics."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from raybroker.model.listing import Row
from raybroker.replication.leading import NEVER_MS, PROMOTE_LAG, CopyProgress
from raybroker.replication.replica import Replica


@dataclass(frozen=True, slots=True)
class OtherCopy:
    """One copy of the set, as its leader knows it.

    copy            its id
    voter           it has a vote; False: it learns
    index           it has the log on disk up to here
    behind          entries that it lacks
    level           it lacks so few that it can get a vote
    in_flight_bytes what was sent to it and is not answered
    answered_ms_ago how long ago the latest request was sent that it has answered; -1: it has answered none
    pace            "leader", "probing", "streaming" or "installing"
    connected       there is a link to it
    trouble         why it cannot be brought up to date, for people; "" without one
    """

    copy: str
    voter: bool
    index: int
    behind: int
    level: bool
    in_flight_bytes: int
    answered_ms_ago: int
    pace: str
    connected: bool
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class CopyVote:
    """What counts where somebody looks for a leader.

    fit              the copy has a vote, and lacks nothing that it has ever answered for
    end              its log ends there: number and nonce of the last entry's term, its index; the greater is newer
    led              it leads, or hears who does
    linked           it leads, or there is a link to the copy that does, as far as it knows
    elects           an election is under way, as far as it knows
    voted_ms_ago     how long ago it has promised itself to a candidate last; -1: not since its process began
    """

    fit: bool
    end: tuple[int, int, int]
    led: bool
    linked: bool
    elects: bool
    voted_ms_ago: int


@dataclass(frozen=True, slots=True)
class SetStatus:
    """The replica set.

    min_in_sync   how many voters must have an entry
    required      as was asked for, 0 for a majority
    set_is_final  it is committed: no other leader can have another one
    """

    voters: tuple[str, ...]
    learners: tuple[str, ...]
    min_in_sync: int
    required: int
    set_is_final: bool


@dataclass(frozen=True, slots=True)
class CopyStatus:
    """One copy.

    vote         what counts where somebody looks for a leader
    role         FOLLOWER, CANDIDATE, LEADER or STOPPED
    leader       id of the copy that leads, as far as is known here; "" when none is
    term         number of the latest term that this copy has promised itself to
    index        its log ends here
    chain        hash of all entries up to there: logs with one chain are equal
    committed    entries up to here are final, as far as is known here
    released     where it leads: entries up to here were told to whoever waits for them
    lease        where it leads: no other copy can lead now
    members      the replica set
    copies       where it leads: every copy of the set, itself too
    trouble      why it does not go on, for people: a full disk, damage; "" without one
    """

    copy: str
    vote: CopyVote
    role: str
    leader: str
    term: int
    index: int
    chain: str
    committed: int
    released: int
    lease: bool
    members: SetStatus
    copies: tuple[OtherCopy, ...]
    trouble: str = ""

    def as_row(self) -> Row:
        """Return it as plain values, for whoever asks over the network."""
        row = asdict(self)
        vote, members = row.pop("vote"), row.pop("members")
        names = {"voters": list(self.members.voters), "learners": list(self.members.learners)}
        return {**row, **vote, **members, **names}


def status_of(replica: Replica, now_ms: int, connected: frozenset[str], trouble: str) -> CopyStatus:
    """Return what this copy's machine knows; ``connected``: copies that there is a link to."""
    members, leading = replica.members, replica.leading
    copies: list[OtherCopy] = []
    for copy in members.copies if leading is not None else ():
        voter = copy in members.voters
        if copy == replica.me:
            copies.append(OtherCopy(copy, voter, replica.last.index, 0, True, 0, 0, "leader", connected=True))
        elif leading is not None:
            copies.append(_other(copy, voter, leading.copies[copy], replica.last.index, now_ms, copy in connected))
    return CopyStatus(
        replica.me,
        CopyVote(
            replica.report().fit,
            (*replica.last.term, replica.last.index),
            replica.hears_leader(now_ms),
            leading is not None or replica.leader in connected,
            replica.awaits_leader(now_ms),
            replica.voted_ms_ago(now_ms),
        ),
        str(replica.role),
        replica.leader,
        replica.promised.number,
        replica.last.index,
        replica.last.chain.hex(),
        replica.committed,
        0 if leading is None else leading.released,
        replica.may_dispatch(now_ms),
        SetStatus(
            members.voters,
            members.learners,
            members.quorum if members.voters else 0,
            members.min_in_sync,
            replica.set_is_final,
        ),
        tuple(copies),
        trouble,
    )


def _other(copy: str, voter: bool, known: CopyProgress, last: int, now_ms: int, connected: bool) -> OtherCopy:
    ago_ms = -1 if known.answered_ms == NEVER_MS else max(0, now_ms - known.answered_ms)
    return OtherCopy(
        copy,
        voter,
        known.matched,
        last - known.matched,
        last - known.matched <= PROMOTE_LAG,
        known.in_flight_bytes,
        ago_ms,
        str(known.pace),
        connected,
        known.trouble,
    )
