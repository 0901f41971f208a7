"""The flow limits of a whole connection: how much it buffers over all its consumers, and pauses for the rest.

imqConnectionFlowLimit   delivery stops while more messages than this are buffered
imqConnectionFlowCount   after so many messages the host waits to be told to go on
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from raybroker.model.settings.settings import ConfigView

FLOW_COUNT: Final = 100
"""imqConnectionFlowCount where it is off and imqConnectionFlowLimit holds: the limit is looked at so often."""


class ConnectionFlow:
    """``write(go)`` tells the hosts, on the IO loop; ``post(call, go)`` has it called there."""

    def __init__(
        self,
        attributes: ConfigView,
        write: Callable[[bool], None],
        post: Callable[[Callable[[bool], None], bool], None],
    ) -> None:
        self._write = write
        self._post = post
        self._buffered = 0
        self._open = True
        self._most: int = attributes["imqConnectionFlowLimit"] if attributes["imqConnectionFlowLimitEnabled"] else -1
        self.counts_buffered = self._most >= 0
        """Whether :meth:`handed_out` does anything."""
        self.meter_max: int = attributes["imqConnectionFlowCount"]
        if self._most >= 0 and not self.meter_max:
            self.meter_max = FLOW_COUNT
        self.counts_arrived = self.meter_max > 0
        """Whether :meth:`arrived` does anything."""
        self._metered = 0
        self._lock = threading.Lock()

    def arrived(self, count: int) -> None:
        """Messages came into some buffer of this connection; on the IO loop."""
        if self._most >= 0:
            with self._lock:
                self._buffered += count
                self._watch()
        if self.meter_max > 0:
            self.meter(count)

    def meter(self, count: int) -> None:
        """Messages came, whether they were kept or not; on the IO loop."""
        if self.meter_max > 0:
            self._metered += count
            if self._metered >= self.meter_max and self._open:
                self._write_go(True)

    def _write_go(self, go: bool) -> None:
        if go:
            self._metered = 0
        self._write(go)

    def handed_out(self, count: int) -> None:
        """Messages left some buffer of this connection; in any thread."""
        if self._most >= 0:
            with self._lock:
                self._buffered -= count
                self._watch()

    def _watch(self) -> None:
        go = self._buffered <= self._most if self._open else self._buffered < max(self._most, 1)
        if go != self._open:
            self._open = go
            self._post(self._write_go, go)
