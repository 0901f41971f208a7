"""Prometheus' own tool accepts the rules, the configuration, and a page of metrics."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import raybroker as rb
from raybroker.metrics.catalogue import TIERS
from raybroker.metrics.exposition import page
from raybroker.metrics.snapshot import Snapshot
from tests.metrics.server import CONFIGURATION, require


def promtool(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [require("promtool"), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        cwd=CONFIGURATION / "rules",
        timeout=60,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", "recording.yml", "alerts.yml"),
        ("test", "rules", "tests.yml"),
        ("check", "config", "--syntax-only", "../prometheus.yml"),
    ],
)
def test_rules_and_configuration_are_right(arguments: tuple[str, ...]) -> None:
    done = promtool(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_rule_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.yml").write_text("groups: [{name: g, rules: [{record: r, expr: 'sum by (x raybroker_messages'}]}]")
    assert promtool("check", "rules", str(tmp_path / "bad.yml")).returncode != 0


def test_a_page_has_nothing_to_complain_about() -> None:
    with rb.loopback() as connection:
        session = connection.session()
        session.producer("orders").send("one")
        session.consumer("orders").receive(timeout=60)
        (row,) = connection.admin().metrics("*")
    row["own"]["info"] = {tuple(row["own"]["info"].values()): 1}
    done = promtool("check", "metrics", stdin=page(Snapshot(**row), TIERS).decode())
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
