"""Branches of distributed transactions: what an outside manager may do, and what survives (T-05 … T-08)."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

import raybroker as rb
from raybroker.client.session.branch import Branch
from raybroker.client.session.xa import (
    TMFAIL,
    TMJOIN,
    TMRESUME,
    TMSUCCESS,
    TMSUSPEND,
    XA_HEURCOM,
    XA_HEURRB,
    XA_OK,
    XA_RDONLY,
    XAER_DUPID,
    XAER_NOTA,
    XAER_PROTO,
    XaTransactions,
)
from raybroker.errors import (
    ConfigError,
    IllegalStateError,
    TransactionInProgressError,
    TransactionRolledBackError,
    XAError,
    XARolledBackError,
)
from tests.contracts.conftest import TWO_FACES, OneStore
from tests.contracts.handle_basics import held
from tests.contracts.handles import (
    LoopbackBroker,
    bodies,
    consumers_of,
    create,
    cut,
    names_of,
    nothing,
    state_of,
    take,
    until,
)

XID = rb.Xid(1, b"global", b"branch")
OTHER = rb.Xid(1, b"global", b"other")


def worked(session: Any, target: str, source: str | None = None, xid: rb.Xid = XID, flags: int = TMSUCCESS) -> None:
    """One message sent, and one received, in the branch."""
    session.xa.start(xid)
    session.producer(target).send("out")
    if source is not None:
        take(session.consumer(source), 1)
    session.xa.end(xid, flags)


def states(connection: Any) -> list[tuple[str, str, str]]:
    """(kind, state, xid) of each transaction."""
    return [(row["kind"], row["state"], row["xid"]) for row in connection.admin().list_transactions()]


# ---- the pause after a rollback (W-67) -------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["idle", "prepared", "administrator"])
def test_what_a_branch_consumed_rests_for_the_delay_of_its_session(broker: LoopbackBroker, how: str) -> None:
    """W-67, T-03"""
    connection, client, source = broker.connect(), broker.connect(xa=True), broker.name()
    connection.session().producer(source).send("in")
    session = client.session()
    session.redelivery_delay_ms = 300
    worked(session, broker.name(), source)
    if how != "idle":
        session.xa.prepare(XID)
    if how == "administrator":
        (row,) = connection.admin().list_transactions()
        connection.admin().rollback_transaction(row["id"])
    else:
        session.xa.rollback(XID)
    rests = state_of(connection, source)
    assert (rests["delayed"], rests["messages"]) == (1, 1)
    client.close()  # Its own consumer would get it again.
    (message,) = take(connection.session().consumer(source), 1)
    assert (message.body, message.delivery_count) == ("in", 2)


def test_what_a_lost_session_left_open_comes_again_at_once(broker: LoopbackBroker) -> None:
    """W-67: their consumer is gone"""
    connection, client, source = broker.connect(), broker.connect(xa=True), broker.name()
    connection.session().producer(source).send("in")
    session = client.session()
    session.redelivery_delay_ms = 60_000
    worked(session, broker.name(), source)
    client.close()
    assert bodies(take(connection.session().consumer(source), 1)) == ["in"]


def test_a_consumer_that_is_lost_while_its_branch_ends_is_closed_after_that(
    broker: LoopbackBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed before, it would give back what the branch is about to acknowledge."""
    connection, client, source = broker.connect(), broker.connect(xa=True), broker.name()
    connection.session().producer(source).send("in")
    session = client.session()
    session.xa.start(XID)
    held_here = [session.consumer(source)]
    take(held_here[0], 1)
    begun = XaTransactions._begun

    async def losing(transactions: XaTransactions, branch: Branch) -> None:
        held_here.clear()
        gc.collect()
        for _ in range(20):
            await asyncio.sleep(0)
        await begun(transactions, branch)

    monkeypatch.setattr(XaTransactions, "_begun", losing)
    session.xa.end(XID)
    session.xa.commit(XID, one_phase=True)
    until(lambda: consumers_of(connection, source) == [])
    assert held(connection, source) == 0


# ---- the two phases (T-07) -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("one_phase", [True, False])
def test_a_branch_is_committed_in_one_phase_or_in_two(broker: LoopbackBroker, one_phase: bool) -> None:
    """T-07"""
    connection, client, source, target = broker.connect(), broker.connect(xa=True), broker.name(), broker.name()
    connection.session().producer(source).send_many(range(2))
    session = client.session()
    worked(session, target, source)
    consumer = connection.session().consumer(target)
    assert nothing(consumer, 0.01)
    if not one_phase:
        assert session.xa.prepare(XID) == XA_OK
        assert states(connection) == [("xa", "PREPARED", str(XID))]
        assert nothing(consumer, 0.01)
    session.xa.commit(XID, one_phase)
    assert bodies(take(consumer, 1)) == ["out"]
    assert held(connection, source) == 1
    assert states(connection) == []


@pytest.mark.parametrize("prepared", [True, False])
def test_a_branch_is_rolled_back_before_or_after_it_was_prepared(broker: LoopbackBroker, prepared: bool) -> None:
    """T-07, T-03"""
    connection, client, source, target = broker.connect(), broker.connect(xa=True), broker.name(), broker.name()
    connection.session().producer(source).send("in")
    session = client.session()
    worked(session, target, source)
    if prepared:
        session.xa.prepare(XID)
    session.xa.rollback(XID)
    client.close()
    assert held(connection, target) == 0
    assert [(m.body, m.redelivered) for m in take(connection.session().consumer(source), 1)] == [("in", True)]
    assert states(connection) == []


def test_a_branch_that_did_nothing_has_nothing_to_commit(broker: LoopbackBroker) -> None:
    """T-07: XA_RDONLY"""
    client = broker.connect(xa=True)
    session = client.session()
    session.xa.start(XID)
    session.xa.end(XID)
    assert session.xa.prepare(XID) == XA_RDONLY
    assert states(client) == []
    session.xa.start(XID)
    session.xa.end(XID)
    session.xa.commit(XID, True)


def test_two_sessions_work_in_one_branch_and_one_session_in_two(broker: LoopbackBroker) -> None:
    """T-07: TMJOIN, TMSUSPEND, TMRESUME"""
    connection, client, target = broker.connect(), broker.connect(xa=True), broker.name()
    first, second = client.session(), client.session()
    one, two = first.producer(target), second.producer(target)
    first.xa.start(XID)
    one.send("a")
    first.xa.end(XID, TMSUSPEND)
    first.xa.start(OTHER)
    one.send("other")
    first.xa.end(OTHER)
    first.xa.start(XID, TMRESUME)
    one.send("b")
    first.xa.end(XID)
    second.xa.start(XID, TMJOIN)
    two.send("c")
    second.xa.end(XID)
    first.xa.rollback(OTHER)
    first.xa.prepare(XID)
    second.xa.commit(XID)
    assert held(connection, target) == 3
    assert sorted(bodies(take(connection.session().consumer(target), 3))) == ["a", "b", "c"]


def test_a_branch_that_failed_can_only_be_rolled_back(broker: LoopbackBroker) -> None:
    """T-08: TMFAIL, or a refused message"""
    connection, client, target = broker.connect(), broker.connect(xa=True), broker.name()
    create(connection, target, maxNumMsgs=1)
    session = client.session()
    worked(session, target, flags=TMFAIL)
    with pytest.raises(TransactionRolledBackError, match="TMFAIL"):
        session.xa.prepare(XID)
    session.xa.start(XID)
    producer = session.producer(target)
    producer.send("a"), producer.send("b")
    with pytest.raises(TransactionRolledBackError, match="maxNumMsgs=1"):
        session.xa.end(XID)
    with pytest.raises(TransactionRolledBackError):
        session.xa.commit(XID, True)
    assert held(connection, target) == 0
    assert states(connection) == []


@pytest.mark.parametrize("persistent", [True, False])
def test_what_a_doomed_branch_received_is_not_acknowledged_by_the_next(
    broker: LoopbackBroker, persistent: bool
) -> None:
    """T-08: end() that raises leaves nothing of its branch in the session"""
    connection, client, source, target = broker.connect(), broker.connect(xa=True), broker.name(), broker.name()
    create(connection, target, maxNumMsgs=1)
    connection.session().producer(source).send_many(["first", "second"])
    session = client.session()
    consumer = session.consumer(source)
    session.xa.start(XID)
    assert bodies(take(consumer, 1)) == ["first"]
    producer = session.producer(target)
    producer.send("a", persistent=persistent), producer.send("b", persistent=persistent)
    with pytest.raises(XARolledBackError, match="maxNumMsgs=1"):
        session.xa.end(XID)
    session.xa.start(OTHER)
    assert bodies(take(consumer, 1)) == ["second"]
    session.xa.end(OTHER)
    session.xa.commit(OTHER, True)
    session.xa.rollback(XID)
    client.close()
    assert [(m.body, m.redelivered) for m in take(connection.session().consumer(source), 1)] == [("first", True)]
    assert (held(connection, source), held(connection, target)) == (1, 0)


# ---- bad calls (T-07, T-08) ------------------------------------------------------------------------------------------

WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "end before start": (lambda xa: xa.end(XID), "no branch"),
    "prepare before start": (lambda xa: xa.prepare(XID), "no branch"),
    "start twice": (lambda xa: (xa.start(XID), xa.start(OTHER)), "ACTIVE"),
    "prepare while active": (lambda xa: (xa.start(XID), xa.prepare(XID)), "ACTIVE; it has to be IDLE"),
    "commit while active": (lambda xa: (xa.start(XID), xa.commit(XID, True)), "ACTIVE; it has to be IDLE"),
    "two phases unprepared": (lambda xa: (xa.start(XID), xa.end(XID), xa.commit(XID)), "IDLE; it has to be PREPARED"),
    "resume what is not suspended": (lambda xa: (xa.start(XID), xa.end(XID), xa.start(XID, TMRESUME)), "SUSPENDED"),
    "join what is unknown": (lambda xa: xa.start(XID, TMJOIN), "no branch"),
    "start what exists": (lambda xa: (xa.start(XID), xa.end(XID), xa.start(XID)), "exists and is IDLE"),
    "unknown flags": (lambda xa: xa.start(XID, 7), "0x7"),
    "end with other flags": (lambda xa: (xa.start(XID), xa.end(XID, TMJOIN)), "TMSUCCESS"),
    "forget what is not finished": (lambda xa: (xa.start(XID), xa.end(XID), xa.forget(XID)), "IDLE"),
}


@pytest.mark.parametrize("call", WRONG)
@TWO_FACES
def test_a_call_in_the_wrong_state_names_the_branch_and_its_state(broker: LoopbackBroker, call: str) -> None:
    """T-08"""
    session = broker.connect(xa=True).session()
    work, word = WRONG[call]
    with pytest.raises(IllegalStateError, match=word) as caught:
        work(session.xa)
    assert str(XID) in str(caught.value)


def test_outside_of_a_branch_nothing_is_sent_or_received(broker: LoopbackBroker) -> None:
    """T-07"""
    connection, client, name = broker.connect(), broker.connect(xa=True), broker.name()
    session = client.session()
    producer, consumer = session.producer(name), session.consumer(name)
    for call in (lambda: producer.send("x"), lambda: consumer.receive(timeout=0.05)):
        with pytest.raises(IllegalStateError, match=r"xa\.start"):
            call()
    for call in (session.commit, session.rollback):
        with pytest.raises(TransactionInProgressError, match="transaction manager"):
            call()
    assert held(connection, name) == 0


def test_only_an_xa_connection_has_branches(broker: LoopbackBroker) -> None:
    """T-07"""
    with pytest.raises(IllegalStateError, match="connect_xa"):
        _ = broker.connect().session(transacted=True).xa


def test_an_unknown_branch_cannot_be_committed_or_rolled_back(broker: LoopbackBroker) -> None:
    """T-08"""
    session = broker.connect(xa=True).session()
    for call in (session.xa.commit, session.xa.rollback):
        with pytest.raises(XAError, match=str(XID)) as caught:
            call(XID)
        assert caught.value.code == XAER_NOTA


@pytest.mark.parametrize("seen", ["same host", "another host", "no host"])
@pytest.mark.parametrize("prepared", [True, False])
def test_the_same_identifier_of_another_connection_is_refused_at_start_and_leaves_the_branch_alone(
    broker: LoopbackBroker, prepared: bool, seen: str
) -> None:
    """XAER_DUPID, whatever hosts the other connection has spoken to"""
    connection, first, second = broker.connect(), broker.connect(xa=True), broker.connect(xa=True)
    target, elsewhere = broker.name(), broker.name()
    session, other = first.session(), second.session()
    worked(session, target)
    if prepared:
        session.xa.prepare(XID)
    if seen != "no host":
        other.producer(target if seen == "same host" else elsewhere)
    with pytest.raises(XAError, match="there is a branch of that XID already") as refused:
        other.xa.start(XID)
    assert refused.value.code == XAER_DUPID
    other.xa.start(OTHER)  # The refused call changed nothing here.
    other.xa.end(OTHER)
    if not prepared:
        session.xa.prepare(XID)
    session.xa.commit(XID)
    assert held(connection, target) == 1
    assert bodies(take(connection.session().consumer(target), 1)) == ["out"]
    assert states(connection) == []


def test_an_identifier_that_two_started_before_either_worked_is_refused_at_the_end(broker: LoopbackBroker) -> None:
    """XAER_DUPID: only the hosts know a branch, and they learn of it with its first work"""
    connection, first, second = broker.connect(), broker.connect(xa=True), broker.connect(xa=True)
    target = broker.name()
    session, other = first.session(), second.session()
    session.xa.start(XID)
    other.xa.start(XID)
    session.producer(target).send("out")
    other.producer(target).send("not mine")
    session.xa.end(XID)
    with pytest.raises(XAError) as refused:
        other.xa.end(XID)
    assert refused.value.code == XAER_DUPID
    with pytest.raises(XARolledBackError):
        other.xa.prepare(XID)
    session.xa.prepare(XID)
    session.xa.commit(XID)
    assert bodies(take(connection.session().consumer(target), 1)) == ["out"]


@pytest.mark.parametrize("commit", [True, False])
def test_a_branch_that_another_connection_settled_has_an_xa_code(broker: LoopbackBroker, commit: bool) -> None:
    """XAER_NOTA, also when the other one has decided otherwise"""
    first, second = broker.connect(xa=True), broker.connect(xa=True)
    session, other = first.session(), second.session()
    worked(session, broker.name())
    session.xa.prepare(XID)
    (other.xa.rollback if commit else other.xa.commit)(XID)
    call = session.xa.commit if commit else session.xa.rollback
    for _ in range(2):
        with pytest.raises(XAError) as refused:
            call(XID)
        assert refused.value.code == XAER_NOTA
    worked(session, broker.name())
    session.xa.commit(XID, True)


@pytest.mark.parametrize(
    "parts",
    [(-1, b"x", b""), (0, b"", b""), (0, b"x" * 65, b""), (0, b"x", b"y" * 65), ("1", b"x", b""), (1, "x", b"")],
)
def test_an_identifier_out_of_bounds_is_refused(parts: tuple[Any, ...]) -> None:
    """T-08: up to 128 bytes"""
    with pytest.raises(ConfigError, match="xid"):
        rb.Xid(*parts)
    assert len(rb.Xid(2**31 - 1, b"g" * 64, b"b" * 64).pack()) == 134


# ---- clients that are gone, and restarts (T-05, T-06) ----------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_branch_outlives_its_client_and_is_settled_by_another(broker: LoopbackBroker, commit: bool) -> None:
    """T-05"""
    connection, source, target = broker.connect(), broker.name(), broker.name()
    connection.session().producer(source).send("in")
    first = broker.connect(xa=True)
    session = first.session()
    worked(session, target, source)
    session.xa.prepare(XID)
    first.close()
    consumer = connection.session().consumer(source)
    assert nothing(consumer, 0.01), "what it consumed is still its own"
    second = broker.connect(xa=True).session()
    assert second.xa.recover() == [XID]
    (second.xa.commit if commit else second.xa.rollback)(XID)
    assert second.xa.recover() == []
    assert held(connection, target) == int(commit)
    if commit:
        assert held(connection, source) == 0
    else:
        assert [(m.body, m.redelivered) for m in take(consumer, 1)] == [("in", True)]


@pytest.mark.parametrize("state", ["active", "ended"])
def test_a_branch_that_was_not_prepared_goes_with_its_connection(broker: LoopbackBroker, state: str) -> None:
    """T-05"""
    connection, client, target = broker.connect(), broker.connect(xa=True, imqReconnectEnabled=False), broker.name()
    session = client.session()
    session.xa.start(XID)
    session.producer(target).send("x")
    if state == "ended":
        session.xa.end(XID)
    until(lambda: states(connection))
    cut(client)
    until(lambda: states(connection) == [])
    assert held(connection, target) == 0


@pytest.mark.parametrize("way", ["open", "crash"])
@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_branch_survives_a_restart_of_the_broker(store: OneStore, way: str, commit: bool) -> None:
    """T-05, T-06: autorollback=false"""
    broker = store.open()
    broker.connect().session().producer("source").send_many(["in", "next"])
    session = broker.connect(xa=True).session()
    worked(session, "target", "source")
    session.xa.prepare(XID)
    again = getattr(store, way)()
    connection = again.connect()
    assert states(connection) == [("xa", "PREPARED", str(XID))]
    consumer, target = connection.session().consumer("source"), connection.session().consumer("target")
    assert bodies(take(consumer, 1)) == ["next"]
    assert nothing(consumer, 0.01)
    assert nothing(target, 0.01)
    manager = again.connect(xa=True).session()
    assert manager.xa.recover() == [XID]
    (manager.xa.commit if commit else manager.xa.rollback)(XID)
    if commit:
        assert bodies(take(target, 1)) == ["out"]
        assert nothing(consumer, 0.01)
    else:
        assert [(m.body, m.redelivered) for m in take(consumer, 1)] == [("in", True)]
        assert held(connection, "target") == 0
    last = store.crash().connect()
    assert states(last) == []
    assert names_of(last) == (["target"] if commit else ["source"]), "what holds nothing was not made by anybody (D-22)"


def test_with_autorollback_a_restart_rolls_prepared_branches_back(store: OneStore) -> None:
    """T-06: autorollback=true"""
    broker = store.open()
    broker.connect().session().producer("source").send("in")
    session = broker.connect(xa=True).session()
    worked(session, "target", "source")
    session.xa.prepare(XID)
    again = store.crash(imq__transaction__autorollback=True).connect()
    assert states(again) == []
    assert held(again, "target") == 0
    assert [(m.body, m.redelivered) for m in take(again.session().consumer("source"), 1)] == [("in", True)]


@pytest.mark.parametrize("commit", [True, False])
def test_administrators_settle_a_prepared_branch(broker: LoopbackBroker, commit: bool) -> None:
    """T-06, T-08, A-45, A-46"""
    connection, client, target = broker.connect(), broker.connect(xa=True), broker.name()
    session = client.session()
    worked(session, target)
    session.xa.prepare(XID)
    client.close()
    admin = connection.admin()
    (row,) = admin.list_transactions()
    (admin.commit_transaction if commit else admin.rollback_transaction)(row["id"])
    assert states(connection) == [("xa", HEURISTIC[commit], str(XID))]
    assert held(connection, target) == int(commit)
    for verb in (admin.commit_transaction, admin.rollback_transaction):
        with pytest.raises(IllegalStateError, match=HEURISTIC[commit]):
            verb(row["id"])


# ---- heuristic decisions ---------------------------------------------------------------------------------------------

HEURISTIC = {True: "HEURISTICALLY_COMMITTED", False: "HEURISTICALLY_ROLLED_BACK"}
CODE = {True: XA_HEURCOM, False: XA_HEURRB}


def refused(call: Any, *args: Any) -> int:
    with pytest.raises(XAError, match=str(XID)) as caught:
        call(*args)
    code: Any = caught.value.code
    return int(code)


@pytest.mark.parametrize("commit", [True, False])
def test_an_administrators_decision_is_told_to_every_manager_until_it_is_forgotten(
    broker: LoopbackBroker, commit: bool
) -> None:
    """XA_HEURCOM, XA_HEURRB: also when the manager decides the same, on the branch's connection and on any other"""
    connection, client, target = broker.connect(), broker.connect(xa=True), broker.name()
    session, other = client.session(), broker.connect(xa=True).session()
    worked(session, target)
    session.xa.prepare(XID)
    admin = connection.admin()
    (row,) = admin.list_transactions()
    (admin.commit_transaction if commit else admin.rollback_transaction)(row["id"])
    for xa in (session.xa, other.xa):
        assert [refused(call, XID) for call in (xa.commit, xa.rollback)] == [CODE[commit]] * 2
        assert xa.recover() == [XID]
    other.producer(target)
    assert refused(other.xa.start, XID) == XAER_DUPID
    other.xa.forget(XID)
    assert admin.list_transactions() == session.xa.recover() == []
    assert refused(session.xa.commit, XID) == XAER_NOTA
    assert held(connection, target) == int(commit)
    worked(session, target)
    session.xa.commit(XID, True)
    assert held(connection, target) == int(commit) + 1


def test_a_manager_that_settles_a_recovered_branch_leaves_nothing_to_forget(broker: LoopbackBroker) -> None:
    connection, client, target = broker.connect(), broker.connect(xa=True), broker.name()
    session = client.session()
    worked(session, target)
    session.xa.prepare(XID)
    assert refused(broker.connect(xa=True).session().xa.forget, XID) == XAER_PROTO
    client.close()
    broker.connect(xa=True).session().xa.commit(XID)
    assert states(connection) == []
    assert held(connection, target) == 1


@pytest.mark.parametrize("way", ["open", "crash"])
@pytest.mark.parametrize("commit", [True, False])
def test_a_heuristic_decision_outlives_restarts_and_so_does_its_end(store: OneStore, way: str, commit: bool) -> None:
    broker = store.open()
    session = broker.connect(xa=True).session()
    worked(session, "target")
    session.xa.prepare(XID)
    admin = broker.connect().admin()
    (row,) = admin.list_transactions()
    (admin.commit_transaction if commit else admin.rollback_transaction)(row["id"])
    again = getattr(store, way)()
    assert states(again.connect()) == [("xa", HEURISTIC[commit], str(XID))]
    manager = again.connect(xa=True).session()
    assert manager.xa.recover() == [XID]
    assert refused(manager.xa.commit, XID) == CODE[commit]
    manager.xa.forget(XID)
    last = getattr(store, way)()
    assert states(last.connect()) == []
    assert refused(last.connect(xa=True).session().xa.commit, XID) == XAER_NOTA


def test_administrators_do_not_commit_what_is_not_prepared(broker: LoopbackBroker) -> None:
    """T-08: admin commit only from PREPARED; the text names the state"""
    connection, client, target = broker.connect(), broker.connect(xa=True), broker.name()
    session = client.session()
    session.xa.start(XID)
    session.producer(target).send("x")
    until(lambda: [s for _, s, _ in states(connection)] == ["STARTED"])
    (row,) = connection.admin().list_transactions()
    with pytest.raises(IllegalStateError, match="STARTED"):
        connection.admin().commit_transaction(row["id"])
    session.xa.end(XID)
    assert [s for _, s, _ in states(connection)] == ["COMPLETE"]
    with pytest.raises(IllegalStateError, match="COMPLETE"):
        connection.admin().commit_transaction(row["id"])
    session.xa.commit(XID, True)
    assert held(connection, target) == 1
