"""One seed of brokers that share a store: they die, stand still and are cut off, and take each other's messages over.

The decisions are those of ``raybroker.cluster.takeover``; the store is a model of the tables, with the rules by which
these tell a tenure from another.  What has to hold:

fence       nobody commits after a later tenure has read what there is
one         of one tenure of a broker one process is started by a takeover
no sign     nobody is taken over who has just given a sign of life, or whom the taker hears
apart       two takeovers of a broker begin APART_MS apart
undisturbed a takeover that goes on is left to whoever has begun it
comes back  left alone, every broker that is meant to run operates again
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, Final

from raybroker.cluster.takeover import APART_MS, Takeover, Takeovers, TakeoverSettings, TakeoverStep
from raybroker.model.shared_store import MEANT_TO_RUN, SharedRow, SharedView, StoreState
from tests.seeds import Simulation
from tests.simulation.events import Loop

MS: Final = 1000
S: Final = 1000 * MS
HEARTBEAT_MS: Final = 500
DOWN_MS: Final = 1500
DATABASE_MS: Final = 120
"""Longest way to the database, or back."""
EVENTS_MAX: Final = 300_000
CALM_S: Final = 200
SETTINGS: Final = TakeoverSettings(1000, 2)


class TakenError(Exception):
    """The store belongs to another tenure."""


class SharedModel:
    """The tables.  ``holder``: the tenure that may write a broker's messages; ``read``: the latest that has read
    them."""

    def __init__(self, names: tuple[str, ...], now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.rows = {name: SharedRow(name) for name in names}
        self.holder = dict.fromkeys(names, 0)
        self.read = dict.fromkeys(names, 0)
        self.openings = dict.fromkeys(names, 0)
        self.stored: dict[str, list[int]] = {name: [] for name in names}

    def view(self) -> SharedView:
        return SharedView(self._now_ms(), tuple(self.rows.values()))

    def take(self, name: str, tenure: int, beats: int, taker: str) -> bool:
        row, now_ms = self.rows[name], self._now_ms()
        if not self.is_as_seen(row, tenure, beats):
            return False
        row = replace(row, tenure=row.tenure + 1, beats=row.beats + 1, beat_ms=now_ms, state=StoreState.UNKNOWN)
        if taker:
            row = replace(row, taker=taker, taken_ms=now_ms, state=StoreState.TAKEOVER_STARTED)
        self.rows[name] = row
        return True

    def is_as_seen(self, row: SharedRow, tenure: int, beats: int) -> bool:
        return (row.tenure, row.beats) == (tenure, beats)

    def beat(self, name: str, tenure: int) -> SharedView | None:
        row = self.rows[name]
        if row.tenure != tenure:
            return None
        self.rows[name] = replace(row, beats=row.beats + 1, beat_ms=self._now_ms())
        return self.view()

    def set_state(self, name: str, tenure: int, state: StoreState) -> None:
        if self.rows[name].tenure == tenure:
            self.rows[name] = replace(self.rows[name], state=state)

    def hand_over(self, name: str, tenure: int) -> None:
        if self.is_later(tenure, self.holder[name]):
            self.holder[name] = tenure
        elif tenure != self.holder[name]:
            raise TakenError

    def is_later(self, tenure: int, than: int) -> bool:
        return tenure > than

    def open(self, name: str, tenure: int) -> tuple[int, list[int]]:
        """(number of this opening, what there is)."""
        if not self.may_write(name, tenure):
            raise TakenError
        self.read[name] = max(self.read[name], tenure)
        self.openings[name] += 1
        return self.openings[name], list(self.stored[name])

    def may_write(self, name: str, tenure: int) -> bool:
        return self.holder[name] == tenure

    def commit(self, name: str, tenure: int, opening: int, number: int) -> None:
        if not self.may_write(name, tenure) or opening < self.openings[name]:
            raise TakenError
        assert tenure >= self.read[name], f"fence: {name} of tenure {tenure} commits after {self.read[name]} has read"
        self.stored[name].append(number)


class Broker:
    """One process.  ``paused``: it stands still, and what it was about to do comes later."""

    def __init__(self, world: TakeoverWorld, name: str, tenure: int) -> None:
        self.world, self.name, self.tenure = world, name, tenure
        self.machine = Takeovers(name, SETTINGS)
        self.gone = self.operating = False
        self.paused_until = 0
        self.joined = world.loop.now
        self.heard: dict[str, int] = {}
        self.able_since = world.loop.now
        self.opening = 0
        world.after(world.rng.randrange(1, 300 * MS), self.run, self.look)
        world.after(world.rng.randrange(1, HEARTBEAT_MS * MS), self.run, self.greet)

    def run(self, work: Callable[..., None], *args: Any) -> None:
        """Do something as this process, once it turns."""
        if self.gone:
            return
        if self.world.loop.now < self.paused_until:
            self.world.loop.at(self.paused_until, self.run, work, *args)
            return
        work(*args)

    def end(self) -> None:
        self.gone = True

    def pause(self, duration_us: int) -> None:
        self.paused_until = max(self.paused_until, self.world.loop.now + duration_us)
        self.able_since = max(self.able_since, self.paused_until)

    # ---- heartbeats

    def greet(self) -> None:
        world = self.world
        for other in world.processes.values():
            if other is not self and not other.gone and not world.is_cut(self.name, other.name):
                world.after(world.rng.randrange(1, 20 * MS), other.run, other.hear, self.name, self.joined)
        world.after(HEARTBEAT_MS * MS, self.run, self.greet)

    def hear(self, name: str, joined: int) -> None:
        self.heard[name] = self.world.loop.now

    def hears(self) -> set[str]:
        return {name for name, at in self.heard.items() if self.world.loop.now - at < DOWN_MS * MS}

    def live(self) -> list[str]:
        """In the order in which they joined, as every broker knows it."""
        names = self.hears() | {self.name}
        return sorted(names, key=lambda name: (self.world.joined.get(name, 0), name))

    # ---- the database

    def look(self) -> None:
        world = self.world
        world.call(self, self._looked, world.store.beat, self.name, self.tenure)
        if self.machine.vicarious is not None:
            world.call(self, self._vicarious, world.store.beat, *self.machine.vicarious)
        world.after(SETTINGS.interval_ms * MS, self.run, self.look)

    def _looked(self, view: SharedView | None, error: bool) -> None:
        if error:
            self.machine.missed()
        elif view is None:
            self.end()
        elif self.operating:
            own = view.row_of(self.name)
            if own is not None and own.state is not StoreState.OPERATING:
                self._say()
            work = self.machine.looked(view, self.live(), self.hears(), self.world.loop.now // MS)
            if work is not None:
                assert work.name not in self.hears(), f"no sign: {self.name} takes {work.name} over, and hears it"
                self.carry_out(work)

    def _vicarious(self, view: SharedView | None, error: bool) -> None:
        if view is None and not error and self.machine.work is not None:
            self.machine.ended(self.machine.work)

    def carry_out(self, work: Takeover) -> None:
        world, store = self.world, self.world.store
        match work.step:
            case TakeoverStep.TAKE:
                world.call(self, self._taken, world.take, work, self.name)
            case TakeoverStep.HAND_OVER:
                if not world.calm and world.rng.random() < 0.1:
                    self.pause(world.rng.randrange(60 * S))
                self.run(world.call, self, self._done, store.hand_over, work.name, work.next_tenure)
            case TakeoverStep.START:
                longest = S if world.calm else world.start_us
                world.after(world.rng.randrange(100 * MS, longest), self.run, self._start, work)

    def _taken(self, done: bool, error: bool) -> None:
        work = self.machine.work
        assert work is not None
        if error or not done:
            self.machine.ended(work)
        else:
            self._done(None, False)

    def _done(self, _: object, error: bool) -> None:
        work = self.machine.work
        if work is None:
            return
        after = None if error else self.machine.done(work)
        if after is None:
            self.machine.ended(work)
        else:
            self.carry_out(after)

    def _start(self, work: Takeover) -> None:
        if self.machine.work == work:
            self.machine.done(work)
            self.world.started(work.name, work.next_tenure)

    # ---- its hosts

    def open(self) -> None:
        self.world.call(self, self._opened, self.world.store.open, self.name, self.tenure)

    def _opened(self, found: tuple[int, list[int]] | None, error: bool) -> None:
        world = self.world
        if error:
            if found is not None:  # It belongs to another tenure.
                self.end()
            else:
                world.after(500 * MS, self.run, self.open)
            return
        assert found is not None
        self.opening, stored = found
        lost = world.confirmed[self.name] - set(stored)
        assert not lost, f"fence: {self.name} of tenure {self.tenure} has not {sorted(lost)}, which were confirmed"
        self.operating = True
        world.counts["operating"] += 1
        world.joined[self.name] = world.loop.now
        self._say()
        self.send()

    def _say(self) -> None:
        store = self.world.store
        self.world.call(self, lambda *_: None, store.set_state, self.name, self.tenure, StoreState.OPERATING)

    def send(self) -> None:
        world = self.world
        world.numbers += 1
        number, store = world.numbers, world.store
        world.call(self, self._confirmed(number), store.commit, self.name, self.tenure, self.opening, number)
        world.after(world.rng.randrange(50 * MS, 800 * MS), self.run, self.send)

    def _confirmed(self, number: int) -> Callable[[object, bool], None]:
        def answered(_: object, error: bool) -> None:
            if not error:
                self.world.confirmed[self.name].add(number)

        return answered


class TakeoverWorld:
    """Everything of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = rng = Random(seed)
        self.loop = Loop()
        self.names = tuple(f"b{number}" for number in range(1, 1 + rng.choice((3, 3, 4, 5))))
        self.store = SharedModel(self.names, lambda: 1_000_000 + self.loop.now // MS)
        self.processes: dict[str, Broker] = {}
        self.zombies: list[Broker] = []
        self.joined: dict[str, int] = {}
        self.confirmed: dict[str, set[int]] = {name: set() for name in self.names}
        self.numbers = 0
        self.counts: Counter[str] = Counter()
        self.calm = False
        self.cut: set[frozenset[str]] = set()
        self.cut_off: set[str] = set()
        """Brokers without a way to the database."""
        self.down = False
        self.unseen = rng.choice((0.0, 0.02, 0.1))
        self.start_us = rng.choice((2 * S, 5 * S, 60 * S))
        self.fault_us = rng.choice((2 * S, 6 * S, 15 * S))
        self._taken: dict[str, int] = {}
        self._started: set[tuple[str, int]] = set()

    def after(self, delay: int, run: Callable[..., None], *args: Any) -> None:
        self.loop.after(delay, run, *args)

    def is_cut(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self.cut

    # ---- calls to the database

    def call(self, who: Broker, then: Callable[[Any, bool], None], what: Callable[..., Any], *args: Any) -> None:
        """``then(answer, error)``; the answer to an error is None, unless the store belongs to another tenure."""
        self.after(self.rng.randrange(1, DATABASE_MS * MS // 2), self._arrive, who, then, what, *args)

    def _arrive(self, who: Broker, then: Callable[[Any, bool], None], what: Callable[..., Any], *args: Any) -> None:
        back = self.rng.randrange(1, DATABASE_MS * MS // 2)
        if self.down or (who.name in self.cut_off and who is self.processes.get(who.name)):
            self.after(back, who.run, then, None, True)
            return
        try:
            answer, error = what(*args), False
        except TakenError:
            answer, error = [], True
        if not error and not self.calm and self.rng.random() < self.unseen:
            self.counts["the end of a call was not seen"] += 1
            answer, error = None, True
        self.after(back, who.run, then, answer, error)

    def take(self, work: Takeover, taker: str) -> bool:
        """What has to hold when a broker is taken over."""
        name, now = work.name, self.loop.now
        if not self.store.take(name, work.tenure, work.beats, taker):
            self.counts["second"] += 1
            return False
        self.counts["takeovers"] += 1
        before = self._taken.get(name, -APART_MS * MS)
        assert now - before >= APART_MS * MS, (
            f"apart: {name} is taken over {(now - before) // MS} ms after the last time"
        )
        self._taken[name] = now
        process = self.processes.get(name)
        if process is not None and self._is_able(process):
            able_ms = (now - process.able_since) // MS
            most = SETTINGS.silence_ms + SETTINGS.interval_ms + 2 * DATABASE_MS
            assert able_ms < most, f"no sign: {name} is taken over and has given signs of life for {able_ms} ms"
        for other in self.processes.values():
            at = other.machine.work
            mine = other.name == taker or at is None or at.name != name or at.step is TakeoverStep.TAKE
            undisturbed = mine or other.gone or not self._is_able(other) or now - other.able_since < 5 * S
            assert undisturbed, f"undisturbed: {taker} takes {name} over, and {other.name} is doing so"
        return True

    def _is_able(self, process: Broker) -> bool:
        tenure = self.store.rows[process.name].tenure
        late = self.loop.now < process.paused_until or process.name in self.cut_off
        return not (process.gone or late or self.down or self.unseen or process.tenure < tenure - 1)

    # ---- processes

    def started(self, name: str, tenure: int, *, by_ray: bool = False) -> None:
        if not by_ray:
            assert (name, tenure) not in self._started, f"one: tenure {tenure} of {name} is started twice"
            self._started.add((name, tenure))
        before = self.processes.get(name)
        if before is not None and not before.gone:
            if before.tenure >= tenure:
                return
            self.zombies.append(before)
        process = self.processes[name] = Broker(self, name, tenure)
        process.open()

    def _start_again(self, process: Broker) -> None:
        """As Ray does, who knows nothing of tenures."""
        if self.processes.get(process.name) is process and process.gone:
            self.started(process.name, process.tenure, by_ray=True)

    def _administrator(self) -> None:
        """Start what was never seen to work, and everything when nobody is left who could take it over."""
        none = all(process.gone or not process.operating for process in self.processes.values())
        for name in self.names:
            row, process = self.store.rows[name], self.processes.get(name)
            if (process is None or process.gone) and (none or row.state not in MEANT_TO_RUN):
                assert self.store.take(name, row.tenure, row.beats, "")
                self.store.hand_over(name, row.tenure + 1)
                self.started(name, row.tenure + 1)
        self.after(5 * S, self._administrator)

    # ---- faults

    def _fault(self) -> None:
        if self.calm:
            return
        rng = self.rng
        process = rng.choice(list(self.processes.values()))
        kind = rng.choice(("crash", "crash", "lost", "pause", "cut", "cut", "no database", "database down"))
        self.counts[kind] += 1
        long_us = rng.choice((S, 5 * S, 40 * S))
        match kind:
            case "crash":
                process.end()
                self.after(rng.randrange(100 * MS, long_us), self._start_again, process)
            case "lost":
                process.end()
            case "pause":
                process.pause(rng.randrange(long_us))
            case "cut":
                side = {name for name in self.names if rng.random() < 0.5}
                cut = {frozenset((a, b)) for a in side for b in self.names if b not in side}
                self.cut |= cut
                self.after(rng.randrange(long_us), self.cut.difference_update, cut)
            case "no database":
                self.cut_off.add(process.name)
                self.after(rng.randrange(long_us), self._reach, process.name)
            case "database down":
                self.down = True
                self.after(rng.randrange(min(long_us, 8 * S)), self._up)
        self.after(1 + int(rng.expovariate(1 / self.fault_us)), self._fault)

    def _reach(self, name: str) -> None:
        self.cut_off.discard(name)
        if name in self.processes:
            self.processes[name].able_since = max(self.processes[name].able_since, self.loop.now)

    def _up(self) -> None:
        self.down = False
        for process in self.processes.values():
            process.able_since = max(process.able_since, self.loop.now)

    # ---- the run

    def run(self) -> None:
        """Raises AssertionError when something does not hold."""
        self._administrator()
        self.after(3 * S, self._fault)
        self.loop.run(self.rng.randrange(20, 120) * S, EVENTS_MAX)
        self.calm, self.unseen = True, 0.0
        self.cut.clear()
        for name in list(self.cut_off):
            self._reach(name)
        self._up()
        self.loop.run(self.loop.now + CALM_S * S, EVENTS_MAX)
        for name in self.names:
            row, process = self.store.rows[name], self.processes[name]
            well = not process.gone and process.operating and process.tenure == row.tenure == self.store.holder[name]
            assert well, f"comes back: {name} does not operate {CALM_S} s after the last fault, {row}"
            assert row.state is StoreState.OPERATING
        assert all(zombie.gone for zombie in self.zombies), "comes back: a process of an older tenure runs on"
        for name in self.names:
            lost = self.confirmed[name] - set(self.store.stored[name])
            assert not lost, f"fence: {name} has lost {sorted(lost)}"


def happened(world: TakeoverWorld) -> Counter[str]:
    return Counter(world.counts)


SIMULATION = Simulation(
    "tests.simulation_control.takeovers", TakeoverWorld, happened, "happened", batch_seeds=25, seeds=500
)

if __name__ == "__main__":
    raise SystemExit(SIMULATION.main(__doc__))
