"""Messages that one host hands over to another: each is at one of the two, once, wherever it stops (W-115)."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.content.headers import encode_header
from raybroker.core import command as cmd
from raybroker.engine.destinations.transfer import PATIENCE_MS, MessageTransfer
from raybroker.engine.path.wakeups import Durations, Wakeups
from raybroker.engine.transactions.transaction_log import TxLog
from raybroker.errors import IllegalStateError, ResourceAllocationError
from raybroker.model.blocks.block import Block, encode_block
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import Client, Rig, made, text_of

KEY = b"k" * 20
BODIES = ["a", "b", "c"]
HERE = "b1/h1"


def nobody() -> None: ...


class Two:
    """A host with three messages in q, and another one with an empty q; both may be restarted."""

    def __init__(self, *, persistent: bool = True) -> None:
        self.here, self.there = Rig(), Rig()
        for rig in (self.here, self.there):
            rig.create("q")
        sender = Client(self.here)
        sender.send(sender.producer("q"), *BODIES, persistent=persistent)
        self.here.sync()
        self.blocks: list[Block] = []

    def set_aside(self) -> None:
        found = self.here.host.transfer.set_aside(self.here.destination("q"), KEY, 100, 1000)
        self.blocks = [Block(data) for data in found]

    def take(self) -> None:
        self.there.host.transfer.take_over(self.there.destination("q"), KEY, HERE, self.blocks, nobody)

    def taken(self) -> None:
        self.there.sync()

    def give(self) -> None:
        self.here.host.transfer.give(KEY, nobody)

    def given(self) -> None:
        self.here.sync()

    def decide(self) -> None:
        self.there.host.transactions.decide(KEY, True, nobody)

    def decided(self) -> None:
        self.there.sync()

    def settle(self) -> None:
        """What a broker's sweep does about prepared transactions, and a host about what nobody asks for any more."""
        self.here.tick(61_000)
        here, there = self.here.host.transactions, self.there.host.transactions
        for row in there.transaction_rows():
            assert (row["state"], row["coordinator"], row["kind"]) == ("PREPARED", HERE, "local")
            outcome = here.outcome(KEY)
            if outcome == "unknown":
                here.decide(KEY, False, nobody)
                self.here.sync()
            there.decide(KEY, outcome == "committed", nobody)
            self.there.sync()

    def both(self) -> tuple[list[str], list[str]]:
        return self.here.bodies("q"), self.there.bodies("q")


STEPS = ["set_aside", "take", "taken", "give", "given", "decide", "decided"]


def run(two: Two, count: int) -> None:
    for step in STEPS[:count]:
        getattr(two, step)()


def test_all_goes_over_with_ids_and_nothing_is_counted_as_dead() -> None:
    two = Two()
    ids = [two.here.host.cache.get(1, 1).seq_of(i) for i in range(3)]
    run(two, len(STEPS))
    assert two.both() == ([], BODIES)
    block = two.there.host.cache.get(1, 1)
    assert [block.seq_of(i) for i in range(3)] == ids
    assert two.here.destination("q").counters.dead == 0
    assert two.here.held("q") == 0


@pytest.mark.parametrize("count", range(1, len(STEPS) + 1))
@pytest.mark.parametrize("who", [("here",), ("there",), ("here", "there")])
def test_wherever_they_stop_each_message_is_at_one_of_the_two(count: int, who: tuple[str, ...]) -> None:
    two = Two()
    run(two, count)
    for name in who:
        setattr(two, name, getattr(two, name).restart())
    two.settle()
    here, there = two.both()
    assert sorted(here + there) == BODIES
    assert not (here and there), "all of them are at the same place"
    assert (there == BODIES) or count < STEPS.index("given") + 1 or "there" in who
    for name in ("here", "there"):
        setattr(two, name, getattr(two, name).restart())
    assert two.both() == (here, there)


def test_after_the_decision_no_restart_brings_them_back() -> None:
    two = Two()
    run(two, STEPS.index("given") + 1)
    two.here, two.there = two.here.restart(), two.there.restart()
    two.settle()
    assert two.both() == ([], BODIES)


def test_what_was_not_taken_waits_again_at_its_place() -> None:
    two = Two()
    sender = Client(two.here)
    sender.send(sender.producer("q", number=8), "last")
    two.here.sync()
    assert two.here.host.transfer.set_aside(two.here.destination("q"), KEY, 2, 1000)
    assert two.here.bodies("q") == ["c", "last"], "nobody gets what is set aside"
    two.here.host.transfer.keep(KEY, nobody)
    two.here.sync()
    assert two.here.bodies("q") == [*BODIES, "last"]
    consumer = Client(two.here)
    consumer.consumer("q")
    assert consumer.got() == [*BODIES, "last"], "and is not counted as delivered before"


def test_a_late_taker_hears_that_it_is_over() -> None:
    two = Two()
    two.set_aside()
    two.here.host.transfer.keep(KEY, nobody)
    two.here.sync()
    two.take()
    two.taken()
    with pytest.raises(IllegalStateError):
        two.give()
    two.settle()
    assert two.both() == (BODIES, [])


def test_what_was_kept_is_rolled_back_for_good() -> None:
    two = Two()
    two.set_aside()
    two.here.host.transfer.keep(KEY, nobody)
    two.here.sync()
    assert two.here.host.transactions.outcome(KEY) == "rolled_back"
    assert two.here.restart().host.transactions.outcome(KEY) == "rolled_back"
    two.here.host.transfer.keep(KEY, nobody)
    assert two.here.bodies("q") == BODIES, "saying it twice changes nothing"


def test_taking_twice_takes_once() -> None:
    two = Two()
    run(two, 3)
    two.take()
    run_rest = STEPS[3:]
    for step in run_rest:
        getattr(two, step)()
    assert two.both() == ([], BODIES)
    with pytest.raises(IllegalStateError):
        two.take()


def test_a_full_destination_takes_none_of_them() -> None:
    two = Two()
    two.there.create("small", maxNumMsgs=2)
    two.set_aside()
    with pytest.raises(ResourceAllocationError):
        two.there.host.transfer.take_over(two.there.destination("small"), KEY, HERE, two.blocks, nobody)
    assert not two.there.host.transactions.transaction_rows()
    assert two.there.held("small") == 0


def test_messages_that_are_not_kept_go_over_as_well() -> None:
    two = Two(persistent=False)
    run(two, len(STEPS))
    assert two.both() == ([], BODIES)


def test_limits_are_kept_and_one_message_always_fits() -> None:
    rig = Rig()
    rig.create("q")
    sender = Client(rig)
    sender.send(sender.producer("q"), *("x" * 10 for _ in range(5)))
    sender.send(sender.producer("q", number=8), "y" * 50)
    rig.sync()
    handing, destination = rig.host.transfer, rig.destination("q")
    assert [Block(data).count for data in handing.set_aside(destination, b"1", 3, 1000)] == [3]
    assert [Block(data).count for data in handing.set_aside(destination, b"2", 10, 1)] == [2]
    assert [Block(data).count for data in handing.set_aside(destination, b"3", 10, 1)] == [1]
    assert handing.set_aside(destination, b"4", 10, 1) == []


def test_units_of_order_stay() -> None:
    rig = Rig()
    rig.create("q")
    sender = Client(rig)
    handle = sender.producer("q")
    header = encode_header(None, None, None, None, unit="u")
    data = encode_block(
        [b"u1", b"plain", b"u2"],
        producer=7,
        first_seq=1,
        timestamp_ms=0,
        persistent=True,
        kinds=0,
        headers=[header, b"", header],
    )
    sender.session.send(handle, 1, Block(data))
    rig.sync()
    (found,) = rig.host.transfer.set_aside(rig.destination("q"), KEY, 10, 1000)
    assert bytes(Block(found).body(0)) == b"plain"
    assert Block(found).count == 1


def test_of_a_queue_that_is_to_be_elsewhere_everything_goes_and_keeps_its_unit_and_its_time() -> None:
    two = Two()
    sender = Client(two.here)
    unit = encode_header(None, None, None, None, unit="u")
    data = encode_block([b"u1"], producer=9, first_seq=1, timestamp_ms=0, persistent=True, kinds=0, headers=[unit])
    sender.session.send(sender.producer("q", number=9), 1, Block(data))
    later = encode_block(
        [b"late"], producer=10, first_seq=1, timestamp_ms=0, persistent=True, kinds=0, deliver_at=array("Q", [1 << 45])
    )
    sender.session.send(sender.producer("q", number=10), 1, Block(later))
    two.here.sync()
    handing = two.here.host.transfer
    found = handing.set_aside(two.here.destination("q"), KEY, 100, 10_000, whole=True)
    assert [bytes(Block(part).body(0)) for part in found] == [b"a", b"u1", b"late"]
    two.blocks = [Block(part) for part in found]
    for step in STEPS[STEPS.index("set_aside") + 1 :]:
        getattr(two, step)()
    assert two.here.destination("q").block_index.messages == 0
    there = two.there.host.inspection.describe("queue", "q")
    assert (there["messages"], there["delayed"]) == (5, 1)
    assert two.there.destination("q").block_index.held[2].ordered == 1


def test_a_queue_that_has_anything_does_not_end_as_an_empty_one() -> None:
    two = Two()
    with pytest.raises(IllegalStateError, match="queue 'q' has messages again"):
        two.here.host.removal.destroy("q", nobody, empty=True)
    run(two, len(STEPS))
    two.here.host.removal.destroy("q", nobody, empty=True)
    assert not two.here.host.registry.destinations


def test_purged_meanwhile_they_are_with_the_other_host_only() -> None:
    two = Two()
    run(two, 3)
    two.here.host.executor.perform(two.here.destination("q"), cmd.Purge())
    for step in STEPS[3:]:
        getattr(two, step)()
    assert two.both() == ([], BODIES)


def test_a_destination_that_is_gone_gives_nothing() -> None:
    two = Two()
    run(two, 3)
    two.here.host.removal.destroy("q", nobody)
    two.here.sync()
    two.here.create("q")
    with pytest.raises(IllegalStateError):
        two.give()
    two.settle()
    assert two.both() == ([], [])


# ---- the part alone --------------------------------------------------------------------------------------------------


class Giving(Desk):
    """``decided``: keys that the transactions were told to roll back."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        self.destination = self.add(**attributes)
        self.decided: list[tuple[bytes, bool]] = []
        self.log = TxLog()
        transactions: Any = SimpleNamespace(
            log=self.log, find=lambda key: None, decide=lambda key, commit, done: self.decided.append((key, commit))
        )
        cache: Any = SimpleNamespace(get=lambda number, ordinal: self.executor.blocks[number, ordinal])
        self.wakeups = Wakeups()
        self.transfer = MessageTransfer(
            self.executor, self.registry, transactions, cache, self.own, Durations(self.wakeups, self.time), self.codec
        )

    def aside(self, key: bytes, messages_max: int = 100, bytes_max: int = 1 << 20) -> list[str]:
        blocks = [Block(data) for data in self.transfer.set_aside(self.destination, key, messages_max, bytes_max)]
        return [text_of(block, index) for block in blocks for index in range(block.count)]

    def waiting(self) -> int:
        return sum(run.count for state, run in self.destination.queues[0].contents() if state == "waiting")


def test_the_first_ones_are_set_aside_up_to_both_limits() -> None:
    world = Giving()
    world.put(world.destination, "a", "b", "c")
    world.put(world.destination, "d")
    assert world.aside(b"1", messages_max=2) == ["a", "b"]
    assert world.aside(b"2", bytes_max=1) == ["c"], "at least one"
    assert (world.waiting(), world.destination.block_index.messages) == (1, 4)
    with pytest.raises(IllegalStateError, match="under that key already"):
        world.aside(b"2")


def test_what_the_other_host_took_is_gone_and_the_outcome_is_remembered() -> None:
    world = Giving()
    world.put(world.destination, "a", "b")
    world.aside(b"1")
    done: list[str] = []
    world.transfer.give(b"1", lambda: done.append("durable"))
    assert (world.destination.block_index.messages, world.log.outcome(b"1"), done) == (0, True, ["durable"])
    with pytest.raises(IllegalStateError, match="not set aside any more"):
        world.transfer.give(b"1", lambda: None)


def test_what_it_did_not_take_waits_here_again() -> None:
    world = Giving()
    world.put(world.destination, "a", "b")
    world.aside(b"1")
    world.transfer.keep(b"1", lambda: None)
    assert (world.waiting(), world.decided) == (2, [(b"1", False)])


def test_what_nobody_asks_for_comes_back_by_itself() -> None:
    world = Giving()
    world.put(world.destination, "a")
    world.aside(b"1")
    due_ms = world.clock.ms + PATIENCE_MS
    assert (world.wakeups.due(due_ms - 1), world.wakeups.due(due_ms)) == ([], [0])
    world.clock.ms = due_ms - 1
    world.transfer.keep_overdue()
    assert world.waiting() == 0
    world.clock.ms = due_ms
    world.transfer.keep_overdue()
    assert world.waiting() == 1


@pytest.mark.parametrize("full", ["destination", "disk"])
def test_what_does_not_fit_is_refused_as_a_whole(full: str) -> None:
    world = Giving(maxNumMsgs=1)
    world.executor.room = full != "disk"
    blocks = [made("a", "b")] if full == "destination" else [made("a")]
    with pytest.raises(ResourceAllocationError, match="does not take"):
        world.transfer.take_over(world.destination, b"1", "there", blocks, lambda: None)
    assert not any(isinstance(one, cmd.Send) for batch in world.executor.batches for one in batch)


def test_a_transaction_that_has_ended_takes_nothing() -> None:
    world = Giving()
    world.log.remember(b"1", False, shared=True)
    with pytest.raises(IllegalStateError, match="has ended"):
        world.transfer.take_over(world.destination, b"1", "there", [made("a")], lambda: None)
