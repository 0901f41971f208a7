"""A record in a table that all brokers share (K-20): who is first, what is refused, and what is never overwritten."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from random import Random
from typing import Any

import pytest

from raybroker.cluster import events as ev
from raybroker.cluster.change_record import Change, ChangeRecord
from raybroker.cluster.member_state import COMPRESS_MIN
from raybroker.cluster.record_rows import entry_of, record_of, row_of
from raybroker.model.errors import (
    ConfigError,
    InvalidDestinationError,
    MasterUnavailableError,
    ProtocolError,
    RequestTimeoutError,
    StoreDamagedError,
)
from raybroker.model.shared_record import FoundRecord, RecordHead, TableRow
from tests.simulation_control.table import MemoryTable
from tests.unit.cluster.cluster import NAMES, Cluster, queue


def made(cluster: str = "c1", record: str = "r1", term: int = 1) -> MemoryTable:
    table = MemoryTable()
    table.fill(ChangeRecord(record, cluster, term))
    return table


def sharing(table: MemoryTable | None = None, *names: str) -> Cluster:
    """A cluster whose brokers (or those named) are operating."""
    cluster = Cluster(master="", table=table or made())
    cluster.start(*names)
    cluster.run(3000)
    assert set(cluster.states().values()) == {"OPERATING"}
    return cluster


def error_of(answer: ev.Answer | None) -> BaseException | None:
    assert answer is not None
    return answer.error


def the(cluster: Cluster) -> MemoryTable:
    assert cluster.table is not None
    return cluster.table


def test_every_broker_may_change_the_record_and_all_have_the_same() -> None:
    cluster = sharing()
    assert not any(member.is_master for member in cluster.members.values())
    for name in NAMES:
        answer = cluster.propose(name, queue(f"of-{name}"))
        assert error_of(answer) is None
        assert answer is not None
        assert cluster.members[name].applied >= answer.number
    cluster.run(1000)
    assert the(cluster).last == 3
    assert {member.durable.digest for member in cluster.members.values()} == {the(cluster).rows[-1].digest}
    assert {member.applied for member in cluster.members.values()} == {3}


def test_the_others_hear_at_once_that_there_is_something_new() -> None:
    cluster = sharing()
    cluster.propose("b1", queue("q1"))
    assert {member.applied for member in cluster.members.values()} == {1}
    cluster.propose("b2", queue("q2"))
    assert {member.applied for member in cluster.members.values()} == {2}


def test_without_a_word_the_others_read_it_after_the_poll_interval() -> None:
    cluster = sharing()
    cluster.cut = {"b3"}
    cluster.propose("b1", queue("q1"))
    assert cluster.members["b3"].applied == 0
    cluster.run(5100)
    assert cluster.members["b3"].applied == 1


def test_the_second_of_two_who_create_the_same_is_refused_as_the_master_would() -> None:
    cluster = sharing()
    cluster.cut = {"b2"}
    assert error_of(cluster.propose("b1", queue("q"))) is None
    assert isinstance(error_of(cluster.propose("b2", queue("q"))), InvalidDestinationError)
    assert the(cluster).last == 1


def test_nothing_is_refused_by_a_copy_that_is_old() -> None:
    cluster = sharing()
    cluster.propose("b1", queue("q"))
    cluster.cut = {"b2"}
    cluster.propose("b1", Change("destroy_destination", ("queue", "q")))
    assert cluster.members["b2"].agreed.destinations
    assert error_of(cluster.propose("b2", queue("q"))) is None
    assert the(cluster).last == 3


def test_who_comes_second_reads_and_decides_again() -> None:
    cluster = sharing()
    cluster.cut = {"b2"}
    cluster.propose("b1", queue("q1"))
    answer = cluster.propose("b2", queue("q2"))
    assert error_of(answer) is None
    assert answer is not None
    assert answer.number == 2
    assert the(cluster).refused == 1


def test_many_changes_go_into_the_table_at_once() -> None:
    cluster = sharing()
    calls: list[int] = []

    def count(name: str, call: ev.OnTable) -> None:
        if isinstance(call, ev.AppendTable):
            calls.append(len(call.rows))

    cluster.table_says = count
    for number in range(300):
        cluster.tell("b1", ev.Propose(1000 + number, queue(f"q{number}")))
    cluster.settle()
    assert [cluster.answers[1000 + number].error for number in range(300)] == [None] * 300
    assert calls == [1, 100, 100, 99]


def test_who_is_never_first_gives_up() -> None:
    cluster = sharing()
    tries = 0

    def beaten(name: str, call: ev.OnTable) -> ev.TableDone | None:
        nonlocal tries
        tries += isinstance(call, ev.AppendTable)
        return ev.TableDone(call.token) if isinstance(call, ev.AppendTable) else None

    cluster.table_says = beaten
    error = error_of(cluster.propose("b1", queue("q")))
    assert isinstance(error, MasterUnavailableError)
    assert error.definite
    assert tries == 100


# ---- what cannot be reached


def down(name: str, call: ev.OnTable) -> ev.TableDone:
    return ev.TableDone(call.token, error="connection refused")


def test_brokers_that_start_while_the_table_is_down_wait_for_it() -> None:
    cluster = Cluster(master="", table=made())
    cluster.table_says = down
    cluster.start()
    cluster.run(8000)
    assert set(cluster.states().values()) == {"WAITING_FOR_MASTER"}
    assert "it waits for the table records" in cluster.members["b1"].refusal
    assert "connection refused" in cluster.members["b1"].refusal
    cluster.table_says = lambda name, call: None
    cluster.run(8000)
    assert set(cluster.states().values()) == {"OPERATING"}


def test_while_the_table_is_down_changes_are_refused_and_brokers_go_on() -> None:
    cluster = sharing()
    cluster.table_says = down
    error = error_of(cluster.propose("b1", queue("q")))
    assert isinstance(error, MasterUnavailableError)
    assert error.definite
    assert "the table records cannot be used: connection refused" in str(error)
    cluster.run(5500)
    assert cluster.states() == dict.fromkeys(NAMES, "MASTER_LOST")
    with pytest.raises(MasterUnavailableError, match="the table records"):
        cluster.members["b2"].check_change()
    cluster.table_says = lambda name, call: None
    cluster.run(5500)
    assert cluster.states() == dict.fromkeys(NAMES, "OPERATING")
    assert error_of(cluster.propose("b1", queue("q"))) is None
    assert the(cluster).last == 1


def test_a_missing_table_says_how_to_make_it() -> None:
    cluster = Cluster(master="", table=MemoryTable())
    cluster.start("b1")
    assert "raybroker dbmgr create sharecc_tbl" in cluster.members["b1"].refusal
    the(cluster).fill(ChangeRecord("r1", "c1", 1))
    cluster.run(8000)
    assert cluster.states() == {"b1": "OPERATING"}


# ---- what is in doubt


def unseen(carry_out: bool, *, times: int = 1) -> Callable[[Cluster], None]:
    """The first appends end without an answer; with ``carry_out`` they are in the table all the same."""

    def apply(cluster: Cluster) -> None:
        left = times

        def says(name: str, call: ev.OnTable) -> ev.TableDone | None:
            nonlocal left
            if not isinstance(call, ev.AppendTable) or not left:
                return None
            left -= 1
            if carry_out:
                the(cluster).carry_out(call)
            return ev.TableDone(call.token, error="the connection was lost", unknown=True)

        cluster.table_says = says

    return apply


@pytest.mark.parametrize("carry_out", [True, False])
def test_a_change_whose_end_was_not_seen_is_made_once(carry_out: bool) -> None:
    cluster = sharing()
    unseen(carry_out)(cluster)
    assert cluster.propose("b1", queue("q")) is None
    cluster.run(5500)
    answer = cluster.answers[1]
    assert (answer.error, answer.number) == (None, 1)
    assert the(cluster).last == 1


def test_a_change_that_another_overtook_while_in_doubt_is_decided_again() -> None:
    cluster = sharing()
    unseen(carry_out=False)(cluster)
    cluster.propose("b1", queue("q"))
    cluster.propose("b2", queue("q"))
    cluster.run(5500)
    assert isinstance(cluster.answers[1].error, InvalidDestinationError)
    assert cluster.answers[2].error is None
    assert the(cluster).last == 1


def test_an_attempt_that_lands_late_is_found_and_not_made_twice() -> None:
    cluster = sharing()
    late: list[ev.AppendTable] = []

    def says(name: str, call: ev.OnTable) -> ev.TableDone | None:
        if isinstance(call, ev.AppendTable) and not late:
            late.append(call)
            return ev.TableDone(call.token, error="no answer in time", unknown=True)
        if isinstance(call, ev.AppendTable):
            the(cluster).carry_out(late[0])
        return None

    cluster.table_says = says
    cluster.propose("b1", queue("q"))
    cluster.run(6000)
    assert (cluster.answers[1].error, the(cluster).last) == (None, 1)


def test_what_stays_in_doubt_is_said_to_be_unknown() -> None:
    cluster = sharing()

    def says(name: str, call: ev.OnTable) -> ev.TableDone:
        return ev.TableDone(call.token, error="gone", unknown=isinstance(call, ev.AppendTable))

    cluster.table_says = says
    cluster.propose("b1", queue("q"))
    cluster.run(11_000)
    assert isinstance(cluster.answers[1].error, RequestTimeoutError)


def test_a_call_that_never_comes_back_leaves_the_change_unknown() -> None:
    cluster = sharing()
    cluster.table_says = lambda name, call: ev.TableDone(-1)
    cluster.propose("b1", queue("q"))
    cluster.run(11_000)
    assert isinstance(cluster.answers[1].error, RequestTimeoutError)


# ---- what does not fit


def refused(cluster: Cluster, name: str = "b1") -> str:
    """What a broker says that does not use its table, without having changed it or its copy."""
    before = the(cluster).rows, cluster.members[name].record.number
    cluster.run(11_000)
    assert isinstance(error_of(cluster.propose(name, queue("another"))), MasterUnavailableError)
    assert (the(cluster).rows, cluster.members[name].record.number) == before
    with pytest.raises(MasterUnavailableError) as found:
        cluster.members[name].check_change()
    return str(found.value)


def test_the_table_of_another_cluster_is_refused_with_both_names() -> None:
    cluster = Cluster(master="", cluster="mine", table=made("theirs"))
    cluster.start("b1")
    text = refused(cluster)
    assert "'theirs'" in text
    assert "'mine'" in text
    assert cluster.states() == {"b1": "WAITING_FOR_MASTER"}


def spoil(cluster: Cluster, number: int, **changes: object) -> None:
    rows = the(cluster).rows
    rows[number - 1] = replace(rows[number - 1], **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("part", ["gap", "hash", "body", "history", "end"])
def test_a_table_that_does_not_go_on_as_the_copy_is_refused_and_nothing_is_overwritten(part: str) -> None:
    cluster = sharing(None, "b1", "b2")
    cluster.propose("b1", queue("q1"))
    cluster.propose("b1", queue("q2"))
    cluster.cut = {"b1", "b2"}
    cluster.propose("b2", queue("q3"))
    cluster.propose("b2", queue("q4"))
    table = the(cluster)
    match part:
        case "gap":
            table.rows[2] = table.rows.pop()
        case "hash":
            spoil(cluster, 3, digest="0" * 32)
        case "body":
            spoil(cluster, 3, body=json.dumps([3, 1, "create_destination", ["queue", "forged"], {}]))
        case "history":
            spoil(cluster, 2, digest="0" * 32)
        case "end":
            del table.rows[1:]
    text = refused(cluster)
    assert "restore a backup" in text
    assert ("queue", "q1") in cluster.members["b1"].agreed.destinations
    assert ("queue", "forged") not in cluster.members["b1"].agreed.destinations


def test_good_entries_before_a_bad_one_are_kept() -> None:
    cluster = sharing(None, "b1", "b2")
    cluster.cut = {"b1", "b2"}
    cluster.propose("b2", queue("q1"))
    cluster.propose("b2", queue("q2"))
    spoil(cluster, 2, digest="0" * 32)
    cluster.run(6000)
    assert list(cluster.members["b1"].agreed.destinations) == [("queue", "q1")]
    assert cluster.states()["b1"] == "MASTER_LOST"


def test_another_record_of_the_same_term_is_refused() -> None:
    cluster = sharing()
    cluster.propose("b1", queue("q1"))
    the(cluster).fill(ChangeRecord("r2", "c1", 1))
    assert "set back or made anew" in refused(cluster)


def test_a_record_of_a_later_term_is_taken() -> None:
    cluster = sharing()
    cluster.propose("b1", queue("q1"))
    restored = ChangeRecord("r2", "c1", 1000)
    restored.propose(queue("of-the-backup"))
    the(cluster).fill(restored)
    cluster.run(6000)
    for member in cluster.members.values():
        assert list(member.agreed.destinations) == [("queue", "of-the-backup")]
    assert error_of(cluster.propose("b3", queue("q2"))) is None
    assert any("is replaced by that of the table records" in note for note in cluster.notes)
    for name in NAMES:
        cluster.stop(name)
    cluster.start()
    cluster.run(3000)
    assert set(cluster.states().values()) == {"OPERATING"}


def test_brokers_with_two_tables_of_one_term_refuse_each_other() -> None:
    cluster = sharing(None, "b1", "b2")
    cluster.table = made(record="r2")
    cluster.start("b3")
    cluster.run(6000)
    assert any("different tables" in note for note in cluster.notes)
    assert "b3" not in cluster.members["b1"].membership.live()


def test_a_broker_whose_table_is_of_an_older_term_than_what_others_know_stops_changing() -> None:
    cluster = sharing(None, "b1", "b2")
    old, newer = the(cluster), made(record="r2", term=1000)
    cluster.table_says = lambda name, call: (newer if name == "b2" else old).carry_out(call)
    cluster.run(6000)
    with pytest.raises(MasterUnavailableError, match="do not use the same table"):
        cluster.members["b1"].check_change()
    cluster.table_says = lambda name, call: newer.carry_out(call)
    cluster.run(11_000)
    cluster.members["b1"].check_change()


def test_brokers_with_a_table_and_without_one_refuse_each_other() -> None:
    cluster = sharing(None, "b1")
    cluster.shared = False
    cluster.start("b2")
    cluster.run(3000)
    assert cluster.members["b1"].membership.live() == ("b1",)
    assert any("imq.cluster.sharecc.persist.jdbc.url is 'set' on b1 and None on b2" in note for note in cluster.notes)


JUNK: tuple[Any, ...] = (None, -1, 1 << 70, 2.5, "", "x", "[]", b"\xff", "{}", 7)


def spoilt(found: FoundRecord, rng: Random) -> FoundRecord:
    """Something of it is something else."""
    junk: Any = rng.choice(JUNK)
    part = rng.choice(("head", "row", "row", "rows", "last", "digest", "base"))
    if part == "head":
        name = rng.choice([field.name for field in fields(RecordHead)])
        return replace(found, head=replace(found.head, **{name: junk}))
    if part == "row" and found.rows:
        rows, at = list(found.rows), rng.randrange(len(found.rows))
        name = rng.choice([field.name for field in fields(TableRow)])
        body = rows[at].body
        if name == "body" and rng.random() < 0.5:
            junk = body[: rng.randrange(len(body))] + rng.choice(("", "0", '"', "]")) + body[rng.randrange(len(body)) :]
        rows[at] = replace(rows[at], **{name: junk})
        return replace(found, rows=tuple(rows))
    if part == "rows":
        return replace(found, rows=tuple(rng.sample(found.rows, len(found.rows)))[: rng.randrange(3)])
    if part == "base" and found.base:
        at = rng.randrange(len(found.base))
        return replace(found, base=found.base[:at] + rng.choice("{}[]0\n") + found.base[at + rng.randrange(3) :])
    return replace(found, **{part: junk}) if part in ("last", "digest", "base") else found


@pytest.mark.parametrize("start", range(4))
def test_whatever_the_table_says_a_copy_stays_a_part_of_the_record(start: int) -> None:
    """Nothing is raised, and nothing is believed that the hashes do not cover."""
    for seed in range(start * 50, start * 50 + 50):
        rng = Random(seed)
        cluster = sharing(None, "b1", "b2")
        for number in range(rng.randrange(6)):
            cluster.propose("b1", queue(f"q{number}"))
        cluster.cut = {"b2"}
        for number in range(10, 10 + rng.randrange(6)):
            cluster.propose("b1", queue(f"q{number}"))
        if rng.random() < 0.5:
            cluster.stop("b2")
            if rng.random() < 0.5:
                cluster.frames["b2"] = []

        def says(name: str, call: ev.OnTable, cluster: Cluster = cluster, rng: Random = rng) -> ev.TableDone | None:
            done = the(cluster).carry_out(call)
            return replace(done, found=spoilt(done.found, rng)) if name == "b2" and done.found is not None else None

        cluster.table_says = says
        if "b2" not in cluster.members:
            cluster.start("b2")
        cluster.run(11_000)
        copy, whole = cluster.members["b2"].record, cluster.members["b1"].record
        if copy.id == whole.id:
            assert copy.digest == whole.digest_at(copy.number), seed


# ---- starting again, converting, shortening


def test_a_broker_that_was_away_catches_up() -> None:
    cluster = sharing()
    cluster.stop("b3")
    for number in range(20):
        cluster.propose("b1", queue(f"q{number}"))
    cluster.start("b3")
    cluster.run(3000)
    assert cluster.members["b3"].applied == 20
    assert cluster.states()["b3"] == "OPERATING"


def test_a_cluster_goes_from_a_master_to_a_table_and_back() -> None:
    cluster = Cluster()
    cluster.start()
    cluster.run(3000)
    cluster.propose("b2", queue("of-the-master"))
    cluster.run(1000)
    record = cluster.members["b1"].record
    table = MemoryTable()
    copy = record.compress()
    copy.id, copy.term = "shared", 1000
    table.fill(copy)
    for name in NAMES:
        cluster.stop(name)
    cluster.master, cluster.table, cluster.shared = "", table, True
    cluster.start()
    cluster.run(3000)
    assert error_of(cluster.propose("b3", queue("of-the-table"))) is None
    cluster.run(1000)
    for name in NAMES:
        cluster.stop(name)
    cluster.master, cluster.shared = "b2", False
    cluster.start()
    cluster.run(6000)
    assert set(cluster.states().values()) == {"OPERATING"}
    for member in cluster.members.values():
        assert set(member.agreed.destinations) == {("queue", "of-the-master"), ("queue", "of-the-table")}


def test_without_master_and_table_a_copy_of_the_table_goes_on_as_a_record_of_its_own() -> None:
    cluster = sharing()
    cluster.propose("b1", queue("q1"))
    for name in NAMES:
        cluster.stop(name)
    cluster.shared = False
    cluster.start()
    cluster.run(3000)
    assert "r1" not in {member.record.id for member in cluster.members.values()}
    assert all(("queue", "q1") in member.agreed.destinations for member in cluster.members.values())


def test_a_long_history_becomes_the_base_and_who_was_away_takes_it_whole() -> None:
    cluster = sharing()
    cluster.stop("b3")
    cluster.propose("b1", queue("q"))
    for number in range(COMPRESS_MIN // 100 + 1):
        for one in range(100):
            change = Change("update_destination", ("queue", "q"), {"maxNumMsgs": number * 100 + one})
            cluster.tell("b1", ev.Propose(5000 + number * 100 + one, change))
        cluster.settle()
    cluster.run(11_000)
    assert the(cluster).head is not None
    assert the(cluster).head.base_number > COMPRESS_MIN  # type: ignore[union-attr]
    assert len(the(cluster).rows) < 200
    cluster.start("b3")
    cluster.run(3000)
    assert cluster.members["b3"].applied == the(cluster).last
    assert cluster.members["b3"].record.digest == cluster.members["b1"].record.digest
    assert error_of(cluster.propose("b3", queue("after"))) is None


def test_an_administrator_shortens_it_at_any_time() -> None:
    cluster = sharing()
    cluster.propose("b1", queue("q"))
    cluster.tell("b2", ev.Compress())
    cluster.settle()
    assert the(cluster).rows == []
    assert error_of(cluster.propose("b3", queue("q2"))) is None
    assert the(cluster).last == 2


def test_a_change_of_master_is_refused_where_there_is_none() -> None:
    cluster = sharing()
    answer = cluster.change_master("b1", "b2")
    assert answer is not None
    assert answer.result == ev.PRECONDITION_FAILED


# ---- rows


def test_rows_are_read_back_as_the_entries_that_they_were() -> None:
    record = ChangeRecord("r", "c", 3)
    entry = record.propose(queue("ü", maxNumMsgs=7))
    assert entry_of(row_of(entry, "w")) == entry


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{}",
        "[1]",
        "[2,1,'x']",
        '["1",1,"create_destination",["queue","q"],{}]',
        '[2,1,"create_destination",["queue","q"],{}]',
        '[1,1,"explode",["queue","q"],{}]',
        '[true,1,"create_destination",["queue","q"],{}]',
    ],
)
def test_a_row_that_is_no_entry_is_named(body: str) -> None:
    with pytest.raises(ProtocolError, match="entry 1"):
        entry_of(TableRow(1, body, "0" * 32, "w"))


@pytest.mark.parametrize("part", ["base", "record", "cluster", "number"])
def test_a_base_that_is_not_the_one_that_the_head_names_is_refused(part: str) -> None:
    table = made()
    call = ev.ReadTable(1, "", 0)
    found = table.carry_out(call).found
    assert found is not None
    head = found.head
    spoilt = {
        "base": replace(found, base=found.base.replace("base", "bast", 1)),
        "record": replace(found, head=replace(head, record="r2")),
        "cluster": replace(found, head=replace(head, cluster="c2")),
        "number": replace(found, head=replace(head, base_number=1)),
    }[part]
    with pytest.raises((StoreDamagedError, ConfigError)):
        record_of(spoilt)
    assert record_of(found).id == "r1"
