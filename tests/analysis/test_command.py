"""``raybroker analyze`` and ``raybroker collect`` as commands."""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from raybroker.analysis.lake import lake as layout
from raybroker.analysis.lake.export import LakeWriter
from raybroker.cli.exits import UsageError
from raybroker.cli.tools.analyze import time_ms
from tests import program
from tests.analysis import samples
from tests.analysis.samples import START_MS
from tests.analysis.test_stream import scrape


def run(*words: object) -> program.Done:
    return program.invoke(*words)


def test_a_lake_of_real_brokers_becomes_a_report(spark: Any, tmp_path: Path) -> None:
    """In a process of its own, with the Spark that the command starts; the fixture says whether there can be one."""
    lake, out = samples.real_lake(tmp_path / "lake"), tmp_path / "report.html"
    command = [sys.executable, "-m", "raybroker", "analyze", str(lake), "--out", str(out), "--master", "local[2]"]
    made = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert made.returncode == 0, made.stderr
    assert f"findings: {out}" in made.stdout
    assert "reading the lake" in made.stderr
    assert all(line.startswith("raybroker: ") for line in made.stderr.splitlines()), made.stderr  # nothing of Spark
    read = json.loads(out.with_suffix(".json").read_text())
    assert (read["brokers"], read["scrapes"]) == (2, 18)
    hot = next(job for job in read["jobs"] if job["job"] == "who_is_hot")
    assert hot["figures"]["destinations"][0]["destination"] == "orders"


@pytest.mark.long
def test_following_ends_with_ctrl_c_and_says_nothing_of_it(spark: Any, tmp_path: Path) -> None:
    """The signal goes to the whole group of processes, as a terminal sends it."""
    now = round(datetime.now(UTC).timestamp() * 1000)
    writer = LakeWriter(tmp_path / "lake", "b1", rotate_ms=0)
    for at, dead in enumerate((0, 5, 5)):
        writer.write(now - 30_000 + 5000 * at, scrape(dead))
    command = [
        sys.executable,
        "-m",
        "raybroker",
        "analyze",
        str(tmp_path / "lake"),
        "--follow",
        "--interval",
        "1",
        "--master",
        "local[1]",
        "--checkpoint",
        str(tmp_path / "checkpoint"),
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines = [process.stdout.readline() for _ in range(3)]
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == 0
        assert (process.stdout.read(), process.stderr.read()) == ("", "")
    assert "following" in lines[0]
    assert "dead messages: orders on b1: 5 messages died" in lines[1]
    assert "cleared" in lines[2]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["analyze", "{}/none"], 1, "is no lake"),
        (["analyze", "{}", "--since", "soon"], 2, "--since soon"),
        (["analyze", "{}", "--since", "1h", "--until", "2h"], 2, "--since is not before --until"),
        (["analyze", "{}", "--conf", "x"], 2, "--conf x"),
        (["analyze", "{}", "--step", "7s"], 2, "divides a day"),
        (["analyze", "{}/none", "--follow"], 2, "is no lake"),
        (["collect", "{}", "--url", "b1"], 2, "BROKER=URL"),
        (["collect", "{}", "--prometheus", "http://127.0.0.1:9"], 3, "does not answer"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(tmp_path: Path, words: list[str], code: int, text: str) -> None:
    made = run(*(word.replace("{}", str(tmp_path)) for word in words))
    assert made.exit_code == code, made.output
    assert text in made.output
    assert "Traceback" not in made.output


def test_times_are_moments_or_spans_ago() -> None:
    noon = round(datetime(2026, 9, 21, 12, tzinfo=UTC).timestamp() * 1000)
    assert time_ms("--since", "2026-09-21T12:00", 0) == noon
    assert time_ms("--since", "2026-09-21T14:00+02:00", 0) == noon
    assert time_ms("--since", "2h", noon) == time_ms("--since", "2h ago", noon) == noon - 7_200_000
    with pytest.raises(UsageError):
        time_ms("--since", "noon", 0)


class _Metrics(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"raybroker_messages 7\n")

    def log_message(self, *args: object) -> None:
        """Nothing on standard error."""


def test_collect_fills_a_lake_and_compact_puts_its_files_together(tmp_path: Path) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Metrics) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}/metrics"
        made = run("collect", tmp_path, "--url", f"b1={url}", "--interval", "0.1", "--duration", "3")
        server.shutdown()
        thread.join()
    assert made.exit_code == 0, made.output
    (file,) = layout.files(tmp_path)[0]
    assert len(list(layout.read(file.path))) >= 2
    writer = LakeWriter(tmp_path, "b1", rotate_ms=0)
    for at in range(3):
        writer.write(START_MS + at, b"a 1\n")
    assert "2 files fewer" in run("collect", tmp_path, "--compact").output
