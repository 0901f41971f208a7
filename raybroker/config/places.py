"""The places of clusters: a small file for each cluster that ``raybroker up`` started, for later commands to find it.

The file stands beside the broker's stores, in <raybroker.store.dir or the user's state directory>/<cluster>/.  The
environment alone decides that directory, because a command in another shell does not know the ``-D`` flags of the first
one.  The file names the address of Ray, the way to authenticate, and, when ``up`` started that Ray, its process and the
start time of the process, so that another process with the same id is never taken for it.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from raybroker.config import Config, store_directory
from raybroker.config.layers import set_variables, variable

FILE: Final = "cluster.json"
PROBE_S: Final = 2.0
"""Time for a Ray to accept a connection; one that needs longer counts as gone."""


@dataclass(frozen=True)
class FilePlace:
    """A Ray.  ``pid``: process of the head, None unless ``up`` started it; ``since``: start mark of that process."""

    address: str
    auth_mode: str | None = None
    token_path: str | None = None
    pid: int | None = None
    since: str | None = None

    def variables(self) -> dict[str, str]:
        """The environment of a process that joins this Ray."""
        found = {"RAY_ADDRESS": self.address}
        if self.auth_mode is not None:
            found["RAY_AUTH_MODE"] = self.auth_mode
        if self.token_path is not None:
            found["RAY_AUTH_TOKEN_PATH"] = self.token_path
        return found

    def alive(self) -> bool:
        """True when the Ray of the file still runs and accepts connections."""
        if self.pid is not None and start_mark(self.pid) != self.since:
            return False
        return answers(self.address)


def directory(cluster: str) -> Path:
    """The directory of a cluster's file; raises ConfigError for a bad name or variable."""
    return store_directory(Config.load(), cluster, "b").parent


def load(cluster: str) -> FilePlace | None:
    """The place in a cluster's file, alive or not; None without a readable file."""
    return _read(directory(cluster) / FILE)


def save(cluster: str, place: FilePlace) -> None:
    """Write a cluster's file."""
    path = directory(cluster) / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(place), indent=1) + "\n", encoding="utf-8")


def forget(cluster: str) -> None:
    """Remove the file of a cluster that has ended."""
    (directory(cluster) / FILE).unlink(missing_ok=True)


def others(cluster: str) -> Iterator[FilePlace]:
    """The places in the files of all other clusters."""
    own = directory(cluster)
    yield from noted(own.parent, but=own)


def noted(stores: Path, *, but: Path | None = None) -> Iterator[FilePlace]:
    """The places in the files of all clusters whose directories are in ``stores``, without one."""
    for path in sorted(stores.glob(f"*/{FILE}")):
        place = _read(path) if path.parent != but else None
        if place is not None:
            yield place


def _read(path: Path) -> FilePlace | None:
    try:
        return FilePlace(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def from_environment() -> FilePlace | None:
    """The Ray that RAY_ADDRESS names."""
    address = variable("RAY_ADDRESS")
    if address is None or address == "auto":
        return None
    return FilePlace(address, variable("RAY_AUTH_MODE"), variable("RAY_AUTH_TOKEN_PATH"))


def for_program(cluster: str) -> FilePlace | None:
    """The Ray of a cluster's file that a program of the same user joins; None leaves the choice to Ray's own rules.

    RAY_ADDRESS decides about the address; the token comes from a file when the environment names none.
    """
    named = from_environment()
    noted = [place for place in (load(cluster), *others(cluster)) if place is not None]
    if named is not None:
        if named.auth_mode is not None:
            return None
        return next((place for place in noted if place.address == named.address and place.alive()), None)
    return next((place for place in noted if place.alive()), None)


def last_started() -> FilePlace | None:
    """The Ray in the file that the last ``ray start`` of this machine wrote."""
    try:
        address = _last_started_file().read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return FilePlace(address, variable("RAY_AUTH_MODE"), variable("RAY_AUTH_TOKEN_PATH")) if address else None


def forget_last_started(place: FilePlace) -> None:
    """Remove the file of ``ray start`` for a Ray that has ended: the next program would try for minutes to reach it."""
    last = last_started()
    if last is not None and last.address.rpartition(":")[2] == place.address.rpartition(":")[2]:
        _last_started_file().unlink(missing_ok=True)


def _last_started_file() -> Path:
    return Path(variable("RAY_TMPDIR") or "/tmp") / "ray" / "ray_current_cluster"


def use(place: FilePlace) -> None:
    """Let this process, and its children, join that Ray."""
    set_variables(place.variables())


def answers(address: str) -> bool:
    """True when a process accepts connections at host:port."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=PROBE_S):
            return True
    except (OSError, ValueError):
        return False


def start_mark(pid: int) -> str | None:
    """Start time of a process in the kernel's own count; None when the process does not exist (any more)."""
    stat = process_stat(pid)
    return None if stat is None or stat[0] == "Z" else stat[19]


def process_stat(pid: int) -> list[str] | None:
    """The fields of /proc/<pid>/stat after the name: state, parent, group, session, …"""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
