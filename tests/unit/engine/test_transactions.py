"""Local transactions of a host: one batch, who is told what, and every limit (T-01 … T-04, T-09)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.engine.path.wakeups import Durations, Wakeups
from raybroker.engine.sessions.attachments import Attachments
from raybroker.engine.transactions.transactions import Transaction, Transactions
from raybroker.model.blocks.record import BLOCK
from raybroker.model.errors import IllegalStateError
from tests.unit.engine.pairs import KEY, OTHER, Pair, counts, feed, rig_of
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import DMQ, Client, made

# ---- local transactions --------------------------------------------------------------------------------------------


def test_a_commit_over_two_queues_is_one_batch() -> None:  # T-02
    rig = rig_of()
    pair = Pair(rig)
    args = pair.work()
    assert rig.commits() == []
    assert pair.client.unanswered("txn_commit", key=KEY, **args)
    (batch,) = rig.commits()
    assert sum(entry.kind == BLOCK for entry in batch) == 2
    assert {entry.destination for entry in batch} == {0, rig.destination("in").number, rig.destination("out").number}
    rig.sync()
    assert counts(rig) == (0, 2)
    assert rig.bodies("out") == ["x", "y"]
    assert not rig.host.transactions.by_number


def test_nobody_sees_a_commit_before_it_is_durable() -> None:
    rig = rig_of()
    pair = Pair(rig)
    args = pair.work()
    watcher = Client(rig)
    watcher.consumer("out")
    pair.client.unanswered("txn_commit", key=KEY, **args)
    assert watcher.peer.take("deliver") == []
    assert rig.survivor().held("in") == 1
    assert watcher.got() == ["x", "y"]


def test_sends_in_a_transaction_are_answered_by_its_end() -> None:
    rig = rig_of()
    pair = Pair(rig)
    pair.client.send(pair.producer, "x", txn=1)
    assert rig.commits() == []
    assert pair.client.refused() == []
    assert pair.client.peer.take("sent") == []


def test_a_transaction_with_a_refused_message_cannot_commit() -> None:
    for op, more in (("txn_commit", {}), ("txn_prepare", {"coordinator": ""})):
        rig = rig_of()
        rig.host.administration.update("out", {"maxNumMsgs": 1}, lambda: None)
        pair = Pair(rig)
        args = pair.work()
        assert pair.client.refused() == ["quota_exceeded"]
        assert pair.client.fails(op, key=KEY, **args, **more) == "quota_exceeded"
        assert counts(rig) == (1, 0)
        assert not rig.host.transactions.by_number


def test_a_duplicate_does_not_stop_a_transaction() -> None:  # B25
    rig = rig_of()
    rig.host.administration.update("out", {"duplicateWindowMs": 1000}, lambda: None)
    pair = Pair(rig)
    pair.client.send(pair.producer, "x", dedup=True)
    pair.client.send(pair.producer, "x", "y", txn=1, dedup=True)
    assert pair.client.refused() == ["duplicate"]
    pair.client.ok("txn_commit", txn=1, key=KEY, acks=[])
    assert rig.bodies("out") == ["x", "y"]


def test_a_rollback_brings_everything_back() -> None:  # T-03
    rig = rig_of()
    pair = Pair(rig)
    args = pair.work()
    pair.client.ok("txn_stage", **args)
    pair.client.ok("txn_rollback", txn=1)
    assert counts(rig) == (1, 0)
    assert pair.client.got() == ["a(2)"]
    assert pair.client.ok("txn_rollback", txn=77) == {}, "one that never did anything is rolled back already"


def test_a_commit_of_what_went_back_meanwhile_is_rolled_back() -> None:
    rig = rig_of()
    pair = Pair(rig)
    args = pair.work()
    epoch = pair.client.epochs[pair.consumer]
    pair.client.ok("close_consumer", handle=pair.consumer)
    assert epoch
    assert pair.client.fails("txn_commit", key=KEY, **args) == "transaction_rolled_back"
    assert counts(rig) == (1, 0)
    assert not rig.host.transactions.by_number


def test_acknowledging_what_one_does_not_have_rolls_back() -> None:
    rig = rig_of()
    pair = Pair(rig)
    args = pair.work()
    args["acks"][0][2] = [[900, 901]]
    assert pair.client.fails("txn_commit", key=KEY, **args) == "transaction_rolled_back"
    assert counts(rig) == (1, 0)


def test_what_a_lost_session_left_open_is_rolled_back() -> None:  # T-04
    rig = rig_of()
    pair = Pair(rig)
    pair.client.ok("txn_stage", **pair.work())
    pair.client.session.close()
    rig.sync()
    assert counts(rig) == (1, 0)
    assert not rig.host.transactions.by_number


def test_an_empty_commit_is_answered() -> None:
    rig = rig_of()
    assert Pair(rig).client.ok("txn_commit", txn=1, key=KEY, acks=[]) == {}


def test_the_outcome_of_a_commit_is_known_across_a_restart() -> None:  # T-10
    rig = rig_of()
    pair = Pair(rig)
    pair.client.ok("txn_commit", key=KEY, **pair.work())
    again = rig.restart()
    assert Client(again).ok("txn_outcome", key=KEY) == {"state": "committed"}


def test_who_asks_for_an_unknown_transaction_makes_sure_that_it_never_commits() -> None:  # T-10
    rig = rig_of()
    assert Client(rig).ok("txn_outcome", key=KEY) == {"state": "rolled_back"}
    pair = Pair(rig)
    assert pair.client.fails("txn_commit", key=KEY, **pair.work()) == "transaction_rolled_back"
    assert counts(rig) == (1, 0)


# ---- limits (T-09) -------------------------------------------------------------------------------------------------


def test_a_producer_sends_only_so_many_messages_in_a_transaction() -> None:
    rig = rig_of(imq__transaction__producer__maxNumMsgs=3)
    pair = Pair(rig)
    pair.client.send(pair.producer, "a", "b", "c", txn=1)
    pair.client.send(pair.producer, "d", txn=2)
    assert pair.client.refused() == [], "another transaction counts for itself"
    pair.client.ok("txn_commit", txn=1, key=KEY, acks=[])
    pair.client.send(pair.producer, "e", "f", "g", txn=2)
    assert pair.client.refused() == ["resource_allocation"] * 3
    assert pair.client.fails("txn_commit", txn=2, key=OTHER, acks=[]) == "resource_allocation"
    assert rig.bodies("out") == ["a", "b", "c"]


def test_a_consumer_receives_only_so_many_messages_in_a_transaction() -> None:
    rig = rig_of(imq__transaction__consumer__maxNumMsgs=2)
    pair = Pair(rig)
    feed(rig, "a", "b", "c")
    pair.client.got()
    pair.client.ok("txn_stage", txn=1, acks=pair.client.acks(pair.consumer, "a", "b"))
    assert pair.client.fails("txn_stage", txn=1, acks=pair.client.acks(pair.consumer, "c")) == "resource_allocation"
    pair.client.ok("txn_commit", txn=1, key=KEY, acks=[])
    assert rig.held("in") == 1


def test_a_message_that_is_rolled_back_too_often_is_dead() -> None:
    rig = rig_of(imq__transaction__message__maxConsecutiveRollbacks=2)
    rig.create(DMQ)
    pair = Pair(rig)
    feed(rig, "a")
    for expected in ("a", "a(2)"):
        assert pair.client.got() == [expected]
        pair.client.ok("txn_stage", txn=1, acks=pair.client.acks(pair.consumer, "a"))
        pair.client.ok("txn_rollback", txn=1)
    assert pair.client.got() == []
    assert rig.bodies(DMQ) == ["a"]


def test_a_transaction_that_is_open_for_too_long_is_rolled_back() -> None:
    rig = rig_of(raybroker__transaction__timeout_ms=60_000)
    pair = Pair(rig)
    args = pair.work()
    rig.tick(59_999)
    assert len(rig.host.transactions.by_number) == 1
    rig.tick(1)
    assert counts(rig) == (1, 0)
    assert any("open for too long" in line for line in rig.reports)
    pair.client.send(pair.producer, "z", txn=1)
    assert pair.client.refused() == ["transaction_rolled_back"]
    assert pair.client.fails("txn_commit", key=KEY, **args) == "transaction_rolled_back"


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_transaction_may_be_open_as_long_as_before_when_the_clock_is_set(hours: int) -> None:
    rig = rig_of(raybroker__transaction__timeout_ms=60_000)
    Pair(rig).work()
    rig.clock.stepped_ms = hours * 3_600_000
    rig.tick(59_999)
    assert len(rig.host.transactions.by_number) == 1
    rig.tick(1)
    assert not rig.host.transactions.by_number


def test_what_a_lost_session_had_staged_goes_to_others_at_once() -> None:
    rig = rig_of()
    pair = Pair(rig)
    pair.client.ok("txn_stage", **pair.work())
    other = Client(rig)
    other.consumer("in")
    pair.client.session.close()
    assert other.got() == ["a(2)"], "not by way of the consumer that is gone"


def test_a_commit_that_finds_no_room_on_the_disk_is_rolled_back_and_the_host_lives_on() -> None:
    for op, more in (("txn_commit", {}), ("txn_prepare", {"coordinator": ""})):
        rig = rig_of()
        pair = Pair(rig)
        args = pair.work()
        rig.store.has_room = lambda nbytes: False  # type: ignore[method-assign]
        assert pair.client.fails(op, key=KEY, **args, **more) == "store_full"
        rig.sync()
        assert (counts(rig), rig.host.failure) == ((1, 0), None)
        assert not rig.host.transactions.by_number


# ---- the part alone --------------------------------------------------------------------------------------------------


CONFIG = {
    "imq.transaction.producer.maxNumMsgs": 1000,
    "imq.transaction.consumer.maxNumMsgs": 100,
    "imq.txn.reapLimit": 100,
    "raybroker.transaction.timeout_ms": 5000,
}


class World(Desk):
    """``ended``: whether each transaction that ended was committed, as meters count it."""

    def __init__(self) -> None:
        super().__init__()
        self.destination = self.add()
        self.ended: list[bool] = []
        self.votes: list[str] = []
        meters: Any = SimpleNamespace(
            ended=self._count, life=SimpleNamespace(rolled_back=lambda destination, number: None)
        )
        config: Any = CONFIG
        self.wakeups = Wakeups()
        self.transactions = Transactions(
            self.executor,
            self.registry,
            Attachments(1),
            Durations(self.wakeups, self.time),
            meters,
            self.clock,
            config,
            self.lines.append,
        )

    def _count(self, *, commit: bool) -> None:
        self.ended.append(commit)

    def opened(self, *bodies: str, key: bytes = b"k") -> Transaction:
        """A transaction that has sent something."""
        transaction = self.transactions.begin_transaction(None, key)
        if bodies:
            transaction.destinations[self.destination] = None
            block = made(*bodies, producer=99, first_seq=self.own.take_seqs(len(bodies)))
            command, block = self.own.send(self.destination, block)
            self.executor.perform(self.destination, command._replace(txn=transaction.number), block)
        return transaction

    def waiting(self) -> int:
        return sum(run.count for state, run in self.destination.queues[0].contents() if state == "waiting")


def test_one_that_did_nothing_votes_read_only_and_is_over() -> None:
    world = World()
    world.transactions.prepare(world.opened(), b"k", "", world.votes.append)
    assert (world.votes, world.transactions.by_number, world.transactions.log.prepared) == (["read_only"], {}, {})


def test_one_that_its_session_has_given_up_is_rolled_back_for_whoever_asks() -> None:
    world, keys = World(), [b"session1" + bytes([number]) * 8 for number in range(4)]
    world.transactions.decide(keys[1], False, lambda: None)
    assert [world.transactions.outcome(key) for key in keys] == ["rolled_back", "rolled_back", "unknown", "unknown"]
    world.transactions.log.remember(keys[2], True, True)
    world.transactions.log.remember(keys[3], True, False)
    outcomes = [world.transactions.outcome(key) for key in keys]
    assert outcomes == ["rolled_back", "rolled_back", "committed", "committed"], (
        "what others took part in is remembered"
    )


@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_one_ends_as_it_is_decided_and_once(commit: bool) -> None:
    world = World()
    transaction = world.opened("a", "b")
    world.transactions.prepare(transaction, b"k", "there", world.votes.append)
    assert (world.votes, world.waiting(), world.transactions.outcome(b"k")) == (["commit"], 0, "prepared")
    assert world.transactions.prepared_in(world.destination) == transaction.number
    done: list[str] = []
    world.transactions.decide(b"k", commit, lambda: done.append("decided"))
    world.transactions.decide(b"k", commit, lambda: done.append("again"))
    assert done == ["decided", "again"]
    assert (world.waiting(), world.ended) == (2 if commit else 0, [commit])
    assert world.transactions.outcome(b"k") == ("committed" if commit else "rolled_back")
    with pytest.raises(IllegalStateError, match="committed already" if commit else "rolled back already"):
        world.transactions.decide(b"k", not commit, lambda: None)


def test_an_unknown_one_can_be_rolled_back_and_never_committed_after_that() -> None:
    world = World()
    with pytest.raises(IllegalStateError, match="no transaction of that id"):
        world.transactions.decide(b"?", True, lambda: None)
    world.transactions.conclude(b"?", world.votes.append)
    assert world.votes == ["rolled_back"]
    with pytest.raises(IllegalStateError, match="rolled back already"):
        world.transactions.decide(b"?", True, lambda: None)


def test_one_that_is_open_for_too_long_is_rolled_back() -> None:
    world = World()
    transaction = world.opened("a")
    assert world.wakeups.due(world.clock.ms + 5000) == [0]
    world.clock.ms += 4999
    world.transactions.roll_back_overdue()
    assert transaction.number in world.transactions.by_number
    world.clock.ms += 1
    world.transactions.roll_back_overdue()
    assert (transaction.state, world.ended, world.destination.staged) == ("ROLLEDBACK", [False], {})
    assert world.lines == [f"transaction {transaction.number} was open for too long and is rolled back"]


def test_a_destination_with_a_prepared_transaction_cannot_go() -> None:
    world = World()
    transaction = world.opened("a")
    world.transactions.prepare(transaction, b"k", "", world.votes.append)
    with pytest.raises(IllegalStateError, match=f"prepared transaction {transaction.number}"):
        world.transactions.without(world.destination)
    world.transactions.decide(b"k", True, lambda: None)
    world.transactions.without(world.destination)


def test_an_open_one_loses_its_destination_and_can_only_be_rolled_back() -> None:
    world = World()
    transaction = world.opened("a")
    world.transactions.without(world.destination)
    assert "queue q was destroyed" in str(transaction.refusal)
    assert transaction.destinations == {}
