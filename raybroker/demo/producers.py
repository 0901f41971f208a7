"""The producers: actors that read their share of the file and send it as persistent messages."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any

import raybroker as rb
from raybroker.demo import data


class Replayer:
    """Sends every ``parts``-th departure. After ``gate`` of them it waits for :meth:`go_on` (None: it does not).

    The wait is there so that also a short demo is still under way when its consumer is killed.
    """

    def __init__(self, cluster: str, queue: str, rows: int | None, part: int, parts: int, gate: int | None) -> None:
        self._cluster = cluster
        self._queue = queue
        self._share = (rows, part, parts)
        self._gate = gate
        self._go = threading.Event()
        self._handed = 0
        self._stored = 0
        self._error: str | None = None
        self._thread = threading.Thread(target=self._run, name="replay", daemon=True)

    def start(self) -> int:
        """Begin to send; the process id."""
        self._thread.start()
        return os.getpid()

    def go_on(self) -> None:
        """Send what is behind the gate."""
        self._go.set()

    def stats(self) -> dict[str, Any]:
        """Departures handed over and known to be stored, and the error that ended it, if one did."""
        return {"handed": self._handed, "stored": self._stored, "error": self._error}

    def _run(self) -> None:
        try:
            with rb.connect(cluster=self._cluster) as connection:
                producer = connection.session().producer(self._queue, persistent=True)
                bodies = self._bodies()
                if self._gate is not None:
                    self._stored += producer.send_many(islice(bodies, self._gate))
                    self._go.wait()
                self._stored += producer.send_many(bodies)
        except Exception as error:  # noqa: BLE001 - whoever asks for stats is told
            self._error = repr(error)

    def _bodies(self) -> Iterator[dict[str, Any]]:
        for body in data.departures(*self._share):
            self._handed += 1
            yield body
