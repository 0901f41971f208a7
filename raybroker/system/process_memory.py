"""Memory of processes: what they use, and what all of them together may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_CGROUPS: Final = Path("/sys/fs/cgroup")
_OWN_CGROUPS: Final = Path("/proc/self/cgroup")


def resident_bytes() -> int:
    """Resident memory of this process, in a few microseconds; 0 where the system does not tell."""
    return _statm("self")[0]


def own_bytes() -> tuple[int, int]:
    """Resident memory of this process, and the part of it that no file or other process shares."""
    resident, shared = _statm("self")
    return resident, max(resident - shared, 0)


def private_bytes(pid: int) -> int:
    """Resident memory of a process of this machine that no file or other process shares; 0 when there is none."""
    resident, shared = _statm(str(pid))
    return max(resident - shared, 0)


def _statm(process: str) -> tuple[int, int]:
    """Resident and shared bytes."""
    try:
        with open(f"/proc/{process}/statm", "rb", buffering=0) as file:
            fields = file.read(256).split()
    except OSError:
        return 0, 0
    return int(fields[1]) * _PAGE_BYTES, int(fields[2]) * _PAGE_BYTES


@cache
def memory_limit_bytes() -> int:
    """Memory that all processes here may use together: the least limit of the control groups (version 1 or 2) that
    this process is in, or the machine's memory."""
    return min([_PAGE_BYTES * os.sysconf("SC_PHYS_PAGES"), *cgroup_limits(_CGROUPS, _OWN_CGROUPS)])


def cgroup_limits(root: Path, own: Path) -> Iterator[int]:
    """The limits of the groups in ``own`` and of all groups above them, bytes; ``root`` is where groups are mounted.

    In a container the paths may be those of the machine, and the mount shows the container's own group: so the mount
    itself counts too.
    """
    try:
        rows = own.read_text().splitlines()
    except OSError:
        rows = []
    folders = {(root, "memory.max"), (root / "memory", "memory.limit_in_bytes")}
    for row in rows:
        if row.count(":") < 2:
            continue
        _, controllers, path = row.split(":", 2)
        if controllers == "":
            top, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        folder = top / path.lstrip("/")
        while folder != top and top in folder.parents:
            folders.add((folder, name))
            folder = folder.parent
    for folder, name in folders:
        try:
            yield int((folder / name).read_text())
        except (OSError, ValueError):  # There is no such group here, or it has no limit: "max".
            continue
