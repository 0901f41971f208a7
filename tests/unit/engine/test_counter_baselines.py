"""What administrators see counted, from zero when they say so, while metrics go on (W-128)."""

from __future__ import annotations

from typing import Any

from raybroker.core.counters import LASTING
from tests.unit.engine.rig import DMQ, Client, Rig


def shown(rig: Rig) -> dict[str, Any]:
    return rig.host.inspection.describe("queue", "q")


def test_a_reset_counts_from_zero_and_metrics_go_on() -> None:
    rig = Rig()
    rig.create(maxNumMsgs=4, messagesHigh=2, messagesLow=1)
    client = Client(rig)
    producer, consumer = client.producer(), client.consumer()
    started_ms = shown(rig)["counted_since_ms"]
    client.send(producer, "a", "bb", "c", "d", "e")
    rig.sync()
    rig.clock.ms += 2000
    client.got()
    client.ack(consumer, "a", "bb", "c")
    rig.sync()
    before = shown(rig)
    assert (before["messages_in"], before["bytes_in"], before["messages_out"], before["refused"]) == (4, 5, 3, 1)
    assert (before["peak_messages"], before["peak_bytes"], before["messages_threshold_ms"]) == (4, 5, 2000)
    assert (before["over_threshold"], before["counted_since_ms"]) == (["messages"], started_ms)
    assert (before["total_consumers"], before["peak_consumers"]) == (1, 1)
    metered = rig.host.metrics.destination_row(rig.destination())

    rig.host.baselines.reset(rig.destination())
    after = shown(rig)
    assert {key: after[key] for key in (*LASTING, "messages_threshold_ms", "total_consumers")} == {
        **dict.fromkeys(LASTING, 0),
        "messages_threshold_ms": 0,
        "total_consumers": 0,
    }
    assert (after["messages"], after["peak_messages"], after["peak_bytes"], after["peak_consumers"]) == (1, 1, 1, 1)
    assert (after["counted_since_ms"], after["over_threshold"]) == (rig.clock.ms, ["messages"])
    assert rig.host.metrics.destination_row(rig.destination()) == metered

    rig.clock.ms += 500
    client.consumer()
    client.send(producer, "ff")
    rig.sync()
    last = shown(rig)
    assert (last["messages_in"], last["bytes_in"], last["peak_messages"], last["peak_bytes"]) == (1, 2, 2, 3)
    assert (last["total_consumers"], last["peak_consumers"], last["messages_threshold_ms"]) == (1, 2, 500)
    row = rig.host.metrics.destination_row(rig.destination())
    assert (row["messages_in_total"], row["peak_messages"], row["peak_message_bytes"]) == (5, 4, 5)
    rig.host.baselines.reset(rig.destination())
    assert rig.host.metrics.destination_row(rig.destination())["peak_messages"] == 4


def test_consumers_that_go_leave_their_peak_and_their_number() -> None:
    rig = Rig()
    rig.create()
    client = Client(rig)
    consumers = [client.consumer() for _ in range(3)]
    for handle in consumers[:2]:
        client.ok("close_consumer", handle=handle)
    client.consumer()
    found = shown(rig)
    assert (found["total_consumers"], found["peak_consumers"], found["active_consumers"]) == (4, 3, 2)
    rig.host.baselines.reset(rig.destination())
    found = shown(rig)
    assert (found["total_consumers"], found["peak_consumers"]) == (0, 2)


def test_what_a_destroyed_destination_was_counted_from_is_forgotten() -> None:
    rig = Rig()
    rig.create()
    rig.host.baselines.reset(rig.destination())
    rig.host.removal.destroy("q", lambda: None)
    rig.sync()
    assert rig.host.baselines.by_number == {}


def test_messages_of_a_transaction_come_in_when_it_commits() -> None:
    rig = Rig()
    rig.create()
    client = Client(rig)
    producer = client.producer()
    for number, end in ((1, "txn_rollback"), (2, "txn_commit")):
        client.ok("txn_begin", txn=number, key=bytes([number]) * 16)
        client.send(producer, "aa", "b", txn=number)
        rig.sync()
        found = shown(rig)
        assert (found["messages_in"], found["messages"], found["current"], found["pending"]) == (0, 2, 0, 2)
        client.ok(end, txn=number, **({"key": bytes([number]) * 16} if end == "txn_commit" else {}))
        rig.sync()
    found = shown(rig)
    assert (found["messages_in"], found["bytes_in"], found["current"], found["pending"]) == (2, 3, 2, 0)


def test_current_is_without_what_is_pending() -> None:
    rig = Rig()
    rig.create()
    client = Client(rig)
    client.send(client.producer(), *"abcd")
    consumer = client.consumer(limit=3)
    client.got()
    assert [shown(rig)[key] for key in ("messages", "current", "pending")] == [4, 1, 3]
    client.ok("txn_begin", txn=1, key=b"k" * 16)
    client.ok("txn_stage", txn=1, acks=client.acks(consumer, "a", "b"))
    assert [shown(rig)[key] for key in ("messages", "pending")] == [4, 4 - shown(rig)["current"]]
    assert rig.host.metrics.gauges(rig.destination())["pending_messages"] == 2
    client.ok("txn_commit", txn=1, key=b"k" * 16)
    assert shown(rig)["messages"] == 2


def test_dead_messages_are_moved_and_no_producer_sent_them() -> None:
    rig = Rig()
    rig.create(DMQ)
    rig.create(redeliveryLimit=0)
    client = Client(rig)
    client.send(client.producer(), "a")
    consumer = client.consumer()
    client.got()
    client.settle(consumer, "fail", "a", delay_ms=0)
    rig.sync()
    dead = rig.host.inspection.describe("queue", DMQ)
    assert (dead["messages_in"], dead["moved_in"], dead["messages"]) == (0, 1, 1)
    assert (shown(rig)["messages_in"], shown(rig)["moved_in"]) == (1, 0)
