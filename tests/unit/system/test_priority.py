"""Threads get normal priority, also those that were there before; or nothing changes where that is not permitted."""

from __future__ import annotations

import os
import subprocess
import sys

NICE = 7
_PROGRAM = f"""
import os, threading
from raybroker.system.priority import normal_priority, normal_priority_throughout

def nice():
    return sorted(os.getpriority(os.PRIO_PROCESS, int(thread)) for thread in os.listdir("/proc/self/task"))

os.nice({NICE})
over = threading.Event()
for _ in range(3):
    threading.Thread(target=over.wait, daemon=True).start()
before = nice()
one, after_one = normal_priority(), nice()
every, after_every = normal_priority_throughout(), nice()
threading.Thread(target=over.wait, daemon=True).start()
print(before, one, after_one, every, after_every, nice(), sep="|")
"""


def test_every_thread_of_the_process_and_those_to_come() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    before, one, after_one, every, after_every, later = done.stdout.strip().split("|")
    nice = [min(os.getpriority(os.PRIO_PROCESS, 0) + NICE, 19)] * 4
    assert before == str(nice)
    assert one == every, "both are permitted, or neither is"
    if one == "True":
        assert after_one == str([0, *nice[1:]])
        assert (after_every, later) == (str([0] * 4), str([0] * 5))
    else:
        assert after_one == after_every == str(nice)
