"""Servers under test as child processes: own folder, free loopback port, stopped by process id.

Each server is started in its own session, so that what it forks ends with it, and asks the kernel for SIGTERM should
the harness die first.  Its output goes to a file, whose end is part of the error when it does not come up.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


class ServerError(RuntimeError):
    """The server did not come up; the text ends with its last output."""


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def find_program(*names: str) -> str | None:
    """The first of the programs that exists, looked for on PATH and in the sbin folders."""
    path = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
    return next((found for name in names if (found := shutil.which(name, path=path))), None)


def die_with_parent() -> None:
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Server:
    """One child process and its log."""

    def __init__(self, command: Sequence[str], folder: Path, env: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / f"{Path(command[0]).name}.out"
        with self._log.open("wb") as out:
            self.process = subprocess.Popen(
                list(command),
                cwd=folder,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - the harness has no threads when it starts servers
            )

    def wait_ready(self, probe: Callable[[], object], seconds: float = 60.0) -> None:
        """Calls ``probe`` until it does not raise."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                probe()
                return
            except Exception as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    tail = self._log.read_text(errors="replace")[-2000:]
                    self.stop()
                    raise ServerError(f"{self.process.args!r}: not ready ({error!r})\n{tail}") from error
                time.sleep(0.1)

    def stop(self, seconds: float = 15.0) -> None:
        """SIGTERM to the server's session, SIGKILL after ``seconds``."""
        for sign, wait in ((signal.SIGTERM, seconds), (signal.SIGKILL, 5.0)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, sign)
            try:
                self.process.wait(wait)
            except subprocess.TimeoutExpired:
                continue
            if sign == signal.SIGTERM and not _session_alive(self.process.pid):
                return


def _session_alive(session: int) -> bool:
    """True when a process of the session is left a little after its leader has ended."""
    deadline = time.monotonic() + 3.0
    while time.monotonic() < deadline:
        try:
            os.killpg(session, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.05)
    return True


def output_of(*command: str, env: Mapping[str, str] | None = None) -> str:
    """What a program prints, both streams, stripped."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, **(env or {})}
    )
    return (done.stdout + done.stderr).strip()


def package_version(name: str) -> str:
    """The version of an installed Debian package, or a dash."""
    if not (query := find_program("dpkg-query")):
        return "-"
    done = subprocess.run([query, "-W", "-f", "${Version}", name], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "-"
