"""What has to hold at every moment, whatever goes wrong; each says what it means in its assertion.

fork          one number of one record is one entry, on every broker, for ever
durability    what was acknowledged is in the record, and a reign begins with all of it; a copy never goes back
one master    the entries of one term are all of one master and one record
once          a change is in the record at most once, and never when it was refused for sure
stale         what an old instance says changes nothing
closed        clients are taken once, after everything that was acknowledged before this instance began is
              carried out, and the consumers of all peers that are heard were asked for
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from raybroker.cluster import events as ev
from raybroker.cluster import member_messages as m
from raybroker.cluster.backup import load
from raybroker.cluster.change_record import Change, Entry
from raybroker.cluster.member import Member
from raybroker.cluster.member_state import MemberState
from raybroker.cluster.membership import BrokerState

if TYPE_CHECKING:
    from tests.simulation_control.clients import Wish
    from tests.simulation_control.node import Node, Process
    from tests.simulation_control.surroundings import Surroundings


class Before(NamedTuple):
    """A machine in front of an event."""

    stale: bool
    number: int
    record: str
    is_master: bool
    state: MemberState
    heard: tuple[str, ...]


class Watch:
    """``canon``: (record, number) → digest and tag of what is durable on any broker."""

    def __init__(self, world: Surroundings) -> None:
        self.world = world
        self.canon: dict[tuple[str, int], tuple[str, int]] = {}
        self.reigns: dict[int, tuple[str, str]] = {}
        self.tags: dict[tuple[str, int], int] = {}
        self.refusals: set[int] = set()
        self.acked: dict[str, int] = {}
        self.heard: dict[tuple[str, int], set[int]] = {}
        self.trail = 0
        """A hash of everything that happened, the same in every process."""
        self._seen: dict[Process, tuple[str, int]] = {}
        self._copies: dict[tuple[str, str], int] = {}
        self._acked_before: dict[Process, dict[str, int]] = {}
        self._disks: dict[Node, str] = {}
        self._exchanges: dict[Process, dict[str, int]] = {}
        self._lost: dict[tuple[Process, str], int] = {}
        """When a peer was given up last."""

    # ---- one step of one machine

    def began(self, process: Process) -> None:
        self._acked_before[process] = dict(self.acked)
        self._exchanges[process] = {}

    def ended(self, process: Process) -> None:
        self._seen.pop(process, None)

    def forget_copy(self, name: str) -> None:
        """The broker's disk is another one now."""
        for key in [key for key in self._copies if key[0] == name]:
            del self._copies[key]

    def synced(self, process: Process, writes: list[ev.Persist]) -> None:
        """These are on disk; the machine does not know yet."""
        for write in writes:
            self.written(process.node, write.frames)

    def written(self, node: Node, frames: Sequence[bytes]) -> None:
        """These are on the disk of a broker."""
        for frame in frames:
            found = json.loads(frame)
            if found[0] == "record":
                record = load(found[1].encode())
                self._disks[node] = record.id
                for entry in record.entries:
                    self._entry(node, record.id, entry)
            elif found[0] == "entry":
                number, term, *change = found[2]
                self._entry(node, self._disks[node], Entry(number, term, Change.from_canonical(change), found[1]))

    def before(self, process: Process, event: ev.Event) -> Before:
        member, stale = process.member, False
        if isinstance(event, ev.EnvelopeReceived):
            envelope = event.envelope
            known = member.membership.broker_row(envelope.sender).incarnation
            stale = envelope.sender != process.name and envelope.incarnation < known
        record = member.record
        return Before(stale, record.number, record.id, member.is_master, member.state, self._heard(member))

    def _heard(self, member: Member) -> tuple[str, ...]:
        return () if self.world.plan.with_record else member.membership.heard_peers()

    def after(self, process: Process, event: ev.Event, actions: list[ev.Action], before: Before) -> None:
        member = process.member
        step = f"{self.trail} {process.name} {type(event).__name__} {len(actions)} {before.number}"
        self.trail = zlib.crc32(step.encode())
        for peer in set(before.heard) - set(self._heard(member)):
            self._lost[process, peer] = self.world.loop.now // 1000
        if before.stale:
            changed = (member.record.id, member.record.number) != (before.record, before.number)
            writes = [a for a in actions if isinstance(a, ev.Persist | ev.Answer)]
            assert (changed, writes) == (False, []), f"{process.name} does what a stale instance says: {event}"
        self._durable(process)
        if member.is_master and not before.is_master:
            self._reign_began(process)
        for action in actions:
            if isinstance(action, ev.ExchangeConsumers):
                incarnation = member.membership.broker_row(action.peer).incarnation
                self._exchanges[process][action.peer] = incarnation
            elif isinstance(action, ev.OpenForClients):
                self._opened(process)
        if isinstance(event, ev.EnvelopeReceived) and isinstance(event.envelope.message, m.Tell):
            self._told(process, event.envelope, actions)
        if member.state is not before.state:
            self.world.count(f"state {member.state}")

    def _durable(self, process: Process) -> None:
        """What is newly on disk here, by the machine's own account."""
        member = process.member
        number = member.membership.broker_row(process.name).number
        at = member.durable
        if at.number != number or not at.record:
            return
        record, last = self._seen.get(process, ("", -1))
        if (record, last) == (at.record, at.number):
            return
        self._seen[process] = (at.record, at.number)
        known = self._copies.get((process.name, at.record), 0)
        assert at.number >= known, (
            f"the copy of {process.name} went back from entry {known} to {at.number} of record {at.record}"
        )
        self._copies[process.name, at.record] = at.number

    def _entry(self, node: Node, record: str, entry: Entry) -> None:
        tag = int(str(entry.change.attributes["tag"]))
        key = record, entry.number
        if key not in self.canon:
            self.canon[key] = entry.digest, tag
            assert (record, tag) not in self.tags, f"change {tag} is entry {self.tags[record, tag]} and {entry.number}"
            self.tags[record, tag] = entry.number
            assert tag not in self.refusals, f"change {tag} was refused and is entry {entry.number}"
        assert self.canon[key][0] == entry.digest, (
            f"entry {entry.number} of record {record} is {entry.change} on {node.name} and another elsewhere"
        )
        process = node.process
        if process is None or not self.world.plan.with_master:
            return
        if process.member.is_master and entry.term == process.member.claim.term:
            reign = self.reigns.setdefault(entry.term, (node.name, record))
            assert reign == (node.name, record), (
                f"{reign} and {(node.name, record)} both accepted changes in term {entry.term}"
            )

    def _reign_began(self, process: Process) -> None:
        record = process.member.record
        acked = self.acked.get(record.id, 0)
        assert record.number >= acked, (
            f"{process.name} reigns with {record.number} entries of record {record.id}; {acked} were acknowledged"
        )

    def _opened(self, process: Process) -> None:
        member = process.member
        assert not process.opened, f"{process.name} opens twice"
        assert member.state is MemberState.OPERATING, f"{process.name} opens in state {member.state}"
        assert member.applied >= 0, f"{process.name} opens before anything is carried out"
        before = self._acked_before[process].get(member.record.id, 0)
        assert member.applied >= before, (
            f"{process.name} opens with {member.applied} entries carried out; {before} were acknowledged by then"
        )
        for row in member.membership.broker_rows():
            if row.state in (BrokerState.UP, BrokerState.JOINING, BrokerState.SUSPECT) and row.name != process.name:
                asked = self._exchanges[process].get(row.name)
                assert asked == row.incarnation, f"{process.name} opens without the consumers of {row.name}"

    def _told(self, process: Process, envelope: m.Envelope, actions: list[ev.Action]) -> None:
        """Without a master: which changes of others this instance has heard of, and could confirm."""
        message: Any = envelope.message
        heard = self.heard.setdefault((process.name, process.member.incarnation), set())
        sent = [a.envelope.message for a in actions if isinstance(a, ev.SendEnvelope)]
        if any(isinstance(one, m.Told) for one in sent) or any(isinstance(a, ev.Persist) for a in actions):
            heard.add(int(str(message.change.attributes["tag"])))

    # ---- answers

    def acknowledged(self, proposal: Wish, answer: ev.Answer) -> None:
        member = proposal.process.member
        if not self.world.plan.with_record:
            self._acknowledged_by_all(proposal)
            return
        record = member.record.id
        found = self.canon.get((record, answer.number))
        assert found is not None, f"change {proposal.tag} is acknowledged and entry {answer.number} is on no disk"
        assert found[1] == proposal.tag, (
            f"change {proposal.tag} is acknowledged as entry {answer.number}, which is {found[1]}"
        )
        assert member.applied >= answer.number, (
            f"change {proposal.tag} is acknowledged and not carried out at its broker"
        )
        self.acked[record] = max(self.acked.get(record, 0), answer.number)

    def _acknowledged_by_all(self, proposal: Wish) -> None:
        member = proposal.process.member
        peers = set(member.membership.heard_peers())
        peers -= {peer for peer in peers if self._lost.get((proposal.process, peer), -1) >= proposal.since_ms}
        for peer, incarnation in proposal.peers.items():
            if peer in peers and member.membership.broker_row(peer).incarnation == incarnation and incarnation:
                assert proposal.tag in self.heard.get((peer, incarnation), ()), (
                    f"change {proposal.tag} of {proposal.process.name} is acknowledged and {peer} has not heard of it"
                )

    def refused(self, proposal: Wish) -> None:
        """A definite no: it did not happen and never will."""
        self.refusals.add(proposal.tag)
        for record, tag in self.tags:
            assert tag != proposal.tag, f"change {tag} was refused for sure and is in record {record}"

    def changed_master(self, proposal: Wish, answer: ev.Answer) -> None:
        member = proposal.process.member
        if answer.result == ev.OK:
            assert member.claim.master == proposal.target
            assert not member.is_master

    # ---- the end

    def converged(self) -> str:
        """ "" when all brokers agree; else what is missing."""
        world = self.world
        for node in world.nodes.values():
            process = node.process
            if process is None or process.gone:
                return f"{node.name} does not run"
            if node.old is not None and not node.old.gone:
                return f"an old instance of {node.name} still runs"
            member = process.member
            if member.state is not MemberState.OPERATING:
                return f"{node.name} is {member.state}: {member.refusal}"
            live = member.membership.live()
            if set(live) != set(world.plan.names):
                return f"{node.name} sees {live}"
            if node.actual != member.agreed:
                return f"what {node.name} has is not what its record says"
        members = [node.process.member for node in world.nodes.values() if node.process is not None]
        if len({member.membership.coordinator() for member in members}) > 1:
            return "the brokers have different seats"
        if world.plan.with_record:
            masters = [member.is_master for member in members].count(True)
            assert not (masters and world.plan.with_table), "a broker is the master of a record that is in a table"
            if world.plan.with_master and masters != 1:
                return "there is not one master"
            if world.database is not None and members[0].durable.digest != world.database.digest:
                return "the copies are not what the table has"
            positions = {(member.durable, member.claim) for member in members}
            if len(positions) > 1:
                return f"the copies differ: {positions}"
            assert all(member.agreed == members[0].agreed for member in members), "equal records, other states"
        return ""
