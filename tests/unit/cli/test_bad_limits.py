"""Limits that cannot be, on the command line: exit status 1 or 2, the reason on stderr, and nothing is changed."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("create", "dst", "-n", "x", "-o", "maxBytesPerMsg=1k", "-o", "maximumMessageSize=1023"), "never be reached"),
        (("create", "dst", "-n", "x", "-o", "limitBehavior=DROP"), "REJECT_NEWEST"),
        (("create", "dst", "-n", "x", "-o", "MaximumMessageSize=5"), "maximumMessageSize"),
        (("create", "dst", "-n", "x", "-o", "messagesLow=3"), "nothing without messagesHigh"),
        (("create", "dst", "-n", "x", "-o", "quota=none"), "there is no quota 'none'"),
        (("update", "dst", "-n", "a", "-o", "maximumMessageSize=-2"), "maximumMessageSize: '-2' is not a size"),
        (("create", "quota", "-n", "x", "-o", "Policy=LIFO"), "Policy"),
        (("destroy", "quota", "-n", "small", "-f"), "is in use by queue a"),
        (("update", "bkr", "-o", "raybroker.system.blockingSendPolicy=LIFO"), "FIFO, Preemptive"),
        (("update", "bkr", "-o", "imq.persist.file.newTxnLog.enabled=true"), "transactions are in the journal"),
        (("update", "bkr", "-o", "raybroker.store.segment_bytes=1m"), "read when a broker starts"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(
    raybroker: Any, broker: Any, words: tuple[str, ...], told: str
) -> None:
    raybroker.output("create", "quota", "-n", "small", "-o", "MessagesMaximum=2")
    raybroker.output("create", "dst", "-n", "a", "-o", "quota=small")
    result = raybroker(*words)
    assert result.exit_code in (1, 2)
    assert told in " ".join(result.stderr.replace("│", " ").split())
    assert {row["name"] for row in raybroker.json("list", "dst")} == {"a", "mq.sys.dmq"}
    assert [row["name"] for row in raybroker.json("list", "quota")] == ["small"]
    assert raybroker.json("query", "dst", "-n", "a")["attributes"]["maximumMessageSize"] == -1


def test_compression_of_stores_is_switched_and_shown(raybroker: Any, broker: Any) -> None:
    broker.admin().update_broker({"raybroker.store.message_compression_enabled": True})
    broker.session().producer("q").send("text " * 1_000)
    shown = raybroker.output("query", "store")
    assert "compressed_blocks" in shown
    assert "compression_saved_bytes" in shown
