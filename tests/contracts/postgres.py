"""A real PostgreSQL server of the tests' own, on a free port and with its own data."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ACCOUNTS = ("postgres", "nobody")
"""Whom the server runs as where the tests are run by root, which it refuses."""
INSTALLED = Path("/usr/lib/postgresql")
TIMEOUT_S = 60
_MISSING = "PostgreSQL's server is not installed; it is in Debian's package postgresql"


def _program(name: str) -> str:
    """The newest there is; without one the test is skipped here, and fails in CI."""
    found = sorted(INSTALLED.glob(f"*/bin/{name}"), key=lambda path: path.parts[-3].zfill(4))
    program = str(found[-1]) if found else shutil.which(name)
    if program is None:
        if os.environ.get("CI"):
            pytest.fail(_MISSING)
        pytest.skip(_MISSING)
    return program


def _account() -> str | None:
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ACCOUNTS if name in known)


class Server:
    """``url``: of the database that is there from the beginning."""

    def __init__(self, directory: Path, account: str | None, password: str | None) -> None:
        self._data = directory / "data"
        self._log = directory / "log"
        self._account = account
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.url = f"postgresql://broker@127.0.0.1:{self._port}/postgres"
        how = ["--auth=trust"]
        if password is not None:
            (directory / "first").write_text(f"{password}\n")
            (directory / "first").chmod(0o644)
            how = ["--auth=scram-sha-256", f"--pwfile={directory / 'first'}"]
        self._run("initdb", "-D", str(self._data), "-U", "broker", *how, "--no-locale", "-E", "UTF8")

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [_program(program), *arguments],
            user=self._account,
            cwd=self._data.parent,
            check=False,
            text=True,
            capture_output=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        options = f"-p {self._port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c max_connections=50"
        # Its output must not be the pipe of the program that starts it, which would stay open.
        self._run("pg_ctl", "-D", str(self._data), "-l", str(self._log), "-w", "-o", options, "start")

    def kill(self) -> None:
        """SIGKILL of its process and of all that serve connections, at whatever they are doing."""
        pids = [int((self._data / "postmaster.pid").read_text().split()[0])]
        pids += [int(pid) for pid in Path(f"/proc/{pids[0]}/task/{pids[0]}/children").read_text().split()]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until_gone = time.monotonic() + TIMEOUT_S
        while any(_lives(pid) for pid in pids):
            assert time.monotonic() < until_gone, "it does not end"
            time.sleep(0.01)
        # Where nobody takes leave of dead processes, the file would seem to be of one that lives.
        (self._data / "postmaster.pid").unlink()

    def stop(self) -> None:
        """At once, as when its machine is lost; what was committed comes back."""
        self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "-w", "stop")


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextlib.contextmanager
def server(password: str | None = None) -> Iterator[Server]:
    """One that runs; it may be stopped and started. ``password``: that of its user, None: nobody is asked for one."""
    _program("initdb")
    account = _account()
    directory = Path(tempfile.mkdtemp(prefix="raybroker-postgres-"))
    try:
        if account is not None:
            shutil.chown(directory, account)
        made = Server(directory, account, password)
        made.start()
        try:
            yield made
        finally:
            with contextlib.suppress(AssertionError):
                made.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def shared_store(server: Server) -> dict[str, object]:
    """The settings of brokers that have their record and their stores in one database."""
    return {
        "imq.cluster.ha": True,
        "imq.cluster.nomasterbroker": True,
        "imq.cluster.sharecc.persist.jdbc.url": server.url,
        "imq.persist.store": "sql",
        "imq.persist.jdbc.dbVendor": "postgresql",
        "imq.persist.jdbc.postgresql.opendburl": server.url,
        "imq.persist.jdbc.connection.retry.delay": 200,
        "raybroker.cluster.table_timeout_ms": 30_000,
    }
