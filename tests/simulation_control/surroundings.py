"""Surroundings: what the parts of a simulated cluster may ask of it; ``world`` composes the parts."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, Protocol

from tests.simulation.events import Loop
from tests.simulation_control.plan import Plan


class Surroundings(Protocol):
    """One cluster: its randomness, its time and its brokers. ``calm``: nothing goes wrong any more."""

    rng: Random
    plan: Plan
    loop: Loop
    counts: Counter[str]
    calm: bool
    master: str
    network: Any
    database: Any
    watch: Any
    clients: Any
    nodes: dict[str, Any]
    faults: Any

    def count(self, what: str) -> None: ...

    def wall_ms(self, name: str) -> int: ...

    def new_id(self) -> str: ...

    def configured(self, name: str) -> tuple[str, ...]: ...

    def processes(self) -> list[Any]: ...

    def masters(self) -> set[str]: ...

    def start_node(self, node: Any) -> None: ...
