"""Who wants changes: each has a tag of its own, so that it can be found in records, and each must be answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from raybroker.cluster import events as ev
from raybroker.cluster.change_record import Change

if TYPE_CHECKING:
    from tests.simulation_control.node import Process
    from tests.simulation_control.surroundings import Surroundings

ANSWER_MS_MAX = 25_000
"""Longest time that the machines may take for an answer: their own limit, and the time to carry a change out again."""


class Wish(NamedTuple):
    process: Process
    tag: int
    since_ms: int
    peers: dict[str, int]
    target: str = ""


class Clients:
    """``open``: request → what was asked for."""

    def __init__(self, world: Surroundings) -> None:
        self.world = world
        self.open: dict[int, Wish] = {}
        self.acknowledged = 0
        self.refused = 0
        self._tag = 0

    def start(self) -> None:
        self._again()

    def _again(self) -> None:
        world = self.world
        if world.calm:
            return
        world.loop.after(1 + int(world.rng.expovariate(1 / world.plan.change_us)), self._again)
        processes = [p for p in world.processes() if p.opened]
        if processes:
            self.proposal(world.rng.choice(processes))

    def proposal(self, process: Process) -> None:
        """Some change, at one broker."""
        self._tag += 1
        request = self._ask(process, self._tag)
        process.feed(ev.Propose(request, self._change(self._tag)))

    def change_master(self, process: Process, target: str) -> None:
        self._tag += 1
        process.feed(ev.ChangeMaster(self._ask(process, self._tag, target), target))

    def _ask(self, process: Process, tag: int, target: str = "") -> int:
        row = process.member.membership.broker_row
        peers = {p: row(p).incarnation for p in process.member.membership.heard_peers()}
        self.open[tag] = Wish(process, tag, self.world.loop.now // 1000, peers, target)
        return tag

    def _change(self, tag: int) -> Change:
        rng = self.world.rng
        kind = rng.choice(("queue", "topic"))
        key: tuple[str, ...] = (kind, f"{kind[0]}{rng.randrange(5)}")
        marks = {"tag": tag}
        match rng.randrange(10):
            case 0 | 1 | 2:
                return Change("create_destination", key, marks)
            case 3:
                return Change("update_destination", key, marks)
            case 4:
                return Change("destroy_destination", key, marks)
            case 5:
                topic = f"t{rng.randrange(5)}"
                return Change("create_subscription", ("", f"s{rng.randrange(5)}"), {"topic": topic, **marks})
            case 6:
                return Change("destroy_subscription", ("", f"s{rng.randrange(5)}"), marks)
            case 7:
                return Change("pause_destination", key, {rng.choice(("producers", "consumers")): tag, **marks})
            case 8:
                return Change("resume_destination", key, {rng.choice(("producers", "consumers")): 0, **marks})
            case _:
                return Change("set_template", (f"m{rng.randrange(3)}",), marks)

    def answered(self, process: Process, answer: ev.Answer) -> None:
        proposal = self.open.pop(answer.request)
        assert proposal.process is process
        if proposal.target:
            self._changed_master(proposal, answer)
        elif answer.error is None:
            self.acknowledged += 1
            self.world.watch.acknowledged(proposal, answer)
        elif answer.error.definite:
            self.refused += 1
            self.world.watch.refused(proposal)

    def _changed_master(self, proposal: Wish, answer: ev.Answer) -> None:
        assert answer.result in ev.CHANGE_MASTER_RESULTS, answer
        self.world.count(f"change master: {answer.result}")
        self.world.watch.changed_master(proposal, answer)
        if answer.result == ev.OK and self.world.rng.random() < 0.5:
            self.world.master = proposal.target

    def lost(self, process: Process) -> None:
        """The instance is gone; its clients know nothing."""
        for request in [r for r, proposal in self.open.items() if proposal.process is process]:
            del self.open[request]

    def check(self) -> None:
        """Nobody waits for ever."""
        now = self.world.loop.now // 1000
        for proposal in self.open.values():
            if proposal.process.node.process is proposal.process and not proposal.process.cut_off:
                assert now - proposal.since_ms < ANSWER_MS_MAX, (
                    f"{proposal.process.name} has not answered {proposal.tag} in time"
                )
