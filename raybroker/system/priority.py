"""The scheduling priority of the calling thread."""

from __future__ import annotations

import os


def normal_priority() -> bool:
    """Give this thread, and those it starts, normal priority; False where that is not permitted.

    Ray starts its workers "nice", which is right for batch work and wrong for a broker: every program on the node that
    sends to it would be served before it.
    """
    try:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    except (PermissionError, AttributeError):
        return False
    return True
