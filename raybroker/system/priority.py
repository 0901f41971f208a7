"""The scheduling priority of threads.

Ray starts its workers "nice", which is right for batch work and wrong for a broker: programs that send to it would run
before it, and a program that computes would delay its heartbeats.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

_THREADS: Final = "/proc/self/task"


def normal_priority() -> bool:
    """Give this thread, and those that it starts, normal priority; false where that is not permitted."""
    return _set(0)


def normal_priority_throughout() -> bool:
    """Give all present threads of this process normal priority, Ray's own included; false where it is not permitted."""
    try:
        threads = [int(name) for name in os.listdir(_THREADS)]
    except OSError:
        return normal_priority()
    permitted = True
    for thread in threads:
        permitted = _set(thread) and permitted
    return permitted


def _set(thread: int) -> bool:
    """Set the priority of one thread, 0 for the calling one; a thread that has ended counts as done."""
    try:
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, thread, 0)
    except (PermissionError, AttributeError):
        return False
    return True
