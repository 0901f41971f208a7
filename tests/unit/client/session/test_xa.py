"""Branches of distributed transactions: every call in every state, and what the hosts are told (T-07, T-08)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from raybroker.client.destinations import Queue
from raybroker.client.producer.producer import ProducerCore
from raybroker.client.session import xa
from raybroker.errors import (
    BrokerError,
    ConnectionLostError,
    IllegalStateError,
    StoreError,
    TransactionInProgressError,
    TransactionRolledBackError,
    XAError,
    XAStateError,
)
from raybroker.model.listing import Listing
from raybroker.model.naming.xid import Xid
from raybroker.wire.native import frames as wire
from tests.unit.client.fakes import Scripted, ScriptedHost, run, send, turns

A, B = Xid(1, b"a"), Xid(1, b"b", b"branch")
OPS = ("txn_begin", "txn_stage", "txn_prepare", "txn_commit", "txn_decide", "txn_rollback", "txn_forget")


async def resource(*hosts: ScriptedHost) -> tuple[Scripted, xa.XaTransactions, ProducerCore]:
    scripted = Scripted(*hosts)
    session = scripted.session("transacted", transactions=xa.XaTransactions)
    assert isinstance(session.transactions, xa.XaTransactions)
    producer = await scripted.producer(session)
    producer.refuse_sends(session.transactions.current.nothing_open())
    return scripted, session.transactions, producer


async def in_state(state: str) -> tuple[Scripted, xa.XaTransactions, ProducerCore]:
    """A resource with branch A in a state, after one message was sent in it."""
    scripted, work, producer = await resource()
    if state != "unknown":
        await work.start_branch(A, xa.TMNOFLAGS)
        send(producer, b"x")
        await turns()
    if state in ("IDLE", "PREPARED", "doomed"):
        await work.end_branch(A, xa.TMFAIL if state == "doomed" else xa.TMSUCCESS)
    if state == "SUSPENDED":
        await work.end_branch(A, xa.TMSUSPEND)
    if state == "PREPARED":
        assert await work.prepare(A) == xa.XA_OK
    return scripted, work, producer


CALLS: dict[str, Callable[[xa.XaTransactions], Awaitable[object]]] = {
    "start": lambda work: work.start_branch(A, xa.TMNOFLAGS),
    "join": lambda work: work.start_branch(A, xa.TMJOIN),
    "resume": lambda work: work.start_branch(A, xa.TMRESUME),
    "end": lambda work: work.end_branch(A, xa.TMSUCCESS),
    "prepare": lambda work: work.prepare(A),
    "commit": lambda work: work.commit_branch(A, False),
    "commit one phase": lambda work: work.commit_branch(A, True),
    "rollback": lambda work: work.rollback_branch(A),
}
ALLOWED = {
    "unknown": {"start"},
    "ACTIVE": {"end"},
    "SUSPENDED": {"resume", "end"},
    "IDLE": {"join", "prepare", "commit one phase", "rollback"},
    "PREPARED": {"commit", "rollback"},
}


@pytest.mark.parametrize("state", ALLOWED)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_a_state_does_not_allow_names_the_branch_and_changes_nothing(state: str, call: str) -> None:
    async def work() -> None:
        scripted, found, _ = await in_state(state)
        told = len(scripted.host.calls())
        if call in ALLOWED[state]:
            await CALLS[call](found)
            return
        with pytest.raises(XAStateError) as refusal:
            await CALLS[call](found)
        assert "1:61:" in str(refusal.value)
        assert state in str(refusal.value) or state == "unknown"
        assert len(scripted.host.calls()) == told
        assert (found.branches[A].state if A in found.branches else "unknown") == state

    run(work)


def test_a_branch_is_begun_before_its_messages_and_its_acknowledgements_join_it_at_the_end() -> None:
    async def work() -> None:
        scripted, found, producer = await resource()
        consumer = await scripted.consumer(scripted.sessions[0])
        await found.start_branch(A, xa.TMNOFLAGS)
        scripted.host.deliver([b"in", b"more"], handle=2)
        await turns()
        assert consumer.take_one() is not None
        send(producer, b"out")
        await found.end_branch(A, xa.TMSUCCESS)
        kinds = [
            f.op if isinstance(f, wire.CallFrame) else "send"
            for f in scripted.host.frames
            if isinstance(f, wire.SendTxFrame) or (isinstance(f, wire.CallFrame) and f.op in OPS)
        ]
        assert kinds == ["txn_begin", "send", "txn_stage"]
        assert scripted.host.calls("txn_begin")[0][1]["key"] == A.pack()
        assert scripted.host.calls("txn_stage")[0][1]["acks"] == [[2, 1, [[1, 1]]]]
        assert await found.prepare(A) == xa.XA_OK
        await found.commit_branch(A, False)
        prepare, decide = scripted.host.calls("txn_prepare", "txn_decide")
        assert (prepare[1]["key"], prepare[1]["coordinator"], prepare[1]["acks"]) == (A.pack(), "", [])
        assert decide[1] == {"key": A.pack(), "commit": True}

    run(work)


def test_outside_of_a_branch_nothing_is_sent_or_received() -> None:
    async def work() -> None:
        scripted, found, producer = await resource()
        session = scripted.sessions[0]
        for _ in range(2):
            assert session.comes_back
            assert session.handed.unsettled
            with pytest.raises(IllegalStateError, match="start"):
                session.before_more()
            with pytest.raises(IllegalStateError, match="start"):
                send(producer, b"x")
            await found.start_branch(A, xa.TMNOFLAGS)
            assert session.before_more() == []
            await found.end_branch(A, xa.TMSUCCESS)
            await found.rollback_branch(A)
        assert scripted.host.of(wire.SendTxFrame) == []
        for call in (found.commit, found.rollback):
            with pytest.raises(TransactionInProgressError, match="transaction manager"):
                await call()

    run(work)


def test_a_resumed_branch_is_begun_again_where_it_goes_on() -> None:
    async def work() -> None:
        scripted, found, producer = await in_state("SUSPENDED")
        await found.start_branch(B, xa.TMNOFLAGS)
        send(producer, b"other")
        await found.end_branch(B, xa.TMSUCCESS)
        await found.start_branch(A, xa.TMRESUME)
        send(producer, b"y")
        await found.end_branch(A, xa.TMSUCCESS)
        begun = [(args["txn"], args["key"]) for _, args in scripted.host.calls("txn_begin")]
        assert [key for _, key in begun] == [A.pack(), B.pack(), A.pack()]
        numbers = dict(begun)
        sent = [(numbers[f.txn], bytes(f.block.body(0))) for f in scripted.host.of(wire.SendTxFrame)]
        assert sent == [(A.pack(), b"x"), (B.pack(), b"other"), (A.pack(), b"y")]

    run(work)


def test_a_branch_that_did_nothing_is_read_only() -> None:
    async def work() -> None:
        scripted, found, _ = await resource()
        await found.start_branch(A, xa.TMNOFLAGS)
        await found.end_branch(A, xa.TMSUCCESS)
        assert await found.prepare(A) == xa.XA_RDONLY
        assert A not in found.branches
        assert scripted.host.calls(*OPS) == []

    run(work)


def test_a_branch_that_failed_can_only_be_rolled_back() -> None:
    async def work() -> None:
        for end in ("prepare", "commit one phase"):
            scripted, found, _ = await in_state("doomed")
            assert scripted.host.calls("txn_stage")[0][1]["failed"] is True
            with pytest.raises(TransactionRolledBackError, match=r"1:61:.*TMFAIL"):
                await CALLS[end](found)
            assert scripted.host.calls("txn_decide")[0][1] == {"key": A.pack(), "commit": False}
            assert A not in found.branches

    run(work)


def test_a_lost_connection_dooms_a_branch_unless_it_is_prepared() -> None:
    async def work() -> None:
        scripted, found, producer = await in_state("IDLE")
        scripted.host.link.abort()
        await turns()
        with pytest.raises(TransactionRolledBackError, match="lost"):
            await found.prepare(A)
        scripted, found, producer = await in_state("PREPARED")
        scripted.host.link.abort()
        while not producer.attached:
            await turns()
        await found.commit_branch(A, False)
        assert scripted.host.calls("txn_decide")[-1][1]["commit"] is True

    run(work)


def test_a_host_that_cannot_prepare_rolls_every_host_back() -> None:
    async def work() -> None:
        scripted, found, producer = await resource(ScriptedHost("h1"), ScriptedHost("h2"))
        other = await scripted.producer(scripted.sessions[0], "h2.q")
        other.refuse_sends(found.current.nothing_open())
        await found.start_branch(A, xa.TMNOFLAGS)
        send(producer, b"1"), send(other, b"2")
        await found.end_branch(A, xa.TMSUCCESS)
        scripted.hosts[1].answers["txn_prepare"] = StoreError("no room")
        with pytest.raises(TransactionRolledBackError, match="no room"):
            await found.prepare(A)
        for host in scripted.hosts:
            assert {args["commit"] for _, args in host.calls("txn_decide")} == {False}

    run(work)


def test_one_phase_over_two_hosts_is_two_phases_below() -> None:
    async def work() -> None:
        scripted, found, producer = await resource(ScriptedHost("h1"), ScriptedHost("h2"))
        other = await scripted.producer(scripted.sessions[0], "h2.q")
        await found.start_branch(A, xa.TMNOFLAGS)
        send(producer, b"1"), send(other, b"2")
        await found.end_branch(A, xa.TMSUCCESS)
        await found.commit_branch(A, True)
        told = [[op for op, _ in host.calls("txn_prepare", "txn_commit", "txn_decide")] for host in scripted.hosts]
        assert sorted(told) == [["txn_commit"], ["txn_prepare", "txn_decide"]]

    run(work)


def test_prepared_branches_of_clients_that_are_gone_are_found_and_settled_through_the_broker() -> None:
    async def work() -> None:
        scripted, found, _ = await resource()
        row: dict[str, Any] = {"kind": "xa", "state": "PREPARED", "key": A.pack().hex(), "host": "h1", "id": 3}
        scripted.directory.rows = [
            row,
            {**row, "host": "h2", "id": 8},
            {**row, "key": B.pack().hex(), "id": 4},
            {**row, "state": "STARTED"},
            {**row, "kind": "local", "key": "00"},
        ]
        assert await found.recover() == [A, B]
        await found.commit_branch(A, False)
        await found.rollback_branch(B)
        asked = [row for row in scripted.directory.asked if row[0].endswith("_transaction")]
        assert asked == [
            ("decide_transaction", {"id": "h1:3", "commit": True}),
            ("decide_transaction", {"id": "h2:8", "commit": True}),
            ("decide_transaction", {"id": "h1:4", "commit": False}),
        ]
        scripted.directory.rows = []
        with pytest.raises(XAError, match="1:61:"):
            await found.commit_branch(A, False)

    run(work)


COMMITTED, ROLLED_BACK = "HEURISTICALLY_COMMITTED", "HEURISTICALLY_ROLLED_BACK"


@pytest.mark.parametrize(
    ("states", "commit", "code"),
    [
        ((COMMITTED, COMMITTED), False, xa.XA_HEURCOM),
        ((COMMITTED, "PREPARED"), True, xa.XA_HEURCOM),
        ((COMMITTED, "PREPARED"), False, xa.XA_HEURMIX),
        ((ROLLED_BACK, "PREPARED"), True, xa.XA_HEURMIX),
        ((ROLLED_BACK, COMMITTED), True, xa.XA_HEURMIX),
        ((ROLLED_BACK, ROLLED_BACK), True, xa.XA_HEURRB),
    ],
)
def test_what_administrators_decided_at_the_hosts_of_a_branch_is_one_code(
    states: tuple[str, str], commit: bool, code: int
) -> None:
    async def work() -> None:
        scripted, found, _ = await resource()
        scripted.directory.rows = [
            {"kind": "xa", "state": state, "key": A.pack().hex(), "host": f"h{number}", "id": number}
            for number, state in enumerate(states)
        ]
        with pytest.raises(XAError) as caught:
            await (found.commit_branch(A, False) if commit else found.rollback_branch(A))
        assert caught.value.code == code
        decided = [row for row in scripted.directory.asked if row[0].endswith("_transaction")]
        verb = "commit_transaction" if commit else "rollback_transaction"
        assert decided == [(verb, {"id": "h1:1"})] * states.count("PREPARED")

    run(work)


def test_branches_of_a_host_that_cannot_be_asked_do_not_seem_to_be_settled() -> None:
    async def work() -> None:
        scripted, found, _ = await resource()
        scripted.directory.rows = Listing((), {"b1/h2": "it restarts"})
        for call in (found.commit_branch(A, False), found.rollback_branch(A), found.recover(), found.forget_branch(A)):
            with pytest.raises(ConnectionLostError, match="b1/h2"):
                await call

    run(work)


def test_a_log_with_copies_is_decided_wherever_it_is_led_then() -> None:
    async def work() -> None:
        scripted = Scripted()
        scripted.directory.led_by = "b1"
        session = scripted.session("transacted", transactions=xa.XaTransactions)
        found = session.transactions
        assert isinstance(found, xa.XaTransactions)
        producer = await scripted.producer(session)
        await found.start_branch(A, xa.TMNOFLAGS)
        send(producer, b"x")
        await turns()
        await found.end_branch(A, xa.TMSUCCESS)
        assert await found.prepare(A) == xa.XA_OK
        scripted.directory.led_by = "b2"
        scripted.host.link.abort()
        while not producer.attached:
            await turns()
        await found.commit_branch(A, False)
        assert set(scripted.directory.located) == {None}

    run(work)


def test_only_the_one_that_leads_has_branches_at_a_log_with_copies() -> None:
    async def work() -> None:
        scripted, found, _ = await resource()
        found.only_at = Queue("q")
        scripted.directory.rows = Listing((), {"b1": "it is DOWN"})
        with pytest.raises(ConnectionLostError, match="b1"):
            await found.recover()
        scripted.directory.led_by = "b2"
        assert await found.recover() == []
        for silent in ("b2", scripted.host.key):
            scripted.directory.rows = Listing((), {"b1": "it is DOWN", silent: "it restarts"})
            with pytest.raises(ConnectionLostError, match=silent):
                await found.recover()

    run(work)


@pytest.mark.parametrize("flags", [1, xa.TMFAIL, xa.TMJOIN | xa.TMRESUME])
def test_flags_that_do_not_belong_are_refused(flags: int) -> None:
    async def work() -> None:
        _, found, _ = await resource()
        with pytest.raises(IllegalStateError, match="flags"):
            await found.start_branch(A, flags)
        with pytest.raises(IllegalStateError, match="flags"):
            await found.end_branch(A, flags if flags != xa.TMFAIL else xa.TMNOFLAGS)

    run(work)


def test_what_is_no_xid_is_refused_and_only_finished_branches_are_forgotten() -> None:
    async def work() -> None:
        scripted, found, _ = await in_state("IDLE")
        wrong: Any = "1:61:"
        for call in (found.start_branch(wrong, 0), found.prepare(wrong), found.forget_branch(wrong)):
            with pytest.raises(BrokerError, match="no XID"):
                await call
        with pytest.raises(IllegalStateError, match="IDLE"):
            await found.forget_branch(A)
        await found.forget_branch(B)
        assert scripted.host.calls("txn_forget") == [("txn_forget", {"key": B.pack()})]

    run(work)


def test_closing_the_session_in_a_branch_leaves_it_to_be_rolled_back() -> None:
    async def work() -> None:
        _, found, _ = await in_state("ACTIVE")
        await found.close()
        assert found.branches[A].doomed
        await found.rollback_branch(A)
        assert A not in found.branches

    run(work)
