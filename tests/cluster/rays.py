"""A Ray of the tests' own: short temporary folder, own token, ended with this process; no other Ray is touched."""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OBJECT_STORE_BYTES = 100_000_000
SETTLED_S = 0.2
"""For so long no process may be seen before none is believed to be left."""


@functools.cache
def folder() -> Path:
    """Where all Rays of this process keep their files, until it ends; made, with the environment, when first asked for.

    To be asked for before anybody imports Ray, which looks at its environment then and never again.
    """
    made = Path(tempfile.mkdtemp(prefix="rbt"))  # short: socket paths have a limit of 107 bytes
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    token = made / "token"
    token.write_text(secrets.token_hex(32))
    token.chmod(0o600)
    os.environ.pop("RAY_ADDRESS", None)
    os.environ.update(
        RAY_TMPDIR=str(made),
        RAY_AUTH_MODE="token",
        RAY_AUTH_TOKEN_PATH=str(token),
        RAY_USAGE_STATS_ENABLED="0",
        RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
        RAY_worker_niceness="0",  # As raybroker's own Ray has it: other tests run meanwhile.
        PYTHONPATH=os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
    )
    return made


@contextlib.contextmanager
def running_ray() -> Iterator[str]:
    """A Ray while the block runs; its address. Afterwards no process of it is left."""
    made = folder()
    import ray

    start: Callable[..., Any] = getattr(ray, "init_of_ray", ray.init)
    context = start(
        address="local",
        namespace="tests",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=OBJECT_STORE_BYTES,
        logging_level=logging.ERROR,
    )
    try:
        yield str(context.address_info["gcs_address"])
    finally:
        ray.shutdown()
        end_all(made)


def processes(made: Path) -> list[int]:
    """Processes that work in the folder: by their command line, their environment or their open files.

    Ray's agents and workers give themselves a title, which is written over the first two.
    """
    mark = os.fsencode(str(made))
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                words = entry.joinpath("cmdline").read_bytes()
                ours = mark in words or mark in entry.joinpath("environ").read_bytes() or _has_open(entry, mark)
                if ours and b"pyspark" not in words:  # Spark of other tests of this process: no part of a Ray.
                    found.append(int(entry.name))
    return found


def _has_open(process: Path, mark: bytes) -> bool:
    for descriptor in process.joinpath("fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if mark in os.fsencode(os.readlink(descriptor)):
                return True
    return False


def end_all(made: Path, timeout_s: float = 20.0) -> None:
    """Wait for what Ray started to end by itself, and kill what does not; then the folder's sessions go.

    One look is not enough: a process that is just being started by one that ends meanwhile has no command line and no
    environment yet, or is younger than the list that was looked through.
    """
    deadline = time.monotonic() + timeout_s
    seen = time.monotonic()
    while time.monotonic() < seen + SETTLED_S:
        if left := processes(made):
            seen = time.monotonic()
            if seen > deadline - timeout_s / 2:
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            assert seen < deadline, f"processes do not end: {described(left)}"
        time.sleep(0.05)
    for session in made.glob("ray*"):
        shutil.rmtree(session, ignore_errors=True)


def described(pids: Sequence[int]) -> dict[int, str]:
    """Process id → start of the command line, of those that are still there."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes()[:200]
            found[pid] = words.replace(b"\0", b" ").decode(errors="replace").strip()
    return found


def small_store(path: Path) -> dict[str, object]:
    """Broker settings for a store in ``path`` with segments that take little of the disk and roll often."""
    return {"raybroker.store.dir": str(path), "raybroker.store.segment_bytes": "1m"}


def python(*arguments: str, through: Sequence[str] = (), errors: Path | None = None) -> subprocess.Popen[bytes]:
    """A Python process of the tests, in the repository's folder, started by the command ``through``.

    ``errors``: file for what it says on stderr; without, that goes where this process's goes.
    """
    command = [*through, sys.executable, *arguments]
    if errors is None:
        return subprocess.Popen(command, cwd=ROOT)
    with errors.open("wb") as file:
        return subprocess.Popen(command, cwd=ROOT, stderr=file)
