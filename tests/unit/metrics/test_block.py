"""The sample of metrics in the log has counts, rates since the sample before, and the range of threads (M-06)."""

from __future__ import annotations

from typing import Any

from raybroker.metrics.block import Blocks, look
from raybroker.metrics.snapshot import Snapshot


def snapshot(count: int, threads: int) -> Snapshot:
    own: dict[str, Any] = {
        "connections": 4,
        "destinations": {"queue": 2, "topic": 1},
        "packets_in_total": 3 * count,
        "packets_out_total": 2 * count,
        "packet_in_bytes_total": 300 * count,
        "packet_out_bytes_total": 200 * count,
        "process_threads": {"broker": threads},
        "process_resident_bytes": {"host": 60, "broker": 40},
        "memory_limit_bytes": 1000,
        "memory_used_bytes": {"host": 68, "broker": 70},
    }
    sums = {
        "messages_in_total": count,
        "messages_out_total": count // 2,
        "message_in_bytes_total": 10 * count,
        "message_out_bytes_total": 5 * count,
    }
    return Snapshot("c", "b1", own, {"queue": sums}, [])


def test_a_sample_is_five_lines() -> None:
    assert Blocks().text(look(snapshot(100, 8), 5.0)).splitlines() == [
        "Connections: 4    Memory: 70 used, 930 free    Threads: 8 (8-8)",
        "      In: 100 msgs (1000 bytes)  300 pkts (30000 bytes)",
        "     Out: 50 msgs (500 bytes)  200 pkts (20000 bytes)",
        " Rate In: 0 msgs/s (0 bytes/s)  0 pkts/s (0 bytes/s)",
        "Rate Out: 0 msgs/s (0 bytes/s)  0 pkts/s (0 bytes/s)",
    ]


def test_rates_are_since_the_sample_before_and_threads_have_a_range() -> None:
    blocks = Blocks()
    blocks.text(look(snapshot(100, 8), 5.0))
    lines = blocks.text(look(snapshot(180, 3), 9.0)).splitlines()
    assert lines[0].endswith("Threads: 3 (3-8)")
    assert lines[3] == " Rate In: 20 msgs/s (200 bytes/s)  60 pkts/s (6000 bytes/s)"
    assert blocks.text(look(snapshot(0, 5), 10.0)).splitlines()[3].startswith(" Rate In: 0 msgs/s")
