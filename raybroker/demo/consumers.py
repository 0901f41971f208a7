"""The consumers: what ``rb.deploy`` runs in each actor, and the messages with which they report.

A consumer reports each batch row by row, as one persistent message to a second queue, and only then is the batch
acknowledged: killed in between, it leaves a report, and its rows come again elsewhere and are reported again, flagged.
Nothing is summed up before it is known which rows are there twice; that is the tally's work (``check``).
"""

from __future__ import annotations

import os
from array import array
from typing import Any, Final

import raybroker as rb
from raybroker.system.clock import SystemClock

ROW_CODE: Final = "I"
MILLIS_CODE: Final = "I"
_MILLIS_MAX: Final = 2**32 - 1


class Reporter:
    """The listener: a list of messages in, one report out. Copies itself into each consumer actor."""

    def __init__(self, cluster: str, reports: str) -> None:
        self.cluster = cluster
        self.reports = reports
        self._producer: Any = None

    def __call__(self, messages: list[Any]) -> None:
        self._reporting().send(report(messages, SystemClock().now_ms()))

    def _reporting(self) -> Any:
        if self._producer is None:
            connection = rb.connect(cluster=self.cluster)
            self._producer = connection.session().producer(self.reports, persistent=True)
        return self._producer


def report(messages: list[Any], now_ms: int) -> dict[str, Any]:
    """The report of a batch: columns of row numbers, flags, waits in milliseconds, carriers and delays."""
    bodies = [message.body for message in messages]
    return {
        "pid": os.getpid(),
        "rows": array(ROW_CODE, [body["row"] for body in bodies]).tobytes(),
        "redelivered": bytes(message.redelivered for message in messages),
        "waited_ms": array(
            MILLIS_CODE, [min(max(now_ms - message.timestamp, 0), _MILLIS_MAX) for message in messages]
        ).tobytes(),
        "carriers": [body["carrier"] for body in bodies],
        "dep_delays": [body["dep_delay"] for body in bodies],
        "arr_delays": [body["arr_delay"] for body in bodies],
    }
