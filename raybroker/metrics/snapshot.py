"""A snapshot: the counts of one broker up to one moment, from which pages, messages and exports are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

Row = dict[str, Any]


class Snapshot(NamedTuple):
    """The counts of one broker up to one moment; ``destinations`` is empty unless they were asked for."""

    cluster: str
    broker: str
    own: Row
    types: Mapping[str, Row]
    destinations: list[Row]
