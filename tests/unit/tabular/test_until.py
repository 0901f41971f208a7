"""What ends a read."""

from __future__ import annotations

import datetime

import pytest

from raybroker.errors import ConfigError
from raybroker.tabular.until import Until, parse_until

NOON = datetime.datetime(2030, 1, 1, 12, tzinfo=datetime.UTC)


def test_the_ends_of_a_read() -> None:
    assert parse_until("empty") == Until(empty=True)
    assert parse_until("stopped").endless
    assert parse_until("stopped").left_s(0) is None
    assert parse_until(90).left_s(5) == 90
    assert parse_until(datetime.timedelta(minutes=2)).left_s(5) == 120
    at_noon = parse_until(NOON)
    assert not at_noon.endless
    assert at_noon.left_s(round(NOON.timestamp() * 1000) - 1500) == 1.5
    assert at_noon.left_s(round(NOON.timestamp() * 1000) + 1) == 0


@pytest.mark.parametrize("wrong", [0, -1, True, "never", None, float("nan"), 1e9, NOON.replace(tzinfo=None)])
def test_what_is_no_end_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match="until="):
        parse_until(wrong)
