"""raybroker's service ``stomp`` through stomp.py: the functions that ActiveMQ is measured with, and a login.

The broker is one process with its hosts in it and a store of files, synced before the receipt.
"""

from __future__ import annotations

import importlib.util
import socket
import sys
from importlib.metadata import version
from pathlib import Path

from benchmarks.peers import activemq
from benchmarks.peers.base import Address, Peer
from benchmarks.servers import Server
from raybroker.security.user_file import Entry, UserFile
from raybroker.wire.scram import Verifier

PASSWORD = "secret"
USER = "bench"
PORT_FILE = "port"

BROKER = """
import pathlib, signal, sys
import raybroker as rb
folder = pathlib.Path(sys.argv[1])
properties = {
    "imq.service.activelist": "stomp", "imq.hostname": "127.0.0.1", "imq.portmapper.port": 0,
    "raybroker.security.dir": str(folder / "security"), "imq.autocreate.destination.maxNumMsgs": -1,
    "imq.autocreate.destination.maxTotalMsgBytes": -1, "imq.autocreate.destination.maxBytesPerMsg": -1,
}
with rb.loopback(folder / "store", properties=properties) as connection:
    port = next(row["port"] for row in connection.admin().list_services() if row["service"] == "stomp")
    (folder / "port.new").write_text(str(port))
    (folder / "port.new").rename(folder / "port")
    signal.sigwait({signal.SIGTERM})
"""


class OursOverStomp(Peer):
    """One broker in a Python process."""

    name = "raybroker"
    produce, consume = activemq.produce, activemq.consume
    blocking, receipts = activemq.blocking, activemq.receipts
    warmup = 5000

    def __init__(self) -> None:
        self._server: Server | None = None

    def missing(self) -> str | None:
        return None if importlib.util.find_spec("stomp") else "stomp.py is not installed (pip install stomp.py)"

    def versions(self) -> list[str]:
        return [f"raybroker {version('raybroker')}", f"stomp.py {version('stomp.py')}"]

    def settings(self) -> list[str]:
        return ["persistent:true, files synced before each receipt, service stomp with the login of a user, STOMP 1.1"]

    def start(self, folder: Path) -> Address:
        security = folder / "security"
        security.mkdir(parents=True, exist_ok=True)
        UserFile(security / "passwd").add(USER, Entry(str(Verifier.of(PASSWORD, b"s" * 16)), "user"))
        self._server = Server([sys.executable, "-c", BROKER, str(folder)], folder)
        self._server.wait_ready((folder / PORT_FILE).read_text)
        port = int((folder / PORT_FILE).read_text())
        socket.create_connection(("127.0.0.1", port)).close()
        return {"port": port, "user": USER, "password": PASSWORD}

    def stop(self) -> None:
        if self._server:
            self._server.stop()
