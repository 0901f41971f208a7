"""Spinning: when it is done, and that it gets rarer where it does not pay."""

from __future__ import annotations

import pytest

from raybroker.model.errors import ConfigError
from raybroker.model.settings.setting import Scope
from raybroker.model.settings.settings import lookup
from raybroker.transport.spin import AUTO, AUTO_NS, PROCESSORS_LEAST, SKIPPED_MAX, Spin, processors, spin_ns

MOST_NS = 50_000


def waits_until_the_next(spin: Spin) -> int:
    """How many waits are slept through."""
    for number in range(10 * SKIPPED_MAX):
        if spin.start_spin():
            return number
    raise AssertionError("it spins no more")


@pytest.mark.parametrize("count", [1, 2, PROCESSORS_LEAST - 1])
def test_with_few_processors_it_is_only_done_by_those_who_ask_for_it(count: int) -> None:
    assert spin_ns(AUTO, count) == 0
    assert spin_ns(30, count) == 30_000
    assert processors() >= 1


@pytest.mark.parametrize("count", [PROCESSORS_LEAST, 64])
def test_with_more_it_is_done_unless_it_is_off(count: int) -> None:
    assert spin_ns(AUTO, count) == AUTO_NS
    assert spin_ns(0, count) == 0


def test_spins_that_pay_go_on() -> None:
    spin = Spin(MOST_NS)
    for _ in range(5):
        assert spin.start_spin() == MOST_NS
        spin.count_spin(10_000, came=True)
    assert (spin.count, spin.paid, spin.spent_ns) == (5, 5, 50_000)


def test_spins_in_which_nothing_comes_get_rarer_up_to_a_bound_and_one_that_pays_starts_anew() -> None:
    spin, slept = Spin(MOST_NS), []
    for _ in range(12):
        slept.append(waits_until_the_next(spin))
        spin.count_spin(MOST_NS, came=False)
    assert slept == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 256, 256]
    assert (spin.count, spin.paid) == (12, 0)
    assert waits_until_the_next(spin) == SKIPPED_MAX
    spin.count_spin(1_000, came=True)
    assert waits_until_the_next(spin) == 0
    spin.count_spin(MOST_NS, came=False)
    assert waits_until_the_next(spin) == 1


@pytest.mark.parametrize("came", [True, False])
def test_one_that_lost_its_processor_takes_from_others_and_is_not_repeated_soon(came: bool) -> None:
    spin = Spin(MOST_NS)
    spin.start_spin()
    spin.count_spin(3 * MOST_NS, came=came)
    assert waits_until_the_next(spin) == SKIPPED_MAX
    assert spin.paid == 0


@pytest.mark.parametrize(("name", "scope"), [("raybroker.spin", "broker"), ("raybroker.client.spin", "factory")])
def test_the_setting_takes_words_and_microseconds(name: str, scope: Scope) -> None:
    setting = lookup(name, scope)
    given = ("auto", "OFF", "0", "1", "1000", False, True)
    assert [setting.parse(value) for value in given] == [-1, 0, 0, 1, 1000, 0, -1]
    assert [setting.format(value) for value in (-1, 0, 250)] == ["auto", "off", "250"]
    for wrong in ("1001", "-2", "often", 2000):
        with pytest.raises(ConfigError, match=f"{name}.*auto, off, or 1 to 1000"):
            setting.parse(wrong)
