"""raybroker's service ``stomp`` through stomp.py: the functions that ActiveMQ is measured with, and a login.

Each message is synced before its receipt.
"""

from __future__ import annotations

import importlib.util
from importlib.metadata import version

from benchmarks.peers import activemq
from benchmarks.peers.ours_over_service import OursOverService


class OursOverStomp(OursOverService):
    service = "stomp"
    produce, consume = activemq.produce, activemq.consume
    blocking, receipts = activemq.blocking, activemq.receipts
    warmup = 5000

    def missing(self) -> str | None:
        return super().missing() or (
            None if importlib.util.find_spec("stomp") else "stomp.py is not installed (pip install stomp.py)"
        )

    def versions(self) -> list[str]:
        return [*super().versions(), f"stomp.py {version('stomp.py')}"]

    def settings(self) -> list[str]:
        promise = "persistent:true, files synced before each receipt"
        return [f"{promise}, service stomp with the login of a user, STOMP 1.1, hosting={self.hosting}"]
