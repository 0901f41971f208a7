"""What was handed out and not acknowledged: rows against the dumb twin, a dict from tag to serial (R-08)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raybroker.client.consumer.acknowledging import unacknowledged_ranges


def as_dict(rows: unacknowledged_ranges.Rows) -> dict[int, int]:
    return {first + i: serial + i for first, last, serial in rows for i in range(last - first + 1)}


@st.composite
def rows(draw: st.DrawFn) -> unacknowledged_ranges.Rows:
    found: unacknowledged_ranges.Rows = []
    tag = serial = 0
    for _ in range(draw(st.integers(0, 5))):
        tag += draw(st.integers(1, 3))
        serial += draw(st.integers(1, 4))
        count = draw(st.integers(1, 5))
        found.append([tag, tag + count - 1, serial])
        tag, serial = tag + count, serial + count
    return found


@given(rows(), st.integers(0, 40))
def test_cutting_takes_what_was_handed_out_up_to_a_serial_and_leaves_the_rest(
    kept: unacknowledged_ranges.Rows, up_to: int
) -> None:
    before = as_dict(kept)
    ranges, left = unacknowledged_ranges.cut(kept, up_to)
    taken = {tag for first, last in ranges for tag in range(first, last + 1)}
    assert taken == {tag for tag, serial in before.items() if serial <= up_to}
    assert as_dict(left) == {tag: serial for tag, serial in before.items() if tag not in taken}
    assert unacknowledged_ranges.count(left) == len(before) - len(taken)


@given(rows(), st.sets(st.integers(0, 40)))
def test_some_deliveries_are_taken_out_and_the_others_keep_their_serials(
    kept: unacknowledged_ranges.Rows, tags: set[int]
) -> None:
    before = as_dict(kept)
    ranges = unacknowledged_ranges.cut_some(kept, unacknowledged_ranges.ranges_of(sorted(tags)))
    taken = [tag for first, last in ranges for tag in range(first, last + 1)]
    assert taken == sorted(tags & before.keys())
    assert as_dict(kept) == {tag: serial for tag, serial in before.items() if tag not in tags}
    assert all(first <= last for first, last, _ in kept)
    assert unacknowledged_ranges.cut_some(kept, unacknowledged_ranges.ranges_of(sorted(tags))) == []


@given(rows(), st.integers(0, 40))
def test_one_delivery_is_taken_out_and_the_others_keep_their_serials(
    kept: unacknowledged_ranges.Rows, tag: int
) -> None:
    before = as_dict(kept)
    assert unacknowledged_ranges.serial_of(kept, tag) == before.get(tag)
    assert unacknowledged_ranges.cut_one(kept, tag) is (tag in before)
    before.pop(tag, None)
    assert as_dict(kept) == before
    assert unacknowledged_ranges.cut_one(kept, tag) is False
