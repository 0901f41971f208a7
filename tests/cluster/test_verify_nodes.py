"""``raybroker verify`` on three Ray nodes, one of which is killed: with brokers that share a database, and without."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.actors.stores.record_tables import TableManager
from raybroker.actors.stores.store_tables import StoreManager
from raybroker.config import Config
from raybroker.errors import BrokerError
from raybroker.verify.display import VerifyDisplay
from raybroker.verify.faults import NODE_KILLED
from raybroker.verify.plan import FAULTS, VerifyPlan, copied
from raybroker.verify.report import RunVerdict
from raybroker.verify.run import run_verify
from tests.cluster import rays
from tests.cluster.nodes import Nodes, running_nodes
from tests.contracts import postgres

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(600)]
GOAL_S = 60.0
"""Within that each producer is confirmed a send again, also on a machine where all nodes share two processors."""


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    with running_nodes(3) as found:
        yield found


def plan_of(cluster: str, recovery_s: float, faults: tuple[str, ...] = ("kill-node",), **given: Any) -> VerifyPlan:
    return VerifyPlan(
        cluster=cluster,
        duration_seconds=25.0,
        rate_per_second=300.0,
        producers=3,
        consumers=1,
        faults=faults,
        interval_seconds=3.0,
        recovery_seconds=recovery_s,
        attributes=given or {"hosting": "shared"},
    )


def test_brokers_that_share_a_database_lose_nothing_with_a_node(nodes: Nodes, tmp_path: Path) -> None:
    with postgres.server() as server:
        config: dict[str, object] = {
            **rays.small_store(tmp_path),
            **postgres.shared_store(server),
        }
        chosen = Config.from_values({**config, "imq.cluster.brokerlist": "b1,b2,b3"})
        TableManager(chosen, "taken").create()
        StoreManager(chosen, "taken").create(database=False)
        with rb.start("taken", brokers=3, config=config):
            report = run_verify(plan_of("taken", 120.0), VerifyDisplay())
    print("\n".join(report.lines()))
    assert report.verdict is RunVerdict.PASSED, report.lines()
    (fault,) = report.faults
    assert (fault.kind, fault.silent) == ("kill-node", 0)
    assert fault.back_s is not None
    assert max(fault.confirmed_s) < GOAL_S


def test_queues_with_copies_lose_nothing_with_a_node(nodes: Nodes, tmp_path: Path) -> None:
    cluster = rb.start("copied", brokers=3, config=rays.small_store(tmp_path))
    try:
        report = run_verify(plan_of("copied", 60.0, **copied(3)), VerifyDisplay())
    finally:
        with contextlib.suppress(BrokerError):  # Of the node that is lost.
            cluster.stop()
    print("\n".join(report.lines()))
    assert report.verdict is RunVerdict.PASSED, report.lines()
    (fault,) = report.faults
    assert (fault.kind, fault.silent) == ("kill-node", 0)
    assert fault.back_s is not None
    assert max(fault.confirmed_s) < GOAL_S


def test_queues_with_copies_keep_their_promises_under_all_faults_that_end(nodes: Nodes, tmp_path: Path) -> None:
    kinds = tuple(kind for kind in FAULTS if kind != NODE_KILLED)
    plan = replace(plan_of("tried", 120.0, kinds, **copied(3)), transactions=True, duration_seconds=100.0)
    with rb.start("tried", brokers=3, config=rays.small_store(tmp_path)):
        report = run_verify(plan, VerifyDisplay())
    print("\n".join(report.lines()))
    assert report.verdict is RunVerdict.PASSED, report.lines()
    done = [fault.kind for fault in report.faults]
    assert len(set(done[: len(kinds)])) == len(done[: len(kinds)]) >= 4, "one after the other, and none twice"
    assert all(fault.back_s is not None for fault in report.faults)


def test_what_a_lost_node_has_alone_is_no_verdict_and_no_loss(nodes: Nodes, tmp_path: Path) -> None:
    """Its messages are on its disk still: whether one is lost cannot be said before it is back."""
    with rb.start("alone", brokers=3, config=rays.small_store(tmp_path)):
        report = run_verify(plan_of("alone", 15.0), VerifyDisplay())
    print("\n".join(report.lines()))
    assert report.verdict is RunVerdict.UNFINISHED, report.lines()
    assert report.findings.good
    assert report.faults[0].back_s is None
    assert any("not all brokers answer" in text for text in report.troubles)
