"""Values of a family: frozen, and equal when their class and their fields are."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError

import pytest

from raybroker.model.value import Value


class Spoken(Value):
    """A family of two."""


class Said(Spoken):
    text: str
    loud: bool = False


class Heard(Spoken):
    text: str
    loud: bool = False


def test_fields_make_a_value_equal_and_its_class_tells_families_apart() -> None:
    assert Said("a") == Said("a", loud=False)
    assert Said("a") != Said("b")
    assert Said("a") != Heard("a")
    assert len({Said("a"), Said("a"), Heard("a")}) == 2


def test_a_value_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Said("a").text = "b"  # type: ignore[misc]


def test_a_value_is_matched_by_position_and_survives_pickling() -> None:
    match pickle.loads(pickle.dumps(Said("a", loud=True))):
        case Said(text, loud):
            assert (text, loud) == ("a", True)
        case other:
            raise AssertionError(other)
