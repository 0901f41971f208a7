"""Every kind of process is killed several times under load, and nothing that was acknowledged is lost."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import raybroker as rb
from raybroker.verify.display import VerifyDisplay
from raybroker.verify.plan import VerifyPlan
from raybroker.verify.report import RunVerdict
from raybroker.verify.run import run_verify
from tests.cluster import kills, load, rays
from tests.cluster.kill_worker import SEQ_BITS
from tests.cluster.load import RECOVERY_S


@pytest.mark.timeout(240)
def test_killed_processes_of_every_kind_cost_no_acknowledged_message(own_ray: str, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    verdict, found = kills.run(own_ray, tmp_path / "store", notes, kills.schedule(8, seed=3), seed=3)
    print(f"killed {dict(found.killed)}: {verdict}")
    assert found.killed == Counter(dict.fromkeys(kills.KINDS, 2))
    assert verdict.acknowledged > 1000
    assert verdict.valid, str(verdict)


@pytest.mark.timeout(120)
def test_verify_passes_a_broker_whose_host_is_killed(own_ray: str, tmp_path: Path) -> None:
    plan = VerifyPlan(
        cluster="verified",
        duration_seconds=5.0,
        rate_per_second=400.0,
        producers=1,
        consumers=1,
        units=0,
        faults=("kill-host",),
        interval_seconds=1.0,
        attributes={"hosting": "shared"},
    )
    with rb.start("verified", config=rays.small_store(tmp_path)):
        report = run_verify(plan, VerifyDisplay())
        with rb.connect(cluster="verified") as connection:
            assert [row["name"] for row in connection.admin().list_destinations()] == ["mq.sys.dmq"]
    assert report.verdict is RunVerdict.PASSED, report.lines()
    assert report.faults
    assert all(fault.back_s is not None for fault in report.faults)
    assert report.findings.total.confirmed > 200
    assert (outage := report.outage()) is not None
    assert outage["longest"] < RECOVERY_S


# ---- the judge itself ------------------------------------------------------------------------------------------------


def write(folder: Path, name: str, *lines: str) -> None:
    folder.joinpath(name).write_text("".join(f"{line[0]} 1 {line[2:]}\n" for line in lines))


P1, P2 = 1 << SEQ_BITS, 2 << SEQ_BITS


def test_the_judge_takes_a_history_with_nothing_wrong(tmp_path: Path) -> None:
    write(tmp_path, "producer.1", f"i {P1} {P1 + 1} {P1 + 2}", f"o {P1} {P1 + 1}", "x lost")
    write(tmp_path, "consumer.1", f"d {P1}/1 {P1 + 1}/1", f"a {P1}")
    write(tmp_path, "consumer.2", f"d {P1 + 1}/2 {P1 + 2}/1 {P1}/3")
    verdict = load.judge(tmp_path)
    assert verdict.valid
    assert (verdict.sent, verdict.acknowledged, verdict.delivered, verdict.redelivered) == (3, 2, 5, 2)
    assert (verdict.twice, verdict.recovered) == (2, 1)


def test_the_judge_names_what_is_lost_invented_doubled_or_out_of_order(tmp_path: Path) -> None:
    write(tmp_path, "producer.1", f"i {P1} {P1 + 1} {P1 + 2} {P1 + 3}", f"o {P1} {P1 + 1} {P1 + 2}")
    write(tmp_path, "consumer.1", f"d {P1 + 1}/1 {P1}/1 {P2}/1")
    write(tmp_path, "consumer.2", f"d {P1}/1")
    verdict = load.judge(tmp_path)
    assert not verdict.valid
    assert (verdict.lost, verdict.unexpected, verdict.unflagged) == ({P1 + 2}, {P2}, {P1})
    assert verdict.disordered == [f"consumer.1: {P1} after {P1 + 1}"]


def test_a_line_that_a_killed_worker_did_not_finish_is_not_read(tmp_path: Path) -> None:
    tmp_path.joinpath("producer.1").write_text(f"i 1 {P1}\no 1 {P1}\ni 1 {P1 + 1} 42949")
    assert load.judge(tmp_path).sent == 1
