"""raybroker behind one of its services for other protocols: a broker with that service alone, and the login of a user.

The broker and, unless the queue is in the broker's process, its host are processes of a Ray of their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Final

from benchmarks.ours import Raybroker
from benchmarks.ours_connection import connect
from benchmarks.peers.base import Address
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.wire.scram import Verifier

PASSWORD: Final = "secret"
USER: Final = "bench"
SECURITY: Final = "raybroker.security.dir"


def _port(job: Any, address: Address, service: str) -> int:
    """The port of the service."""
    with connect(address) as connection:
        services = connection.admin().list_services()
    job.ready()
    return int(next(row["port"] for row in services if row["service"] == service))


class OursOverService(Raybroker):
    """One broker; ``hosting``: where each queue is."""

    service: ClassVar[str]

    def __init__(self, hosting: str = "dedicated") -> None:
        self.hosting = hosting
        super().__init__(
            {"imq.service.activelist": self.service, "imq.hostname": "127.0.0.1", "imq.portmapper.port": "0"}
        )

    def start(self, folder: Path) -> Address:
        security = folder / "security"
        security.mkdir(parents=True, exist_ok=True)
        UserFile(security / "passwd").add(USER, UserEntry(str(Verifier.from_password(PASSWORD, b"s" * 16)), "user"))
        self.more[SECURITY] = str(security)
        address = super().start(folder)
        return {**address, "port": self.run(_port, address, self.service), "user": USER, "password": PASSWORD}
