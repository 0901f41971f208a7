"""raybroker's service ``stomp`` through stomp.py: the functions that ActiveMQ is measured with, and a login.

The broker and, unless the queue is in the broker's process, its host are processes of a Ray of their own; each message
is synced before its receipt.
"""

from __future__ import annotations

import importlib.util
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.ours import Raybroker
from benchmarks.ours_connection import connect
from benchmarks.peers import activemq
from benchmarks.peers.base import Address
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.wire.scram import Verifier

PASSWORD = "secret"
USER = "bench"
SECURITY = "raybroker.security.dir"


def _port(job: Any, address: Address) -> int:
    """The port of the service."""
    with connect(address) as connection:
        services = connection.admin().list_services()
    job.ready()
    return int(next(row["port"] for row in services if row["service"] == "stomp"))


class OursOverStomp(Raybroker):
    """One broker; ``hosting``: where each queue is."""

    produce, consume = activemq.produce, activemq.consume
    blocking, receipts = activemq.blocking, activemq.receipts
    warmup = 5000

    def __init__(self, hosting: str = "dedicated") -> None:
        self.hosting = hosting
        super().__init__({"imq.service.activelist": "stomp", "imq.hostname": "127.0.0.1", "imq.portmapper.port": "0"})

    def missing(self) -> str | None:
        return super().missing() or (
            None if importlib.util.find_spec("stomp") else "stomp.py is not installed (pip install stomp.py)"
        )

    def versions(self) -> list[str]:
        return [*super().versions(), f"stomp.py {version('stomp.py')}"]

    def settings(self) -> list[str]:
        promise = "persistent:true, files synced before each receipt"
        return [f"{promise}, service stomp with the login of a user, STOMP 1.1, hosting={self.hosting}"]

    def start(self, folder: Path) -> Address:
        security = folder / "security"
        security.mkdir(parents=True, exist_ok=True)
        UserFile(security / "passwd").add(USER, UserEntry(str(Verifier.from_password(PASSWORD, b"s" * 16)), "user"))
        self.more[SECURITY] = str(security)
        address = super().start(folder)
        return {**address, "port": self.run(_port, address), "user": USER, "password": PASSWORD}
