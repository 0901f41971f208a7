"""Surroundings: what the parts of a simulated world may ask of it; ``world`` composes the parts."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from raybroker.engine.host import Host
from tests.simulation.disk import SimDisk
from tests.simulation.events import Loop, SimClock
from tests.simulation.plan import Plan


class Surroundings(Protocol):
    """One world: its randomness, its time, its host, and what has happened in it so far."""

    rng: Random
    loop: Loop
    clock: SimClock
    began_ms: int
    """The wall clock's offset when the host began: its measured time goes on from there."""
    plan: Plan
    disk: SimDisk
    host: Host | None
    watch: Any
    """The :class:`~tests.simulation.watch.Watch` that compares the host with its twins."""
    connections: list[Any]
    machines: list[Any]
    body_bytes_max: dict[int, int]
    with_headers: dict[int, bool]
    units_of: dict[int, int]
    default_units: set[str]
    transactional: set[int]
    decisions: dict[bytes, bool]
    active: set[bytes]
    destroyed: set[int]
    healing: bool
    full_until: int
    incarnation: int

    @property
    def running(self) -> Host | None: ...

    def next_number(self) -> int: ...

    def log(self, process: int, type: str, f: str, first: int, count: int, attempt: int = 0, **more: Any) -> None: ...

    def opening_failed(self, index: int, code: str, again: Callable[[], None]) -> None: ...
