"""Settings reach every destination when it comes, and again when the configuration changes."""

from __future__ import annotations

from typing import Any

from raybroker.engine.live_settings import LiveSettings
from raybroker.engine.path.wakeups import Wakeups
from tests.unit.engine.parts import Desk

CONFIG = {
    "imq.message.max_size": 1000,
    "raybroker.reference.max_size": 5000,
    "imq.transaction.message.maxConsecutiveRollbacks": 3,
    "imq.message.expiration.interval": 60,
}


def test_a_change_reaches_all_and_looks_for_expired_messages_at_once() -> None:
    desk = Desk()
    full, empty = desk.add("full"), desk.add("empty")
    desk.put(full, "a")
    config: Any = dict(CONFIG)
    given: list[str] = []
    wakeups = Wakeups()
    settings = LiveSettings(
        config, desk.time, desk.registry, wakeups, (lambda destination: given.append(destination.name),)
    )
    settings.give(full)
    assert (full.policy.rollbacks_max, full.expiry.scan_ms, given) == (3, 60_000, ["full"])
    assert full.policy.message_bytes_max == settings.message_bytes_max
    config |= {"imq.message.max_size": 2000, "imq.message.expiration.interval": 5}
    before = settings.message_bytes_max
    desk.clock.ms += 7
    settings.apply_changes()
    assert given == ["full", "full", "empty"]
    assert settings.message_bytes_max > before
    assert {destination.policy.message_bytes_max for destination in (full, empty)} == {settings.message_bytes_max}
    assert (full.expiry.scan_ms, full.expiry.next_scan_ms) == (5000, desk.clock.ms)
    assert wakeups.due(desk.clock.ms) == [full.number], "only where there is something to expire"
    assert wakeups.due(desk.clock.ms - 1) == []
