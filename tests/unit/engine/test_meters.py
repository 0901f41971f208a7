"""What a host counts of times and sizes: exactly on a clock of the test's own."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.engine.measuring import metrics
from raybroker.engine.measuring.meters import ProducerMeter
from raybroker.engine.measuring.samplers import (
    BUSIEST_MAX,
    BUSIEST_SHOWN,
    BUSIEST_SMALL,
    SAMPLE_EVERY,
    SAMPLE_FREE,
    SAMPLE_SMALL,
    TIMES_MAX,
    Average,
    Busiest,
    Sampling,
    SizeSample,
    Times,
)
from raybroker.model.histogram import PARTS, Histogram, merge
from tests.unit.engine.rig import Client, Rig


def row(rig: Rig, name: str = "q", kind: str = "queue") -> dict[str, Any]:
    destination = rig.destination(name, kind)
    return rig.host.metrics.destination_row(destination)


def seconds(value: Any) -> tuple[int, float]:
    """(observations, sum) of a histogram's row."""
    counts, total = value
    assert isinstance(total, int), "whole nanoseconds add up to the same in whatever order"
    return sum(counts), round(total / PARTS, 6)


# ---- the parts -------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3 * TIMES_MAX), st.integers(0, 1 << 20))
def test_times_are_never_too_late_and_exact_for_the_latest(steps: list[int], seed: int) -> None:
    numbers = list(accumulate(steps))
    times, true = Times(0), {}
    for number in numbers:
        true[number] = number * 1000 + seed
        times.add(number, true[number])
    assert len(times.numbers) <= TIMES_MAX
    assert all(a < b for a, b in pairwise(times.numbers))
    for number in numbers:
        assert times.at(number) <= true[number]
    for number in numbers[-TIMES_MAX // 4 :]:
        assert times.at(number) == true[number]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=50), st.integers(0, 300), st.integers(0, 300))
def test_forgetting_loses_only_what_is_below(steps: list[int], below: int, asked: int) -> None:
    numbers = list(accumulate(steps))
    times = Times(-1)
    for number in numbers:
        times.add(number, number)
    times.drop_below(below)
    if asked >= below:
        reached = bisect_right(numbers, asked)
        assert times.at(asked) == (numbers[reached - 1] if reached else -1)


def test_an_average_is_over_time() -> None:
    average = Average(0)
    average.set(10, 100)
    average.set(0, 300)
    assert (average.average(400), average.peak) == (5, 10)
    assert Average(7).average(7) == 0


def test_a_value_on_an_edge_is_in_the_bucket_below_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value, count in ((1.0, 2), (1.5, 1), (2.0, 1), (9.0, 3)):
        histogram.observe(value, count)
    assert histogram.as_row() == ([2, 2, 3], round((2 * 1.0 + 1.5 + 2.0 + 27.0) * PARTS))
    assert histogram.count == 7
    assert merge([histogram.as_row(), histogram.as_row()]) == ([4, 4, 6], 65 * PARTS)


def test_while_there_are_few_batches_every_one_is_observed_once() -> None:
    sampling = Sampling()
    one, other = SizeSample(sampling), SizeSample(sampling)
    for _ in range(3):
        assert [sample.weigh(1) for sample in (one, other) for _ in range(SAMPLE_FREE // 2 - 1)] == [1] * (
            SAMPLE_FREE - 2
        )
        sampling.begin_second()


def test_of_many_small_batches_one_of_each_group_stands_for_all_and_large_ones_for_themselves() -> None:
    sampling = Sampling()
    sample = SizeSample(sampling)
    sampling.free = 0
    weights = [sample.weigh(1) for _ in range(1 + 1000 * SAMPLE_EVERY)]
    assert weights.pop(0) == 1
    groups = [weights[at : at + SAMPLE_EVERY] for at in range(0, len(weights), SAMPLE_EVERY)]
    assert all(sorted(group) == [0] * (SAMPLE_EVERY - 1) + [SAMPLE_EVERY] for group in groups)
    assert sample.weigh(SAMPLE_SMALL) == sample.weigh(SAMPLE_SMALL) == 1
    places = Counter(group.index(SAMPLE_EVERY) for group in groups)
    assert len(places) == SAMPLE_EVERY
    assert max(places.values()) < 2 * 1000 / SAMPLE_EVERY


@given(st.lists(st.tuples(st.integers(1, 2 * SAMPLE_EVERY), st.integers(0, 40)), max_size=30))
def test_weights_add_up_to_the_batches_but_for_a_group(seconds_of: list[tuple[int, int]]) -> None:
    sampling = Sampling()
    sample = SizeSample(sampling)
    batches = counted = 0
    for batch_count, free in seconds_of:
        sampling.free = free
        for _ in range(batch_count):
            batches += 1
            counted += sample.weigh(1)
        assert abs(counted - batches) < SAMPLE_EVERY


@pytest.mark.parametrize("period", range(2, SAMPLE_EVERY + 2))
def test_what_comes_at_regular_turns_is_not_taken_for_all(period: int) -> None:
    sampling = Sampling()
    sample = SizeSample(sampling)
    sampling.free = 0
    true, estimate = 0.0, 0.0
    for turn in range(100_000):
        value = float(turn % period == 0)
        true += value
        estimate += value * sample.weigh(1)
    assert abs(estimate / true - 1) < 0.1


# ---- in a host -------------------------------------------------------------------------------------------------------


def test_the_way_of_a_message_is_timed() -> None:
    rig = Rig()
    rig.create(consumerFlowLimit=100)
    client = Client(rig)
    producer = client.producer()
    client.send(producer, "a", "bb", "c")
    rig.clock.ms += 20
    rig.sync()  # durable after 20 ms
    rig.clock.ms += 30
    consumer = client.consumer()
    assert client.got() == ["a", "bb", "c"]  # 50 ms after it arrived
    rig.clock.ms += 400
    client.ack(consumer, "a", "bb")
    rig.clock.ms += 50
    client.ack(consumer, "c")
    found = row(rig)
    assert seconds(found["send_to_store_seconds"]) == (3, 0.06)
    assert seconds(found["store_to_delivery_seconds"]) == (3, 0.15)
    assert seconds(found["delivery_to_ack_seconds"]) == (3, 2 * 0.4 + 0.45)
    # 400 ms for the first two, then 50 ms for the third.
    assert seconds(found["service_seconds"]) == (3, 0.45)
    assert seconds(found["send_batch_messages"]) == (1, 3)
    assert seconds(found["delivery_batch_messages"]) == (1, 3)
    assert found["largest_message_bytes"] == 2
    assert found["delivered_messages_total"] == {"local": 3, "remote": 0}


def test_a_busy_host_times_some_messages_for_all_of_them() -> None:
    rig = Rig()
    rig.create()
    client = Client(rig)
    producer, consumer = client.producer(), client.consumer()
    rounds = 100 * SAMPLE_EVERY
    for _ in range(rounds):
        rig.host.meters.sampling.free = 0
        client.send(producer, "a", "b")
        rig.clock.ms += 2
        rig.sync()
        assert client.got() == ["a", "b"]
        rig.clock.ms += 3
        client.ack(consumer, "a", "b")
        rig.sync()
    found = row(rig)
    for key, each_s in (
        ("send_to_store_seconds", 0.002),
        ("store_to_delivery_seconds", 0.002),
        ("delivery_to_ack_seconds", 0.003),
        ("service_seconds", 0.0015),
    ):
        count, total = seconds(found[key])
        assert abs(count - 2 * rounds) < 2 * SAMPLE_EVERY
        assert total == pytest.approx(count * each_s)
    for key in ("send_batch_messages", "delivery_batch_messages"):
        count, total = seconds(found[key])
        assert abs(count - rounds) < SAMPLE_EVERY
        assert total == 2 * count
    assert found["delivered_messages_total"]["local"] == found["messages_in_total"] == 2 * rounds
    meters = [attachment.meter for attachment in rig.host.attachments.by_number.values()]
    under_way = [meter.under_way for meter in meters if isinstance(meter, ProducerMeter)]
    assert under_way == [deque()]


def test_a_consumer_that_waited_is_not_slow() -> None:
    rig = Rig()
    rig.create()
    client = Client(rig)
    producer, consumer = client.producer(), client.consumer()
    for body in ("a", "b"):
        rig.clock.ms += 5000
        client.send(producer, body)
        client.got()
        rig.clock.ms += 10
        client.ack(consumer, body)
    assert seconds(row(rig)["service_seconds"]) == (2, 0.02)


def test_a_second_delivery_does_not_count_as_waiting() -> None:
    rig = Rig()
    rig.create()
    client = Client(rig)
    consumer = client.consumer()
    client.send(client.producer(), "a")
    client.got()
    rig.clock.ms += 1000
    client.settle(consumer, "fail", "a", delay_ms=0)
    assert client.got() == ["a(2)"]
    found = row(rig)
    assert seconds(found["store_to_delivery_seconds"])[0] == 1
    assert found["delivered_messages_total"]["local"] == 2
    assert found["redelivered_messages_total"] == 1


def test_messages_of_before_a_restart_wait_since_the_restart() -> None:
    rig = Rig()
    rig.create()
    client = Client(rig)
    client.send(client.producer(), "a")
    rig.sync()
    rig.clock.ms += 60_000
    rig = rig.restart()
    rig.clock.ms += 250
    assert rig.host.metrics.gauges(rig.destination())["oldest_message_age_seconds"] == 0.25
    client = Client(rig)
    client.consumer()
    assert client.got() == ["a"]
    assert seconds(row(rig)["store_to_delivery_seconds"]) == (1, 0.25)


def test_how_much_a_consumer_has_left_when_it_asks_for_more() -> None:
    rig = Rig()
    rig.create(consumerFlowLimit=10)
    client = Client(rig)
    consumer = client.consumer(flow="credit", limit=10)
    client.send(client.producer(), *"abcdefghij")
    client.got()
    client.session.credit(consumer, client.epochs[consumer], 5)  # it has 5 of 10 still
    client.send(client.producer(number=8), *"klmno")
    client.got()
    client.session.credit(consumer, client.epochs[consumer], 10)  # it had run dry
    counts, total = row(rig)["prefetch_occupancy_ratio"]
    assert (sum(counts), total, counts[0]) == (2, PARTS // 2, 1)


def test_the_window_of_a_prefetching_consumer_counts_too() -> None:
    rig = Rig()
    rig.create(consumerFlowLimit=4)
    client = Client(rig)
    consumer = client.consumer(limit=4)
    client.send(client.producer(), *"abcd")
    client.got()
    client.ack(consumer, "a")
    assert row(rig)["prefetch_occupancy_ratio"][1] == 0.75 * PARTS


def test_remote_consumers_are_counted_by_their_home() -> None:
    rig = Rig()
    rig.create()
    client = Client(rig)
    client.consumer(home="b2")
    client.send(client.producer(), "a", "b")
    client.got()
    assert row(rig)["delivered_messages_total"] == {"local": 0, "remote": 2}
    assert rig.host.own_metrics.host_row(None)["routed_messages_total"] == {"b2": 2}


def test_flow_control_is_counted_in_time() -> None:
    rig = Rig()
    rig.create(maxNumMsgs=2, limitBehavior="FLOW_CONTROL")
    client = Client(rig)
    client.send(client.producer(), "a", "b")
    rig.sync()
    rig.clock.ms += 700
    found = row(rig)
    assert (found["flow_controlled"], found["flow_control_episodes_total"], found["quota_used_ratio"]) == (1, 1, 1.0)
    assert found["flow_control_seconds_total"] == 0.7 * PARTS
    consumer = client.consumer()
    client.got()
    client.ack(consumer, "a", "b")
    rig.sync()
    rig.clock.ms += 500
    found = row(rig)
    assert (found["flow_controlled"], found["flow_control_seconds_total"]) == (0, 0.7 * PARTS)
    assert found["limit_messages"] == 2


def test_consumers_are_idle_or_full_or_neither() -> None:
    rig = Rig()
    rig.create(consumerFlowLimit=2)
    client = Client(rig)
    client.consumer(limit=2)
    assert (row(rig)["idle_consumers"], row(rig)["full_consumers"]) == (1, 0)
    client.send(client.producer(), "a", "b", "c")
    client.got()
    found = row(rig)
    assert (found["idle_consumers"], found["full_consumers"], found["waiting_messages"]) == (0, 1, 1)
    assert (found["consumer_limit_messages"], found["consumer_credit_messages"]) == (2, 0)
    assert found["unacknowledged_messages"] == 2


def test_a_consumer_in_drain_mode_is_idle_while_it_is_armed() -> None:
    rig = Rig()
    rig.create()
    client = Client(rig)
    client.consumer(flow="credit", drain=True)
    assert row(rig)["idle_consumers"] == 1
    client.send(client.producer(), "a")
    rig.sync()
    assert (row(rig)["idle_consumers"], row(rig)["full_consumers"]) == (0, 1)


def test_what_a_destroyed_destination_counted_stays_in_the_sums() -> None:
    rig = Rig()
    for name in ("q", "r"):
        rig.create(name)
        client = Client(rig)
        client.send(client.producer(name, number=ord(name)), "a", "b")
        rig.sync()
        rig.host.removal.destroy(name, lambda: None)
        rig.sync()
    gone = rig.host.meters.gone["queue"]
    assert (gone["messages_in_total"], sum(gone["send_to_store_seconds"][0])) == (4, 4)
    assert "messages" not in gone


def test_transactions_are_counted_by_how_they_end() -> None:
    rig = Rig()
    rig.create()
    client = Client(rig)
    producer = client.producer()
    for number in (1, 2, 3):
        client.ok("txn_begin", txn=number, key=bytes([number]) * 16)
        client.send(producer, "x", txn=number)
        if number == 2:
            client.ok("txn_rollback", txn=number)
        else:
            client.ok("txn_commit", txn=number, key=bytes([number]) * 16, acks=[])
    found = rig.host.own_metrics.host_row(None)
    assert (found["transactions_committed_total"], found["transactions_rolled_back_total"]) == (2, 1)


def test_nothing_is_timed_when_that_is_off() -> None:
    rig = Rig(raybroker__metrics__timing=False)
    rig.create()
    client = Client(rig)
    consumer = client.consumer()
    client.send(client.producer(), "a")
    client.got()
    client.ack(consumer, "a")
    found = row(rig)
    assert not [key for key in metrics.HISTOGRAMS if key in found]
    assert found["delivered_messages_total"]["local"] == 1


def test_sums_take_the_oldest_and_add_the_others() -> None:
    total = metrics.Sum()
    empty = {key: value for key, value in total.done()["queue"].items() if isinstance(value, dict)}
    for messages, age in ((3, 2.5), (4, 0.5)):
        total.add("queue", {"messages": messages, "oldest_message_age_seconds": age, "consumers": {"active": 2}})
    found = total.done()["queue"]
    assert (found["messages"], found["oldest_message_age_seconds"]) == (7, 2.5)
    assert found["consumers"] == {**empty["consumers"], "active": 4}


@pytest.mark.parametrize("blocks", [1, 3 * TIMES_MAX])
def test_arrivals_do_not_grow_with_the_backlog(blocks: int) -> None:
    rig = Rig()
    destination = rig.create()
    client = Client(rig)
    producer = client.producer()
    for _ in range(blocks):
        client.send(producer, "x")
    rig.sync()
    assert len(rig.host.meters.meter_of(destination).arrivals.numbers) <= TIMES_MAX


def test_the_busiest_are_found_among_many() -> None:
    busiest = Busiest()
    for turn in range(2000):
        busiest.add([f"rare{turn}"] if turn % 2 else ["often", None])
    assert len(busiest.counts) <= BUSIEST_MAX
    top = busiest.top()
    assert (next(iter(top)), top["often"], len(top)) == ("often", 1000, BUSIEST_SHOWN)


@given(st.lists(st.sampled_from("abcdefghij"), max_size=400))
def test_as_long_as_there_is_room_counts_are_exact(names: list[str]) -> None:
    busiest = Busiest()
    for start in range(0, len(names), BUSIEST_SMALL):
        busiest.add(names[start : start + BUSIEST_SMALL])
    assert busiest.counts == Counter(names)


def test_large_blocks_stand_for_their_neighbours() -> None:
    busiest = Busiest()
    for _ in range(8):
        busiest.add(["a"] * 30 + ["b"] * 70)
    assert busiest.top() == {"b": 560, "a": 240}


def test_what_a_consumer_in_drain_mode_does_not_ask_for_it_has() -> None:
    rig = Rig()
    rig.create(consumerFlowLimit=10)
    client = Client(rig)
    consumer = client.consumer(flow="credit", limit=10, drain=True)
    client.send(client.producer(), *"abcdef")
    client.session.drain(consumer, client.epochs[consumer], 4)
    assert row(rig)["prefetch_occupancy_ratio"][1] == 0.6 * PARTS
    client.session.drain(consumer, client.epochs[consumer], 0)
    assert sum(row(rig)["prefetch_occupancy_ratio"][0]) == 1
