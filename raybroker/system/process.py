"""What the system says about this process: memory, processor time, threads, files."""

from __future__ import annotations

import os
import resource
import threading
from functools import cache
from pathlib import Path
from typing import Any, Final

_STATUS: Final = Path("/proc/self/statm")
_TASKS: Final = Path("/proc/self/task")
_FILES: Final = Path("/proc/self/fd")
_CGROUP_LIMITS: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def resident_bytes() -> int:
    """Memory of this process that is in RAM; where the system does not tell, the most that it ever was."""
    try:
        return int(_STATUS.read_text().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@cache
def memory_limit_bytes() -> int:
    """What all processes here may use: the limit of the container, or the machine's memory."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _CGROUP_LIMITS:
        try:
            return min(machine, int(path.read_text()))
        except (OSError, ValueError):
            continue
    return machine


def _entries(folder: Path, otherwise: int) -> int:
    try:
        return len(os.listdir(folder))
    except OSError:
        return otherwise


def threads() -> int:
    return _entries(_TASKS, threading.active_count())


def row(role: str) -> dict[str, Any]:
    """The rows of the catalogue of metrics about processes; ``role``: broker or host."""
    return {
        "process_resident_bytes": {role: resident_bytes()},
        "process_cpu_seconds_total": {role: sum(os.times()[:2])},
        "process_threads": {role: threads()},
        "process_open_files": {role: _entries(_FILES, 0)},
        "memory_limit_bytes": memory_limit_bytes(),
    }
