"""A client as it is installed where no broker is: its packages alone, and without Ray."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.contracts.test_services import Outside

ROOT = Path(__file__).parents[2]
INSTALL_S = 240
BUILD = "import hatchling.build as backend, sys; print(backend.build_wheel(sys.argv[1]))"
PROGRAM = """
import json, sys
import raybroker as rb
said = []
for begin in (lambda: rb.start(), lambda: rb.connect()):
    try:
        begin()
    except (ModuleNotFoundError, rb.errors.NoClusterError) as error:
        said.append(str(error))
with rb.loopback() as connection:
    connection.start()
    session = connection.session()
    session.producer("here").send("x", {"price": 3})
    assert session.consumer("here", selector="price > 2").receive(30).body == "x"
with rb.connect(sys.argv[1], username="ann", password="secret") as connection:
    connection.start()
    session = connection.session()
    session.producer("orders").send({"id": 7}, {"price": 3})
    wanted = session.consumer("orders", selector="price > 2").receive(30)
print(json.dumps({"body": wanted.body, "said": said, "ray": "ray" in sys.modules}))
"""


def run(*command: str, timeout_s: float = 60, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_s, env=environment, check=False, cwd=cwd
    )


def pip(programs: Path, *words: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    """The pip of the tests, for an environment that has none."""
    return run(sys.executable, "-m", "pip", "--python", str(programs / "python"), *words, timeout_s=timeout_s)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment in which there is ``raybroker[client]``."""
    folder = tmp_path_factory.mktemp("client") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", str(folder), timeout_s=INSTALL_S)
    # Built by what the tests have: pip would make an environment for that first.
    built = run(sys.executable, "-c", BUILD, str(folder), cwd=ROOT, timeout_s=INSTALL_S)
    assert built.returncode == 0, built.stderr
    wheel = folder / built.stdout.split()[-1]
    done = pip(folder / "bin", "install", "-q", "--no-compile", f"{wheel}[client]", timeout_s=INSTALL_S)
    if done.returncode != 0:
        if os.environ.get("CI"):
            pytest.fail(done.stderr)
        pytest.skip(f"packages cannot be installed here: {done.stderr.strip().splitlines()[-1]}")
    return folder / "bin"


@pytest.mark.timeout(2 * INSTALL_S)
def test_a_client_needs_no_ray_and_says_what_does(installed: Path, tmp_path: Path) -> None:
    packages = {row["name"].lower() for row in json.loads(pip(installed, "list", "--format=json").stdout)}
    assert packages >= {"raybroker", "msgpack", "orjson"}
    assert packages.isdisjoint({"ray", "prometheus-client", "numpy", "pyspark"})
    with ExitStack() as opened:
        outside = Outside(tmp_path, opened)
        done = run(str(installed / "python"), "-c", PROGRAM, outside.url())
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert (found["body"], found["ray"]) == ({"id": 7}, False)
        assert len(found["said"]) == 2
        assert all("pip install 'raybroker[server]'" in line for line in found["said"]), found["said"]

        secret = tmp_path / "secret"
        secret.write_text("imq.imqcmd.password=secret\n")
        secret.chmod(0o600)
        where = ("-b", f"127.0.0.1:{outside.ports['portmapper']}", "-u", "root", "--passfile", str(secret))
        listed = run(str(installed / "raybroker"), "list", "dst", "--json", *where)
        assert listed.returncode == 0, listed.stderr
        assert "orders" in {row["name"] for row in json.loads(listed.stdout)}
        alone = run(str(installed / "raybroker"), "up")
        assert alone.returncode == 1
        assert "pip install 'raybroker[server]'" in alone.stderr
