"""A watch over a process that may hang: what it leaves then is where each of its threads and tasks is."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Iterable
from typing import Final, TextIO

from raybroker.client.io import io_thread

AFTER_S: Final = 10.0
"""How much later the process ends where no thread of Python gets to run any more; it prints its threads then."""
SAYS: Final = "this process has hung"
HUNG: Final = 70
"""The exit status of a process that hung."""


def write_stacks(out: TextIO, loops: Iterable[asyncio.AbstractEventLoop]) -> None:
    """All threads, and the tasks of these loops, which may be those of other threads."""
    out.write(f"{SAYS}; all its threads, and the tasks of its event loops:\n")
    out.flush()
    faulthandler.dump_traceback(out, all_threads=True)
    for loop in loops:
        for task in asyncio.all_tasks(loop):
            task.print_stack(file=out)
    out.flush()


class Watch(threading.Thread):
    """Ends the process with status HUNG once ``limit_s`` have passed, after its stacks were printed."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(name="watch", daemon=True)
        self._limit_s = limit_s

    def start(self) -> None:
        faulthandler.dump_traceback_later(self._limit_s + AFTER_S, exit=True)
        super().start()

    def run(self) -> None:
        time.sleep(self._limit_s)
        try:
            write_stacks(sys.stderr, [one.loop for one in list(io_thread._all)])
        finally:
            os._exit(HUNG)
