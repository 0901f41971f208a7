"""Where clusters are: a small file for each cluster that ``raybroker up`` started, so that later commands find it.

The file stands beside the broker's stores, in <raybroker.store.dir or the user's state directory>/<cluster>/, as the
environment alone decides it: a command in another shell knows no ``-D`` flags of the one that started the cluster.
It names the Ray, how to be let in, and, when ``up`` started that Ray, its process, with the time at which that began,
so that a process id that was given to somebody else since is never mistaken for it.
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
"""How long a Ray may take to accept a connection before it counts as gone."""


@dataclass(frozen=True)
class Place:
    """A Ray. ``pid``: of the head that ``up`` started, None when Ray was there before; ``since``: its start mark."""

    address: str
    auth_mode: str | None = None
    token_path: str | None = None
    pid: int | None = None
    since: str | None = None

    def variables(self) -> dict[str, str]:
        """What a process needs in its environment to join."""
        found = {"RAY_ADDRESS": self.address}
        if self.auth_mode is not None:
            found["RAY_AUTH_MODE"] = self.auth_mode
        if self.token_path is not None:
            found["RAY_AUTH_TOKEN_PATH"] = self.token_path
        return found

    def alive(self) -> bool:
        """Whether it is the Ray that was noted, and takes connections."""
        if self.pid is not None and start_mark(self.pid) != self.since:
            return False
        return answers(self.address)


def directory(cluster: str) -> Path:
    """Where the file of a cluster stands; raises ConfigError for a bad name or variable."""
    return store_directory(Config.load(), cluster, "b").parent


def load(cluster: str) -> Place | None:
    """The noted place of a cluster, alive or not."""
    return _read(directory(cluster) / FILE)


def save(cluster: str, place: Place) -> None:
    """Note a cluster's place."""
    path = directory(cluster) / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(place), indent=1) + "\n", encoding="utf-8")


def forget(cluster: str) -> None:
    """The cluster is no more."""
    (directory(cluster) / FILE).unlink(missing_ok=True)


def others(cluster: str) -> Iterator[Place]:
    """The noted places of all other clusters."""
    own = directory(cluster)
    for path in sorted(own.parent.glob(f"*/{FILE}")):
        place = _read(path) if path.parent != own else None
        if place is not None:
            yield place


def _read(path: Path) -> Place | None:
    try:
        return Place(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def from_environment() -> Place | None:
    """The Ray that RAY_ADDRESS names."""
    address = variable("RAY_ADDRESS")
    if address is None or address == "auto":
        return None
    return Place(address, variable("RAY_AUTH_MODE"), variable("RAY_AUTH_TOKEN_PATH"))


def for_program(cluster: str) -> Place | None:
    """The Ray that a program of the same user joins, as far as ``raybroker up`` noted it; None: Ray's own rules say.

    RAY_ADDRESS decides where; a token for it is looked for when the environment names none.
    """
    named = from_environment()
    noted = [place for place in (load(cluster), *others(cluster)) if place is not None]
    if named is not None:
        if named.auth_mode is not None:
            return None
        return next((place for place in noted if place.address == named.address and place.alive()), None)
    return next((place for place in noted if place.alive()), None)


def last_started() -> Place | None:
    """The Ray that the last ``ray start`` of this machine left word of."""
    try:
        address = _last_started_file().read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return Place(address, variable("RAY_AUTH_MODE"), variable("RAY_AUTH_TOKEN_PATH")) if address else None


def forget_last_started(place: Place) -> None:
    """That Ray has ended: a word left of it would make the next program try for minutes to reach it."""
    last = last_started()
    if last is not None and last.address.rpartition(":")[2] == place.address.rpartition(":")[2]:
        _last_started_file().unlink(missing_ok=True)


def _last_started_file() -> Path:
    return Path(variable("RAY_TMPDIR") or "/tmp") / "ray" / "ray_current_cluster"


def use(place: Place) -> None:
    """From now on this process, and its children, belong to that Ray."""
    set_variables(place.variables())


def answers(address: str) -> bool:
    """Whether somebody accepts connections at host:port."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=PROBE_S):
            return True
    except (OSError, ValueError):
        return False


def start_mark(pid: int) -> str | None:
    """When a process began, in the kernel's own count; None when there is no such process (any more)."""
    stat = process_stat(pid)
    return None if stat is None or stat[0] == "Z" else stat[19]


def process_stat(pid: int) -> list[str] | None:
    """The fields of /proc/<pid>/stat after the name: state, parent, group, session, …"""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
