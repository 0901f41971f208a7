"""Backing the record up and restoring it (A-06, A-07, K-14, K-15)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.cluster import events as ev
from raybroker.cluster.backup import dump, load
from raybroker.cluster.change_record import Change
from raybroker.cluster.member import backed_up, restored
from raybroker.cluster.saved_record import Saved, load_frames
from raybroker.cluster.term import RESTORE_TERM_STEP, Leadership
from raybroker.model.errors import BrokerError, ConfigError, StoreDamagedError
from tests.unit.cluster.cluster import Cluster, queue, running
from tests.unit.cluster.test_change_record import filled


def test_a_record_is_the_same_after_backup_and_load() -> None:
    for record in (filled(), filled().compress()):
        record.propose(queue("more"))
        copy = load(dump(record), cluster="c")
        assert (copy.id, copy.cluster, copy.term, copy.number, copy.digest) == ("r", "c", 1, 8, record.digest)
        assert copy.entries == record.entries
        assert copy.state == record.state


def test_what_was_destroyed_and_may_still_be_here_outlives_the_history_and_no_restore() -> None:
    record = filled()
    record.propose(Change("destroy_destination", ("queue", "orders")))
    saved = Saved(cluster="c", claim=Leadership(1, "b1", "r"), record=record.compress())
    copy = load_frames(saved.frames()).record
    assert copy is not None
    assert copy.state.past == {("queue", "orders")}
    copy.propose(queue("orders"))
    assert copy.state.past == set()
    again = load_frames(restored(saved.frames(), dump(record), new_id="x", name="b1", master="b1", cluster="c")).record
    assert again is not None
    assert again.state.past == set()


def test_people_can_read_a_backup() -> None:
    lines = [json.loads(line) for line in dump(filled()).splitlines()]
    assert lines[0]["cluster"] == "c"
    assert lines[2][2] == [1, 1, "create_destination", ["queue", "orders"], {"maxNumMsgs": 5}]
    assert lines[-1][:2] == ["end", 9]


def test_every_damaged_byte_is_noticed_and_its_line_is_named() -> None:
    data = dump(filled())
    lines_at = [data[:at].count(b"\n") + 1 for at in range(len(data))]
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x01
        with pytest.raises(BrokerError) as caught:
            load(bytes(damaged))
        if isinstance(caught.value, StoreDamagedError) and 2 < lines_at[at] < 10:
            assert abs(int(str(caught.value).split()[1]) - lines_at[at]) <= 1, (at, str(caught.value))


@given(st.integers(0, len(dump(filled())) - 1))
def test_a_backup_that_was_cut_short_is_refused(nbytes: int) -> None:
    with pytest.raises(StoreDamagedError, match="line"):
        load(dump(filled())[:nbytes])


def test_a_backup_of_another_cluster_or_version_and_what_is_none_are_refused() -> None:
    data = dump(filled())
    with pytest.raises(ConfigError, match="cluster 'c' and this is cluster 'other'"):
        load(data, cluster="other")
    with pytest.raises(ConfigError, match="version 7"):
        load(data.replace(b'"version":1', b'"version":7'))
    with pytest.raises(StoreDamagedError, match="no backup"):
        load(b"[mq]\nname = 1\n")


def test_a_restored_broker_is_the_master_of_a_new_term_and_what_came_later_is_lost() -> None:
    cluster = running()
    cluster.propose("b2", queue("early"))
    backup = backed_up(cluster.frames["b3"])
    cluster.propose("b2", queue("late"))
    for name in cluster.names:
        cluster.stop(name)
    cluster.master = "b2"
    frames = restored(cluster.frames["b2"], backup, name="b2", master="b2", new_id="restored", cluster="c1")
    cluster.frames["b2"] = list(frames)
    cluster.start()
    cluster.run(7000)
    assert cluster.states() == dict.fromkeys(cluster.names, "OPERATING")
    for member in cluster.members.values():
        assert (member.claim.term, member.claim.master, member.record.id) == (RESTORE_TERM_STEP, "b2", "restored")
        assert list(member.agreed.destinations) == [("queue", "early")]
    assert any("destroy destination queue late" in note for note in cluster.notes)
    assert cluster.propose("b1", queue("after")).error is None  # type: ignore[union-attr]


def test_two_restores_one_after_the_other_begin_two_terms() -> None:
    backup = dump(filled())
    first = restored([], backup, name="b1", master="b1", new_id="x", cluster="c")
    second = restored(first, backup, name="b1", master="b1", new_id="y", cluster="c")
    claims = [load_frames(frames).claim for frames in (first, second)]
    assert [claim.term for claim in claims if claim is not None] == [1000, 2000]


def test_a_record_is_restored_on_the_configured_master_only() -> None:
    with pytest.raises(ConfigError, match="masterbroker is b2: restore the record on the broker"):
        restored([], dump(filled()), name="b1", master="b2", new_id="x")


def test_a_backup_is_compressed_and_a_broker_without_a_record_has_none() -> None:
    cluster = Cluster()
    cluster.start("b1")
    cluster.run(3000)
    cluster.propose("b1", queue("a"))
    cluster.propose("b1", Change("destroy_destination", ("queue", "a")))
    assert len(load(backed_up(cluster.frames["b1"])).entries) == 0
    with pytest.raises(ConfigError, match="no configuration change record"):
        backed_up([])
    cluster.stop("b1")
    cluster.start("b2")
    cluster.tell("b2", ev.Compress())
    with pytest.raises(ConfigError, match="no configuration change record"):
        backed_up(cluster.frames["b2"])
