"""What the figures were taken on: processors, memory, kernel, versions, and how long the disk takes to sync."""

from __future__ import annotations

import os
import platform
import statistics
import time
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

SYNC_BYTES = (1024, 4096, 100 * 1024, 1 << 20)
_MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs", "overlay"})
_PACKAGES = (
    "raybroker",
    "ray",
    "uvloop",
    "msgpack",
    "pika",
    "redis",
    "nats-py",
    "stomp.py",
    "confluent-kafka",
    "hdrhistogram",
)


@dataclass(frozen=True, slots=True)
class SyncTime:
    """pwrite + fdatasync of ``size_bytes`` into blocks written before."""

    size_bytes: int
    median_ms: float
    p99_ms: float


def measure_sync(folder: Path, seconds_each: float = 0.5) -> list[SyncTime]:
    """Syncs for about ``seconds_each`` at each size."""
    path = folder / "sync.probe"
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        for at in range(0, 64 << 20, 1 << 20):
            os.pwrite(fd, bytes(1 << 20), at)
        os.fsync(fd)
        return [_sync_at(fd, size, seconds_each) for size in SYNC_BYTES]
    finally:
        os.close(fd)
        path.unlink()


def _sync_at(fd: int, size: int, seconds: float) -> SyncTime:
    body = os.urandom(size)
    took: list[float] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline or len(took) < 20:
        began = time.perf_counter()
        os.pwrite(fd, body, (len(took) * size) % (63 << 20))
        os.fdatasync(fd)
        took.append((time.perf_counter() - began) * 1e3)
    took.sort()
    return SyncTime(size, statistics.median(took), took[int(len(took) * 0.99)])


def file_system(folder: Path) -> str:
    """Type of the file system that holds ``folder``."""
    best, kind = "", "unknown"
    real = str(folder.resolve())
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _device, mount, found, *_ = line.split()
        if (real == mount or real.startswith(mount.rstrip("/") + "/")) and len(mount) >= len(best):
            best, kind = mount, found
    return kind


def in_memory(kind: str) -> bool:
    """True when a sync of this file system promises nothing, or nothing that can be known."""
    return kind in _MEMORY_FILE_SYSTEMS


def _field(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(name)), "")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def describe(folder: Path, sync_seconds: float = 0.5) -> dict[str, Any]:
    """A plain dictionary for the report; no host name, no user, no folder. ``sync_seconds``: of syncs of each size."""
    memory_kb = _field("/proc/meminfo", "MemTotal").split(" ")[0] or "0"
    return {
        "cpu": _field("/proc/cpuinfo", "model name") or platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gb": round(int(memory_kb) / 1e6, 1),
        "kernel": platform.release(),
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", platform.system()),
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
        "file_system": file_system(folder),
        "sync": [asdict(sync) for sync in measure_sync(folder, sync_seconds)],
    }
