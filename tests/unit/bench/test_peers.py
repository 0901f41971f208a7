"""What the peers' adapters decide without their servers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import __main__ as harness
from benchmarks import machine, report, tools
from benchmarks.peers import kafka, nats_jetstream, redis_streams
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


def test_a_current_nats_is_the_one_that_was_built_and_is_skipped_by_name_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCHMARKS_TOOLS", str(tmp_path))
    peer = nats_jetstream.NatsCurrent()
    assert "python -m benchmarks.tools nats" in (peer.missing() or "")
    server = tmp_path / f"nats-{tools.NATS_VERSION}" / "nats-server"
    server.parent.mkdir()
    server.touch(0o755)
    assert peer.program() == str(server)


def test_kafka_is_skipped_by_name_without_its_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "find_program", lambda *_: "java")
    monkeypatch.setenv("BENCHMARKS_KAFKA", str(tmp_path))
    assert "python -m benchmarks.tools kafka" in (kafka.Kafka().missing() or "")
    (tmp_path / "kafka_2.13-9.9.9.jar").touch()
    assert tools.kafka_jars() == tmp_path
    monkeypatch.setattr(kafka, "find_program", lambda *_: None)
    assert "Java" in (kafka.Kafka().missing() or "")


def test_kafka_syncs_each_append_only_under_the_name_that_says_so() -> None:
    assert (kafka.Kafka().mark, kafka.KafkaFlush().mark) == ("no fsync", "")
    delivered, flushed = (kafka.server_config(Path("x"), 1, 2, flush) for flush in (False, True))
    assert "flush" not in delivered
    assert flushed == delivered + "log.flush.interval.messages=1\n"
    assert "as delivered" in kafka.Kafka().settings()[0]


def test_a_message_that_kafka_refused_or_did_not_answer_is_an_error() -> None:
    confirmed = kafka.Confirmations()
    confirmed(None, None)
    confirmed.check(1)
    with pytest.raises(RuntimeError, match="1 of 2"):
        confirmed.check(2)
    confirmed("too large", None)
    with pytest.raises(RuntimeError, match="too large"):
        confirmed.check(2)


def test_kafkas_client_is_served_until_its_buffer_has_room() -> None:
    class Full:
        left, polled = 2, 0

        def produce(self, _topic: str, _body: bytes, on_delivery: object) -> None:
            self.left -= 1
            if self.left >= 0:
                raise BufferError

        def poll(self, _seconds: float) -> None:
            self.polled += 1

    client = Full()
    kafka.publish(client, "t", b"", None)
    assert client.polled == 3


def test_what_maven_is_asked_for_are_the_named_artifacts() -> None:
    text = tools.pom("g:a:1", "h:b:2")
    assert "<groupId>g</groupId><artifactId>a</artifactId><version>1</version>" in text
    assert text.count("<dependency>") == 2


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
