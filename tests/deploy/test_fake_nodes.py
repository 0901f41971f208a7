"""The documented command that runs brokers on nodes which Ray's autoscaler launches."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.cluster.rays import ROOT, described, processes

RUN_S = 100

pytestmark = pytest.mark.cluster


@pytest.mark.long
def test_brokers_are_placed_on_the_nodes_that_the_autoscaler_keeps() -> None:
    folder = Path(tempfile.mkdtemp(prefix="rbt"))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.deploy.fake_nodes"],
            cwd=ROOT,
            env=_environment(folder),
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        steps = [json.loads(line) for line in done.stdout.splitlines()]
        assert steps[1]["nodes"] >= 2
        assert {"step": "raybroker up: a broker a node", "s": steps[2]["s"], "brokers": ["b1", "b2"]} == steps[2]
        assert "send, receive" in {step["step"] for step in steps}
        assert described(processes(folder)) == {}
        assert list(folder.iterdir()) == []
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(folder)}
