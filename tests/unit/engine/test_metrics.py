"""Rows of metrics of a host and its destinations, and how they are added up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.core import command as cmd
from raybroker.engine.measuring.counter_baselines import CounterBaselines
from raybroker.engine.measuring.meters import Meters
from raybroker.engine.measuring.metrics import COUNTERS, GAUGES, HostMetrics, MetricRows, Sum, quota_used
from raybroker.engine.path.observers import Observers
from raybroker.engine.sessions.attachments import Attachments, Outbox
from raybroker.engine.transactions.transaction_state import TransactionState
from raybroker.model.blocks.record import StoreStats
from raybroker.model.histogram import PARTS
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import RecordingPeer


class Signals:
    """Nobody is told, and two producers hear it."""

    def tell(self, destination: Any, *, armed: bool) -> None: ...

    def count(self, destination: Any) -> int:
        return 2


class Metered(Desk):
    def __init__(self) -> None:
        super().__init__()
        life: Any = SimpleNamespace(sink=None, consumer=lambda attachment, event: None)
        self.meters = Meters(self.time, life, Observers(), self.lines.append, Signals(), broker="b1", timing=True)
        self.baselines = CounterBaselines(self.meters, self.clock)
        store: Any = SimpleNamespace(stats=lambda: StoreStats(5, 4, 3, 2))
        figures = {"block_cache_bytes": 11, "block_cache_limit_bytes": 12, "blocks_read_back_total": 13}
        cache: Any = SimpleNamespace(figures=lambda: figures, pager=None)
        states = (TransactionState.STARTED, TransactionState.COMPLETE, TransactionState.PREPARED)
        transactions: Any = {number: SimpleNamespace(state=state) for number, state in enumerate(states)}
        schedules: Any = SimpleNamespace(count=lambda destination: 6)
        self.metrics = MetricRows(self.time, self.registry, schedules, self.meters, self.baselines)
        compression: Any = SimpleNamespace(saved_bytes=14, paging_saved_bytes=15)
        self.host = HostMetrics(store, cache, transactions, self.meters, compression)


def test_a_destination_shows_how_it_stands() -> None:
    world = Metered()
    destination = world.add(maxNumMsgs=4, maxTotalMsgBytes=10)
    world.put(destination, "a", "bb")
    world.put(destination, "c", delay=50)
    world.executor.perform(destination, cmd.AttachProducer(1, 7, 0))
    attachment = Attachments(1).attach(destination, RecordingPeer(), 2, Outbox())
    world.executor.perform(destination, cmd.AttachConsumer(attachment.number, "credit", 5, False, True))
    row = world.metrics.gauges(destination)
    assert set(row) == set(GAUGES)
    assert (row["messages"], row["message_bytes"], row["waiting_messages"], row["delayed_messages"]) == (3, 4, 2, 1)
    assert (row["producers"], row["consumers"], row["schedules"]) == (1, {"active": 1, "backup": 0}, 6)
    assert (row["quota_used_ratio"], row["consumer_limit_messages"]) == (0.75, 5)
    assert (row["halted"], row["subscriptions"], row["idle_consumers"]) == (0, 0, 0)


def test_what_only_grows_is_counted_with_the_time_it_was_slow() -> None:
    world = Metered()
    destination = world.add()
    world.put(destination, "a", "bb")
    row = world.metrics.totals(destination)
    assert set(COUNTERS) <= set(row)
    assert (row["messages_in_total"], row["message_in_bytes_total"], row["flow_control_seconds_total"]) == (0, 0, 0.0)
    assert row["moved_in_messages_total"] == 2, "the host itself sent them"
    destination.counters.slow.ms, destination.admission.slow, destination.counters.slow.since_ms = (
        500,
        True,
        world.clock.ms - 1_500,
    )
    assert world.metrics.totals(destination)["flow_control_seconds_total"] == 2 * PARTS


def test_a_row_of_a_destination_says_which_one_and_its_limits() -> None:
    world = Metered()
    row = world.metrics.destination_row(world.add("t", "topic", owner="me", maxNumMsgs=9))
    assert (row["name"], row["type"], row["temporary"], row["limit_messages"]) == ("t", "topic", True, 9)
    assert "limit_bytes" not in row
    assert (row["active_subscriptions"], row["peak_messages"]) == (0, 0)


def test_a_host_shows_its_store_and_its_transactions() -> None:
    world = Metered()
    world.meters.committed, world.meters.routed = 8, {"b2": 4}
    row = world.host.host_row(None)
    assert row["transactions"] == {"open": 2, "prepared": 1}
    assert (row["transactions_committed_total"], row["routed_messages_total"]) == (8, {"b2": 4})
    assert (row["block_cache_bytes"], row["block_cache_limit_bytes"], row["blocks_read_back_total"]) == (11, 12, 13)
    assert "commit_pending_bytes" not in row
    committer: Any = SimpleNamespace(pending_bytes=3, overloaded=True)
    row = world.host.host_row(committer)
    assert (row["commit_pending_bytes"], row["store_overloaded"]) == (3, 1)


def test_rows_are_added_up_by_type_and_the_largest_stands_for_all() -> None:
    world = Metered()
    one, two, topic = world.add("one"), world.add("two"), world.add("t", "topic")
    world.put(one, "a")
    world.put(two, "b", "c")
    total = Sum()
    for destination in (one, two, topic):
        row = world.metrics.destination_row(destination)
        total.add(
            destination.kind,
            {key: row[key] for key in (*COUNTERS, *GAUGES)} | {"quota_used_ratio": len(destination.name) / 8},
        )
    rows = total.done()
    assert (rows["queue"]["messages"], rows["topic"]["messages"]) == (3, 0)
    assert (rows["queue"]["moved_in_messages_total"], rows["queue"]["quota_used_ratio"]) == (3, 3 / 8)
    assert rows["queue"]["paused"] == {"producers": 0, "consumers": 0, "insertion": 0}


def test_histograms_are_merged() -> None:
    total = Sum()
    empty = total.rows["queue"]["service_seconds"]
    counts = [1] + [0] * (len(empty[0]) - 1)
    for _ in range(2):
        total.add("queue", {"service_seconds": (counts, 0.5)})
    assert total.done()["queue"]["service_seconds"] == ([2, *counts[1:]], 1.0)


def test_what_a_destroyed_destination_counted_stays_in_the_totals_of_its_type() -> None:
    world = Metered()
    for name in ("one", "two"):
        destination = world.add(name)
        world.put(destination, "a")
        world.metrics.destroyed(destination)
    assert world.meters.gone["queue"]["moved_in_messages_total"] == 2
    assert not world.meters.gone["queue"].keys() & set(GAUGES)
    world.metrics.destroyed(world.add("mq.metrics.jvm", "topic"))
    assert "topic" not in world.meters.gone


@pytest.mark.parametrize(
    ("limits", "used"),
    [
        ({}, 0.0),
        ({"maxNumMsgs": 4}, 0.5),
        ({"maxTotalMsgBytes": 3}, 1.0),
        ({"maxNumMsgs": 0}, 0.0),
        ({"maxNumMsgs": 4, "maxTotalMsgBytes": 30}, 0.5),
    ],
)
def test_the_fuller_quota_counts(limits: dict[str, int], used: float) -> None:
    world = Desk()
    destination = world.add()
    world.put(destination, "a", "bb")
    world.executor.perform(destination, cmd.Update(world.add("like it", **limits).attributes))
    assert quota_used(destination) == used
