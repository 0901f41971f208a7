"""The memory of a host: its own and what it is told, against the limit that holds."""

from __future__ import annotations

import pytest

from raybroker.config import Config
from raybroker.hosting import host_memory
from raybroker.hosting.host_memory import HostMemory, memory_limit

LIMIT = "raybroker.memory.limit_bytes"


def test_a_limit_that_is_given_wins_over_that_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "memory_limit_bytes", lambda: 1 << 30)
    assert memory_limit(Config.from_values()) == 1 << 30
    assert memory_limit(Config.from_values({LIMIT: "2m"})) == 2 << 20


def test_what_other_processes_use_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "resident_bytes", lambda: 100)
    memory = HostMemory(Config.from_values({LIMIT: "2m"}))
    assert memory.usage() == (100, 2 << 20)
    memory.elsewhere_bytes = 50
    assert memory.usage() == (150, 2 << 20)
    monkeypatch.setattr(host_memory, "resident_bytes", lambda: 0)
    assert memory.usage() == (0, 0), "a system that does not tell has no levels"
