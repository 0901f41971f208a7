"""The path of a command: its records before its effects, what it defers after it, and nothing after an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.core.outcome import Effect, Idle, Outcome, Retire
from raybroker.engine.measured_time import MeasuredTime
from raybroker.engine.memory.block_cache import BlockCache
from raybroker.engine.path.effect_dispatcher import EffectDispatcher
from raybroker.engine.path.executor import DestinationStep, Executor, ExecutorOwner, unawaited
from raybroker.engine.path.observers import Observers
from raybroker.engine.path.wakeups import Wakeups
from raybroker.model.blocks.record import BLOCK, CHECKPOINT, NOTE, LogEntry
from raybroker.model.errors import StoreError, StoreFullError
from tests.unit.engine.rig import Clock, SlowCommitter, made

NUMBER = 4
NOTED = LogEntry(NOTE, NUMBER, 0, b"n")
LATE, AT_ONCE = Idle(), Retire((9,), False)


class SteppedDestination:
    """A destination that answers with the outcomes it was given, in order."""

    number = NUMBER

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes = list(outcomes)
        self.block_index = SimpleNamespace(held=SimpleNamespace(fresh={1: SimpleNamespace(stored=True)}.get))
        self.stepped: list[int] = []

    def step(self, command: Any, *, now_ms: int, ahead_ms: int = 0) -> Outcome:
        self.stepped.append(now_ms)
        return self.outcomes.pop(0)


class World:
    """``seen``: what happened, in order. ``due``: the store wants a checkpoint."""

    def __init__(self, budget_bytes: int = 1 << 20) -> None:
        self.seen: list[Any] = []
        self.due = self.helps = self.roomy = False
        self.clock = Clock()
        self.wakeups = Wakeups()
        self.observers = Observers()
        self.observers.add(NUMBER, lambda destination: self.seen.append("looked"))
        self.dispatcher = EffectDispatcher()
        self.dispatcher.register({Idle: self._released, Retire: self._released})
        store: Any = SimpleNamespace(
            checkpoint_due=lambda: self.due,
            commit=self._commit,
            has_room=lambda nbytes: nbytes <= 100,
            read=lambda number, ordinal: b"",
            checkpoint_helps=lambda: self.helps,
            tidy_helps=lambda: self.roomy,
        )
        self.cache = BlockCache(store, budget_bytes)
        self.executor = Executor(
            store,
            MeasuredTime(self.clock),
            self.cache,
            self.wakeups,
            self.dispatcher,
            self.observers,
            ExecutorOwner(
                kept=lambda destination, outcome, block: self.seen.append("kept"),
                damaged=lambda destination, ordinal: self.seen.append(("damaged", ordinal)),
                checkpoint=lambda: LogEntry(CHECKPOINT, 0, 0, b"all"),
                failed=lambda error: self.seen.append(("failed", error)),
                report=lambda line: self.seen.append(("told", line)),
            ),
        )
        self.committer = SlowCommitter(store)
        self.executor.start(self.committer)

    def _released(self, destination: Any, effect: Effect) -> None:
        self.seen.append(effect)

    def _commit(self, entries: Sequence[LogEntry]) -> None:
        self.seen.append([entry.kind for entry in entries])

    def perform(self, outcome: Outcome, block: Any = None) -> Any:
        destination: Any = SteppedDestination(outcome)
        return self.executor.perform(destination, None, block)  # type: ignore[arg-type]

    def took(self) -> list[Any]:
        found, self.seen = self.seen, []
        return found


def test_effects_that_need_the_disk_wait_for_the_records_and_the_others_do_not() -> None:
    world = World()
    world.perform(Outcome(records=[NOTED], after_durable=[LATE], immediate=[AT_ONCE]))
    assert world.took() == [AT_ONCE, "looked"]
    world.committer.sync()
    assert world.took() == [[NOTE], LATE]


def test_a_block_is_written_with_its_bytes_and_stays_in_memory_while_there_is_room() -> None:
    for budget_bytes, stays in ((1 << 20, True), (0, False)):
        world, block = World(budget_bytes), made("a")
        world.perform(Outcome(records=[LogEntry(BLOCK, NUMBER, 1, b"m")], accepted=1), block)
        ((entries, _),) = world.committer.waiting
        assert entries[0].payload == (block.view,)
        assert world.took() == ["kept", "looked"]
        world.committer.sync()
        assert bool(world.cache.kept_bytes) is stays


def test_a_destination_asks_to_be_woken() -> None:
    world = World()
    world.perform(Outcome(wake_at=world.clock.ms + 50))
    assert (world.wakeups.due(world.clock.ms), world.wakeups.due(world.clock.ms + 50)) == ([], [NUMBER])
    world.perform(Outcome(unfinished=True))
    assert world.wakeups.due(world.clock.ms) == [NUMBER]


def test_what_follows_from_an_effect_comes_after_all_effects_of_its_command() -> None:
    world = World()
    later: Callable[[], object] = lambda: world.seen.append("followed")
    world.dispatcher.handlers[Retire] = lambda destination, effect: (
        world.executor.later(later),
        world.seen.append(effect),
    )[0]
    world.perform(Outcome(immediate=[AT_ONCE, AT_ONCE], damaged=[3]))
    assert world.took() == [AT_ONCE, AT_ONCE, "looked", "followed", "followed", ("damaged", 3)]


def test_what_is_deferred_while_nothing_is_under_way_happens_at_once() -> None:
    world = World()
    world.executor.later(lambda: world.seen.append("now"))
    assert world.took() == ["now"]

    def busy() -> None:
        world.executor.later(lambda: world.seen.append("after"))
        world.seen.append("busy")

    world.executor.undisturbed(busy)
    assert world.took() == ["busy", "after"]


def test_commands_that_are_performed_together_are_written_together_and_seen_together() -> None:
    world = World()
    destination: Any = SteppedDestination(
        Outcome(records=[NOTED], immediate=[AT_ONCE]), Outcome(records=[NOTED], after_durable=[LATE])
    )
    steps: Any = [DestinationStep(destination, None), DestinationStep(destination, None)]  # type: ignore[arg-type]
    outcomes = world.executor.perform_all(steps, [NOTED], lambda: world.seen.append("done"))
    assert len(outcomes) == 2
    assert world.took() == ["looked", "looked"]
    world.committer.sync()
    assert world.took() == [[NOTE, NOTE, NOTE], AT_ONCE, LATE, "done"]


def test_what_follows_from_an_effect_comes_after_those_of_all_that_was_performed_together() -> None:
    world = World()
    later: Callable[[], object] = lambda: world.seen.append("followed")
    world.dispatcher.handlers[Retire] = lambda destination, effect: (
        world.executor.later(later),
        world.seen.append(effect),
    )[0]
    one: Any = SteppedDestination(Outcome(records=[NOTED], after_durable=[AT_ONCE]))
    other: Any = SteppedDestination(Outcome(records=[NOTED], after_durable=[LATE]))
    steps: Any = [DestinationStep(one, None), DestinationStep(other, None)]  # type: ignore[arg-type]
    world.executor.perform_all(steps, [], lambda: world.seen.append("done"))
    world.took()
    world.committer.sync()
    assert world.took() == [[NOTE, NOTE], AT_ONCE, LATE, "done", "followed"]


def test_a_checkpoint_is_written_once_when_the_store_wants_one() -> None:
    world = World()
    world.due = True
    world.perform(Outcome())
    world.perform(Outcome())
    world.due = False
    world.committer.sync()
    assert world.took() == ["looked", "looked", [CHECKPOINT]]
    world.executor.disk_full(StoreFullError("full"))
    world.executor.disk_full(StoreFullError("full"))
    assert world.took() == [("told", "[B2158] full; what is decided waits until there is room")]
    assert len(world.committer.waiting) == 1


def test_after_an_error_nothing_is_performed_written_or_released() -> None:
    world = World()
    world.perform(Outcome(records=[NOTED], after_durable=[LATE]))
    world.executor.note(NUMBER, b"n", lambda: world.seen.append("noted"))
    world.took()
    error = StoreError("the disk is gone")
    world.executor.fail(error)
    world.executor.fail(StoreError("again"))
    assert world.took() == [("failed", error)]
    with pytest.raises(StoreError, match="the host has stopped: the disk is gone"):
        world.executor.require_running()
    assert world.perform(Outcome(immediate=[AT_ONCE])) is None
    assert world.executor.perform_all([], [NOTED], unawaited) == []
    world.executor.later(lambda: world.seen.append("deferred"))
    world.committer.store.commit = lambda entries: None  # type: ignore[method-assign]
    world.committer.sync()
    assert world.took() == []


def test_room_counts_what_is_on_its_way_to_the_store() -> None:
    world = World()
    world.executor.require_running()
    world.committer.pending_bytes = 60
    assert world.executor.has_room(40)
    assert not world.executor.has_room(41)


def test_what_the_core_refuses_leaves_nothing_behind() -> None:
    world = World()
    destination: Any = SimpleNamespace(number=NUMBER, step=lambda command, now_ms, ahead_ms: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        world.executor.perform(destination, None)  # type: ignore[arg-type]
    world.executor.later(lambda: world.seen.append("goes on"))
    assert (world.took(), world.committer.waiting) == (["goes on"], [])


def test_with_nothing_to_do_a_checkpoint_is_written_when_it_gives_space_back() -> None:
    world = World()
    world.executor.give_back(idle=True)
    world.helps = True
    world.executor.give_back(idle=False)
    assert world.committer.waiting == []
    world.executor.give_back(idle=True)
    world.executor.give_back(idle=True)
    ((entries, _),) = world.committer.waiting
    assert [entry.kind for entry in entries] == [CHECKPOINT]
    world.committer.sync()
    assert world.committer.tidied == 1, "the store may take some time for it"


def test_room_that_the_store_does_not_need_is_given_back_also_while_something_is_written() -> None:
    world = World()
    world.roomy = True
    world.executor.give_back(idle=False)
    assert (world.committer.waiting, world.committer.tidied) == ([], 1)
