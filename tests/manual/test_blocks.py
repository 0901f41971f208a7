"""Every code block of README and manual is tried in the way that it says; cluster/test_cluster.py has those for Ray."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

import raybroker as rb
from raybroker.cli import connecting
from raybroker.config.config import Config
from tests.contracts.test_services import Outside
from tests.manual.blocks import WAYS, Block, blocks, blocks_in, by_page
from tests.manual.running import run_commands, run_page
from tests.manual.shell import commands, fault
from tests.tidy.source import ROOT
from tests.unit.cli.conftest import Kept

TRIED: set[str] = {"text"}
"""The ways that a test here takes; there is nothing to try of a picture."""


def of(way: str) -> pytest.MarkDecorator:
    TRIED.add(way)
    found = blocks(way)
    return pytest.mark.parametrize("block", found, ids=[block.place for block in found])


def pages(way: str) -> pytest.MarkDecorator:
    TRIED.add(way)
    return pytest.mark.parametrize("page", list(by_page(way)))


def test_every_block_has_a_way() -> None:
    assert [f"{block.place}: {block.way!r}" for block in blocks() if block.way not in WAYS] == []
    assert len(blocks()) > 40


@pages("python")
def test_python_runs_over_a_loopback(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with rb.loopback(client_id="manual") as conn:
        names = {"rb": rb, "conn": conn, "session": conn.session(), "admin": conn.admin()}
        run_page(by_page("python")[page], names)


@pages("python outside")
def test_python_runs_from_outside(page: str, tmp_path: Path) -> None:
    with ExitStack() as opened:
        outside = Outside(tmp_path, opened)
        address = f"127.0.0.1:{outside.ports['portmapper']}"
        changed = (("broker.example:7676", address), ('password="…"', 'password="secret"'))
        run_page(by_page("python outside")[page], {"rb": rb}, changed)


@pytest.mark.parametrize(
    "block",
    found := blocks("sh", "sh ray", "sh run", "sh loopback"),
    ids=[block.place for block in found],
)
def test_what_a_shell_block_names_is_there(block: Block) -> None:
    faults = [f"{shlex.join(words)}: {text}" for words in commands(block.text) if (text := fault(words))]
    assert faults == []


TRIED.add("sh")


@pages("sh loopback")
def test_commands_run_over_a_loopback(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with rb.loopback() as connection:
        monkeypatch.setattr(connecting, "connect", Kept(connection).connect)
        run_commands(by_page("sh loopback")[page])


@of("sh run")
def test_bash_runs_it(block: Block, tmp_path: Path) -> None:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    environment = {**os.environ, "PATH": path, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = ["bash", "-euo", "pipefail", "-c", block.text]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, f"{block.place}: {done.stdout}{done.stderr}"


@pytest.fixture
def doors(tmp_path: Path) -> Iterator[Outside]:
    with ExitStack() as opened:
        yield Outside(tmp_path, opened, **{"imq.service.activelist": "httpjms,httpadmin"})


@pages("http")
def test_calls_of_curl_are_answered(page: str, doors: Outside) -> None:
    for block in by_page("http")[page]:
        for program, *words in commands(block.text):
            assert program == "curl"
            answer = curl(words, doors.ports)
            assert answer.is_success, f"{block.place}: {shlex.join(words)}: {answer.status_code} {answer.text}"


def curl(words: list[str], ports: dict[str, int]) -> httpx.Response:
    """What curl would do with these words; the ports JMS and ADMIN are those of the services."""
    method, url, body, headers, auth = "GET", "", None, {}, None
    left = iter(words)
    for word in left:
        match word:
            case "-u":
                auth = (next(left), "secret")
            case "-d":
                method, body = "POST", next(left)
            case "-X":
                method = next(left)
            case "-H":
                name, _, value = next(left).partition(": ")
                headers[name] = value
            case _:
                url = word
    if headers.get("content-type") == "application/json":
        json.loads(body or "")
    for name, service in (("JMS", "httpjms"), ("ADMIN", "httpadmin")):
        url = url.replace(f":{name}/", f":{ports[service]}/")
    return httpx.request(method, url, content=body, headers=headers, auth=auth, timeout=30)


@of("toml")
def test_a_configuration_is_read(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(block.text, encoding="utf-8")
    Config.load(cluster_file=file, environ={})


@of("properties")
def test_access_rules_are_read(block: Block) -> None:
    from raybroker.security.access_rules import AccessRules

    AccessRules.parse(block.text)


def test_every_way_is_taken() -> None:
    assert {"python ray", "sh ray", *TRIED} == set(WAYS)


def test_what_is_not_there_is_found() -> None:
    wrong: dict[str, Any] = {
        "raybroker destroy dst -t q": "--name",
        "raybroker pause queue -n a": "did you mean",
        "raybroker list dst --al": "--al",
        "python -m tests.nothing": "no module",
        "pip install 'raybroker[fast]'": "no extra",
        "pytest tests/nowhere": "no tests/nowhere",
        ".ci/run quickly": "no stage",
        "make": "not known",
    }
    for line, text in wrong.items():
        found = [fault(words) for words in commands(line)]
        assert len(found) == 1
        assert text in found[0], line
    good = "raybroker list dst | head -1  # one\npip install 'raybroker[tls]' && raybroker up -D imq.ping.interval=5\n"
    assert [fault(words) for words in commands(good)] == ["", "the program head is not known here", "", ""]


def test_blocks_are_found_with_their_lines() -> None:
    text = "a\n```python ray\nx = 1\n```\n\n* b\n  ```sh\n  raybroker list dst\n  ```\n"
    assert [(block.line, block.way) for block in blocks_in("a.md", text)] == [(2, "python ray"), (7, "sh")]
