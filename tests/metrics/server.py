"""A real Prometheus of the tests' own, with the repository's configuration and rules."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from raybroker.boards.queries import Prometheus, QueryError
from tests.tidy.source import ROOT

CONFIGURATION = ROOT / "dashboards" / "prometheus"
START_S = 30.0
IN_CI = bool(os.environ.get("CI"))


def require(program: str) -> str:
    """The path of a program of the package ``prometheus``; without it the test is skipped here, and fails in CI."""
    found = shutil.which(program)
    if found is None:
        if IN_CI:
            pytest.fail(f"{program} is not installed; it is in Debian's package prometheus")
        pytest.skip(f"{program} is not installed; it is in Debian's package prometheus")
    return found


def wait(what: Callable[[], bool], text: str, timeout_s: float) -> None:
    """Until something holds, looking often; fails with ``text`` when it takes too long."""
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline, f"after {timeout_s:g} s: {text}"
        time.sleep(0.1)


@contextlib.contextmanager
def running(folder: Path, targets: list[object], interval: str = "1s") -> Iterator[tuple[str, Prometheus]]:
    """(address, what to ask) of a server that scrapes the targets of a file_sd file every ``interval``."""
    program = require("prometheus")
    configuration = yaml.safe_load((CONFIGURATION / "prometheus.yml").read_text())
    configuration["global"] = {"scrape_interval": interval, "evaluation_interval": interval}
    for job in configuration["scrape_configs"]:
        job["scrape_interval"] = interval
    (folder / "brokers.json").write_text(json.dumps(targets))
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    shutil.copytree(CONFIGURATION / "rules", folder / "rules")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ],
            stdout=log,
            stderr=log,
        )
        try:
            wait(lambda: _ready(url, process, folder), f"no Prometheus: {(folder / 'log').read_text()}", START_S)
            yield url, Prometheus(url)
        finally:
            process.terminate()
            process.wait(timeout=20)


def _ready(url: str, process: subprocess.Popen[bytes], folder: Path) -> bool:
    assert process.poll() is None, (folder / "log").read_text()
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def has_data(prometheus: Prometheus, expr: str) -> bool:
    """Whether a query is answered with a number; raises QueryError for one that is wrong."""
    try:
        return any(row.points for row in prometheus.instant(expr))
    except QueryError as error:
        raise QueryError(f"{error} in {expr}") from None
