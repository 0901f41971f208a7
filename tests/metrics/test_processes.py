"""Metrics and logs of real processes: endpoints, counters across a killed host, metrics topics, log files."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from raybroker.errors import MessageTooLargeError
from tests.cluster import rays
from tests.metrics.server import wait

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
NAME = "seen"
WAIT_S = 60.0


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def seen(own_ray: str, store: Path) -> Iterator[Any]:
    """A cluster of two brokers that publish and log every second."""
    import raybroker as rb

    config = {
        **rays.small_store(store),
        "imq.metrics.topic.interval": 1,
        "imq.metrics.interval": 1,
        "raybroker.metrics.cache_ms": 0,
        "raybroker.log.format": "json",
    }
    with rb.start(name=NAME, brokers=2, config=config) as cluster:
        yield cluster


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return str(answer.read().decode())


def counted(url: str, name: str) -> int:
    families = text_string_to_metric_families(page(url))
    return sum(int(sample.value) for family in families for sample in family.samples if sample.name == name)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_each_broker_has_an_endpoint_that_knows_the_others(seen: Any) -> None:
    assert len(set(seen.metrics_urls)) == 2
    for url in seen.metrics_urls:
        targets = url.replace("/metrics", "/sd")
        wait(lambda t=targets: len(json.loads(page(t))) == 2, "a broker does not know the other's endpoint", WAIT_S)  # type: ignore[misc]
    found = json.loads(page(seen.metrics_urls[0].replace("/metrics", "/sd")))
    assert [group["labels"]["__meta_raybroker_broker"] for group in found] == seen.brokers


def test_metrics_messages_of_all_brokers_come(seen: Any) -> None:
    import raybroker as rb

    with rb.connect(cluster=NAME) as connection:
        session = connection.session()
        consumer = session.consumer(session.topic("mq.metrics.broker"))
        heard: dict[str, Any] = {}

        def both() -> bool:
            message = consumer.receive(timeout=1)
            if message is not None:
                heard[message.properties["brokerName"]] = message
            return set(heard) == set(seen.brokers)

        wait(both, f"heard only of {set(heard)}", WAIT_S)
        urls = {url.removeprefix("http://").partition("/")[0] for url in seen.metrics_urls}
        assert {message.properties["brokerAddress"] for message in heard.values()} == urls


def test_counters_outlive_a_killed_host(seen: Any, store: Path) -> None:
    import raybroker as rb

    (url,) = [url for broker, url in zip(seen.brokers, seen.metrics_urls, strict=True) if broker == "b1"]
    with rb.connect(cluster=NAME, broker="b1") as connection:
        producer = connection.session().producer("counted")
        producer.send_many([b"x"] * 500)
        before = counted(url, "raybroker_messages_in_total")
        assert before >= 500
        one = f"{url}/destinations?names=counted"
        assert counted(one, "raybroker_destination_messages_in_total") == 500
        producer.send_many([b"x"] * 1000)  # After the last sample: the host alone knows of them.
        pids = seen.pids("b1")
        (host,) = [name for name in pids if name != "broker"]
        os.kill(pids[host], signal.SIGKILL)
        lowest = before
        for _ in range(10):
            producer.send(b"after")
            lowest = min(lowest, counted(url, "raybroker_messages_in_total"))
        assert lowest >= before
        wait(lambda: counted(url, "raybroker_messages_in_total") == before + 1010, "what was confirmed is not", WAIT_S)
        row = connection.admin().query_destination("queue", "counted")
        assert (row["messages_in"], row["messages"]) == (1510, 1510)
        assert counted(one, "raybroker_destination_messages_in_total") == 1510
        assert seen.pids("b1")[host] != pids[host]
    wait(lambda: counted(url, "raybroker_host_restarts_total") >= 1, "the restart was not counted", WAIT_S)
    log = next(store.rglob("b1/log")) / "log.txt"
    wait(lambda: any(row.get("code") == "B2171" for row in lines(log)), "the restart is not in the log", WAIT_S)
    (told,) = [row["text"] for row in lines(log) if row.get("code") == "B2171"]
    assert f"host b1/{host} has restarted: process {pids[host]} has ended" in told
    assert told.endswith(f"its log is {log.parent / host / 'log.txt'}")
    assert any(row.get("code") == "B1131" and "queue counted" in row["text"] for row in lines(log))


def test_every_process_logs_for_its_owner(seen: Any, store: Path) -> None:
    folder = next(store.rglob("b1/log"))
    wait(lambda: any("Rate In:" in row["text"] for row in lines(folder / "log.txt")), "no metrics in the log", WAIT_S)
    first = lines(folder / "log.txt")[0]
    assert (first["cluster"], first["broker"], first["category"]) == (NAME, "b1", "INFO")
    assert {path.stat().st_mode & 0o077 for path in folder.rglob("*")} == {0}


def test_the_lives_of_messages_are_written(seen: Any, store: Path) -> None:
    import raybroker as rb

    with rb.connect(cluster=NAME, broker="b1", client_id="billing") as connection:
        connection.admin().create_destination("queue", "lives", hosting="shared", messageLoggingEnabled=True)
        session = connection.session(ack="client")
        sent = session.producer("lives").send(b"one", correlation_id="order 7")
        message = session.consumer("lives").receive(timeout=20)
        message.acknowledge()

        def rows() -> list[dict[str, Any]]:
            return [row for path in store.rglob("messages.log") for row in lines(path) if row["destination"] == "lives"]

        wait(lambda: "Consumed" in [row["event"] for row in rows()], f"only {rows()}", WAIT_S)
        of_message = [row for row in rows() if row.get("message_id") == sent]
        assert [row["event"] for row in of_message] == ["Produced", "Consumed"]
        assert {row["correlation_id"] for row in of_message} == {"order 7"}
        assert of_message[1]["client_id"] == "billing"


def test_the_level_and_the_rollover_of_a_broker_change_while_it_runs(seen: Any, store: Path) -> None:  # M-02, M-04
    """Also for its hosts, and for processes that are killed and start again."""
    import raybroker as rb

    logs = {broker: next(store.rglob(f"{broker}/log")) / "log.txt" for broker in seen.brokers}

    def said(broker: str) -> int:
        return sum("Rate In:" in row["text"] for row in lines(logs[broker]))

    with rb.connect(cluster=NAME, broker="b1") as connection:
        admin, producer = connection.admin(), connection.session().producer("levels")
        producer.send(b"x" * 2048)
        changes = {"imq.log.level": "WARNING", "imq.message.max_size": "1k"}
        assert admin.update_broker(changes, "b1")["brokers"]["b1"]["unreached"] == []
        pids, quiet, other = seen.pids("b1"), said("b1"), said("b2")
        for pid in pids.values():
            os.kill(pid, signal.SIGKILL)
        wait(lambda: said("b2") > other + 3, "the other broker's log has stopped", WAIT_S)
        with pytest.raises(MessageTooLargeError):
            producer.send(b"x" * 2048)
        wait(lambda: admin.query_broker()["changed"].keys() == changes.keys(), "it has forgotten", WAIT_S)
        assert said("b1") <= quiet + 1  # One may have been on its way.
        assert not any("b1 of cluster" in row["text"] for row in lines(logs["b1"])[-1:])
        assert all(seen.pids("b1")[name] != pid for name, pid in pids.items())
        admin.update_broker({"imq.log.level": "INFO", "imq.message.max_size": "70m"}, "b1")
        admin.update_broker({"imq.log.file.rolloverbytes": "2k"}, "b1")
        wait(lambda: logs["b1"].with_name("log_2.txt").exists(), "the log does not roll", WAIT_S)
        assert not logs["b2"].with_name("log_1.txt").exists()
        admin.update_broker({"imq.log.file.rolloverbytes": "-1"}, "b1")
        assert admin.query_broker()["changed"] == {}


def test_a_stopped_broker_has_no_endpoint(own_ray: str, tmp_path: Path) -> None:
    import raybroker as rb

    with rb.start(name="short", brokers=1, config=rays.small_store(tmp_path)) as cluster:
        (url,) = cluster.metrics_urls
        assert "raybroker_info" in page(url)
    with pytest.raises(urllib.error.URLError):
        page(url)


def test_an_endpoint_can_be_left_out(own_ray: str, tmp_path: Path) -> None:
    import raybroker as rb

    config = {**rays.small_store(tmp_path), "raybroker.metrics.enabled": False}
    with rb.start(name="hidden", brokers=1, config=config) as cluster:
        assert cluster.metrics_urls == []


def test_a_log_that_cannot_be_is_refused_at_once(own_ray: str) -> None:
    import raybroker as rb
    from raybroker.errors import ConfigError

    with pytest.raises(ConfigError, match=r"imq\.log\.timezone"):
        rb.start(name="nowhere", config={"imq.log.timezone": "Mars/Olympus"})
