"""Spark masters: what is wrong with one is said at once, and what workers import is theirs and Spark's alone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from raybroker.analysis import run
from raybroker.analysis.lake import lake as layout
from raybroker.analysis.spark import masters, session
from raybroker.model.errors import ConfigError
from tests.analysis import samples

OURS = ("cronsim", "lark", "msgpack", "orjson", "prometheus_client", "ray", "rich", "typer", "tzdata", "uvloop")
"""What raybroker depends on and workers of Spark do not have."""
NOW_MS = samples.START_MS + 400 * layout.DAY_MS


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2]", "local[2, 3]", "local-cluster[1,1,1024]"])
def test_masters_of_this_machine_need_nobody_to_answer(master: str) -> None:
    masters.check(master)
    assert masters.is_here(master)


@pytest.mark.parametrize(
    "master", ["locale", "local[two]", "127.0.0.1:7077", "spark://", "spark://host", "spark://host:0", "http://h:1", ""]
)
def test_what_is_no_master_is_said(master: str) -> None:
    with pytest.raises(ConfigError, match="is no Spark master") as caught:
        masters.check(master)
    assert repr(master) in str(caught.value)


def test_a_master_that_nobody_listens_at_is_said_at_once_and_one_of_several_is_enough() -> None:
    gone = f"127.0.0.1:{closed_port()}"
    with pytest.raises(ConfigError, match=rf"no Spark master answers at {gone}: Connection refused"):
        masters.check(f"spark://{gone}")
    with socket.create_server(("127.0.0.1", 0)) as server:
        masters.check(f"spark://{gone},127.0.0.1:{server.getsockname()[1]}")
    assert not masters.is_here(f"spark://{gone}")


def test_tables_of_a_cluster_need_a_place_that_is_shared(tmp_path: Path) -> None:
    plan = run.Analysis(samples.real_lake(tmp_path / "lake"), tmp_path / "r.html", NOW_MS, "spark://127.0.0.1:9")
    with pytest.raises(ConfigError, match="--tables DIR"):
        run.analyze(plan, time.monotonic)


def test_what_java_says_is_told_in_a_line_and_not_which_call_failed() -> None:
    class Java:
        def __init__(self, said: str | None, cause: Java | None = None) -> None:
            self.getMessage = lambda: said
            self.getCause = lambda: cause

    class Py4JError(Exception):
        java_exception = Java("Exception thrown in awaitResult", Java(None, Java("Connection refused: host:7077")))

    assert masters.reason(Py4JError("An error occurred while calling None.org.apache.spark.X")) == (
        "Connection refused: host:7077"
    )
    told = "Traceback (most recent call last):\n  File x\nModuleNotFoundError: No module named 'x'\n\n\tat org.a.b(C)\n"
    assert masters.reason(RuntimeError(told)) == "ModuleNotFoundError: No module named 'x'"


def test_a_worker_says_what_it_does_not_see(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()

    def lacks(lake: str) -> str:
        return masters.look(str(tmp_path / lake), str(tmp_path / "token"), "--tables", 0).lacks

    assert "does not see the lake" in lacks("none")
    assert "does not see what is written" in lacks("lake")
    (tmp_path / "token").write_text("x")
    assert lacks("lake") == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lake", "token"]


WORKER = """
import sys
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {ours}:
            raise ModuleNotFoundError(f"No module named {{name!r}}")
sys.meta_path.insert(0, Refused())
"""


def test_what_runs_on_workers_imports_its_own_archive_and_what_spark_has(tmp_path: Path) -> None:
    """In a Python that finds none of raybroker's own dependencies: read a lake, write its table, evaluate alerts."""
    pytest.importorskip("pyspark")
    lake, archive = samples.real_lake(tmp_path / "lake"), session.packed(tmp_path)
    code = (
        WORKER.format(ours=set(OURS))
        + f"""
sys.path.insert(0, {str(archive)!r})
from pathlib import Path
from raybroker.analysis import alerting, alerts
from raybroker.analysis.lake import lake
from raybroker.analysis.spark import masters
from raybroker.analysis.lake import parquet
from raybroker.analysis.lake import plan
from raybroker.analysis.lake import source
assert source.__file__.startswith({str(archive)!r}), source.__file__
part = plan.parts(lake.files(Path({str(lake)!r}))[0])[0]
window = plan.PlanWindow(0, 1 << 52, {NOW_MS})
print(parquet.write(parquet.ParquetWork(1, part, window, 1000, {str(tmp_path / "out")!r}, True)))
print(len(list(alerting.results(alerts.Watch(), [alerts.AlertSample(1, "b1", alerts.WANTED[-1], (), 1.0)]))))
"""
    )
    said = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    rows, alerts_ = map(int, said.stdout.split())
    assert rows > 1000
    assert alerts_ == 2


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """A Spark master and one worker of this machine; the master's URL."""
    import pyspark

    from raybroker.analysis.spark import java

    java.choose(folder / "java")
    home = Path(pyspark.__file__).parent
    port = closed_port()
    start = [f"{os.environ['JAVA_HOME']}/bin/java", "-XX:+UseSerialGC", "-Xmx256m", "-cp", f"{home}/jars/*"]
    known = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SCALA_VERSION": "2.13"}
    deploy = "org.apache.spark.deploy"
    url = f"spark://127.0.0.1:{port}"
    common = ["--host", "127.0.0.1", "--webui-port", "0"]
    words = (
        [f"{deploy}.master.Master", *common, "--port", str(port)],
        [f"{deploy}.worker.Worker", url, *common, "--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work")],
    )
    with open(folder / "cluster.log", "w") as log:
        started = [subprocess.Popen([*start, *one], env=known, stdout=log, stderr=log, cwd=folder) for one in words]
        try:
            _until_registered(folder / "cluster.log")
            yield url
        finally:
            for one in reversed(started):
                one.terminate()
                one.wait(30)


def _until_registered(log: Path) -> None:
    waiting = threading.Event()
    for _ in range(600):
        if "Successfully registered with master" in log.read_text():
            return
        waiting.wait(0.2)
    pytest.fail(log.read_text()[-3000:])


@pytest.mark.long
def test_a_cluster_whose_workers_have_only_spark_makes_the_report(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fixture says whether there can be Spark; the command starts one of its own, as no two are in one process."""
    (tmp_path / "site").mkdir()
    for name in OURS:
        (tmp_path / "site" / f"{name}.py").write_text(f"raise ModuleNotFoundError('No module named {name!r}')\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}/site:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
    lake = samples.real_lake(tmp_path / "lake")
    with standalone(tmp_path) as url:
        command = [
            sys.executable,
            "-m",
            "raybroker",
            "analyze",
            str(lake),
            "--out",
            str(tmp_path / "report.html"),
            "--master",
            url,
            "--tables",
            str(tmp_path / "tables"),
            "--conf",
            "spark.driver.host=127.0.0.1",
        ]
        made = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    said = [path.read_text()[-3000:] for path in sorted(tmp_path.glob("work/*/*/stderr"))[:1]]
    assert made.returncode == 0, [made.stderr[-3000:], said]
    assert f"findings: {tmp_path / 'report.html'}" in made.stdout
    assert list((tmp_path / "tables").glob("date=*/broker=*/*.parquet"))
