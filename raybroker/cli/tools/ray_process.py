"""A Ray of our own that outlives the command: ``ray start --head --block`` as a child in a session of its own.

It takes ports that were free, lets nobody in without the token in a file that only the user can read, and is ended by
process id: everything in its session, nothing else.  (``ray stop`` would end every Ray of the machine.)

A file says which Ray is being started, and by whom, until the place of the cluster is noted: a command that is killed
meanwhile leaves it behind, and the next one ends that Ray.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from raybroker.config.layers import set_variables
from raybroker.config.places import FilePlace, answers, forget_last_started, noted, process_stat, start_mark
from raybroker.model.errors import BrokerError, ConfigError, IllegalStateError
from raybroker.system.clock import SystemClock
from raybroker.system.entropy import token

HOST: Final = "127.0.0.1"
START_S: Final = 60.0
END_S: Final = 10.0
POLL_S: Final = 0.05
TELL_S: Final = 5.0
"""How often it is said what the start waits for."""
LOG_TAIL_LINES: Final = 15
LOG: Final = "ray.log"
BEGIN: Final = b"1"
"""The head waits for it, and ends without it: it is written down by then who starts it."""


BEGUN: Final = "begun.json"
"""Beside the file of a cluster's place."""


@contextmanager
def started_ray(directory: Path, told: Callable[[str], None]) -> Iterator[FilePlace]:
    """A head that takes connections, which stays when the block goes well; its log and token stand in ``directory``.
    ``told`` is called now and then with what is waited for.

    Raises BrokerError with the end of the log when it does not come up, ModuleNotFoundError where there is no Ray.
    """
    if importlib.util.find_spec("ray") is None:
        raise ModuleNotFoundError("No module named 'ray'", name="ray")
    directory.mkdir(parents=True, exist_ok=True)
    token_path = write_token(directory / "ray.token")
    # Without the last, Ray runs brokers at a lower priority than every program that uses them.
    set_variables({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token_path), "RAY_worker_niceness": "0"})
    port, *others = free_ports(5)
    address = f"{HOST}:{port}"
    log = directory / LOG
    with log.open("wb") as out:
        child = subprocess.Popen(
            _command(port, others), stdin=subprocess.PIPE, stdout=out, stderr=out, start_new_session=True
        )
    place = FilePlace(address, "token", str(token_path), child.pid, start_mark(child.pid))
    begun = directory / BEGUN
    try:
        begun.write_text(json.dumps(asdict(BegunRay(place, os.getpid(), start_mark(os.getpid())))), encoding="utf-8")
        assert child.stdin is not None
        with child.stdin as begin:
            begin.write(BEGIN)
        importlib.import_module("raybroker.actors.cluster")  # Meanwhile: with Ray it takes half a second.
        _wait_until_up(child, address, log, told)
        yield place
    except BaseException:
        end_session(child.pid)
        raise
    finally:
        begun.unlink(missing_ok=True)


@dataclass(frozen=True)
class BegunRay:
    """A Ray that a process starts: ``owner`` and its start mark."""

    place: FilePlace
    owner: int
    since: str | None

    def owned(self) -> bool:
        """Whether another process is at it now."""
        return self.owner != os.getpid() and self.since is not None and start_mark(self.owner) == self.since


def end_abandoned(directory: Path) -> FilePlace | None:
    """End every Ray that a command has started which was killed before the place was noted.

    Return the one of the cluster of ``directory``; raises IllegalStateError where another command starts it now.
    """
    found = None
    for path in sorted(directory.parent.glob(f"*/{BEGUN}")):
        begun = _begun(path)
        if begun is not None and begun.owned():
            if path.parent == directory:
                raise IllegalStateError(
                    f"process {begun.owner} starts the cluster in {directory} at the moment; wait until it is done"
                )
            continue
        path.unlink(missing_ok=True)
        place = None if begun is None else begun.place
        if place is None or place.pid is None or start_mark(place.pid) != place.since:
            continue
        if any(other.pid == place.pid for other in noted(directory.parent)):
            continue
        end_session(place.pid)
        forget_last_started(place)
        found = place if path.parent == directory else found
    return found


def _begun(path: Path) -> BegunRay | None:
    """What a file says; None for one that was not written to its end, whose Ray has not begun."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        return BegunRay(FilePlace(**said.pop("place")), **said)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _wait_until_up(child: subprocess.Popen[bytes], address: str, log: Path, told: Callable[[str], None]) -> None:
    began_ns = said_ns = SystemClock().monotonic_ns()
    deadline = began_ns + int(START_S * 1e9)
    while not _takes_programs(address):
        if child.poll() is not None:
            raise BrokerError(f"Ray ended with status {child.returncode} at its start; {log} ends with:\n{_tail(log)}")
        now_ns = SystemClock().monotonic_ns()
        if now_ns - said_ns >= TELL_S * 1e9:
            said_ns = now_ns
            told(f"waiting {(now_ns - began_ns) // 10**9} s for Ray to take programs at {address}; its log: {log}")
        if now_ns > deadline:
            raise BrokerError(f"Ray did not start within {START_S:g} s; {log} ends with:\n{_tail(log)}")
        threading.Event().wait(POLL_S)


def _takes_programs(address: str) -> bool:
    from raybroker.actors import runtime

    return answers(address) and runtime.takes_programs(address)


HEAD: Final = f"""\
import os
if os.read(0, 1) != {BEGIN!r}:
    os._exit(1)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
from ray.scripts.scripts import main
main()
"""


def _command(port: int, others: list[int]) -> list[str]:
    client, agent, agent_grpc, runtime_env = others
    # Without grpc Ray serves no Ray Client and refuses the option; with it, its fixed port may be another Ray's.
    client_port = [f"--ray-client-server-port={client}"] if importlib.util.find_spec("grpc") else []
    return [
        sys.executable,
        "-c",
        HEAD,
        "start",
        "--head",
        "--block",
        f"--port={port}",
        "--include-dashboard=false",
        "--no-monitor",  # Of an autoscaler, which such a Ray has none of.
        "--disable-usage-stats",
        *client_port,
        f"--dashboard-agent-listen-port={agent}",
        f"--dashboard-agent-grpc-port={agent_grpc}",
        f"--runtime-env-agent-port={runtime_env}",
    ]


def write_token(path: Path) -> Path:
    """A new secret in a file that only the user can read; one that is there already is kept."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        if path.stat().st_mode & 0o077:
            raise ConfigError(f"{path} holds a secret and others may read it; remove it, or chmod 600 it") from None
        return path
    with os.fdopen(descriptor, "w") as file:
        file.write(token(32).hex())
    return path


def free_ports(count: int) -> list[int]:
    """Ports on which nobody listens now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("", 0))
        return [one.getsockname()[1] for one in sockets]


def end_session(leader: int) -> None:
    """End the processes of a session: politely, then what is left of them at once."""
    for pid in members(leader):
        if pid == leader:
            _signal(pid, signal.SIGTERM)
    deadline = SystemClock().monotonic_ns() + int(END_S * 1e9)
    while members(leader) and SystemClock().monotonic_ns() < deadline:
        if leader not in members(leader):
            break
        _reap(leader)
        threading.Event().wait(POLL_S)
    while left := members(leader):
        for pid in left:
            _signal(pid, signal.SIGKILL)
        _reap(leader)
        threading.Event().wait(POLL_S)


def members(session: int) -> list[int]:
    """Process ids of a session, without those that have ended and wait for their parent."""
    found = []
    for entry in Path("/proc").iterdir():
        stat = process_stat(int(entry.name)) if entry.name.isdigit() else None
        if stat is not None and int(stat[3]) == session and stat[0] not in "ZX":
            found.append(int(entry.name))
    return found


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it has ended by itself since


def _reap(pid: int) -> None:
    """Take note of the end of the head when it is our own child."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass  # it is somebody else's


def log_tail(place: FilePlace) -> str:
    """The end of the log of a Ray that :func:`start_ray` has started."""
    return _tail(Path(place.token_path or "").parent / LOG)


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-LOG_TAIL_LINES:])
