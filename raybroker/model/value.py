"""Frozen values: a class that says its fields once, and is compared, hashed, matched and pickled by them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import dataclass_transform


@dataclass_transform(frozen_default=True)
class Value:
    """Base of a family of values: each subclass is a frozen dataclass without a decorator of its own."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)
