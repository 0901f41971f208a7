"""The broker that clients speak to, as a process that may be killed and started again."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

import httpx

from tests.amqp_clients import building

Kind = Literal["raybroker", "artemis"]
START_S: Final = 60
END_S: Final = 30


class Server:
    """``folder``: of its store and its users, which outlast it; ``port``: of AMQP, 0 for a free one, which stays."""

    def __init__(
        self,
        kind: Kind,
        folder: Path,
        port: int = 0,
        java_flags: tuple[str, ...] = building.SHORT_PROGRAM,
        **properties: str,
    ) -> None:
        self.kind, self.folder, self.port, self.http = kind, folder, port, 0
        self._properties, self._java_flags = properties, java_flags
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self.port}"

    @property
    def admin(self) -> str:
        """The address of its administration."""
        return f"http://127.0.0.1:{self.http}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        if self.kind == "artemis":
            where = str(self.folder / "artemis"), str(self.port)
            command = building.java("artemis", "reference.ArtemisServer", *where, flags=self._java_flags)
        else:
            more = [f"{name.replace('__', '.')}={value}" for name, value in self._properties.items()]
            command = [sys.executable, "-m", "tests.amqp_clients.broker", str(self.folder), str(self.port), *more]
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "broker.log").open("a") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=building.HERE.parents[1],
            )
        self._process = process
        guard = threading.Timer(START_S, process.kill)
        guard.start()
        try:
            assert process.stdout is not None
            said = next((line for line in process.stdout if line.startswith("ready ")), "")
        finally:
            guard.cancel()
        if not said:
            self.stop()
            raise RuntimeError(f"the broker has not started:\n{(self.folder / 'broker.log').read_text()[-3000:]}")
        _, port, http = said.split()
        self.port, self.http = int(port), int(http)

    def kill(self) -> None:
        """As the system does it: nothing is written any more."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._end()

    def stop(self) -> None:
        """Let it end, and kill it where it does not."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._end()

    def _end(self) -> None:
        assert self._process is not None
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process = None

    def create_queue(self, name: str, **attributes: object) -> None:
        """``attributes``: those of raybroker, which the reference leaves alone."""
        asked = {"name": name, "type": "queue", "attributes": attributes}
        httpx.post(f"{self.admin}/destinations", auth=("root", "secret"), json=asked).raise_for_status()
