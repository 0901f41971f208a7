"""boards render: the boards as pictures, and what is said when they cannot be drawn."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import program
from tests.metrics.answering import answering
from tests.tidy.source import ROOT

pytest.importorskip("matplotlib")


def draw(*arguments: str) -> tuple[int, str]:
    done = program.invoke("boards", "render", *arguments)
    return done.exit_code, done.output


def test_boards_that_are_named_become_pictures(tmp_path: Path) -> None:
    with answering() as url:
        code, said = draw("--prometheus", url, "--out", str(tmp_path / "pictures"), "cluster", "consumers")
    assert code == 0, said
    assert said.split() == [str(tmp_path / "pictures" / f"{name}.png") for name in ("cluster", "consumers")]
    for path in said.split():
        assert Path(path).read_bytes()[:4] == b"\x89PNG"


def test_the_module_of_a_checkout_is_the_same_command(tmp_path: Path) -> None:
    with answering() as url:
        words = [sys.executable, "-m", "dashboards.render", "--prometheus", url, "--out", str(tmp_path), "cluster"]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, str(tmp_path / "cluster.png")), done.stderr


def test_a_board_that_is_none_is_named_with_those_that_are(tmp_path: Path) -> None:
    code, said = draw("--prometheus", "http://127.0.0.1:1", "--out", str(tmp_path / "none"), "nosuch")
    assert (code, "there is no board nosuch; there are clients, cluster," in said) == (2, True)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nothing"])
def test_a_server_that_does_not_answer_is_named(url: str, tmp_path: Path) -> None:
    code, said = draw("--prometheus", url, "--out", str(tmp_path), "store")
    assert (code, f"{url} does not answer as a Prometheus server" in said) == (3, True)
    assert not list(tmp_path.glob("*.png"))
