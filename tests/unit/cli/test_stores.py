"""query store and compact dst."""

from __future__ import annotations

from typing import Any


def test_a_store_is_shown_with_what_each_destination_takes(raybroker: Any, broker: Any) -> None:
    broker.session().producer("orders").send_many([b"x" * 100] * 10)
    text = raybroker.output("query", "store")
    assert text.startswith("store of host loopback")
    for word in ("reserved_bytes", "garbage_bytes", "ratio", "advice", "leave it"):
        assert word in text
    assert [line.split()[:3] for line in text.splitlines() if "orders" in line] == [["queue", "orders", "1"]]
    (row,) = raybroker.json("query", "store")
    assert row["destinations"][0]["name"] == "orders"
    assert row["destinations"][0]["bytes"] > 1000


def test_a_paused_destination_is_compacted_and_others_are_refused(raybroker: Any, broker: Any) -> None:
    broker.admin().create_destination("queue", "orders")
    result = raybroker("compact", "dst", "-n", "orders")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "queue orders is not paused; pause it first: raybroker pause dst -t q -n orders" in result.stderr
    raybroker.output("pause", "dst", "-n", "orders")
    for words in (("-n", "orders"), ()):
        header, line = raybroker.output("compact", "dst", *words).splitlines()
        assert header.split()[:2] == ["HOST", "GIVEN_BACK"]
        assert line.split()[:2] == ["loopback", "0"]
    assert raybroker("compact", "dst", "-n", "nowhere").exit_code == 1
