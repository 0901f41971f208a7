"""Overrides of a destination on a block, and the smaller of two flow limits."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.core.blocks.block_entry import PLAIN
from raybroker.engine.path.overrides import columns_of, effective_limit, overridden, parts_in
from raybroker.hosting.block_codec import WireCodec
from raybroker.model.settings.settings import destination_attributes
from tests.unit.engine.rig import made

NOW = 1_000_000


@pytest.mark.parametrize(
    ("flow", "wanted", "allowed", "found"),
    [
        ("prefetch", 10, 4, 4),
        ("prefetch", 3, 4, 3),
        ("prefetch", 0, 4, 0),
        ("prefetch", -1, 4, 4),
        ("prefetch", -1, None, -1),
        ("prefetch", 7, None, 7),
        ("credit", 0, None, -1),
        ("credit", 0, 9, 9),
        ("credit", -1, 9, 9),
        ("credit", 5, 9, 5),
    ],
)
def test_the_smaller_finite_limit_holds(flow: str, wanted: int, allowed: int | None, found: int) -> None:
    assert effective_limit(flow, wanted, allowed) == found


def overrides(**attributes: Any) -> Any:
    return destination_attributes(attributes, type="queue")


def test_a_destination_without_overrides_takes_the_very_block() -> None:
    block = made("a", now_ms=NOW)
    assert overridden(overrides(), block, NOW) is block


def test_each_override_replaces_what_the_producer_said() -> None:
    block = made("a", "b", now_ms=NOW, persistent=False, priority=2, ttl=50, delay=20)
    found = overridden(
        overrides(
            priorityOverride=9, timeToLiveOverride=1000, timeToDeliverOverride=0, deliveryModeOverride="Persistent"
        ),
        block,
        NOW,
    )
    assert (found.priority, found.persistent) == (9, True)
    assert list(found.expires() or ()) == [NOW + 1000] * 2
    assert not any(found.deliver_at() or ())
    assert [bytes(found.body(index)) for index in range(found.count)] == [b"a", b"b"]
    kept = overridden(overrides(priorityOverride=9), block, NOW)
    assert (kept.persistent, list(kept.expires() or ())) == (False, [NOW + 50] * 2)


def test_columns_hold_what_the_core_decides_by() -> None:
    codec = WireCodec()
    assert columns_of(codec, made("a")) is PLAIN
    columns = columns_of(codec, made("a", now_ms=NOW, priority=7, ttl=50))
    assert (columns.priority, list(columns.expires or ())) == (7, [NOW + 50])
    assert parts_in(codec, made("a"), NOW) is None
