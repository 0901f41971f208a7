"""Offsets of a stream of Spark: what they remember, and how short that is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from raybroker.spark.offsets import BEGIN, MessageIds, StreamOffset

IDS = st.lists(st.builds("ID:{}-{}".format, st.sampled_from(["00aa", "00bb"]), st.integers(1, 40)), unique=True)


@given(IDS, IDS)
def test_an_offset_comes_back_from_json_with_the_same_messages(ids: list[str], owed: list[str]) -> None:
    offset = StreamOffset(7, MessageIds(ids), MessageIds(owed))
    back = StreamOffset.parse(json.loads(json.dumps(offset.written())))
    assert (back.batch, set(back.ids), set(back.owed)) == (7, set(ids), set(owed))


def test_numbers_that_follow_each_other_are_one_range() -> None:
    ids = MessageIds(f"ID:00aa-{number}" for number in [*range(1, 10_001), 20_000])
    assert ids.written() == {"ID:00aa": [1, 10_000, 20_000, 20_000]}
    assert list(MessageIds.parse(ids.written())) == list(ids)
    assert BEGIN.written() == {"batch": 0, "ids": {}, "owed": {}}


def test_the_oldest_are_forgotten_first() -> None:
    ids = MessageIds(["ID:b-2", "ID:a-1", "ID:a-2"])
    ids.add(["ID:c-1", "ID:b-2"])
    ids.remove(["ID:a-1", "ID:x-1"])
    ids.forget_oldest(2)
    assert list(ids) == ["ID:a-2", "ID:c-1"]
    assert "ID:b-2" not in ids
    assert len(ids) == 2
