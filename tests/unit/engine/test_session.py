"""What a client asks of its host: consumers of all kinds, browsers, outcomes, leases, forced headers, gates."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.engine.rig import Client, Rig

DURABLE = {"name": "d", "durable": True, "shared": False}
SHARED = {"name": "s", "durable": False, "shared": True}


def queue(**attributes: Any) -> tuple[Rig, Client, int]:
    """A queue and a client with a producer for it."""
    rig = Rig()
    rig.create(**attributes)
    sender = Client(rig)
    return rig, sender, sender.producer()


# ---- consumers -----------------------------------------------------------------------------------------------------


def test_a_selector_chooses_among_the_messages_of_a_queue() -> None:  # B-22
    rig, sender, producer = queue()
    sender.send(producer, "waits", properties={"n": 5})
    red = Client(rig)
    red.consumer(selector="n > 3")
    sender.send(producer, "a", properties={"n": 1})
    sender.send(producer, "b", properties={"n": 4})
    assert red.got() == ["waits", "b"]
    every = Client(rig)
    every.consumer(selector="  ")
    assert every.got() == ["a"], "a blank selector is none"


def test_a_bad_selector_is_refused() -> None:
    rig, _, _ = queue()
    client = Client(rig)
    args = {"handle": 1, "name": "q", "flow": "credit", "limit": 1, "no_ack": False}
    assert client.fails("open_consumer", **args, selector="n >") == "invalid_selector"
    assert client.ok("open_consumer", **args)["active"] is True, "the handle is free"
    assert len(rig.host.attachments.by_number) == 2


@pytest.mark.parametrize(
    "bad", [{"lease_ms": -1}, {"lease_ms": 1 << 31}, {"flow": "all"}, {"limit": -2}, {"type": "x"}]
)
def test_what_is_not_understood_is_refused(bad: dict[str, Any]) -> None:
    rig, _, _ = queue()
    args = {"handle": 1, "name": "q", "flow": "credit", "limit": 1, "no_ack": False} | bad
    assert Client(rig).fails("open_consumer", **args) == "protocol"


def test_the_smaller_flow_limit_holds() -> None:  # D-18, D-27
    rig, _, _ = queue(consumerFlowLimit=10)
    rig.create("t", "topic", consumerFlowLimit=20, sharedConsumerFlowLimit=5)
    client = Client(rig, "c")

    def limit(**more: Any) -> int:
        args = {"handle": client.handle(), "flow": "credit", "no_ack": False, "name": "q", "limit": -1} | more
        found: int = client.ok("open_consumer", **args)["limit"]
        return found

    assert [limit(limit=n) for n in (-1, 0, 3, 30)] == [10, 10, 3, 10]
    assert limit(name="t", type="topic") == 20
    assert limit(name="t", type="topic", subscription=SHARED) == 5


def test_a_subscription_of_a_durable_consumer_belongs_to_the_client_id() -> None:  # D-27
    rig = Rig()
    rig.create("t", "topic")
    first = Client(rig, "c", "conn-1")
    consumer = first.consumer("t", "topic", subscription=DURABLE)
    second = Client(rig, "other", "conn-2")
    second.consumer("t", "topic", subscription=DURABLE)
    sender = Client(rig)
    producer = sender.producer("t", "topic")
    sender.send(producer, "a")
    assert (first.got(consumer), second.got()) == (["a"], ["a"])
    first.session.close()
    sender.send(producer, "b")
    again = Client(rig, "c", "conn-3")
    again.consumer("t", "topic", subscription=DURABLE)
    assert again.got() == ["a(2)", "b"]


def test_no_local_is_about_the_connection_or_the_client() -> None:  # D-27
    rig = Rig()
    rig.create("t", "topic")
    own, other = Client(rig, "c", "conn-1"), Client(rig, "d", "conn-2")
    plain = own.consumer("t", "topic", no_local=True)
    durable = own.consumer("t", "topic", no_local=True, subscription=DURABLE)
    own.send(own.producer("t", "topic"), "mine")
    other.send(other.producer("t", "topic", number=8), "yours")
    assert own.got() == ["yours", "yours"]
    assert {handle for handle, _ in own.tags} == {plain, durable}


def test_a_client_id_belongs_to_one_connection() -> None:  # C-11
    rig = Rig()
    first = Client(rig, "c", "conn-1")
    Client(rig, "c", "conn-1")
    other = Client(rig, None, "conn-2")
    assert other.fails("hello", client_id="c", connection="conn-2") == "invalid_client_id"
    assert first.session.client.client_id == "c"


# ---- outcomes ------------------------------------------------------------------------------------------------------


def test_outcomes_and_leases_reach_the_queue() -> None:  # B6 … B9
    rig, sender, producer = queue()
    receiver = Client(rig)
    consumer = receiver.consumer(lease_ms=50)
    sender.send(producer, "back", "failed", "slow")
    assert receiver.got() == ["back", "failed", "slow"]
    receiver.settle(consumer, "release", "back")
    receiver.settle(consumer, "fail", "failed", delay_ms=30)
    assert receiver.got() == ["back(2)"]
    rig.tick(30)
    assert receiver.got() == ["failed(2)"]
    receiver.session.extend(consumer, receiver.epochs[consumer], receiver.tag(consumer, "slow"))
    receiver.ack(consumer, "back")
    rig.tick(50)
    assert receiver.got() == [], "it let a deadline pass: nothing more until it is heard of again"
    other = Client(rig)
    other.consumer(limit=1)
    assert other.got() == ["failed(3)"]
    receiver.session.credit(consumer, receiver.epochs[consumer], 0)
    assert receiver.got() == ["slow(2)"]
    assert rig.held() == 2


def test_a_lost_session_fails_what_it_had_begun() -> None:  # B10
    rig, sender, producer = queue(redeliveryLimit=0, useDMQ=False)
    receiver = Client(rig)
    consumer = receiver.consumer()
    sender.send(producer, "begun", "buffered")
    receiver.got()
    receiver.session.begun(consumer, receiver.epochs[consumer], 1)
    receiver.session.close()
    rig.sync()
    assert rig.bodies("q") == ["buffered"]


def test_a_consumer_that_comes_back_before_its_loss_was_noticed_gets_everything_in_order() -> None:
    rig, sender, producer = queue(maxNumActiveConsumers=1, maxNumBackupConsumers=-1)
    lost, other = Client(rig), Client(rig)
    consumer = lost.consumer(consumer="mine", limit=2)
    other.consumer(consumer="another's")
    sender.send(producer, "a", "b", "c", "d")
    assert lost.got() == ["a", "b"]
    again = Client(rig)
    again.consumer(consumer="mine")
    assert other.got() == ["a(2)", "b(2)", "c", "d"], "the backup has taken the place that was left"
    lost.session.acknowledge(consumer, lost.epochs[consumer], 5, [(1, 2)])
    assert lost.peer.take("acked") == [("acked", 5, 2)], "they went back"
    lost.session.close()
    rig.sync()
    assert (rig.held(), other.got(), again.got()) == (4, [], [])


def test_a_consumer_has_one_attachment_at_a_destination_and_others_at_others() -> None:
    rig, sender, producer = queue()
    rig.create("r")
    client = Client(rig)
    first, elsewhere = client.consumer(consumer="mine", limit=2), client.consumer("r", consumer="mine")
    sender.send(producer, "a", "b", "c")
    assert client.got(first) == ["a", "b"]
    second = client.consumer(consumer="mine")
    assert client.got(second) == ["a(2)", "b(2)", "c"], "in order, what the first had as well"
    sender.send(sender.producer("r", number=8), "r")
    assert client.got(elsewhere) == ["r"]


def test_what_belongs_to_an_ended_consumer_settles_nothing() -> None:
    rig, sender, producer = queue()
    receiver = Client(rig)
    consumer = receiver.consumer()
    sender.send(producer, "a")
    receiver.got()
    session, old = receiver.session, receiver.epochs[consumer] + 7
    session.acknowledge(consumer, old, 5, [(1, 1)])
    session.settle_deliveries(consumer, old, 6, "reject", -1, "", [(1, 1)])
    session.begun(consumer, old, 1)
    session.extend(consumer, old, [(1, 1)])
    session.credit(consumer, old, 1)
    rig.sync()
    assert receiver.peer.take("acked") == [("acked", 5, 1), ("acked", 6, 1)]
    assert rig.held() == 1
    assert receiver.fails("release", handle=consumer, epoch=old, credit=1) == "invalid_destination"


def test_recover_with_a_delay() -> None:  # W-67
    rig, sender, producer = queue()
    receiver = Client(rig)
    consumer = receiver.consumer()
    sender.send(producer, "a", "b")
    receiver.got()
    args = {"handle": consumer, "epoch": receiver.epochs[consumer], "credit": 0, "consumed": 1, "delay_ms": 20}
    receiver.session.call(9, "release", args)
    assert receiver.got() == ["b(2)"]
    rig.tick(20)
    assert receiver.got() == ["a(2)"]


# ---- browsers (R-12) -----------------------------------------------------------------------------------------------


def test_a_browser_sees_what_waits_in_order_and_takes_nothing() -> None:
    rig, sender, producer = queue()
    sender.send(producer, "a", "b", "c")
    sender.send(producer, "high", priority=9)
    sender.send(producer, "later", delay=50)
    sender.send(producer, "old", ttl=5)
    rig.clock.ms += 5
    browser = Client(rig)
    assert browser.ok("open_browser", handle=1, name="q", selector=None) == {"messages": 5}
    assert browser.ok("browse", handle=1, max=2) == {"more": True}
    assert browser.got() == ["high", "a"]
    assert browser.ok("browse", handle=1, max=100) == {"more": False}
    assert browser.got() == ["b", "c"], "what has expired is not shown"
    assert browser.ok("close_browser", handle=1) is None
    assert browser.fails("browse", handle=1, max=1) == "illegal_state"
    assert rig.held() == 6


def test_a_browser_leaves_out_what_was_consumed_since() -> None:
    rig, sender, producer = queue()
    sender.send(producer, "a", "b", "c", "d")
    browser = Client(rig)
    browser.ok("open_browser", handle=1, name="q", selector=None)
    receiver = Client(rig)
    consumer = receiver.consumer(limit=2)
    assert receiver.got() == ["a", "b"]
    receiver.ack(consumer, "b")
    browser.ok("browse", handle=1, max=100)
    assert browser.got() == ["a", "c", "d"], "it shows what waited when it was made"


def test_a_browser_has_a_selector_and_chunks_do_not_limit_the_total() -> None:
    rig, sender, producer = queue()
    for n in range(7):
        sender.send(producer, f"m{n}", properties={"n": n})
    browser = Client(rig)
    browser.ok("open_browser", handle=1, name="q", selector="n > 1")
    found: list[str] = []
    while browser.ok("browse", handle=1, max=2)["more"]:
        found += browser.got()
    assert found + browser.got() == ["m2", "m3", "m4", "m5", "m6"]


def test_topics_cannot_be_browsed() -> None:
    rig = Rig()
    rig.create("t", "topic")
    client = Client(rig)
    assert client.fails("open_browser", handle=1, name="t", type="topic") == "invalid_destination"
    assert client.fails("open_browser", handle=1, name="nowhere") == "invalid_destination"


def test_a_browser_has_a_handle_of_its_own() -> None:
    _, sender, producer = queue()
    assert sender.fails("open_browser", handle=producer, name="q") == "protocol"
    assert sender.ok("open_browser", handle=50, name="q") == {"messages": 0}
    assert sender.fails("open_producer", handle=50, name="q", producer=1) == "protocol"


# ---- what a destination forces on messages -------------------------------------------------------------------------


def test_priority_and_life_are_what_the_destination_says() -> None:  # W-64, W-74
    rig, sender, producer = queue(priorityOverride=7, timeToLiveOverride=100)
    sender.send(producer, "a", ttl=5, priority=1)
    sender.send(producer, "b")
    rig.clock.ms += 99
    receiver = Client(rig)
    receiver.consumer(limit=1)
    (block,) = receiver.blocks()
    assert (block.priority_of(0), block.expires_of(0)) == (7, rig.clock.ms + 1)
    rig.clock.ms += 1
    other = Client(rig)
    other.consumer()
    assert other.got() == []


def test_a_forced_life_of_zero_is_for_ever() -> None:  # W-64
    rig, sender, producer = queue(timeToLiveOverride=0)
    sender.send(producer, "a", ttl=5)
    rig.clock.ms += 1 << 40
    assert rig.bodies("q") == ["a"]


def test_a_forced_delay_beats_the_producers() -> None:  # W-65
    rig, sender, producer = queue(timeToDeliverOverride=100)
    receiver = Client(rig)
    receiver.consumer()
    sender.send(producer, "a", delay=5)
    rig.tick(99)
    assert receiver.got() == []
    rig.tick(1)
    assert receiver.got() == ["a"]


@pytest.mark.parametrize(
    ("mode", "sent", "stored"),
    [
        ("Persistent", False, True),
        ("Non-Persistent", True, False),
        ("No-Delivery", True, True),
        ("No-Delivery", False, False),
    ],
)
def test_the_delivery_mode_may_be_forced(mode: str, sent: bool, stored: bool) -> None:  # W-74
    rig, sender, producer = queue(deliveryModeOverride=mode)
    sender.send(producer, "a", persistent=sent)
    rig.sync()
    assert len(sender.peer.take("sent")) == sent, "the producer is told as it expects it"
    assert rig.restart().held() == stored


# ---- producers -----------------------------------------------------------------------------------------------------


def test_producers_hear_of_gates() -> None:  # D-10, W-123
    rig, sender, producer = queue(limitBehavior="FLOW_CONTROL", maxNumMsgs=1)
    sender.send(producer, "a")
    rig.sync()
    assert [row[0] for row in sender.peer.take("gate", "sent")] == ["gate", "sent"], "what is stored is confirmed"
    rig.host.administration.pause("q", "producers", 77)
    assert sender.peer.take("gate") == [("gate", producer, "paused", 77)]
    rig.host.administration.resume("q", "all")
    assert sender.peer.take("gate") == [("gate", producer, "slow", 0)]
    rig.host.administration.purge("q", lambda: None)
    rig.sync()
    assert sender.peer.take("gate", "sent") == [("gate", producer, "open", 0)]


def test_a_late_producer_hears_of_a_gate_that_is_closed() -> None:
    rig, _, _ = queue()
    rig.host.administration.pause("q", "producers", 0)
    client = Client(rig)
    handle = client.producer(number=8)
    assert client.peer.take("gate") == [("gate", handle, "paused", 0)]
    client.send(handle, "a")
    assert client.refused() == ["destination_paused"]


def test_a_message_is_taken_once_within_the_window() -> None:  # B25
    rig, sender, producer = queue(duplicateWindowMs=1000)
    sender.send(producer, "a", "b", dedup=True)
    sender.send(producer, "b", "c", dedup=True)
    assert sender.refused() == ["duplicate"]
    again = rig.restart()
    other = Client(again)
    other.send(other.producer(number=8), "a", dedup=True)
    assert other.refused() == ["duplicate"]
    assert again.held() == 3


def test_a_volatile_message_may_be_part_of_a_transaction() -> None:
    rig, sender, producer = queue()
    sender.send(producer, "v", persistent=False, txn=1)
    assert sender.peer.take("sent") == []
    sender.ok("txn_commit", txn=1, key=b"k", acks=[])
    assert rig.bodies("q") == ["v"]


def test_the_clock_of_a_client_that_is_wrong_is_reported() -> None:  # B-09
    rig = Rig()
    client = Client(rig, "c")
    client.ok("hello", client_id="c", now_ms=rig.clock.ms)
    assert rig.reports == []
    client.ok("hello", client_id="c", now_ms=rig.clock.ms + 3_600_000)
    assert "B2102" in rig.reports[0]


def test_requests_that_nobody_knows_are_refused() -> None:
    client = Client(Rig())
    assert client.fails("make_coffee") == "protocol"
    assert client.fails("browse") == "protocol"
    assert client.fails("txn_commit", txn=1) == "protocol"


def test_a_peer_that_opens_a_producer_on_a_metrics_topic_is_refused() -> None:
    rig = Rig()
    rig.create("mq.metrics.broker", "topic")
    client = Client(rig)
    args = {"handle": 1, "name": "mq.metrics.broker", "type": "topic", "producer": 7}
    assert client.fails("open_producer", **args) == "security"
    assert client.session.producers == {}
