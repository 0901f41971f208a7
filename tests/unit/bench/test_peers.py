"""What the peers' adapters decide without their servers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import __main__ as harness
from benchmarks import machine, report
from benchmarks.peers import nats_jetstream, redis_streams
from benchmarks.peers.base import stream_of
from benchmarks.peers.rabbitmq import _Publisher
from benchmarks.readings import SYSTEMS, Amounts, Reading, Skipped


class Broken:
    """A system that gives one figure and then fails."""

    name, mark = "rabbitmq", ""

    def missing(self) -> str | None:
        return None

    def versions(self) -> list[str]:
        return []

    def settings(self) -> list[str]:
        return []

    def measure(self, _amounts: Amounts, folder: Path, round_no: int) -> Iterator[Reading | Skipped]:
        folder.mkdir(parents=True)
        yield Reading(self.name, "produce", 1.0, round_no)
        raise RuntimeError("the server went away")


def test_the_report_knows_every_system_in_its_order() -> None:
    assert [system.name for system in harness.build_systems(quick=True)] == list(SYSTEMS)


def test_a_server_that_is_not_installed_is_a_reason_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, peer in (
        (redis_streams, redis_streams.RedisStreams()),
        (nats_jetstream, nats_jetstream.NatsJetStream()),
    ):
        monkeypatch.setattr(module, "find_program", lambda *_: None)
        assert "apt-get install" in (peer.missing() or "")


def test_a_system_that_fails_keeps_its_figures_is_reported_and_leaves_no_folder(tmp_path: Path) -> None:
    found = report.Report("now", Amounts(), 1, {})
    harness.run_system(Broken(), found, tmp_path, 1)
    assert [reading.figure for reading in found.readings] == ["produce"]
    assert found.skipped == [Skipped("rabbitmq", "failed in round 1: the server went away")]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", ["nats-server: v2.9.10", "nats-server: v1.4"])
def test_an_old_nats_is_marked_as_not_syncing(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_jetstream, "output_of", lambda *_: version)
    peer = nats_jetstream.NatsJetStream()
    assert peer.mark == "no fsync"
    assert "without fsync" in peer.settings()[0]


def test_a_new_nats_syncs_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_jetstream, "output_of", lambda *_: "nats-server: v2.10.0")
    peer = nats_jetstream.NatsJetStream()
    assert peer.mark == ""
    assert "sync_interval: always" in peer.settings()[0]


@pytest.mark.parametrize("order", list(itertools.permutations([(1, False), (4, True), (5, False), (6, False)])))
def test_rabbitmq_confirms_add_up_in_whatever_order_they_come(order: tuple[tuple[int, bool], ...]) -> None:
    pytest.importorskip("pika", reason="the client pika is not installed")
    publisher = _Publisher(None, "queue", [b""], 6)
    for tag, multiple in order:
        publisher._note(tag, multiple)
    assert publisher._confirmed == 6


def test_a_stream_has_as_many_bodies_as_asked_of_the_size_asked() -> None:
    bodies = list(stream_of(100, 1000))
    assert {len(body) for body in bodies} == {100}
    assert len(bodies) == 1000
    assert len(set(bodies)) == 64


def test_the_machine_is_described_without_naming_it(tmp_path: Path) -> None:
    facts = machine.describe(tmp_path)
    assert facts["cpus"] >= 1
    assert [sync["size_bytes"] for sync in facts["sync"]] == list(machine.SYNC_BYTES)
    assert str(tmp_path) not in str(facts)
    assert list(tmp_path.iterdir()) == []
