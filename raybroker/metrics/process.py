"""Figures of this process: memory, processor time, threads and files, as rows of the catalogue."""

from __future__ import annotations

import os
import threading
from typing import Any, Final

from raybroker.model.histogram import PARTS

COLLECTED: Final = {
    "process_resident_memory_bytes": "process_resident_bytes",
    "process_cpu_seconds_total": "process_cpu_seconds_total",
    "process_open_fds": "process_open_files",
}
"""Samples of prometheus_client's process collector, and their keys in the catalogue."""


def threads() -> int:
    """Threads of this process, those that Python did not start included where the system lists them."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


def _value(name: str, value: float) -> float:
    """Times are counted in PARTS, see model.histogram."""
    return round(value * PARTS) if name.endswith("_seconds_total") else value


def row(role: str, memory_limit_bytes: int) -> dict[str, Any]:
    """The rows of one process; ``role``: broker or host; ``memory_limit_bytes``: what all processes of the broker may
    use. A figure that the system does not tell is left out."""
    from prometheus_client import PROCESS_COLLECTOR  # It takes long to import.

    samples = [sample for family in PROCESS_COLLECTOR.collect() for sample in family.samples]
    return {
        **{COLLECTED[one.name]: {role: _value(one.name, one.value)} for one in samples if one.name in COLLECTED},
        "process_threads": {role: threads()},
        "memory_limit_bytes": memory_limit_bytes,
    }
