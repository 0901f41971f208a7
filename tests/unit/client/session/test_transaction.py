"""Local transactions: what is told to one host or to several, and every way a commit can end (T-01 … T-03, T-10)."""

from __future__ import annotations

import asyncio
import gc
import warnings
from typing import Any

import pytest

from raybroker.client.session.session import SessionCore
from raybroker.client.session.transaction import _tell_of_receipt
from raybroker.errors import (
    ConnectionLostError,
    IllegalStateError,
    QuotaExceededError,
    ResourceAllocationError,
    StoreError,
    TransactionRolledBackError,
)
from raybroker.model.errors import RequestTimeoutError
from raybroker.wire.native import frames as wire
from tests.unit.client.fakes import Scripted, ScriptedHost, run, send, turns


async def working(*hosts: ScriptedHost, **attributes: object) -> tuple[Scripted, SessionCore, Any, Any]:
    """A transacted session that has sent "x" to q and received two messages from it."""
    scripted = Scripted(*hosts, **attributes)
    session = scripted.session("transacted")
    producer = await scripted.producer(session)
    consumer = await scripted.consumer(session)
    send(producer, b"x")
    scripted.host.deliver([b"a", b"b", b"c"], handle=2)
    await turns()
    assert len(consumer.take_messages(2)) == 2
    return scripted, session, producer, consumer


def sent(host: ScriptedHost) -> list[tuple[int, bytes]]:
    """(transaction, body) of every message that was sent in one."""
    return [(f.txn, bytes(f.block.body(i))) for f in host.of(wire.SendTxFrame) for i in range(f.block.count)]


def test_one_host_gets_the_sends_at_once_and_the_acknowledgements_with_the_commit() -> None:
    async def work() -> None:
        scripted, session, producer, _ = await working()
        assert session.transactions is not None
        await session.transactions.commit()
        assert sent(scripted.host) == [(1, b"x")]
        commits = scripted.host.calls("txn_commit", "txn_rollback", "txn_prepare")
        assert [(op, args["txn"], args["acks"]) for op, args in commits] == [("txn_commit", 1, [[2, 1, [[1, 2]]]])]
        assert len(commits[0][1]["key"]) == 16
        assert scripted.host.of(wire.AckFrame) + scripted.host.of(wire.SendFrame) == []
        send(producer, b"y")
        await turns()
        assert sent(scripted.host)[-1] == (2, b"y"), "the next transaction has another number"
        await session.transactions.commit()
        again = scripted.host.calls("txn_commit")[1][1]
        assert again["acks"] == []
        assert again["key"] != commits[0][1]["key"]

    run(work)


def test_a_commit_of_nothing_asks_nobody() -> None:
    async def work() -> None:
        scripted = Scripted()
        session = scripted.session("transacted")
        await scripted.consumer(session)
        assert session.transactions is not None
        await session.transactions.commit()
        await session.transactions.rollback()
        assert scripted.host.calls("txn_commit", "txn_rollback") == []

    run(work)


def test_futures_of_sends_are_done_when_the_messages_have_left_and_the_commit_tells_the_rest() -> None:
    async def work() -> None:
        scripted = Scripted()
        scripted.host.confirms = False
        session = scripted.session("transacted")
        producer = await scripted.producer(session)
        assert session.transactions is not None
        first = send(producer, b"a")[0]
        await turns()
        assert first.result(0).startswith("ID:")
        await session.transactions.rollback()
        scripted.core.channels._channels["h1@127.0.0.1:1"].link.congested = True
        second = send(producer, b"b")[0]
        await turns()
        assert not second.done()
        await session.transactions.rollback()
        assert isinstance(second.exception(0), TransactionRolledBackError)

    run(work)


def test_rollback_gives_everything_back_and_sends_nothing_more() -> None:
    async def work() -> None:
        scripted, session, producer, consumer = await working()
        scripted.core.channels._channels["h1@127.0.0.1:1"].link.congested = True
        late = send(producer, b"never")[0]
        await turns()
        assert session.transactions is not None
        await session.transactions.rollback()
        scripted.core.channels._channels["h1@127.0.0.1:1"].link.congested = False
        producer.on_writable()
        await turns()
        assert scripted.host.calls("txn_rollback") == [("txn_rollback", {"txn": 1})]
        assert [args["consumed"] for _, args in scripted.host.calls("release")] == [2]
        assert sent(scripted.host) == [(1, b"x")]
        assert isinstance(late.exception(0), TransactionRolledBackError)
        assert consumer.info()["consumed"] == 0

    run(work)


def test_what_a_host_refuses_keeps_the_transaction_from_being_committed() -> None:
    async def work() -> None:
        scripted = Scripted()
        scripted.host.confirms = False
        session = scripted.session("transacted")
        producer = await scripted.producer(session)
        send(producer, b"a")
        await turns()
        scripted.host.link.write(wire.refused(1, 1, 1, [(0, 1, "quota_exceeded", "full")]))
        await turns()
        with pytest.raises(QuotaExceededError, match="full"):
            send(producer, b"b")
        assert session.transactions is not None
        with pytest.raises(QuotaExceededError, match="rolled back"):
            await session.transactions.commit()
        assert scripted.host.calls("txn_commit") == []
        assert len(scripted.host.calls("txn_rollback")) == 1
        send(producer, b"c")
        await session.transactions.commit()
        assert sent(scripted.host)[-1] == (2, b"c")

    run(work)


def test_a_message_taken_before_is_no_refusal_and_is_counted() -> None:
    async def work() -> None:
        scripted = Scripted()
        scripted.host.confirms = False
        for mode, handle in (("transacted", 1), ("client", 2)):
            session = scripted.session(mode)
            producer = await scripted.producer(session)
            future = send(producer, b"a")[0]
            await turns()
            scripted.host.link.write(wire.refused(handle, 1, 1, [(0, 1, "duplicate", "")]))
            await turns()
            assert future.result(0).endswith("-1")
            assert producer.duplicates == 1
            if session.transactions is not None:
                await session.transactions.commit()

    run(work)


def test_a_transaction_whose_connection_was_lost_cannot_be_committed_and_is_never_sent_again() -> None:
    async def work() -> None:
        scripted, session, producer, consumer = await working()
        scripted.host.link.abort()
        await turns()
        send(producer, b"also lost")
        while not (producer.attached and consumer.attached):
            await turns()
        assert session.transactions is not None
        with pytest.raises(TransactionRolledBackError, match="lost"):
            await session.transactions.commit()
        assert sent(scripted.host) == [(1, b"x")]
        assert scripted.host.calls("txn_commit") == []
        send(producer, b"next")
        await session.transactions.commit()
        assert [body for _, body in sent(scripted.host)] == [b"x", b"next"]

    run(work)


def test_a_loss_before_anything_was_sent_or_received_changes_nothing() -> None:
    async def work() -> None:
        scripted = Scripted()
        session = scripted.session("transacted")
        producer = await scripted.producer(session)
        scripted.host.link.abort()
        await turns()
        send(producer, b"x")
        assert session.transactions is not None
        await session.transactions.commit()
        assert sent(scripted.host) == [(1, b"x")]
        assert len(scripted.host.calls("txn_commit")) == 1

    run(work)


@pytest.mark.parametrize(("state", "commits"), [("committed", True), ("rolled_back", False), ("unknown", False)])
def test_when_the_connection_ends_during_the_commit_the_host_is_asked(state: str, commits: bool) -> None:
    async def work() -> None:
        scripted, session, producer, _ = await working()
        scripted.host.cut_at.add("txn_commit")
        scripted.host.answers["txn_outcome"] = {"state": state}
        assert session.transactions is not None
        if commits:
            await session.transactions.commit()
        else:
            with pytest.raises(TransactionRolledBackError, match=state):
                await session.transactions.commit()
        key = scripted.host.calls("txn_commit")[0][1]["key"]
        assert scripted.host.calls("txn_outcome") == [("txn_outcome", {"key": key})]
        while not producer.attached:
            await turns()
        await turns()
        assert sent(scripted.host) == [(1, b"x")], "nothing is sent again"

    run(work)


def test_a_commit_that_nobody_can_be_asked_about_is_an_error_that_says_so() -> None:
    async def work() -> None:
        scripted, session, _, _ = await working(imqReconnectEnabled=False)
        scripted.host.cut_at.add("txn_commit")
        assert session.transactions is not None
        with pytest.raises(ConnectionLostError):
            await session.transactions.commit()

    run(work)


def test_a_host_that_does_not_answer_a_commit_leaves_its_outcome_open() -> None:
    async def work() -> None:
        scripted, session, _, _ = await working(imqAckTimeout=30)
        scripted.host.silent.add("txn_commit")
        assert session.transactions is not None
        with pytest.raises(RequestTimeoutError, match="imqAckTimeout"):
            await session.transactions.commit()
        assert scripted.host.calls("txn_rollback") == []

    run(work)


def test_a_commit_goes_on_when_nobody_waits_for_it_any_more() -> None:
    async def work() -> None:
        scripted, session, producer, consumer = await working()
        assert session.transactions is not None
        committing = asyncio.ensure_future(session.transactions.commit())
        while not scripted.host.calls("txn_commit"):
            await turns(1)
        committing.cancel()
        send(producer, b"y")
        producer.on_writable()
        await session.transactions.commit()
        assert sent(scripted.host) == [(1, b"x"), (2, b"y")]
        assert [args["acks"] for _, args in scripted.host.calls("txn_commit")] == [[[2, 1, [[1, 2]]]], []]
        assert scripted.host.calls("txn_rollback", "release") == []
        assert consumer.info()["consumed"] == 0

    run(work)


def test_what_a_closed_consumer_had_taken_joins_the_transaction_before_it_goes() -> None:
    async def work() -> None:
        scripted, session, _, consumer = await working()
        await consumer.close()
        told = scripted.host.calls("txn_stage", "close_consumer")
        assert [(op, args.get("acks")) for op, args in told] == [
            ("txn_stage", [[2, 1, [[1, 2]]]]),
            ("close_consumer", None),
        ]
        assert session.transactions is not None
        await session.transactions.commit()
        assert scripted.host.calls("txn_commit")[0][1]["acks"] == []

    run(work)


def test_when_that_cannot_join_the_transaction_is_rolled_back() -> None:
    async def work() -> None:
        scripted, session, _, consumer = await working()
        scripted.host.answers["txn_stage"] = ResourceAllocationError("too many")
        await consumer.close()
        assert session.transactions is not None
        with pytest.raises(ResourceAllocationError, match="too many; the transaction was rolled back"):
            await session.transactions.commit()
        assert scripted.host.calls("txn_commit") == []

    run(work)


# ---- several hosts ---------------------------------------------------------------------------------------------------


async def spread() -> tuple[Scripted, SessionCore]:
    """A transaction that has sent to q on h1 and to h2.q on h2."""
    scripted = Scripted(ScriptedHost("h1"), ScriptedHost("h2"))
    session = scripted.session("transacted")
    for name in ("h1.q", "h2.q"):
        send(await scripted.producer(session, name), name.encode())
        await turns()
    return scripted, session


def told(scripted: Scripted) -> list[list[Any]]:
    """What each host was told about transactions, with the decision where there is one."""
    ops = ("txn_prepare", "txn_commit", "txn_decide", "txn_rollback", "txn_forget")
    return [
        [(op, args["commit"]) if op == "txn_decide" else op for op, args in host.calls(*ops)] for host in scripted.hosts
    ]


def test_with_two_hosts_one_prepares_and_the_first_decides() -> None:
    async def work() -> None:
        scripted, session = await spread()
        assert session.transactions is not None
        await session.transactions.commit()
        assert told(scripted) == [["txn_commit", "txn_forget"], ["txn_prepare", ("txn_decide", True)]]
        prepare = scripted.hosts[1].calls("txn_prepare")[0][1]
        assert prepare["coordinator"] == "h1"
        assert prepare["key"] == scripted.host.calls("txn_commit")[0][1]["key"]

    run(work)


def test_a_host_that_has_only_read_is_not_told_the_decision() -> None:
    async def work() -> None:
        scripted, session = await spread()
        scripted.hosts[1].answers["txn_prepare"] = {"vote": "read_only"}
        assert session.transactions is not None
        await session.transactions.commit()
        assert told(scripted) == [["txn_commit", "txn_forget"], ["txn_prepare"]]

    run(work)


def test_when_a_host_cannot_prepare_all_roll_back() -> None:
    async def work() -> None:
        scripted, session = await spread()
        scripted.hosts[1].answers["txn_prepare"] = StoreError("the disk is gone")
        assert session.transactions is not None
        with pytest.raises(TransactionRolledBackError, match="the disk is gone"):
            await session.transactions.commit()
        assert told(scripted) == [["txn_rollback"], ["txn_prepare", "txn_rollback"]]

    run(work)


def test_when_a_host_may_prepare_later_the_first_one_knows_that_it_is_not_to_be() -> None:
    async def work() -> None:
        scripted, session = await spread()
        scripted.hosts[1].cut_at.add("txn_prepare")
        assert session.transactions is not None
        with pytest.raises(TransactionRolledBackError):
            await session.transactions.commit()
        assert told(scripted)[0] == [("txn_decide", False), "txn_rollback"]

    run(work)


def test_when_the_first_host_does_not_commit_those_that_prepared_are_told_so() -> None:
    async def work() -> None:
        scripted, session = await spread()
        scripted.host.answers["txn_commit"] = TransactionRolledBackError("gone")
        assert session.transactions is not None
        with pytest.raises(TransactionRolledBackError, match="gone"):
            await session.transactions.commit()
        assert told(scripted)[1][:2] == ["txn_prepare", ("txn_decide", False)]

    run(work)


def test_with_an_unknown_outcome_those_that_prepared_are_told_nothing() -> None:
    async def work() -> None:
        scripted, session = await spread()
        scripted.host.cut_at.add("txn_commit")
        scripted.host.answers["txn_outcome"] = StoreError("the host stops")
        assert session.transactions is not None
        with pytest.raises(ConnectionLostError, match="the host stops"):
            await session.transactions.commit()
        assert told(scripted)[1] == ["txn_prepare"]

    run(work)


def test_a_host_that_missed_the_decision_keeps_the_first_one_from_forgetting() -> None:
    async def work() -> None:
        scripted, session = await spread()
        scripted.hosts[1].cut_at.add("txn_decide")
        assert session.transactions is not None
        await session.transactions.commit()
        assert "txn_forget" not in told(scripted)[0]

    run(work)


def test_commit_and_rollback_are_for_transacted_sessions_and_recover_is_not() -> None:
    async def work() -> None:
        scripted = Scripted()
        for mode in ("auto", "client", "dups_ok", "none"):
            with pytest.raises(IllegalStateError, match="transacted"):
                scripted.session(mode).require_transactions()
        with pytest.raises(IllegalStateError, match="rollback"):
            await scripted.session("transacted").recover()
        _, session, _, consumer = await working()
        assert consumer.info()["consumed"] == 2
        assert session.acknowledge(None) == [], "ignored in transacted sessions"
        assert consumer.info()["consumed"] == 2

    run(work)


def test_a_producer_of_a_transaction_holds_no_memory_for_what_its_host_has() -> None:
    async def work() -> None:
        scripted = Scripted(**{"raybroker.producer.buffer_bytes": "64k"})
        scripted.host.confirms = False
        session = scripted.session("transacted")
        producer = await scripted.producer(session)
        for _ in range(20):
            send(producer, bytes(10_000))
            await asyncio.wrap_future(producer.room_future())
        assert session.transactions is not None
        await session.transactions.commit()
        assert len(sent(scripted.host)) == 20

    run(work)


def put_many(producer: Any, *bodies: bytes) -> None:
    """As send_many."""
    for _ in producer.put_many(bodies, producer.shared):
        pass


def test_what_send_many_brings_leaves_in_one_write_with_the_commit_that_follows() -> None:
    async def work() -> None:
        scripted = Scripted(**{"raybroker.producer.linger_ms": 60_000})
        session = scripted.session("transacted")
        producer = await scripted.producer(session)
        link = scripted.core.channels._channels["h1@127.0.0.1:1"].link
        before = link.writes
        put_many(producer, b"a", b"b")
        await turns()
        assert link.writes == before, "a commit is likely to follow"
        assert session.transactions is not None
        await session.transactions.commit(cancellable=False)
        assert link.writes == before + 1
        assert sent(scripted.host) == [(1, b"a"), (1, b"b")]
        assert [op for op, _ in scripted.host.calls()][-1] == "txn_commit"

    run(work)


def test_what_no_commit_follows_leaves_after_the_linger_time_and_much_of_it_at_once() -> None:
    async def work() -> None:
        scripted = Scripted(**{"raybroker.producer.linger_ms": 20, "raybroker.producer.buffer_bytes": "128k"})
        session = scripted.session("transacted")
        producer = await scripted.producer(session)
        put_many(producer, b"a")
        await turns()
        assert sent(scripted.host) == []
        while not sent(scripted.host):  # noqa: ASYNC110 - what is waited for is seen from outside only
            await asyncio.sleep(0.005)
        put_many(producer, bytes(70_000))
        await turns()
        assert [len(body) for _, body in sent(scripted.host)] == [1, 70_000], "more than half of what it may hold"

    run(work)


def test_messages_that_come_while_a_commit_is_decided_belong_to_the_next_one() -> None:
    async def work() -> None:
        scripted = Scripted()
        session = scripted.session("transacted")
        producer = await scripted.producer(session)
        put_many(producer, b"a")
        scripted.host.silent.add("txn_commit")
        assert session.transactions is not None
        committing = asyncio.ensure_future(session.transactions.commit(cancellable=False))
        await turns()
        put_many(producer, b"b")
        producer.on_writable()
        await turns()
        assert sent(scripted.host) == [(1, b"a")]
        (call,) = [frame for frame in scripted.host.of(wire.CallFrame) if frame.op == "txn_commit"]
        scripted.host.link.write(wire.reply(call.request, {}))
        await committing
        await turns()
        assert sent(scripted.host) == [(1, b"a"), (2, b"b")]

    run(work)


def test_a_receipt_that_is_cancelled_before_it_is_told_leaves_nothing_behind() -> None:
    """As when a program ends: Python would say that a coroutine was never awaited."""

    class Told:
        async def call(self, op: str, args: dict[str, Any]) -> None:
            raise AssertionError("nobody is told")

    async def work() -> None:
        channel: Any = Told()
        task = asyncio.ensure_future(_tell_of_receipt(channel, {}))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        asyncio.run(work())
        gc.collect()
    assert [str(one.message) for one in said if "never awaited" in str(one.message)] == []
