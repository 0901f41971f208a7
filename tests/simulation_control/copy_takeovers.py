"""One seed of brokers that keep copies of each other's logs: nodes are lost, emptied and cut off, brokers come back.

The decisions are those of ``raybroker.cluster.replicas.copy_takeover``; copies are a model with the rules by which a
majority lets one of them lead.  What has to hold:

kept       whatever a broker has confirmed, the one that is started in its place has
no sign    nobody is taken over whom the taker hears
soon       nobody is taken over who was heard less than AFTER_MS ago
apart      two changes of leader of a log are APART_MS apart, but for a broker's own start, and for those that one
           takeover has made: it has SETTLED_MS for them, and makes TELLS_MAX
able       who is told to start may lead all logs, when nothing has happened since the copies were asked
level      no more than what is needed is brought up to date first
comes back left alone, every broker operates again whose copies have a majority
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from raybroker.cluster.replicas.copy_takeover import (
    APART_MS,
    SETTLED_MS,
    TELLS_MAX,
    AskCopies,
    CopyAction,
    CopyTakeovers,
    HeldCopy,
    LevelCopy,
    LogEnd,
    StartAt,
)
from raybroker.cluster.replicas.replica_placement import peers_of
from tests.seeds import Simulation
from tests.simulation.events import Loop

MS: Final = 1000
S: Final = 1000 * MS
HEARTBEAT_MS: Final = 500
DOWN_MS: Final = 1500
AFTER_MS: Final = 3000
LOOK_MS: Final = 500
EVENTS_MAX: Final = 400_000
CALM_S: Final = 150
ASKING_MS: Final = 1500
"""From asking copies until somebody is told to lead."""
LED_MS: Final = 2000
"""A copy hears a leader that has written to it within this time."""
Entry = tuple[int, int, int]
"""Number and nonce of the term, and what was sent."""


@dataclass
class ModelCopy:
    """A copy on the disk of a node."""

    fit: bool = True
    entries: list[Entry] = field(default_factory=list)
    promised: tuple[int, int] = (0, 0)
    promised_us: int | None = None
    heard_us: int = -LED_MS * MS
    """When a leader has written to it last."""

    @property
    def end(self) -> LogEnd:
        number, nonce = self.entries[-1][:2] if self.entries else (0, 0)
        return number, nonce, len(self.entries)


class Log:
    """One log of a broker, with its copies by node."""

    def __init__(self, world: CopyWorld, nodes: tuple[str, ...]) -> None:
        self.world = world
        self.copies = {node: ModelCopy() for node in nodes}
        self.majority = len(nodes) // 2 + 1
        self.changed: tuple[object, int] = (None, -1)
        """Who has had another copy lead, and when."""

    def elect(self, node: str, by: object = None) -> tuple[int, int] | None:
        """Have the copy of a node ask the others for their promise; the term in which it leads, None: it does not."""
        world, own = self.world, self.copies[node]
        if not own.fit:
            return None
        reached = [copy for other, copy in self.copies.items() if world.reaches(node, other)]
        term = (1 + max(copy.promised[0] for copy in reached), world.rng.randrange(1 << 30))
        votes = [copy for copy in reached if copy.fit and copy.end <= own.end]
        if len(votes) < self.majority:
            return None
        for copy in votes:
            copy.promised, copy.promised_us = term, world.loop.now
        self.changed = by, world.loop.now
        return term if self.append(node, term, 0) else None

    def append(self, node: str, term: tuple[int, int], number: int) -> bool:
        """Whether a majority has the entry; those that miss it get it with a later one."""
        world, own = self.world, self.copies[node]
        if own.promised != term:
            return False
        own.entries.append((*term, number))
        own.heard_us = world.loop.now
        have = 1
        for other, copy in self.copies.items():
            late = not world.calm and number and world.rng.random() < 0.2
            if other != node and copy.fit and world.reaches(node, other) and copy.promised <= term and not late:
                copy.promised = term
                copy.entries = list(own.entries)
                copy.heard_us = world.loop.now
                have += 1
        return have >= self.majority

    def greet(self, node: str, term: tuple[int, int]) -> None:
        """Tell the copies that they have a leader."""
        for other, copy in self.copies.items():
            if self.world.reaches(node, other) and copy.promised == term:
                copy.heard_us = self.world.loop.now

    def is_led_later(self, node: str, term: tuple[int, int]) -> bool:
        """Whether a copy says that it has promised itself to a later leader."""
        return any(self.world.reaches(node, other) and copy.promised > term for other, copy in self.copies.items())

    def may_lead(self, node: str) -> bool:
        """What the copies themselves would say."""
        own = self.copies[node]
        votes = (copy for other, copy in self.copies.items() if self.world.reaches(node, other))
        return own.fit and sum(copy.fit and copy.end <= own.end for copy in votes) >= self.majority


class Broker:
    """One process of a broker, on a node."""

    def __init__(self, world: CopyWorld, name: str, node: str, by: object) -> None:
        self.world, self.name, self.node, self.by = world, name, node, by
        self.machine = CopyTakeovers(name, AFTER_MS)
        self.machine.sets = world.sets
        self.gone = self.operating = False
        self.joined = 0
        self.heard = {other: world.loop.now for other in world.names if other != name}
        self.orders: dict[str, tuple[int, str]] = {}
        self.terms: dict[str, tuple[int, int]] = {}
        self.answers: dict[tuple[str, int], set[str]] = {}
        self.led_when_asked: dict[tuple[str, int], str | None] = {}
        for work, every_ms in ((self.greet, HEARTBEAT_MS), (self.look, LOOK_MS)):
            world.after(world.rng.randrange(1, every_ms * MS), self.run, work)

    def run(self, work: Callable[..., None], *args: Any) -> None:
        if not self.gone:
            work(*args)

    # ---- heartbeats

    def greet(self) -> None:
        for other in self.world.all_processes() if self.operating else ():
            if other is not self and self.world.reaches(self.node, other.node):
                delay = self.world.rng.randrange(1, 20 * MS)
                self.world.after(delay, other.run, other.hear, self.name, (self.joined, self.name))
        self.world.after(HEARTBEAT_MS * MS, self.run, self.greet)

    def hear(self, name: str, order: tuple[int, str]) -> None:
        self.heard[name] = self.world.loop.now
        self.orders[name] = order

    def hears(self) -> set[str]:
        return {name for name, at in self.heard.items() if self.world.loop.now - at < DOWN_MS * MS}

    def live(self) -> list[str]:
        orders = {name: self.orders[name] for name in self.hears() & self.orders.keys() if self.orders[name][0]}
        if self.operating:
            orders[self.name] = (self.joined, self.name)
        return sorted(orders, key=lambda name: orders[name])

    # ---- takeovers

    def look(self) -> None:
        world, now_ms = self.world, self.world.loop.now // MS
        hears = self.hears()
        silent = {name: at // MS for name, at in self.heard.items() if name not in hears}
        for action in self.machine.looked(self.live(), hears, silent, now_ms):
            self.carry_out(action)
        world.after(LOOK_MS * MS, self.run, self.look)

    def carry_out(self, action: CopyAction) -> None:
        world, name = self.world, action.broker
        if name != self.name:
            assert self.operating, f"no sign: {self.name} takes {name} over, and does not operate itself"
            assert name not in self.hears(), f"no sign: {self.name} takes {name} over, and hears it"
            silent_ms = (world.loop.now - self.heard[name]) // MS
            assert silent_ms >= AFTER_MS - 1, f"soon: {name} was heard {silent_ms} ms ago"
        match action:
            case AskCopies():
                world.asked[name, action.attempt, self.name] = world.loop.now, world.changes
                self.led_when_asked[name, action.attempt] = world.leader_of(name)
                self.answers[name, action.attempt] = set()
                for peer in action.peers:
                    world.after(world.rng.randrange(1, 200 * MS), self.run, self._ask, action, peer)
            case LevelCopy():
                whole = self.answers[name, action.attempt] == world.logs[name][action.log].copies.keys()
                world.after(world.rng.randrange(1, 500 * MS), self.run, self._level, action, whole)
            case StartAt():
                world.after(world.rng.randrange(1, 500 * MS), self.run, self._start, action)

    def _ask(self, ask: AskCopies, peer: str) -> None:
        world = self.world
        if not world.reaches(self.node, peer):
            return
        now = world.loop.now
        found = {}
        for name, log in world.logs[ask.broker].items():
            copy = log.copies[peer]
            quiet_ms = None if copy.promised_us is None else (now - copy.promised_us) // MS
            found[name] = HeldCopy(copy.fit, copy.end, now - copy.heard_us < LED_MS * MS, quiet_ms)
        world.after(world.rng.randrange(1, 200 * MS), self.run, self._answered, ask, peer, found)

    def _answered(self, ask: AskCopies, peer: str, found: dict[str, HeldCopy]) -> None:
        self.answers[ask.broker, ask.attempt].add(peer)
        self._go_on(ask, self.machine.answered(ask, peer, found))

    def _go_on(self, action: CopyAction, then: list[CopyAction]) -> None:
        if action.broker in self.hears():  # It has come back meanwhile.
            self.machine.ended(action)
            return
        for following in then:
            self.carry_out(following)

    def _level(self, level: LevelCopy, whole: bool) -> None:
        """``whole``: every copy had answered when that was decided."""
        world, log = self.world, self.world.logs[level.broker][level.log]
        world.counts["levelled"] += 1
        needless = whole and self._is_calm(level) and log.may_lead(level.peer)
        assert not needless, f"level: {level.peer} may lead {level.log}"
        if level.broker != self.name:
            world.check_apart(level, self)
        term = log.elect(level.leader, (self, level.attempt)) if world.reaches(self.node, level.leader) else None
        if term is None or not world.reaches(level.leader, level.peer):
            self.machine.ended(level)
            return
        log.copies[level.peer].entries = list(log.copies[level.leader].entries)
        log.copies[level.peer].promised = term
        self._go_on(level, self.machine.levelled(level))

    def _is_calm(self, action: CopyAction) -> bool:
        """Whether nothing has happened since copies were asked, and every node reaches every other one."""
        world = self.world
        asked, changes = world.asked[action.broker, action.attempt, self.name]
        others = (log.changed for log in world.logs[action.broker].values())
        alone = all(at < asked or by == (self, action.attempt) for by, at in others)
        return alone and not world.cut and changes == world.changes

    def _start(self, start: StartAt) -> None:
        world = self.world
        fails = not world.calm and world.rng.random() < 0.1
        if fails or not world.reaches(self.node, start.peer):
            self.machine.ended(start)
            return
        logs = world.logs[start.broker].values()
        able = all(log.may_lead(start.peer) for log in logs)
        assert able or not self._is_calm(start), f"able: {start.peer} is to start {start.broker}, and may not lead"
        led = self.led_when_asked[start.broker, start.attempt]
        assert led is None or not self._is_calm(start), f"no sign: {start.broker} is taken over, and {led} leads it"
        own = start.broker == self.name
        world.counts["own starts" if own and start.peer == self.node else "takeovers"] += 1
        if not own:
            world.check_apart(start, self)
        world.started(start.broker, start.peer, (self, start.attempt))
        self.machine.ended(start)
        if own:
            self.machine.starting = False
            world.waiting.pop(self.name, None)
            self.gone = True  # The process that leads is another one of this model.

    # ---- its logs

    def open(self, tries: int = 20) -> None:
        """Lead all logs, or end: whoever asks finds another node for it."""
        world = self.world
        for name, log in world.logs[self.name].items():
            term = self.terms.get(name) or log.elect(self.node, self.by)
            if term is not None:
                self.terms[name] = term
        if len(self.terms) < len(world.logs[self.name]):
            if tries:
                world.after(200 * MS, self.run, self.open, tries - 1)
            else:
                self.gone = True
            return
        there = {entry[2] for log in world.logs[self.name].values() for entry in log.copies[self.node].entries}
        lost = world.confirmed[self.name] - there
        assert not lost, f"kept: {self.name} on {self.node} has not {sorted(lost)}, which were confirmed"
        self.operating = True
        self.joined = 1 + world.loop.now
        world.counts["operating"] += 1
        self.send()

    def send(self) -> None:
        world = self.world
        world.numbers += 1
        name = world.rng.choice(sorted(world.logs[self.name]))
        if any(log.is_led_later(self.node, self.terms[key]) for key, log in world.logs[self.name].items()):
            self.gone = True
            return
        if world.logs[self.name][name].append(self.node, self.terms[name], world.numbers):
            world.confirmed[self.name].add(world.numbers)
        for key, log in world.logs[self.name].items():
            log.greet(self.node, self.terms[key])
        world.after(world.rng.randrange(100 * MS, 900 * MS), self.run, self.send)


class CopyWorld:
    """Everything of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = rng = Random(seed)
        self.loop = Loop()
        self.names = tuple(f"b{number}" for number in range(1, 1 + rng.choice((3, 4, 5))))
        replicas = rng.choice((3, 5)) if len(self.names) == 5 else 3
        nodes = {name: name for name in self.names}  # A node is called as the broker that it had first.
        self.sets = {name: peers_of(name, replicas, nodes) for name in self.names}
        self.logs = {
            name: {f"h{n}": Log(self, (name, *self.sets[name])) for n in range(1, 1 + rng.choice((1, 2, 3)))}
            for name in self.names
        }
        self.processes: dict[str, Broker] = {}
        self.older: list[Broker] = []
        self.waiting: dict[str, Broker] = {}
        """Brokers on their own nodes that ask their copies whether they may start."""
        self.down: set[str] = set()
        self.cut: set[frozenset[str]] = set()
        self.wiped: set[str] = set()
        self.confirmed: dict[str, set[int]] = {name: set() for name in self.names}
        self.counts: Counter[str] = Counter()
        self.numbers = self.changes = 0
        self.asked: dict[tuple[str, int, str], tuple[int, int]] = {}
        """(Broker, attempt, taker) → when copies were asked last, and how much had happened by then."""
        self.tells: dict[tuple[str, Broker], dict[int, int]] = {}
        """(Broker, taker) → attempt → when somebody was told to lead first."""
        self.calm = False
        self.fault_us = rng.choice((3 * S, 8 * S, 20 * S))

    def after(self, delay: int, run: Callable[..., None], *args: Any) -> None:
        self.loop.after(delay, run, *args)

    def reaches(self, one: str, other: str) -> bool:
        """Whether a node reaches another one."""
        return not ({one, other} & self.down) and frozenset((one, other)) not in self.cut

    def check_apart(self, action: CopyAction, taker: Broker) -> None:
        """Two takeovers that began at once do not see each other, and a copy that was restarted has forgotten."""
        name, now = action.broker, self.loop.now
        asked, _ = self.asked[name, action.attempt, taker.name]
        tells = self._tells_in_a_row(action, taker)
        for log in self.logs[name].values():
            by, at = log.changed
            if by == (taker, action.attempt) or at < 0:
                continue
            if asked < at:
                self.counts["two at once"] += 1
            elif all(copy.promised_us is not None for copy in log.copies.values()):
                ago_ms = (now - at) // MS
                apart = ago_ms >= APART_MS - 1000
                self.counts["tried again"] += not apart
                assert apart or 1 < tells <= TELLS_MAX, f"apart: {name} is taken over {ago_ms} ms after the last time"

    def _tells_in_a_row(self, action: CopyAction, taker: Broker) -> int:
        """How often one takeover has told somebody to lead: what came of the last time was no change."""
        tells = self.tells.setdefault((action.broker, taker), {})
        tells.setdefault(action.attempt, self.loop.now)
        return sum(self.loop.now - at < (SETTLED_MS + ASKING_MS) * MS for at in tells.values())

    def all_processes(self) -> list[Broker]:
        return [*self.processes.values(), *self.older, *self.waiting.values()]

    def leader_of(self, name: str) -> str | None:
        """The node whose process of that broker leads a majority of the copies of each log, if there is one."""
        return next((one.node for one in self.operating(name) if self._leads(one)), None)

    def operating(self, name: str) -> list[Broker]:
        return [one for one in self.all_processes() if one.name == name and one.operating and not one.gone]

    def _leads(self, process: Broker) -> bool:
        for key, log in self.logs[process.name].items():
            near = [copy for node, copy in log.copies.items() if self.reaches(process.node, node)]
            heard = (copy for copy in near if self.loop.now - copy.heard_us < S)
            if sum(copy.promised == process.terms[key] for copy in heard) < log.majority:
                return False
        return True

    def started(self, name: str, node: str, by: object = None) -> None:
        self.changes += 1
        before = self.processes.get(name)
        if before is not None and not before.gone and before.node == node:
            return
        if before is not None and not before.gone:
            self.older.append(before)
        process = self.processes[name] = Broker(self, name, node, by)
        process.open()

    def _come_home(self, name: str) -> None:
        """A broker starts on its own node: it asks its copies, unless it runs there."""
        there = any(one.name == one.node == name and not one.gone for one in self.all_processes())
        if name not in self.down and not there and name not in self.waiting:
            waiting = self.waiting[name] = Broker(self, name, name, None)
            waiting.machine.starting = True

    # ---- faults

    def _fault(self) -> None:
        if self.calm:
            return
        rng = self.rng
        kind = rng.choice(("node", "node", "process", "cut", "wiped"))
        long_us = rng.choice((S, 6 * S, 60 * S))
        node = rng.choice(self.names)
        if kind == "wiped" and self.wiped:
            kind = "node"
        self.counts[kind] += 1
        self.changes += 1
        match kind:
            case "node" | "wiped":
                self._lose(node)
                if kind == "wiped":
                    self.wiped.add(node)
                    for logs in self.logs.values():
                        for log in logs.values():
                            if node in log.copies:
                                log.copies[node] = ModelCopy(fit=False)
                self.after(rng.randrange(long_us), self._back, node)
            case "process":
                name = rng.choice(self.names)
                if name in self.processes:
                    self.processes[name].gone = True
                    self.after(rng.randrange(100 * MS, long_us + S), self._come_home, name)
            case "cut":
                side = {name for name in self.names if rng.random() < 0.5}
                cut = {frozenset((a, b)) for a in side for b in self.names if b not in side}
                self.cut |= cut
                self.after(rng.randrange(long_us), self._heal, cut)
        self.after(1 + int(rng.expovariate(1 / self.fault_us)), self._fault)

    def _heal(self, cut: set[frozenset[str]]) -> None:
        self.cut -= cut
        self.changes += 1

    def _lose(self, node: str) -> None:
        self.down.add(node)
        for process in self.all_processes():
            if process.node == node:
                process.gone = True
        self.waiting.pop(node, None)

    def _back(self, node: str) -> None:
        self.down.discard(node)
        self.changes += 1
        for log in (log for logs in self.logs.values() for log in logs.values()):
            if node in log.copies:
                log.copies[node].promised_us = None  # It is a new process.
        self._come_home(node)

    # ---- the run

    def run(self) -> None:
        """Raises AssertionError when something does not hold."""
        for name in self.names:
            self.started(name, name)
        self.after(3 * S, self._fault)
        self.loop.run(self.rng.randrange(30, 150) * S, EVENTS_MAX)
        self.calm = True
        self.cut.clear()
        for node in self.names:
            self._back(node)
        self.loop.run(self.loop.now + CALM_S * S, EVENTS_MAX)
        for name in self.names:
            assert self.leader_of(name), f"comes back: {name} does not, {CALM_S} s after the last fault"


def happened(world: CopyWorld) -> Counter[str]:
    return Counter(world.counts)


SIMULATION = Simulation(
    "tests.simulation_control.copy_takeovers", CopyWorld, happened, "happened", batch_seeds=25, seeds=500
)

if __name__ == "__main__":
    raise SystemExit(SIMULATION.main(__doc__))
