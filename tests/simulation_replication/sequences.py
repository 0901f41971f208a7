"""Faults of several steps, each of which makes sense only after the one before: what single faults do too rarely.

usurped    a leader is cut off, works on alone, and another one leads as soon as the others may promise it
overtaken  a leader is cut off with much that nobody else has; another one begins and is lost before anybody hears of
           it; the first one leads again, is lost while it sends, and the other one comes back
outdated   a copy whose disk is damaged begins again, and hears first what was sent to it long before
unhealed   a copy whose disk is damaged helps a leader to begin and to commit, and the leader is lost before that heals
           the copy; another one, which lacks what was committed, asks for its vote
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raybroker.replication import events as ev
from raybroker.replication.leading import RESEND_MS
from raybroker.replication.messages import Append, CopyMessage
from raybroker.replication.positions import NO_TERM, Term
from raybroker.replication.replica import HEARD_MS
from raybroker.replication.replica_set import MemberChange
from raybroker.replication.reports import best_copy
from tests.simulation_replication.node import Process
from tests.simulation_replication.plan import MS, S
from tests.simulation_replication.surroundings import Surroundings

TRIES = 12
"""How often a copy is told to lead before the sequence is given up."""
APART_MS = 150
LOOK_US = 90
"""How often it is looked whether a copy that was told to lead does: shorter than the network's shortest delay."""
LOOKS_MAX = 20_000
TELL_AGAIN_LOOKS = 1_700


class Sequences:
    """At most one sequence at a time.

    ``hurt``: copies whose disk lost something; ``may_hurt``: whether the disk of one more copy may.
    """

    def __init__(self, world: Surroundings, hurt: set[str], may_hurt: Callable[[str], bool]) -> None:
        self.world = world
        self.hurt = hurt
        self.may_hurt = may_hurt
        self.busy = False

    # ---- parts

    def _leader(self) -> Process | None:
        here = [process for process in self.world.processes() if process.leads and process.works]
        if self.busy or len(here) != 1 or len(here[0].replica.members.voters) < 3:
            return None
        found: Process = here[0]
        return found

    def _cut_off(self, node: int) -> set[tuple[int, int]]:
        others = [other for other in range(self.world.plan.nodes) if other != node]
        cut = {(node, other) for other in others} | {(other, node) for other in others}
        self.world.network.cut |= cut
        return cut

    def _heal(self, cut: set[tuple[int, int]]) -> None:
        self.world.network.cut -= cut

    def _tell(self, node: int) -> None:
        """Tell the copy on this node to lead."""
        process = self.world.running.get(node)
        if process is not None and process.works and not process.leads:
            process.feed(ev.Lead(self.world.rng.getrandbits(64)))

    def _lose(self, node: int) -> None:
        process = self.world.running.get(node)
        if process is not None:
            self.world.end(process)

    def _after(self, delay_us: int, step: Callable[..., None], *args: Any) -> None:
        """Go on later, unless all has to come to rest by then."""

        def go() -> None:
            if self.world.calm:
                self.busy = False
            else:
                step(*args)

        self.world.loop.after(delay_us, go)

    # ---- usurped

    def usurp(self) -> None:
        leader = self._leader()
        if leader is None:
            return
        rng = self.world.rng
        self.world.count("usurp")
        self.busy = True
        cut = self._cut_off(leader.node)
        if rng.random() < 0.5 and not self.hurt.intersection(leader.replica.members.voters):
            self._change_alone(leader)
        begins = HEARD_MS + rng.randrange(300)
        for again in range(TRIES):
            self._after((begins + again * APART_MS) * MS, self._lead_among, leader.node)
        self._after((begins + TRIES * APART_MS) * MS + rng.randrange(3 * S), self._end, cut)

    def _change_alone(self, leader: Process) -> None:
        """Operators change the set through a leader that nobody else hears."""
        others = [voter for voter in leader.replica.members.voters if voter != leader.replica.me]
        for place, voter in enumerate(others):
            leader.feed(ev.ChangeSet(1 << 40 | place, MemberChange.REMOVE, voter))

    def _lead_among(self, without: int) -> None:
        here = [process for process in self.world.processes() if process.works and process.node != without]
        if here and not any(process.leads for process in here):
            best = best_copy(process.replica.report() for process in here)
            for process in here:
                if process.replica.me == best:
                    self._tell(process.node)

    def _end(self, cut: set[tuple[int, int]]) -> None:
        self._heal(cut)
        self.busy = False

    # ---- overtaken

    def overtake(self) -> None:
        leader = self._leader()
        if leader is None:
            return
        rng = self.world.rng
        self.world.count("overtake")
        self.busy = True
        cut = self._cut_off(leader.node)
        for _ in range(rng.choice((70, 600))):
            self.world.propose(leader)
        there = [
            process.node
            for process in self.world.processes()
            if process is not leader and process.works and process.replica.me in leader.replica.members.voters
        ]
        if not there:
            self._end(cut)
            return
        other = rng.choice(there)
        self._after((HEARD_MS + 50) * MS, self._second_begins, leader.node, other, cut, 0)

    def _second_begins(self, first: int, second: int, cut: set[tuple[int, int]], looks: int) -> None:
        """The second one is lost right after it has begun to lead, when nobody else has heard of it."""
        if looks % TELL_AGAIN_LOOKS == 0:
            self._tell(second)
        process = self.world.running.get(second)
        if looks >= LOOKS_MAX or process is None:
            self._end(cut)
        elif process.leads:
            alone = self._cut_off(second)
            self._after(
                self.world.rng.randrange(self.world.plan.sync_us * 2), self._first_again, first, second, cut, alone
            )
        else:
            self._after(LOOK_US, self._second_begins, first, second, cut, looks + 1)

    def _first_again(self, first: int, second: int, cut: set[tuple[int, int]], alone: set[tuple[int, int]]) -> None:
        """It may still take itself for the leader: what counts is that it leads in a later term."""
        self._lose(second)
        self._heal(cut)
        self._heal(alone)
        process = self.world.running.get(first)
        term = process.replica.leading.term if process is not None and process.leads else NO_TERM
        self._first_sends(first, second, term, 0)

    def _first_sends(self, first: int, second: int, before: Term, looks: int) -> None:
        """The first one leads again, and is lost while it sends what it has."""
        world = self.world
        if looks % TELL_AGAIN_LOOKS == 0:
            self._tell(first)
        process = world.running.get(first)
        if looks >= LOOKS_MAX or process is None:
            world.begin(second)
            self.busy = False
        elif process.leads and process.replica.leading.term > before:
            self._after(
                world.rng.randrange(1, world.plan.delay_us * 8 + world.plan.sync_us * 4),
                self._first_ends,
                first,
                second,
            )
        else:
            self._after(LOOK_US, self._first_sends, first, second, before, looks + 1)

    def _first_ends(self, first: int, second: int) -> None:
        self._lose(first)
        self.world.begin(second)
        begins = HEARD_MS + 50
        for again in range(TRIES):
            self._after((begins + again * APART_MS) * MS, self._tell_if_none, second)
        self._after((begins + TRIES * APART_MS) * MS, self._both, first)

    def _tell_if_none(self, node: int) -> None:
        if not any(process.leads for process in self.world.processes()):
            self._tell(node)

    def _both(self, first: int) -> None:
        self.world.begin(first)
        self.busy = False

    # ---- outdated

    def outdate(self) -> None:
        leader = self._leader()
        if leader is None:
            return
        voters = leader.replica.members.voters
        there = [process for process in self.world.processes() if process is not leader and process.works]
        others = [process for process in there if process.replica.me in voters]
        if not others:
            return
        self.world.count("outdate")
        self.busy = True
        rng = self.world.rng
        to = rng.choice(others)
        late = self.world.network.hold(leader.node, to.node)
        self._after(rng.randrange(RESEND_MS, 2 * RESEND_MS) * MS, self._goes_on, to.node, late)

    def _goes_on(self, node: int, late: list[tuple[str, CopyMessage]]) -> None:
        """What is sent from now on arrives, so that the copy gets what it lacks."""
        self.world.network.release()
        self._after(self.world.rng.randrange(100 * MS, 2 * S), self._is_damaged, node, late)

    def _is_damaged(self, node: int, late: list[tuple[str, CopyMessage]]) -> None:
        process = self.world.running.get(node)
        sent = [message for _, message in late if isinstance(message, Append) and message.entries]
        if process is None or not sent or not self.may_hurt(process.replica.me):
            self.busy = False
            return
        self.hurt.add(process.replica.me)
        self.world.end(process)
        process.disk.flip_at(self.world.rng.choice(sent).entries[0].at.index)
        self._after(self.world.rng.randrange(MS, 20 * MS), self._hears, node, late)

    def _hears(self, node: int, late: list[tuple[str, CopyMessage]]) -> None:
        self.world.begin(node)
        process = self.world.running[node]
        for sender, message in late:
            process.feed(ev.CopyMessageReceived(sender, message))
        self.busy = False

    # ---- unhealed

    def unheal(self) -> None:
        leader = self._leader()
        if leader is None:
            return
        voters = leader.replica.members.voters
        there = [process for process in self.world.processes() if process is not leader and process.works]
        others = [process.node for process in there if process.replica.me in voters]
        if len(voters) != 3 or len(others) != 2:
            return
        self.world.rng.shuffle(others)
        damaged, third = others
        process = self.world.running[damaged]
        if process.disk.last.index <= process.disk.base.index + 1 or not self.may_hurt(process.replica.me):
            return
        self.world.count("unheal")
        self.busy = True
        self.hurt.add(process.replica.me)
        cut = self._cut_off(third)
        self.world.end(process)
        process.disk.flip_at(process.disk.last.index - 1)
        self._lose(leader.node)
        self.world.begin(leader.node)
        self.world.begin(damaged)
        self._after((HEARD_MS + 50) * MS, self._first_commits, leader.node, third, cut, 0)

    def _first_commits(self, first: int, third: int, cut: set[tuple[int, int]], looks: int) -> None:
        """The first one is lost when something of its new term is committed, before anybody hears of that."""
        if looks % TELL_AGAIN_LOOKS == 0:
            self._tell(first)
        process = self.world.running.get(first)
        if looks >= LOOKS_MAX or process is None:
            self._end(cut)
        elif process.leads and process.replica.committed >= process.replica.leading.began:
            self._lose(first)
            self._heal(cut)
            for again in range(TRIES):
                self._after((HEARD_MS + 50 + again * APART_MS) * MS, self._tell_if_none, third)
            self._after((HEARD_MS + 50 + TRIES * APART_MS) * MS, self._both, first)
        else:
            self._after(LOOK_US, self._first_commits, first, third, cut, looks + 1)
