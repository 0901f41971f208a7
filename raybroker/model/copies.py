"""Copies of what a destination stores (replicas), and how many of them must have a message (minInSync)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from raybroker.model.errors import ConfigError

_REFUSED: Final[Mapping[int, str]] = {
    2: "could not go on by itself without one of them: each alone is no majority; choose 1 or 3",
    4: "bears the loss of one copy, as 3 does, and waits for one more; choose 3 or 5",
}
"""Numbers of copies that no destination has, with the reason."""

OF_COPIES: Final = ("replicas", "minInSync")
"""Attributes that are changed step by step, at the brokers that keep the copies."""
SHOWN_OF_BROKER: Final = ("copies", "copies_led", "copies_behind", "copies_unconfirmed")
"""What list_brokers says of the copies of each broker."""


def has_copies(attributes: Mapping[str, object]) -> bool:
    """Return whether a destination with these attributes has more than one copy of what it stores."""
    return int(str(attributes.get("replicas", 1))) > 1


def check_replicas(replicas: int) -> None:
    """Raises ConfigError for a number of copies that no destination has."""
    if replicas in _REFUSED:
        raise ConfigError(f"replicas = {replicas} {_REFUSED[replicas]}")


def check_copies(replicas: int, min_in_sync: int, *, in_broker: bool) -> None:
    """Raises ConfigError for what cannot be together. ``min_in_sync``: 0 for a majority; ``in_broker``: its host is in
    the broker's own process."""
    majority = replicas // 2 + 1
    if min_in_sync > replicas:
        raise ConfigError(f"minInSync = {min_in_sync} is more than there are copies: replicas is {replicas}")
    if 0 < min_in_sync < majority:
        raise ConfigError(
            f"minInSync = {min_in_sync} is less than a majority of {replicas} copies, which is {majority}: who leads"
            " after a loss is decided by a majority, and that could lack what was confirmed; choose"
            f" {majority} to {replicas}, or 0"
        )
    if replicas > 1 and in_broker:
        raise ConfigError(
            f"replicas = {replicas} and hosting=broker exclude each other: the broker's process, which is also the way"
            " in for clients, would have to move with it; choose hosting=shared or dedicated"
        )
