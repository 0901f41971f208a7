"""A Ray of the benchmark's own: short temporary folder, own token, ended with the process that holds it.

The head lives in a worker process that called ``ray.init()``; a Ray started so ends with its driver, and nothing here
ever calls ``ray stop``, which would end every Ray of the machine.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.workers import Team

OBJECT_STORE_BYTES = 200_000_000


def _hold(job: Any, folder: str, cpus: int) -> None:
    import ray

    context: Any = ray.init(
        num_cpus=cpus,
        include_dashboard=False,
        object_store_memory=OBJECT_STORE_BYTES,
        _temp_dir=folder,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    try:
        job.ready(context.address_info["gcs_address"])
    finally:
        ray.shutdown()


def join(address: dict[str, Any], namespace: str) -> None:
    """Connects this process to the benchmark's Ray, once."""
    import ray

    if not ray.is_initialized():
        ray.init(address=address["ray"], namespace=namespace, log_to_driver=False, logging_level=logging.ERROR)


class RayHead:
    """Starts and ends one local Ray; ``environment`` goes to every process that joins it."""

    def __init__(self) -> None:
        self.environment: dict[str, str] = {}
        self._team: Team | None = None
        self._worker: Any = None
        self._folder: Path | None = None

    def start(self, cpus: int = 4) -> dict[str, Any]:
        """Starts Ray; {"ray": address of its control store}."""
        self._folder = Path(tempfile.mkdtemp(prefix="rbb"))  # short: socket paths have a limit of 107 bytes
        token = self._folder / "token"
        token.write_text(secrets.token_hex(32))
        token.chmod(0o600)
        self.environment.update(
            RAY_TMPDIR=str(self._folder),
            RAY_AUTH_MODE="token",
            RAY_AUTH_TOKEN_PATH=str(token),
            RAY_USAGE_STATS_ENABLED="0",
            RAY_DEDUP_LOGS="0",
            RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
        )
        self._team = Team(self.environment)
        self._worker = self._team.start(_hold, str(self._folder), cpus)
        return {"ray": self._worker.wait_ready()}

    def stop(self) -> None:
        """Lets the holder shut its Ray down and removes the folder."""
        if self._team is not None:
            self._worker.go()
            try:
                self._worker.result(60)
            finally:
                self._team.__exit__(None, None, None)
                self._team = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
