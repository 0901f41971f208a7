"""``raybroker verify`` on real brokers: what it passes, what it finds, and what it leaves behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import BrokerError
from raybroker.verify.display import VerifyDisplay
from raybroker.verify.faults import NODE_FAULTS
from raybroker.verify.ledger import Breach
from raybroker.verify.plan import FAULTS, VerifyPlan
from raybroker.verify.report import RunVerdict
from raybroker.verify.run import PREFIX, run_verify
from tests.cluster import rays
from tests.cluster.test_cli import Shell, new_shell

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(600)]
COMMAND_S = 240


def names(cluster: str) -> list[str]:
    with rb.connect(cluster=cluster) as connection:
        return [row["name"] for row in connection.admin().list_destinations()]


def test_no_fault_breaks_a_promise(own_ray: str, tmp_path: Path) -> None:
    kinds = tuple(kind for kind in FAULTS if kind not in NODE_FAULTS)
    plan = VerifyPlan(
        cluster="faulty",
        duration_seconds=60.0,
        rate_per_second=400.0,
        producers=2,
        consumers=1,
        transactions=True,
        faults=kinds,
        interval_seconds=1.0,
        pause_seconds=3.0,
        attributes={"hosting": "shared"},
        seed=11,
    )
    with rb.start("faulty", brokers=2, config=rays.small_store(tmp_path)):
        report = run_verify(plan, VerifyDisplay())
        assert names("faulty") == ["mq.sys.dmq"]
    print("\n".join(report.lines()))
    assert report.verdict is RunVerdict.PASSED, report.lines()
    done = [fault.kind for fault in report.faults]
    assert len(set(done[: len(kinds)])) == len(done[: len(kinds)]) >= 4, "one after the other, and none twice"
    assert all(fault.back_s is not None for fault in report.faults)


def test_what_is_taken_away_is_found(own_ray: str, tmp_path: Path) -> None:
    """A checker that finds nothing where something is missing would pass every broker."""
    plan = VerifyPlan(
        cluster="purged", duration_seconds=6.0, producers=1, consumers=1, attributes={"hosting": "shared"}
    )
    done = threading.Event()

    def purge() -> None:
        with rb.connect(cluster="purged") as connection:
            admin = connection.admin()
            while not done.wait(0.05):
                for row in admin.list_destinations():
                    if row["name"].startswith(PREFIX) and row["messages_in"] > 100:
                        admin.pause_destination("queue", row["name"], "consumers")
                        time.sleep(0.7)  # Some come that nobody gets.
                        admin.purge_destination("queue", row["name"])
                        admin.resume_destination("queue", row["name"])
                        return

    with rb.start("purged", config=rays.small_store(tmp_path)):
        saboteur = threading.Thread(target=purge)
        saboteur.start()
        try:
            report = run_verify(plan, VerifyDisplay())
        finally:
            done.set()
            saboteur.join()
    assert report.verdict is RunVerdict.FAILED, report.lines()
    assert report.findings.broken[Breach.LOST] > 0
    assert report.findings.broken[Breach.REPEATED] == report.findings.broken[Breach.INVENTED] == 0
    assert "of producer" in report.findings.examples[Breach.LOST][0]


def list_queues(shell: Shell) -> list[str]:
    return [row["name"] for row in shell.json("list", "dst")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_ended_early_leaves_nothing(number: signal.Signals) -> None:
    with new_shell() as shell:
        shell.output("up")
        words = [
            "verify",
            "--duration",
            "120",
            "--faults",
            "pause-broker",
            "--interval",
            "1",
            "--pause",
            "60",
            "--json",
        ]
        command = subprocess.Popen(
            [sys.executable, "-m", "raybroker", *words, "--producers", "1", "--consumers", "1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=shell.environment,
            cwd=shell.folder,
        )
        try:
            assert command.stderr is not None
            for line in command.stderr:
                if "pause-broker broker b1" in line:
                    break
            time.sleep(1.0)
            command.send_signal(number)
            stdout, stderr = command.communicate(timeout=COMMAND_S)
        finally:
            command.kill()
        found: dict[str, Any] = json.loads(stdout)
        assert (command.returncode, found["verdict"]) == (130, "interrupted"), stderr
        assert found["total"]["confirmed"] > 0
        assert list_queues(shell) == ["mq.sys.dmq"]
        shell.output("down")


def test_a_cluster_that_does_not_run_is_no_verdict() -> None:
    with new_shell() as shell:
        done = shell.run("verify", "--duration", "1")
        assert (done.returncode, done.stdout) == (3, "")
        assert "raybroker up" in done.stderr


def test_attributes_that_are_refused_are_told_and_leave_nothing(own_ray: str, tmp_path: Path) -> None:
    with rb.start("refusing", config=rays.small_store(tmp_path)):
        plan = VerifyPlan(cluster="refusing", duration_seconds=1.0, attributes={"consumerFlowLimit": "many"})
        with pytest.raises(BrokerError, match="consumerFlowLimit"):
            run_verify(plan, VerifyDisplay())
        assert names("refusing") == ["mq.sys.dmq"]
