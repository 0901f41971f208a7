"""Options that many sends have alike: found once, and for any values as if they had been checked again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.client.producer import send_options as module
from raybroker.client.producer.producer_state import Shared
from raybroker.client.producer.send_options import SETS_KNOWN_MAX, CommonOptions, send_options
from raybroker.errors import BrokerError

NONE = (None,) * 4
"""Properties, correlation id, reply-to and type."""
SHARED = (Shared(True, 4), Shared(False, 4), Shared(True, 4, named=False), Shared(True, 4, unit="own"))
VALUES = st.sampled_from([None, 0, 1, 4, 9, 10, -1, True, False, 1.0, 4.0, "u", "", b"u", [1], {}, float("nan")])


def outcome(call: Any, *given_: Any) -> Any:
    try:
        return call(*given_)
    except BrokerError as error:
        return type(error), str(error)


@given(st.lists(st.tuples(st.sampled_from(SHARED), st.tuples(VALUES, VALUES, VALUES, VALUES, VALUES)), max_size=20))
def test_they_are_what_a_check_of_each_send_would_give(sends: list[tuple[Shared, tuple[Any, ...]]]) -> None:
    common = CommonOptions()
    for shared, given_ in [*sends, *sends]:
        expected = outcome(send_options, shared, None, None, None, None, *given_)
        assert outcome(common.find, shared, *NONE, *given_, None) == expected


def test_what_only_one_message_has_is_not_remembered() -> None:
    common, shared = CommonOptions(), SHARED[0]
    for own in range(5):
        alone: list[Any] = [None] * 10
        alone[9 if own == 4 else own] = {"a": 1} if own == 0 else "x" if own != 2 else None
        assert common.find(shared, *alone) == send_options(shared, *alone)
    assert common._found is None or not common._found[2]


def test_a_set_is_checked_once_and_is_the_same_object_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[object] = []
    check = module.check_arguments
    monkeypatch.setattr(module, "check_arguments", lambda **given_: (checked.append(given_), check(**given_)))
    common, shared = CommonOptions(), Shared(True, 4)
    found = [common.find(shared, *NONE, 7, 1_000, None, None, None, None)[1] for _ in range(5)]
    assert all(one is found[0] for one in found)
    assert found[0] == Shared(True, 7, 1_000)
    assert common.find(shared, *NONE, None, None, None, None, None, None)[1] is shared
    assert len(checked) == 1


def test_what_is_known_is_bounded() -> None:
    common, shared = CommonOptions(), Shared(True, 4)
    for ttl_ms in range(1, 3 * SETS_KNOWN_MAX):
        assert common.find(shared, *NONE, None, ttl_ms, None, None, None, None)[1].ttl_ms == ttl_ms
        assert common._found is not None
        assert len(common._found[2]) <= SETS_KNOWN_MAX
