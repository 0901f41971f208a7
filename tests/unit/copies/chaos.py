"""One seed of trouble for real copies: batches are confirmed while power, disks and links fail; then all is well.

Judged in the end: whatever was confirmed is in the log of every copy, once; the chains of all copies are equal; no
entry was confirmed for two batches.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

from raybroker.copies.copy import Copy
from raybroker.model.errors import StoreError
from raybroker.replication.replica import HEARD_MS
from raybroker.replication.replica_set import MemberChange
from raybroker.store.journal.format import pack_entries
from tests.unit.copies.disks import block, live
from tests.unit.copies.rig import Group, Node, until

WAITING_MAX = 8
CONFIRMED_MIN = 11
"""Batches of a seed, at least: clients go on until then when all is well again."""


class Client(threading.Thread):
    """Sends to whichever copy leads, also to one that only believes so; ``confirmed``: ordinal → the entry's index."""

    def __init__(self, group: Group, node: Node, first: int, rng: Random) -> None:
        super().__init__(daemon=True)
        self.group = group
        self.node = node
        self.over = False
        self.confirmed: dict[int, int] = {}
        self._next = first
        self._rng = rng

    def run(self) -> None:
        waiting: dict[int, tuple[int, Copy, int]] = {}
        while not self.over:
            copy = self.node.copy
            if copy is None or not copy.leads:
                waiting.clear()
                time.sleep(0.01)
                continue
            self._next += 1
            term, batch = copy.term, pack_entries([block(self._next, self._rng.choice((20, 3000)))])
            with suppress(StoreError):
                waiting[self._next] = copy.append(batch), copy, term
            end = time.monotonic() + 0.2
            while len(waiting) >= WAITING_MAX and time.monotonic() < end:
                self._look(waiting)
                time.sleep(0.002)
            self._look(waiting)

    def _look(self, waiting: dict[int, tuple[int, Copy, int]]) -> None:
        """What was appended in a term and released in it is confirmed: an index says nothing of another term."""
        for ordinal, (index, by, term) in list(waiting.items()):
            released = by.released
            if by is not self.node.copy or not by.leads or by.term != term:
                del waiting[ordinal]
            elif released >= index:
                self.confirmed[ordinal] = index
                del waiting[ordinal]


class Chaos:
    """``happened``: faults, counted."""

    def __init__(self, directory: Path, seed: int, steps: int) -> None:
        self.rng = Random(seed)
        self.group = Group(directory, seed=seed)
        self.steps = steps
        self.happened: Counter[str] = Counter()
        self.clients = [
            Client(self.group, node, (node.number + 1) * 1_000_000, Random(seed + node.number))
            for node in self.group.nodes
        ]
        self.lost: list[str] = []
        """Ids of copies whose disk was removed."""
        self.request = 0

    def run(self) -> None:
        try:
            self.group.led()
            for client in self.clients:
                client.start()
            for _ in range(self.steps):
                self._fault()
                time.sleep(self.rng.uniform(0.05, 0.4))
                if self.rng.random() < 0.7:
                    self.group.elect()
            self._heal()
            self._judge()
        finally:
            for client in self.clients:
                client.over = True
            self.group.close()

    # ---- trouble

    def _fault(self) -> None:
        name = self.rng.choice(
            ("kill", "kill", "kill_all", "cut", "cut_leader", "mend", "begin", "begin", "full", "wipe")
        )
        self.happened[name] += 1
        getattr(self, f"_{name}")()

    def _running(self) -> list[Node]:
        return [node for node in self.group.nodes if node.copy is not None]

    def _kill(self) -> None:
        if self._running():
            self.rng.choice(self._running()).kill()

    def _kill_all(self) -> None:
        for node in self._running():
            node.kill()
        self._begin()

    def _begin(self) -> None:
        for node in self.group.nodes:
            if node.copy is None:
                node.begin()

    def _cut(self) -> None:
        a, b = self.rng.sample(range(3), 2)
        self.group.cut((a, b))

    def _cut_leader(self) -> None:
        """A leader that is cut off goes on believing that it leads, until another one is told to."""
        leader = self.group.leader()
        if leader is not None:
            self.group.isolate(leader.number)
            time.sleep(0.2)
            self.group.pass_time(HEARD_MS + 100)
            self.group.elect([node.number for node in self.group.nodes if node is not leader])

    def _mend(self) -> None:
        self.group.mend()

    def _full(self) -> None:
        if self._running():
            node = self.rng.choice(self._running())
            node.io.full = True
            time.sleep(0.2)
            node.io.full = False
            with node.runs.saving():
                pass  # Whoever found it full has finished: the copy has ended for that, or goes on.

    def _wipe(self) -> None:
        """A disk is removed: only one, and only while the others are there and whole, as operators are told."""
        self._mend()
        self._begin()
        if self.lost:
            return
        self._begin_ended()
        self.group.led()
        node = self.rng.choice(self.group.nodes)
        self.lost.append(node.runs.id)
        node.kill()
        node.wipe()
        node.begin()

    # ---- the end

    def _heal(self) -> None:
        self._mend()
        self._begin()
        self._begin_ended()
        self.group.led()
        for lost in self.lost:
            here = {node.runs.id for node in self.group.nodes}
            new = next(iter(here - set(self.group.led().runs.status().members.voters)))
            self._change(MemberChange.ADD, new)
            self._change(MemberChange.PROMOTE, new)
            self._change(MemberChange.REMOVE, lost)
        until(lambda: sum(len(client.confirmed) for client in self.clients) >= CONFIRMED_MIN, "batches are confirmed")
        for client in self.clients:
            client.over = True
        for client in self.clients:
            client.join()
        self.group.agree()

    def _begin_ended(self) -> None:
        """A copy that has ended because of its disk: its process begins again."""
        for node in self._running():
            if node.runs.status().trouble.startswith("the copy in"):
                node.stop()
        self._begin()

    def _change(self, change: MemberChange, copy: str) -> None:
        end = time.monotonic() + 30
        while True:
            leader = self.group.led()
            self.request += 1
            leader.runs.change(change, copy, self.request)
            again = time.monotonic() + 0.3
            while time.monotonic() < again:
                if self._is_done(change, copy, leader):
                    return  # If it is not final yet, the next one is refused, and asked for again.
                time.sleep(0.005)
            assert time.monotonic() < end, f"{change} is not done: {leader.told[-3:]}"

    @staticmethod
    def _is_done(change: MemberChange, copy: str, leader: Node) -> bool:
        status = leader.runs.status()
        return {
            MemberChange.ADD: copy in (*status.members.learners, *status.members.voters),
            MemberChange.PROMOTE: copy in status.members.voters,
            MemberChange.REMOVE: copy not in (*status.members.learners, *status.members.voters),
        }[change]

    def _judge(self) -> None:
        confirmed: dict[int, int] = {}
        for client in self.clients:
            confirmed |= client.confirmed
        assert len(set(confirmed.values())) == len(confirmed), "one entry was confirmed for two batches"
        for node in self.group.nodes:
            there = set(live(node.runs.journal).get(1, ()))
            missing = sorted(set(confirmed) - there)
            assert not missing, f"confirmed and lost at node {node.number}: {missing[:5]} of {len(missing)}"
            for ordinal in self.rng.sample(sorted(there), min(20, len(there))):
                data = node.runs.journal.read(1, ordinal)
                assert data.endswith(b"end")
                assert set(data[:-3]) == {ordinal % 251}
        self.happened["confirmed"] = len(confirmed)
