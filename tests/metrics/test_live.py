"""A real Prometheus scrapes a loaded cluster of two brokers: every panel has data, and what is measured moves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from raybroker.boards.catalogue import boards
from raybroker.boards.queries import Prometheus, substituted, targets
from tests import program
from tests.cluster import rays
from tests.metrics import server
from tests.metrics.load import SETTINGS, Load, loaded

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
NAME = "live"
VARIABLES = {"cluster": NAME, "broker": ".*", "destination": ".*", "__rate_interval": "10s"}
DATA_S = 90.0
"""By then every query has an answer: the first round trip is measured after five seconds, rates need two scrapes."""
MOVES = (
    "raybroker_messages_in_total",
    "raybroker_messages_out_total",
    "raybroker_message_in_bytes_total",
    "raybroker_message_out_bytes_total",
    'raybroker_delivered_messages_total{place="local"}',
    'raybroker_delivered_messages_total{place="remote"}',
    "raybroker_redelivered_messages_total",
    "raybroker_refused_messages_total",
    "raybroker_expired_messages_total",
    "raybroker_dead_messages_total",
    "raybroker_duplicate_messages_total",
    "raybroker_flow_control_episodes_total",
    "raybroker_flow_control_seconds_total",
    "raybroker_send_to_store_seconds_count",
    "raybroker_store_to_delivery_seconds_count",
    "raybroker_delivery_to_ack_seconds_count",
    "raybroker_service_seconds_count",
    "raybroker_send_batch_messages_count",
    "raybroker_delivery_batch_messages_count",
    "raybroker_prefetch_occupancy_ratio_count",
    "raybroker_destination_unit_messages_total",
    "raybroker_connections_opened_total",
    "raybroker_packets_in_total",
    "raybroker_packets_out_total",
    "raybroker_packet_in_bytes_total",
    "raybroker_packet_out_bytes_total",
    "raybroker_round_trip_seconds_count",
    'raybroker_routed_messages_total{broker="b1",consumer_broker="b2"}',
    "raybroker_transactions_committed_total",
    "raybroker_transactions_rolled_back_total",
    "raybroker_fsyncs_total",
    "raybroker_fsync_seconds_total",
    "raybroker_commit_seconds_count",
    "raybroker_commit_bytes_count",
    "raybroker_commit_batches_count",
    "raybroker_process_cpu_seconds_total",
    "raybroker_path_requests_total",
    'raybroker_log_records_total{level="INFO"}',
    "raybroker_record_entries_total",
)
"""Counters that the load moves."""
STANDS = {
    "raybroker_messages": 1,
    "raybroker_message_bytes": 1,
    "raybroker_waiting_messages": 1,
    "raybroker_delayed_messages": 1,
    "raybroker_oldest_message_age_seconds": 1,
    "raybroker_producers": 10,
    'raybroker_consumers{state="active"}': 5,
    "raybroker_subscriptions": 1,
    'raybroker_paused{what="producers"}': 1,
    "raybroker_quota_used_ratio": 1,
    'raybroker_brokers{state="UP"}': 4,
    "raybroker_path_units": 12,
    "raybroker_destinations": 16,
    "raybroker_connections": 7,
    "raybroker_store_reserved_bytes": 1 << 20,
    "raybroker_process_resident_bytes": 100 << 20,
    "raybroker_master": 1,
    "raybroker_seat": 1,
    "raybroker_operating": 2,
    "raybroker_consumer_limit_messages": 1000,
}
"""Gauges that reach so much, summed over everything."""


class World(NamedTuple):
    prometheus: Prometheus
    url: str
    load: Load


@pytest.fixture(scope="module")
def world(own_ray: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    import raybroker as rb

    server.require("prometheus")
    folder = tmp_path_factory.mktemp("prometheus")
    config = {**rays.small_store(tmp_path_factory.mktemp("store")), **SETTINGS}
    with rb.start(name=NAME, brokers=2, config=config) as cluster:
        groups = [
            {"targets": [url.split("/")[2]], "labels": {"__meta_raybroker_broker": broker}}
            for broker, url in zip(cluster.brokers, cluster.metrics_urls, strict=True)
        ]
        with loaded(NAME, cluster.brokers) as load, server.running(folder, groups) as (url, prometheus):
            yield World(prometheus, url, load)
        assert load.failures == []


def waited(world: World, exprs: list[str]) -> list[str]:
    """Those that are not answered with a number, after a while."""
    left = list(exprs)

    def none_left() -> bool:
        left[:] = [expr for expr in left if not server.has_data(world.prometheus, expr)]
        return not left or bool(world.load.failures)

    try:
        server.wait(none_left, "", DATA_S)
    except AssertionError:
        return left
    assert world.load.failures == []
    return left


def test_every_panel_has_data(world: World) -> None:
    exprs = [substituted(t.expr, VARIABLES) for name, board in boards().items() for t in targets(name, board)]
    # These brokers share no store, for which others would stand by.
    exprs = [expr for expr in exprs if "shared_store" not in expr and "standby_processes" not in expr]
    # They have no queue with copies, which need three nodes.
    of_copies = ("raybroker_copy_behind_entries", "destination_copy_lag_entries", "destination_leader_term")
    exprs = [expr for expr in exprs if not any(name in expr for name in of_copies)]
    # Nor do they serve AMQP, whose figures tests/contracts/test_amqp_management.py looks at.
    exprs = [expr for expr in exprs if "raybroker_amqp_" not in expr]
    assert len(exprs) > 100
    assert waited(world, exprs) == []


def test_what_is_counted_moves(world: World) -> None:
    assert waited(world, [f"sum({name}) > 0" for name in MOVES]) == []


def test_what_stands_is_there(world: World) -> None:
    assert waited(world, [f"sum(max_over_time({name}[1m])) >= {least}" for name, least in STANDS.items()]) == []


def test_both_tiers_count_the_same(world: World) -> None:
    for key in ("messages_in_total", "refused_messages_total", "duplicate_messages_total"):
        apart = f"abs(sum(raybroker_{key}) - sum(raybroker_destination_{key})) / sum(raybroker_{key}) < 0.2"
        assert waited(world, [apart]) == [], key


def test_the_recording_rules_record(world: World) -> None:
    names = [
        "cluster:raybroker_messages_in:rate1m",
        "cluster_broker:raybroker_messages_out:rate1m",
        "cluster:raybroker_send_to_store_seconds:p99_5m",
    ]
    assert waited(world, names) == []


@pytest.mark.long
def test_the_boards_are_drawn(world: World, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    test_every_panel_has_data(world)  # else empty pictures would do
    arguments = ["--prometheus", world.url, "--cluster", NAME, "--minutes", "1", "--window", "10s"]
    drawn = program.invoke("boards", "render", *arguments, "--out", tmp_path)
    assert drawn.exit_code == 0, drawn.output
    pictures = sorted(tmp_path.glob("*.png"))
    assert [path.stem for path in pictures] == sorted(boards())
    for path in pictures:
        assert path.read_bytes()[:4] == b"\x89PNG"
        assert path.stat().st_size > 50_000
