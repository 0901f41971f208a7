"""Messages that one host gives to another are set aside until it is known what became of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.core import command as cmd
from raybroker.engine.destinations.transfer import PATIENCE_MS, Transfer
from raybroker.engine.path.wakeups import Durations, Wakeups
from raybroker.engine.transactions.transaction_log import TxLog
from raybroker.model.blocks.block import Block
from raybroker.model.errors import IllegalStateError, ResourceAllocationError
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import made, text_of


class Giving(Desk):
    """``decided``: keys that the transactions were told to roll back."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        self.home = self.add(**attributes)
        self.decided: list[tuple[bytes, bool]] = []
        self.log = TxLog()
        transactions: Any = SimpleNamespace(
            log=self.log, find=lambda key: None, decide=lambda key, commit, done: self.decided.append((key, commit))
        )
        cache: Any = SimpleNamespace(get=lambda number, ordinal: self.executor.blocks[number, ordinal])
        self.wakeups = Wakeups()
        self.transfer = Transfer(
            self.executor, self.registry, transactions, cache, self.own, Durations(self.wakeups, self.time), self.codec
        )

    def aside(self, key: bytes, messages_max: int = 100, bytes_max: int = 1 << 20) -> list[str]:
        blocks = [Block(data) for data in self.transfer.set_aside(self.home, key, messages_max, bytes_max)]
        return [text_of(block, index) for block in blocks for index in range(block.count)]

    def waiting(self) -> int:
        return sum(run.count for state, run in self.home.queues[0].contents() if state == "waiting")


def test_the_first_ones_are_set_aside_up_to_both_limits() -> None:
    world = Giving()
    world.put(world.home, "a", "b", "c")
    world.put(world.home, "d")
    assert world.aside(b"1", messages_max=2) == ["a", "b"]
    assert world.aside(b"2", bytes_max=1) == ["c"], "at least one"
    assert (world.waiting(), world.home.block_index.messages) == (1, 4)
    with pytest.raises(IllegalStateError, match="under that key already"):
        world.aside(b"2")


def test_what_the_other_host_took_is_gone_and_the_outcome_is_remembered() -> None:
    world = Giving()
    world.put(world.home, "a", "b")
    world.aside(b"1")
    done: list[str] = []
    world.transfer.give(b"1", lambda: done.append("durable"))
    assert (world.home.block_index.messages, world.log.outcome(b"1"), done) == (0, True, ["durable"])
    with pytest.raises(IllegalStateError, match="not set aside any more"):
        world.transfer.give(b"1", lambda: None)


def test_what_it_did_not_take_waits_here_again() -> None:
    world = Giving()
    world.put(world.home, "a", "b")
    world.aside(b"1")
    world.transfer.keep(b"1", lambda: None)
    assert (world.waiting(), world.decided) == (2, [(b"1", False)])


def test_what_nobody_asks_for_comes_back_by_itself() -> None:
    world = Giving()
    world.put(world.home, "a")
    world.aside(b"1")
    due_ms = world.clock.ms + PATIENCE_MS
    assert (world.wakeups.due(due_ms - 1), world.wakeups.due(due_ms)) == ([], [0])
    world.clock.ms = due_ms - 1
    world.transfer.tick()
    assert world.waiting() == 0
    world.clock.ms = due_ms
    world.transfer.tick()
    assert world.waiting() == 1


@pytest.mark.parametrize("full", ["destination", "disk"])
def test_what_does_not_fit_is_refused_as_a_whole(full: str) -> None:
    world = Giving(maxNumMsgs=1)
    world.executor.room = full != "disk"
    blocks = [made("a", "b")] if full == "destination" else [made("a")]
    with pytest.raises(ResourceAllocationError, match="does not take"):
        world.transfer.take(world.home, b"1", "there", blocks, lambda: None)
    assert not any(isinstance(one, cmd.Send) for batch in world.executor.batches for one in batch)


def test_a_transaction_that_has_ended_takes_nothing() -> None:
    world = Giving()
    world.log.remember(b"1", False, shared=True)
    with pytest.raises(IllegalStateError, match="has ended"):
        world.transfer.take(world.home, b"1", "there", [made("a")], lambda: None)
