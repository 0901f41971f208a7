"""The program as a whole: help, version, what it imports, and the arguments that commands hand on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from raybroker.bench import LoadPlan, LoadReport
from raybroker.cli import connecting
from raybroker.demo.run import DemoPlan


def test_the_help_teaches_the_first_steps(raybroker: Any) -> None:
    text = raybroker.output("--help")
    for word in ("raybroker demo", "raybroker up", "create dst -t q -n orders", "Exit codes", "receive", "purge"):
        assert word in text
    assert "compact  " in text


@pytest.mark.parametrize(
    "command",
    [
        "up",
        "down",
        "demo",
        "bench",
        "verify",
        "top",
        "send",
        "receive",
        "create dst",
        "list con",
        "pause dst",
        "destroy dur",
        "commit txn",
        "delete msg",
        "export msg",
        "update tpl",
    ],
)
def test_every_command_has_a_help(raybroker: Any, command: str) -> None:
    assert "Usage: raybroker" in raybroker.output(*command.split(), "--help")


def test_the_version_is_said(raybroker: Any) -> None:
    assert raybroker.output("--version").startswith("raybroker ")


def test_the_program_does_not_import_ray_or_rich_before_it_needs_them() -> None:
    code = "import sys, raybroker.cli.main; print([m for m in ('ray', 'rich', 'multiprocessing') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_python_m_raybroker_is_the_same_program() -> None:
    command = [sys.executable, "-m", "raybroker", "create", "svc"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("raybroker: create svc: ")


def test_bench_hands_on_its_options(raybroker: Any, broker: Any, tmp_path: Path, monkeypatch: Any) -> None:
    plans: list[LoadPlan] = []

    def run_load(plan: LoadPlan, **options: object) -> LoadReport:
        assert {row["name"] for row in broker.admin().list_destinations()} == {"mq.sys.dmq", plan.queue}
        plans.append(plan)
        return LoadReport(plan)

    monkeypatch.setattr("raybroker.bench.run_load", run_load)
    file = tmp_path / "report.json"
    raybroker.output(
        "bench",
        "--size",
        "64",
        "--batch",
        "10",
        "--window",
        "4",
        "--producers",
        "2",
        "--consumers",
        "3",
        "--non-persistent",
        "--prefetch",
        "50",
        "--rate",
        "1000",
        "--duration",
        "5",
        "--warmup",
        "0.5",
        "--json",
        str(file),
    )
    plan = plans[0]
    assert (plan.size_bytes, plan.batch, plan.window, plan.producers, plan.consumers) == (64, 10, 4, 2, 3)
    assert (plan.persistent, plan.prefetch, plan.rate_per_second) == (False, 50, 1000.0)
    assert (plan.duration_seconds, plan.warmup_seconds) == (5.0, 0.5)
    assert json.loads(file.read_text())["plan"]["size_bytes"] == 64
    raybroker.output("bench", "--trace")
    assert plans[1].trace
    assert not plan.trace
    assert [row["name"] for row in broker.admin().list_destinations()] == ["mq.sys.dmq"]


@pytest.mark.parametrize(("good", "code"), [(True, 0), (False, 1)])
def test_the_demo_s_verdict_is_the_exit_code(raybroker: Any, monkeypatch: Any, good: bool, code: int) -> None:
    found: list[tuple[DemoPlan, bool]] = []

    def run_demo(plan: DemoPlan, *, join: bool) -> bool:
        found.append((plan, join))
        return good

    monkeypatch.setattr("raybroker.demo.run.run_demo", run_demo)
    monkeypatch.setattr(connecting, "find_ray", lambda cluster: None)
    result = raybroker("demo", "--rows", "30", "--producers", "1", "--consumers", "2", "--no-kill", "--store", "s")
    assert result.exit_code == code
    assert found == [(DemoPlan(rows=30, producers=1, consumers=2, kill=False, store=Path("s")), False)]


def test_top_shows_rates_between_two_looks(raybroker: Any, broker: Any) -> None:
    broker.session().producer("a").send_many(range(10))
    header, line, _ = raybroker.output("top", "--once", "--interval", "0.05").splitlines()
    row = dict(zip(header.split(), line.split(), strict=True))
    assert (row["NAME"], row["MESSAGES"], row["IN/S"]) == ("a", "10", "0.0")
    assert raybroker.json("top", "--once", "--interval", "0.05")[0]["in_per_second"] == 0.0


def test_top_sorts_filters_and_shows_what_is_asked_for(raybroker: Any, broker: Any) -> None:
    session = broker.session()
    for name, count in (("a", 1), ("b", 3), ("c", 2)):
        session.producer(f"orders.{name}").send_many(range(count))
    consumer = session.consumer("orders.b")
    once = ("top", "--once", "--interval", "0.05")

    def names(*options: str) -> list[str]:
        return [row["name"] for row in raybroker.json(*once, "--filter", "orders", *options)]

    assert names("--sort", "messages") == ["orders.b", "orders.c", "orders.a"]
    assert names("--sort", "messages", "--reverse") == ["orders.a", "orders.c", "orders.b"]
    assert names("--sort", "consumers")[0] == "orders.b"
    assert [row["destination"] for row in raybroker.json(*once, "--show", "consumers")] == ["orders.b"]
    assert [row["broker"] for row in raybroker.json(*once, "--show", "brokers")] == ["loopback"]
    assert len(raybroker.json(*once, "--show", "connections")) == 1
    consumer.close()


def test_top_says_first_what_needs_attention_and_then_the_table(raybroker: Any, broker: Any) -> None:
    broker.admin().create_destination("queue", "halted")
    broker.admin().pause_destination("queue", "halted", "consumers")
    lines = raybroker.output("top", "--once", "--interval", "0.05", "--filter", "halted").splitlines()
    assert lines[0] == "NOTE     queue halted: it is CONSUMERS_PAUSED"
    assert [line.split()[0] for line in lines[1:]] == ["NAME", "halted"]


def test_top_refuses_a_column_that_is_not_there(raybroker: Any, broker: Any) -> None:
    done = raybroker("top", "--once", "--sort", "mesages")
    assert (done.exit_code, "did you mean messages?" in done.stderr) == (2, True)
