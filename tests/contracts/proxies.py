"""HTTP proxies that have to be named: tinyproxy where it is installed, and a small one that counts what it is asked.

Both connect by CONNECT, to any port, and ask for a user and a password where the test wants that.
"""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

HEAD_BYTES_MAX = 16 << 10
WAIT_S = 30.0


class Proxy:
    """``targets``: what it was asked to connect to; ``verdict``: its answer to CONNECT instead of connecting."""

    def __init__(self, login: str = "", verdict: bytes = b"") -> None:
        self.targets: list[str] = []
        self.verdict = verdict
        self._wanted = f"Basic {base64.b64encode(login.encode()).decode()}" if login else ""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                taken, _ = self._listening.accept()
                self._open.append(taken)
                threading.Thread(target=self._serve, args=(taken,), daemon=True).start()

    def _serve(self, taken: socket.socket) -> None:
        with contextlib.suppress(OSError), taken:
            head = b""
            while not head.endswith(b"\r\n\r\n") and len(head) < HEAD_BYTES_MAX:
                head += taken.recv(1)
            first, *lines = head.decode().split("\r\n")
            method, target, _ = first.split(" ")
            assert method == "CONNECT"
            headers = {name.lower(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
            if self._wanted and headers.get("proxy-authorization") != self._wanted:
                taken.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n")
                return
            self.targets.append(target)
            if self.verdict:
                taken.sendall(self.verdict)
                return
            host, _, port = target.rpartition(":")
            with socket.create_connection((host.strip("[]"), int(port)), timeout=WAIT_S) as there:
                there.settimeout(None)
                self._open.append(there)
                taken.sendall(b"HTTP/1.1 200 Connection established\r\nVia: a test\r\n\r\n")
                back = threading.Thread(target=_pass_on, args=(there, taken), daemon=True)
                back.start()
                _pass_on(taken, there)
                back.join()

    def cut(self) -> None:
        """End all connections; it goes on."""
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()


def _pass_on(source: socket.socket, to: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            to.sendall(data)
    with contextlib.suppress(OSError):
        to.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def tinyproxy(folder: Path, login: str = "") -> Iterator[str]:
    """The address of a tinyproxy of the test's own."""
    program = shutil.which("tinyproxy")
    if program is None:
        pytest.skip("tinyproxy is not installed; it is in Debian's package tinyproxy")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    user, _, password = login.partition(":")
    lines = [f"Port {port}", "Listen 127.0.0.1", "Timeout 600", "Allow 127.0.0.1", "MaxClients 100"]
    config = folder / "tinyproxy.conf"
    config.write_text("\n".join([*lines, *([f"BasicAuth {user} {password}"] if login else []), ""]))
    process = subprocess.Popen(
        [program, "-d", "-c", str(config)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "LC_ALL": "C"},
    )
    try:
        deadline = time.monotonic() + WAIT_S
        while True:
            assert process.poll() is None, "tinyproxy has ended"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert time.monotonic() < deadline, "tinyproxy does not listen"
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(WAIT_S)
