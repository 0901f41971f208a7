"""Options that many sends have alike: found once, and for any values as if they had been checked again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.client.options import MessageOptions
from raybroker.client.producer import send_options as module
from raybroker.client.producer.producer_state import Shared
from raybroker.client.producer.send_options import SETS_KNOWN_MAX, CommonOptions, send_options
from raybroker.errors import BrokerError

NAMES = ("priority", "ttl_ms", "delivery_delay_ms", "unit_of_order", "persistent")
"""The options that many messages have alike."""
SHARED = (Shared(True, 4), Shared(False, 4), Shared(True, 4, named=False), Shared(True, 4, unit="own"))
VALUES = st.sampled_from([None, 0, 1, 4, 9, 10, -1, True, False, 1.0, 4.0, "u", "", b"u", [1], {}, float("nan")])


ALONE: tuple[tuple[dict[str, int] | None, MessageOptions], ...] = (
    ({"a": 1}, {}),
    (None, {"correlation_id": "x"}),
    (None, {"reply_to": None}),
    (None, {"type": "x"}),
    (None, {"dedup_id": "x"}),
)


def outcome(call: Any, *given_: Any) -> Any:
    try:
        return call(*given_)
    except BrokerError as error:
        return type(error), str(error)


@given(st.lists(st.tuples(st.sampled_from(SHARED), st.tuples(VALUES, VALUES, VALUES, VALUES, VALUES)), max_size=20))
def test_they_are_what_a_check_of_each_send_would_give(sends: list[tuple[Shared, tuple[Any, ...]]]) -> None:
    common = CommonOptions()
    for shared, given_ in [*sends, *sends]:
        options = dict(zip(NAMES, given_, strict=True))
        expected = outcome(send_options, shared, None, options)
        assert outcome(common.find, shared, None, options) == expected


def test_what_only_one_message_has_is_not_remembered() -> None:
    common, shared = CommonOptions(), SHARED[0]
    for properties, options in ALONE:
        assert common.find(shared, properties, options) == send_options(shared, properties, options)
    assert common._found is None or not common._found[2]


def test_a_set_is_checked_once_and_is_the_same_object_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[object] = []
    check = module.check_arguments
    monkeypatch.setattr(module, "check_arguments", lambda **given_: (checked.append(given_), check(**given_)))
    common, shared = CommonOptions(), Shared(True, 4)
    found = [common.find(shared, None, {"priority": 7, "ttl_ms": 1_000})[1] for _ in range(5)]
    assert all(one is found[0] for one in found)
    assert found[0] == Shared(True, 7, 1_000)
    assert common.find(shared, None, {})[1] is shared
    assert len(checked) == 1


def test_what_is_known_is_bounded() -> None:
    common, shared = CommonOptions(), Shared(True, 4)
    for ttl_ms in range(1, 3 * SETS_KNOWN_MAX):
        assert common.find(shared, None, {"ttl_ms": ttl_ms})[1].ttl_ms == ttl_ms
        assert common._found is not None
        assert len(common._found[2]) <= SETS_KNOWN_MAX


@pytest.mark.parametrize("name", ["prio", "schedule", "properties"])
def test_an_option_that_there_is_not_is_refused_by_name(name: str) -> None:
    with pytest.raises(TypeError, match=f"'{name}'.*there are type, priority"):
        CommonOptions().find(Shared(True, 4), None, {name: 3})  # type: ignore[misc]
