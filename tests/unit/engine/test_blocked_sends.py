"""Sends that wait for room in a pool: through a whole host, which is alone with its pool."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.engine.rig import DMQ, Client, Rig


def full_rig(count: int = 2, **config: object) -> tuple[Rig, Client, int]:
    """A host whose pool is full, and a producer."""
    rig = Rig(imq__system__max_count=count, **config)
    rig.create()
    client = Client(rig)
    producer = client.producer()
    client.send(producer, *(str(n) for n in range(count)))
    client.refused()
    return rig, client, producer


def test_a_send_waits_for_its_time_and_is_refused_then() -> None:
    rig, client, producer = full_rig()
    client.send(producer, "late")
    rig.tick(9)
    assert client.refused() == []
    rig.tick(1)
    assert client.refused() == ["quota_exceeded"]
    assert rig.held() == 2


def test_room_in_time_lets_it_in() -> None:
    rig, client, producer = full_rig()
    client.send(producer, "later")
    consumer = client.consumer()
    assert client.got(consumer) == ["0", "1"]
    client.ack(consumer, "0")
    rig.sync()
    assert client.got(consumer) == ["later"]
    assert client.refused() == []


def test_of_a_block_that_waited_in_vain_what_fits_is_taken() -> None:
    rig = Rig(imq__system__max_count=2)
    rig.create()
    client = Client(rig)
    client.send(client.producer(), "a", "b", "c")
    rig.tick(10)
    assert client.refused() == ["quota_exceeded"]
    assert rig.bodies("q") == ["a", "b"]


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_send_waits_as_long_as_it_may_when_the_clock_is_set(hours: int) -> None:
    rig = Rig(imq__system__max_count=2)
    rig.create()
    client = Client(rig)
    handle = client.handle()
    client.ok("open_producer", handle=handle, name="q", type="queue", producer=7, send_timeout_ms=1000)
    client.send(handle, "a", "b", "c")
    rig.clock.stepped_ms = hours * 3_600_000
    rig.tick(900)
    assert client.refused() == []
    rig.tick(100)
    assert client.refused() == ["quota_exceeded"]


def test_all_destinations_are_charged_together_but_the_dead_message_queue() -> None:
    rig = Rig(imq__system__max_size=3)
    for name in ("q", "other", DMQ):
        rig.create(name)
    client = Client(rig)
    one, other = client.producer("q"), client.producer("other", number=8)
    client.send(one, "aa")
    client.send(other, "b")
    client.send(one, "c")
    client.send(client.producer(DMQ, number=9), "x" * 100)
    rig.tick(10)
    assert client.refused() == ["quota_exceeded"]
    assert (rig.held("q"), rig.held("other"), rig.held(DMQ)) == (1, 1, 1)


def test_what_a_restart_finds_is_charged_before_anything_is_taken() -> None:
    rig, _, _ = full_rig()
    after = rig.restart()
    client = Client(after)
    client.send(client.producer(number=8), "one more")
    after.tick(10)
    assert client.refused() == ["quota_exceeded"]
    assert after.held() == 2


def test_closing_a_producer_does_not_wait_for_what_its_client_waits_for_and_tells_what_was_not_taken() -> None:
    _, client, producer = full_rig()
    client.send(producer, "a")
    client.ok("close_producer", handle=producer)
    assert client.refused() == ["quota_exceeded"]


LEFT_BEHIND: dict[str, Any] = {"not persistent": {"persistent": False}, "of a transaction": {"txn": 1}}


@pytest.mark.parametrize("left", LEFT_BEHIND)
def test_closing_a_producer_waits_for_blocks_that_its_client_took_for_sent(left: str) -> None:
    """They find room in time, whatever else of the session waits; the rest is refused when their time is over."""
    rig, client, producer = full_rig()
    consumer, patient = client.consumer(), client.handle()
    client.ok("open_producer", handle=patient, name="q", type="queue", producer=8, send_timeout_ms=1000)
    assert client.got(consumer) == ["0", "1"]
    client.send(producer, "a", **LEFT_BEHIND[left])
    client.send(patient, "other")
    assert client.unanswered("close_producer", handle=producer)
    client.ack(consumer, "0")
    rig.sync()
    assert len(client.peer.take("reply")) == 1
    if left == "of a transaction":
        client.ok("txn_commit", txn=1, key=b"k")
    assert client.got(consumer) == ["a"]
    assert client.refused() == []
    assert list(rig.destination().producers.attached.values()) == [8]


@pytest.mark.parametrize("left", LEFT_BEHIND)
def test_closing_a_producer_waits_no_longer_than_its_sends_may(left: str) -> None:
    rig, client, producer = full_rig()
    client.send(producer, "a", **LEFT_BEHIND[left])
    assert client.unanswered("close_producer", handle=producer)
    rig.tick(9)
    assert not client.peer.take("reply")
    rig.tick(1)
    rig.sync()
    assert client.peer.take("reply")
    assert client.refused() == ["quota_exceeded"]
    assert not rig.destination().producers.attached


def test_closing_a_producer_again_ends_its_waiting() -> None:
    _, client, producer = full_rig()
    client.send(producer, "a", persistent=False)
    assert client.unanswered("close_producer", handle=producer)
    client.ok("close_producer", handle=producer)
    assert client.refused() == ["quota_exceeded"]


def test_a_rollback_lets_its_producer_be_closed() -> None:
    rig, client, producer = full_rig()
    client.send(producer, "a", txn=1)
    assert client.unanswered("close_producer", handle=producer)
    client.session.call(99, "txn_rollback", {"txn": 1})
    rig.sync()
    assert len(client.peer.take("reply")) == 2
    assert not rig.destination().producers.attached


def test_a_rollback_comes_before_a_commit_that_waits() -> None:
    rig, client, producer = full_rig(3)
    consumer = client.consumer()
    client.ack(consumer, *client.got(consumer)[:1])
    client.send(producer, "fits", txn=1)
    client.send(producer, "a", "b", "c", "d", txn=1)
    assert client.unanswered("txn_commit", txn=1, key=b"k")
    client.ok("txn_rollback", txn=1)
    rig.tick(10)
    assert rig.held() == 2
    assert not rig.destination().staged


@pytest.mark.parametrize("ending", ["the connection is lost", "the destination is destroyed"])
def test_closing_a_producer_that_waits_ends_with_what_it_belongs_to(ending: str) -> None:
    rig, client, producer = full_rig()
    client.send(producer, "a", persistent=False)
    assert client.unanswered("close_producer", handle=producer)
    if ending == "the connection is lost":
        client.session.close()
        rig.tick(100)
        assert not client.peer.take("reply")
        assert not rig.destination().producers.attached
    else:
        rig.host.removal.destroy("q", lambda: None)
        rig.tick(1)
        assert len(client.peer.take("reply")) == 1
    assert not rig.host.attachments.by_number


def test_a_lost_connection_takes_its_waiting_sends_with_it() -> None:
    rig, client, producer = full_rig()
    client.send(producer, "a")
    client.session.close()
    other = Client(rig)
    consumer = other.consumer()
    other.got(consumer)
    other.ack(consumer, "0", "1")
    rig.tick(100)
    assert rig.held() == 0


def test_a_commit_waits_for_the_sends_of_its_transaction_and_fails_when_they_are_refused() -> None:
    rig, client, producer = full_rig()
    client.send(producer, "a", txn=1)
    assert client.unanswered("txn_commit", txn=1, key=b"k")
    rig.tick(10)
    (answer,) = client.peer.take("failed")
    assert answer[2] == "quota_exceeded"
    assert rig.held() == 2


def test_a_commit_goes_on_when_its_sends_find_room() -> None:
    rig, client, producer = full_rig()
    consumer = client.consumer()
    client.got(consumer)
    client.send(producer, "a", txn=1)
    assert client.unanswered("txn_commit", txn=1, key=b"k")
    client.ack(consumer, "0")
    rig.sync()
    assert client.peer.take("reply")
    assert client.got(consumer) == ["a"]


def test_a_rollback_drops_the_sends_that_wait() -> None:
    rig, client, producer = full_rig()
    client.send(producer, "a", txn=1)
    client.ok("txn_rollback", txn=1)
    rig.tick(10)
    assert rig.held() == 2
    assert not rig.destination().staged


def test_a_transaction_that_ended_meanwhile_gets_nothing_more() -> None:
    rig, client, producer = full_rig(raybroker__transaction__timeout_ms=1000)
    client.ok("close_producer", handle=producer)
    handle = client.handle()
    client.ok("open_producer", handle=handle, name="q", type="queue", producer=7, send_timeout_ms=60_000)
    client.send(handle, "a", txn=1)
    rig.tick(1_000)
    rig.tick(60_000)
    assert not rig.destination().staged
    assert rig.held() == 2


def test_removing_the_limits_lets_everybody_in_and_setting_them_counts_what_is_there() -> None:
    rig, client, producer = full_rig()
    client.send(producer, "a")
    rig.host.pools._config = {  # type: ignore[assignment]
        "imq.system.max_count": -1,
        "imq.system.max_size": -1,
        "raybroker.system.blockingSendPolicy": "FIFO",
    }
    rig.host.pools.configure()
    rig.sync()
    assert rig.held() == 3
    assert rig.destination().policy.account is None
    rig.host.pools._config["imq.system.max_count"] = 3  # type: ignore[index]
    rig.host.pools.configure()
    client.send(producer, "b")
    rig.tick(10)
    assert client.refused() == ["quota_exceeded"]


def test_a_dead_message_moves_within_a_full_pool() -> None:
    rig = Rig(imq__system__max_count=1)
    rig.create("errors")
    rig.create("q", errorDestination="errors", redeliveryLimit=0)
    client = Client(rig)
    client.send(client.producer(), "poison")
    consumer = client.consumer()
    client.got(consumer)
    client.settle(consumer, "fail", "poison")
    rig.sync()
    assert rig.bodies("errors") == ["poison"]
    assert rig.held("q") == 0


def test_what_is_destroyed_is_charged_no_more() -> None:
    rig, client, _ = full_rig()
    rig.create("other")
    client.send(client.producer("other", number=8), "a")
    rig.host.removal.destroy("q", lambda: None)
    rig.tick(1)
    assert rig.held("other") == 1


def test_the_log_has_one_line_with_a_count_and_one_when_there_is_room_again() -> None:
    rig, client, producer = full_rig()
    for _ in range(3):
        client.send(producer, "x")
        rig.tick(10)
    rig.host.pools.ask_for_room()
    rig.host.pools.ask_for_room()
    lines = [line for line in rig.reports if "[B2011]" in line]
    assert len(lines) == 1
    assert "imq.system.max_count=2" in lines[0]
    assert "3 messages were refused" in lines[0]
    consumer = client.consumer()
    client.got(consumer)
    client.ack(consumer, "0", "1")
    rig.sync()
    rig.host.pools.ask_for_room()
    assert "[B1153]" in rig.reports[-1]


@pytest.mark.parametrize("timeout_ms", [-1, 1 << 40])
def test_a_send_timeout_is_a_bounded_time(timeout_ms: int) -> None:
    rig = Rig()
    rig.create()
    args = {"handle": 1, "name": "q", "type": "queue", "producer": 7, "send_timeout_ms": timeout_ms}
    assert Client(rig).fails("open_producer", **args) == "protocol"


def test_without_limits_there_is_no_pool() -> None:
    rig = Rig()
    rig.create()
    assert rig.host.pools.shares == {}
    assert rig.destination().policy.account is None


def test_metrics_show_what_counts_who_waits_and_what_was_refused() -> None:
    rig, client, producer = full_rig()
    client.send(producer, "refused")
    rig.tick(10)
    client.send(producer, "waits")
    assert rig.host.pools.metrics() == {
        "system_messages": 2,
        "system_message_bytes": 2,
        "blocked_sends": 1,
        "system_refused_messages_total": 1,
        "system_limit_messages": 2,
    }
    assert rig.host.state()["limits"] == {"messages": 2, "bytes": 2, "waiting": 1, "refused": 1}
