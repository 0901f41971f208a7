"""Limits at their exact boundaries, and message by message against a dumb twin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.core.admission.limits import DestinationLimits, admit, largest_exceeded, limits_of, oversized
from raybroker.core.blocks.ranges import Ranges
from raybroker.model.settings.settings import DestinationAttributes

NONE = DestinationLimits(-1, -1, -1)


def refused_of(limits: DestinationLimits, messages: int, held_bytes: int, sizes: list[int]) -> list[int]:
    _, refused = admit("q", limits, messages, held_bytes, sizes, [(0, len(sizes))])
    return [index for row in refused for index in range(row.start, row.end)]


@pytest.mark.parametrize(
    ("limits", "messages", "held_bytes", "sizes", "refused"),
    [
        (DestinationLimits(3, -1, -1), 2, 0, [1], []),  # D-06: the third of three
        (DestinationLimits(3, -1, -1), 3, 0, [1], [0]),
        (DestinationLimits(3, -1, -1), 1, 0, [1, 1, 1], [2]),
        (DestinationLimits(0, -1, -1), 0, 0, [1], [0]),
        (DestinationLimits(-1, 10, -1), 0, 9, [500], []),  # D-07: below the limit, so one message may overshoot
        (DestinationLimits(-1, 10, -1), 0, 10, [1], [0]),
        (DestinationLimits(-1, 10, -1), 0, 0, [9, 500, 1], [2]),
        (DestinationLimits(-1, 10, -1), 0, 0, [10, 1], [1]),
        (DestinationLimits(-1, 10, -1), 0, 10, [0], [0]),  # an empty message needs room as well
        (DestinationLimits(-1, 10, -1), 0, 0, [10, 0], [1]),
        (DestinationLimits(-1, -1, 5), 0, 0, [5], []),  # D-08: exactly the limit is taken
        (DestinationLimits(-1, -1, 5), 0, 0, [6], [0]),
        (DestinationLimits(-1, -1, 5), 0, 0, [5, 6, 5], [1]),
        (NONE, 10**9, 10**12, [10**9], []),
    ],
)
def test_a_limit_is_exact(
    limits: DestinationLimits, messages: int, held_bytes: int, sizes: list[int], refused: list[int]
) -> None:
    assert refused_of(limits, messages, held_bytes, sizes) == refused


def test_a_refusal_names_the_limit_and_the_way_out() -> None:
    _, refused = admit("orders", DestinationLimits(3, -1, 5), 3, 0, [1, 9], [(0, 2)])
    assert [row.code for row in refused] == ["quota_exceeded", "message_too_large"]
    assert "orders" in refused[0].text
    assert "maxNumMsgs=3" in refused[0].text
    assert "9 bytes" in refused[1].text


def test_neighbours_refused_for_one_reason_are_one_row() -> None:
    _, refused = admit("q", DestinationLimits(1, -1, -1), 1, 0, [1] * 5, [(0, 5)])
    assert [(row.start, row.end) for row in refused] == [(0, 5)]


@given(
    st.tuples(*[st.one_of(st.just(-1), st.integers(0, 12))] * 3).map(lambda t: DestinationLimits(*t)),
    st.integers(0, 12),
    st.integers(0, 12),
    st.lists(st.integers(0, 8), min_size=1, max_size=12),
    st.randoms(use_true_random=False),
)
def test_admission_is_what_its_twin_says(
    limits: DestinationLimits, messages: int, held_bytes: int, sizes: list[int], rng: object
) -> None:
    chosen = [i for i in range(len(sizes)) if rng.random() < 0.8]  # type: ignore[attr-defined]
    offered: Ranges = [(i, i + 1) for i in chosen]
    admitted, refused = admit("q", limits, messages, held_bytes, sizes, offered)
    taken: list[int] = []
    for index in chosen:
        too_long = 0 <= limits.message_bytes_max < sizes[index]
        full = 0 <= limits.messages_max <= messages or 0 <= limits.bytes_max <= held_bytes
        if not too_long and not full:
            taken.append(index)
            messages += 1
            held_bytes += sizes[index]
    assert [i for a, b in admitted for i in range(a, b)] == taken
    assert [i for row in refused for i in range(row.start, row.end)] == [i for i in chosen if i not in taken]


@pytest.mark.parametrize(
    ("own", "host", "expected"),
    [
        (-1, -1, (-1, "maxBytesPerMsg")),
        (10, -1, (10, "maxBytesPerMsg")),
        (-1, 10, (10, "imq.message.max_size")),
        (10, 10, (10, "maxBytesPerMsg")),
        (11, 10, (10, "imq.message.max_size")),
        (0, 10, (0, "maxBytesPerMsg")),
    ],
)
def test_the_smaller_of_the_two_limits_on_one_message_holds_and_is_named(
    own: int, host: int, expected: tuple[int, str]
) -> None:
    assert limits_of(DestinationAttributes(maxBytesPerMsg=own), host)[2:4] == expected


@pytest.mark.parametrize("behaviour", ["REMOVE_OLDEST", "REMOVE_LOW_PRIORITY"])
def test_where_others_make_room_what_has_none_even_alone_is_refused(behaviour: str) -> None:
    def of(**given: int) -> DestinationLimits:
        return limits_of(DestinationAttributes(limitBehavior=behaviour, **given), -1)  # type: ignore[arg-type]

    assert refused_of(of(maxTotalMsgBytes=10), 9, 9, [10, 11, 0]) == [1]
    assert refused_of(of(maxTotalMsgBytes=10, maxBytesPerMsg=4), 0, 0, [4, 5]) == [1]
    assert refused_of(of(maxTotalMsgBytes=4, maxBytesPerMsg=10), 0, 0, [4, 5]) == [1]
    assert refused_of(of(maxTotalMsgBytes=0), 0, 0, [0, 1]) == [1]
    assert refused_of(of(maxNumMsgs=0), 0, 0, [1]) == [0]
    assert refused_of(of(maxNumMsgs=1), 1, 1, [1]) == []
    assert "maxTotalMsgBytes=10 of destination q" in largest_exceeded("q", of(maxTotalMsgBytes=10), 11)
    assert not of(maxTotalMsgBytes=10).take_all(0, 0, [11], 1)
    assert not of(maxNumMsgs=0).take_all(0, 0, [1], 1)


def test_the_refusal_names_the_property_of_what_nobody_has_created_where_that_is_the_limit() -> None:
    own, setting = DestinationAttributes(maxBytesPerMsg=10), "imq.autocreate.destination.maxBytesPerMsg"
    assert setting in largest_exceeded("q", limits_of(own, -1, 10), 11)
    assert setting not in largest_exceeded("q", limits_of(own, -1, 20), 11), "an administrator has changed it"
    assert setting not in largest_exceeded("q", limits_of(own, -1), 11), "it was created"
    assert setting not in largest_exceeded("q", limits_of(own, 5, 10), 11), "the host has a lower one"


def test_a_message_too_large_for_the_host_is_refused_alone() -> None:
    limits = limits_of(DestinationAttributes(limitBehavior="FLOW_CONTROL", maxBytesPerMsg=-1), 10)
    admitted, refused = admit("q", limits, 0, 0, [10, 11, 10], [(0, 3)])
    assert admitted == [(0, 1), (2, 3)]
    (refusal,) = refused
    assert (refusal.start, refusal.end, refusal.code) == (1, 2, "message_too_large")
    assert "imq.message.max_size=10" in refusal.text


def test_body_and_headers_together_may_be_exactly_the_maximum() -> None:  # W-54
    limits = limits_of(DestinationAttributes(maximumMessageSize=10), -1)
    kept, refused = oversized("q", limits, [10, 10, 0, 5, 4], [0, 1, 11, 5, 9], [(0, 1), (1, 5)])
    assert kept == [(0, 1), (3, 4)]
    assert [(row.start, row.end, row.code) for row in refused] == [
        (1, 2, "message_too_large"),
        (2, 3, "message_too_large"),
        (4, 5, "message_too_large"),
    ]
    assert "a message of 11 bytes, 1 of them headers, exceeds maximumMessageSize=10" in refused[0].text
    assert largest_exceeded("q", limits, 1_000) == "", "one that was sent before"
    both = limits_of(DestinationAttributes(maxBytesPerMsg=5, maximumMessageSize=10), -1)
    assert "maxBytesPerMsg=5" in largest_exceeded("q", both, 6, 0)
    assert "maximumMessageSize=10" in largest_exceeded("q", both, 6, 5)
    assert largest_exceeded("q", limits_of(DestinationAttributes(), -1), 1 << 40, 1 << 40) == ""
