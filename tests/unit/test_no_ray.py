"""The fixture that keeps Ray out of unit tests."""

from __future__ import annotations

import pytest


def test_starting_ray_in_a_unit_test_is_refused() -> None:
    import ray

    with pytest.raises(RuntimeError, match="unit tests do not start Ray"):
        ray.init()


def test_the_refusal_holds_also_once_ray_is_imported() -> None:
    test_starting_ray_in_a_unit_test_is_refused()
