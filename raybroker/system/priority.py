"""The scheduling priority of threads.

Ray starts its workers "nice", which is right for batch work and wrong for a broker: every program on the node that
sends to it would be served before it, and one that computes would keep it from saying in time that it lives.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

_THREADS: Final = "/proc/self/task"


def normal_priority() -> bool:
    """Give this thread, and those it starts, normal priority; False where that is not permitted."""
    return _set(0)


def normal_priority_throughout() -> bool:
    """The same for all threads that this process has by now, Ray's own among them."""
    try:
        threads = [int(name) for name in os.listdir(_THREADS)]
    except OSError:
        return normal_priority()
    permitted = True
    for thread in threads:
        permitted = _set(thread) and permitted
    return permitted


def _set(thread: int) -> bool:
    """0: the calling thread. One that has ended meanwhile needs nothing."""
    try:
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, thread, 0)
    except (PermissionError, AttributeError):
        return False
    return True
