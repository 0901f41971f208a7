"""Kills of the tasks of Ray Data, and the account of what was written and read meanwhile."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tests.cluster import rays
from tests.simulation.checkers import Total, total_queue
from tests.simulation.history import Op

WORDS: Final = (b"RaybrokerQueue", b"MapBatches", b"Write")
"""What the titles of processes have that run tasks of Ray Data."""
WAIT_S: Final = 60.0
LOOK_S: Final = 0.05


def tasks() -> list[int]:
    """The processes of the tests' own Ray that run a task of Ray Data now."""
    found = []
    for pid in rays.processes(rays.folder()):
        with suppress(OSError):
            text = Path(f"/proc/{pid}/cmdline").read_bytes()
            if text.startswith(b"ray::") and any(word in text for word in WORDS):
                found.append(pid)
    return found


def held_until(folder: Path, kills: int) -> Callable[[Any], Any]:
    """What gives a batch back once so many tasks were killed: until then each task is there to be killed."""

    def held(batch: Any) -> Any:
        deadline = time.monotonic() + WAIT_S
        while len(list(folder.iterdir())) < kills and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        return batch

    return held


@contextmanager
def killing(folder: Path, kills: int, rng: random.Random) -> Iterator[None]:
    """Kill so many tasks, one after another, while the block runs; the folder gets a file for each."""
    over = threading.Event()

    def kill() -> None:
        for number in range(kills):
            while not over.wait(rng.uniform(0.1, 0.5)):
                if running := tasks():
                    try:
                        os.kill(rng.choice(running), signal.SIGKILL)
                    except ProcessLookupError:
                        continue
                    (folder / f"{number}").touch()
                    break

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield
    finally:
        over.set()
        killer.join()


class Account:
    """What a run has sent and taken, for the checkers of a queue."""

    def __init__(self) -> None:
        self._ops: list[Op] = []
        self.unflagged: list[int] = []
        """What was taken more than once, and did not say so."""
        self._taken: set[int] = set()

    def sends(self, values: Iterable[int]) -> None:
        """They are about to be written."""
        self._ops += [Op(len(self._ops), 0, "invoke", "enqueue", value) for value in values]

    def sent(self, values: Iterable[int]) -> None:
        """The write has returned."""
        self._ops += [Op(len(self._ops), 0, "ok", "enqueue", value) for value in values]

    def took(self, rows: Iterable[tuple[int, bool]]) -> None:
        """A read has handed over (value, redelivered)."""
        for value, redelivered in rows:
            if value in self._taken and not redelivered:
                self.unflagged.append(value)
            self._taken.add(value)
            self._ops.append(Op(len(self._ops), 1, "ok", "dequeue", value, 1))

    def verdict(self) -> Total:
        """After the queue was emptied."""
        return total_queue(self._ops)
