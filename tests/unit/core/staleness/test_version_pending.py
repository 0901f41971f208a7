"""Versions of messages that wait, and starvation, without a destination."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.core.delivery.consumers import Consumers
from raybroker.core.delivery.run import LEVELS, Run, behind_all, own_priority
from raybroker.core.policy import DestinationPolicy
from raybroker.core.staleness.starvation import Starvation
from raybroker.core.staleness.version_index import AHEAD_MAX, VersionIndex
from raybroker.core.staleness.version_pending import VersionPending
from raybroker.model.settings.setting import VERSION_MAX
from raybroker.model.settings.settings import destination_attributes
from raybroker.model.staleness import version_of
from tests.unit.core.driven_destination import Rows


class Waiting:
    """Blocks of messages with these versions. ``read``: how often headers were read."""

    def __init__(self, **attributes: Any) -> None:
        self.read = 0
        self.blocks: dict[int, Rows] = {}
        self.policy = DestinationPolicy(destination_attributes({"versionKey": "v", **attributes}))
        index = VersionIndex(self._peek, "v", self.policy.attributes.maxStaleness)
        self.pending = VersionPending(Consumers(), index, self.policy)

    def _peek(self, ordinal: int) -> Rows:
        self.read += 1
        return self.blocks[ordinal]

    def block(self, *versions: Any) -> None:
        ordinal = len(self.blocks) + 1
        self.blocks[ordinal] = Rows([{} if version is None else {"v": version} for version in versions])
        self.pending.append(Run(ordinal, ordinal, (1 << len(versions)) - 1, 0, 0, 4), None)

    def publish(self, version: int) -> list[tuple[int, int]]:
        """What is dead of it, as (block, messages)."""
        self.pending.publish(version)
        return self.settle()

    def settle(self) -> list[tuple[int, int]]:
        while self.pending.unfinished:
            self.pending.unfinished = self.pending.sort_some()
        return [(dead.run.ordinal, dead.run.mask) for dead in self.pending.take_stale()]

    def left(self) -> list[tuple[int, int]]:
        return [(run.ordinal, run.mask) for run in self.pending.backlog.waiting_for()]


def test_no_headers_are_read_before_a_version_is_published() -> None:
    waiting = Waiting()
    waiting.block(1, 2)
    assert (waiting.read, waiting.settle(), waiting.left()) == (0, [], [(1, 0b11)])
    assert waiting.publish(2) == [(1, 0b01)]
    assert waiting.read == 1
    waiting.block(1, 2, None, "2", 2.0, True, -1)
    assert waiting.settle() == [(2, 0b0000001)], "only whole numbers from 0 are versions"
    assert waiting.left() == [(1, 0b10), (2, 0b1111110)]


def test_a_publication_costs_what_is_stale() -> None:
    """Headers of what waits are not read again, unless it was far ahead"""
    waiting = Waiting(maxStaleness=1)
    waiting.publish(5)
    for version in (5, 6, 7, 5):
        waiting.block(version)
    read = waiting.read
    assert waiting.publish(7) == [(1, 1), (4, 1)]
    assert waiting.read == read
    waiting.block(7 + AHEAD_MAX + 1)
    assert waiting.publish(8) == [(2, 1)]
    assert waiting.read > read + 1
    assert waiting.publish(7 + AHEAD_MAX + 3) == [(3, 1), (5, 1)]
    assert waiting.left() == []


def test_what_was_not_looked_at_is_for_nobody() -> None:
    waiting = Waiting()
    waiting.block(1)
    waiting.pending.publish(1)
    assert waiting.left() == []
    assert waiting.settle() == []
    assert waiting.left() == [(1, 1)]


def test_stale_messages_are_in_few_buckets_and_come_back_to_their_place() -> None:
    waiting = Waiting(stalenessPolicy="Last")
    waiting.publish(0)
    for version in range(50):
        waiting.block(version)
        assert waiting.publish(version + 1) == []
    waiting.block(50)
    assert len(waiting.pending.backlog.buckets) == 2
    assert waiting.left() == [(51, 1), *((ordinal, 1) for ordinal in range(1, 51))]
    assert waiting.publish(0) == []
    assert waiting.left() == [(ordinal, 1) for ordinal in range(1, 52)]


def test_other_rules_hold_for_what_waits() -> None:
    waiting = Waiting(maxStaleness=5)
    waiting.block(1, 2, 3)
    assert waiting.publish(6) == []
    waiting.policy.update(destination_attributes({"versionKey": "v", "maxStaleness": 4}))
    waiting.pending.rules_changed()
    assert waiting.settle() == [(1, 0b001)]
    waiting.policy.update(destination_attributes({"versionKey": "v", "maxStaleness": -1}))
    waiting.pending.rules_changed()
    waiting.block(0)
    assert (waiting.settle(), waiting.left()) == ([], [(1, 0b110), (2, 1)])


@pytest.mark.parametrize("priority", range(LEVELS))
def test_what_goes_behind_all_has_its_own_priority_there(priority: int) -> None:
    assert behind_all(priority) < 0
    assert own_priority(behind_all(priority)) == own_priority(priority) == priority
    assert behind_all(behind_all(priority)) == behind_all(priority)


def test_a_version_is_exact() -> None:
    assert [version_of(value) for value in (0, VERSION_MAX, VERSION_MAX + 1)] == [0, VERSION_MAX, None]


def test_a_queue_starves_after_a_time_and_counts_how_long() -> None:
    one = Starvation()
    assert one.observe(100, 50, hungry=False) is None
    assert one.observe(200, 50, hungry=True) == 250
    assert one.observe(249, 50, hungry=True) == 250
    assert (one.starving, one.waited_ms(249), one.episodes) == (False, 0, 0)
    assert one.observe(250, 50, hungry=True) is None
    assert (one.starving, one.waited_ms(260), one.in_all_ms(260), one.episodes) == (True, 60, 60, 1)
    one.observe(270, 50, hungry=False)
    assert (one.starving, one.waited_ms(280), one.in_all_ms(280)) == (False, 0, 70)
    assert one.observe(300, -1, hungry=True) is None
    assert one.observe(9_000, -1, hungry=True) is None
    assert (one.starving, one.in_all_ms(9_000), one.episodes) == (False, 70, 1)
