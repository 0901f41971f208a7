"""Thresholds of a whole broker: the sum over its hosts, two marks, and who is told (W-18, W-19)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from raybroker.broker.observing.thresholds import BrokerThresholds
from raybroker.config import Config
from raybroker.config.live import LiveConfig
from raybroker.model.errors import ConfigError, ConnectionLostError

HIGH, LOW = "raybroker.system.messagesThresholdHigh", "raybroker.system.messagesThresholdLow"
BYTES_HIGH, BYTES_LOW = "raybroker.system.bytesThresholdHigh", "raybroker.system.bytesThresholdLow"


class Host:
    def __init__(self, key: str) -> None:
        self.key = key
        self.figures = self
        self.messages = self.bytes = 0
        self.told: list[bool] = []
        self.silent = False

    async def thresholds(self, over: bool) -> dict[str, Any]:
        if self.silent:
            raise ConnectionLostError("it is gone")
        self.told.append(over)
        return {"messages": self.messages, "bytes": self.bytes}


class World:
    def __init__(self, **properties: int) -> None:
        self.config = LiveConfig(
            Config.from_values({name.replace("__", "."): value for name, value in properties.items()})
        )
        self.one, self.other = Host("h1"), Host("h2")
        self.hosts = [self.one, self.other]
        self.thresholds = BrokerThresholds(self.config, lambda: self.hosts, broker="b1")

    def set(self, **properties: int) -> None:
        self.config.replace(self.config.with_changes({n.replace("__", "."): v for n, v in properties.items()}))

    def look(self, one: int = 0, other: int = 0, of: str = "messages") -> bool:
        """Look when the hosts hold so much; whether they were told that it is too much."""
        setattr(self.one, of, one)
        setattr(self.other, of, other)
        asyncio.run(self.thresholds.check_hosts())
        assert self.one.told[-1] == any(self.thresholds.over.values())
        return self.one.told[-1]


def names(high: int, low: int = -1, of: str = "messages") -> dict[str, int]:
    return {f"raybroker__system__{of}Threshold{end}": value for end, value in (("High", high), ("Low", low))}


def test_what_all_hosts_hold_is_over_above_high_until_it_is_below_low() -> None:
    world = World(**names(10, 6))
    states = [world.look(*held) for held in ((5, 5), (5, 6), (5, 5), (6, 0), (3, 2), (5, 5), (11, 0))]
    assert states == [False, True, True, True, False, False, True]
    assert world.other.told[-1]


def test_messages_and_bytes_are_over_each_by_itself() -> None:
    world = World(**names(10, 5), **names(100, 50, "bytes"))
    assert world.look(11)
    assert world.look(60, 60, "bytes")
    assert world.thresholds.excess_row() == {"messages": 11, "bytes": 120, "over": ["messages", "bytes"]}
    assert world.look(0)
    assert world.thresholds.over == {"messages": False, "bytes": True}
    assert world.thresholds.figures() == {"system_over_threshold": {"messages": 0, "bytes": 1}}
    assert not world.look(10, 10, "bytes")


def test_without_low_it_is_high() -> None:
    world = World(**names(10))
    assert [world.look(held) for held in (11, 10, 9)] == [True, True, False]


def test_the_log_says_both(caplog: pytest.LogCaptureFixture) -> None:
    world = World(**names(1, 1))
    with caplog.at_level(logging.INFO, "raybroker.broker"):
        for held in (2, 3, 1, 0, 1):
            world.look(held)
    assert [(record.levelname, record.getMessage().split("]")[0]) for record in caplog.records] == [
        ("WARNING", "[B2167"),
        ("INFO", "[B1153"),
    ]
    assert "holds 2 messages, more than raybroker.system.messagesThresholdHigh=1" in caplog.text


def test_a_host_that_does_not_answer_counts_with_what_it_said_and_one_that_is_new_is_told() -> None:
    world = World(**names(10, 5))
    assert world.look(6, 6)
    world.other.silent = True
    assert world.look(1), "the six of the other host are not known to be gone"
    world.hosts.append(new := Host("h3"))
    assert world.look(1)
    assert new.told == [True]
    world.hosts.remove(world.other)
    assert not world.look(1)


def test_thresholds_that_are_taken_away_let_everybody_go_and_nobody_is_asked_any_more() -> None:
    world = World(**names(1))
    assert world.look(2)
    world.other.silent = True
    world.set(**names(-1))
    assert not world.look(2)
    world.other.silent = False
    assert not world.look(2)
    assert world.other.told[-1] is False, "a host that did not hear is told again"
    asked = len(world.one.told)
    world.look(2)
    assert (len(world.one.told), world.thresholds.excess_row()) == (asked, {})


def test_without_thresholds_no_host_is_asked() -> None:
    world = World()
    asyncio.run(world.thresholds.check_hosts())
    assert (world.one.told, world.thresholds.excess_row()) == ([], {})


@pytest.mark.parametrize(("high", "low"), [(HIGH, LOW), (BYTES_HIGH, BYTES_LOW)])
def test_a_low_above_its_high_is_refused(high: str, low: str) -> None:
    with pytest.raises(ConfigError, match=rf"{low} = 6 is more than {high} = 5"):
        Config.from_values({high: 5, low: 6})
    live = LiveConfig(Config.from_values({high: 5, low: 5}))
    with pytest.raises(ConfigError, match=rf"{low} = 5 is more than {high} = 4"):
        live.with_changes({high: 4})
    assert live.with_changes({high: 4, low: 4}) == {high: 4, low: 4}
    assert Config.from_values({low: 6})[low] == 6, "without High nothing is held against it"
