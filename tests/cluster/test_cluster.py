"""A broker in Ray: starting and stopping, hosts, restarts, consumer actors, and strangers at the door."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.client.io.io_thread import IoThread, end_thread
from raybroker.errors import (
    BrokerError,
    ConfigError,
    ConnectionLostError,
    InvalidDestinationError,
    NoClusterError,
)
from raybroker.transport.direct import SUPPORTED, DirectSockets
from raybroker.wire.native import frames as wire
from raybroker.wire.native.connection import preface
from tests.cluster.rays import small_store
from tests.contracts.handles import WAIT_S, bodies, state_of, take, until
from tests.manual.blocks import by_page
from tests.manual.running import run_commands, run_page

LED_ROUNDS = 300

# ---- starting and connecting -----------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_what_is_sent_by_one_connection_is_received_by_another(cluster: Any) -> None:
    assert (cluster.name, cluster.brokers) == ("default", ["b1"])
    with rb.connect() as first, rb.connect(broker="b1") as second:
        consumer = second.session().consumer("hello")
        assert first.session().producer("hello").send({"id": 1}).startswith("ID:")
        assert take(consumer, 1)[0].body == {"id": 1}


@pytest.fixture
def own_io(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An IO thread for this test alone: nobody else in this process needs its loop."""
    monkeypatch.setattr(IoThread, "_shared", None)
    yield
    end_thread(IoThread.shared())


@pytest.mark.smoke
@pytest.mark.usefixtures("own_io")
@pytest.mark.skipif(not SUPPORTED, reason="this system has no epoll")
def test_a_thread_that_makes_one_call_after_another_serves_its_sockets_itself(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, read = list[int](), DirectSockets.read

    def noted(self: DirectSockets, number: int) -> None:
        served.append(threading.get_ident())
        read(self, number)

    monkeypatch.setattr(DirectSockets, "read", noted)
    with rb.connect() as connection:
        producer, consumer = connection.session().producer("led"), connection.session().consumer("led")
        rounds = 0
        for _ in range(LED_ROUNDS):
            del served[:]
            producer.send("x")
            assert consumer.receive(timeout=WAIT_S) is not None
            rounds += bool(served)
        assert rounds > LED_ROUNDS / 2  # Others are served by the IO thread: it has to run now and then.
        assert set(served) == {threading.get_ident()}


@pytest.mark.smoke
def test_connecting_to_a_cluster_that_is_not_there_says_how_to_start_one(own_ray: str) -> None:
    with pytest.raises(NoClusterError, match=r"raybroker up --name nowhere") as caught:
        rb.connect(cluster="nowhere")
    assert "rb.start('nowhere')" in str(caught.value)
    assert own_ray in str(caught.value)


@pytest.mark.smoke
def test_what_the_readme_shows_of_ray_runs(cluster: Any) -> None:
    run_page(by_page("python ray")["README.md"], {"rb": rb})


@pytest.mark.parametrize("page", sorted(set(by_page("python ray")) - {"README.md"}))
def test_what_the_manual_shows_of_ray_runs(cluster: Any, page: str) -> None:
    run_page(by_page("python ray")[page], {"rb": rb})


@pytest.mark.parametrize("page", list(by_page("sh ray")))
def test_the_commands_of_the_manual_run(
    cluster: Any, own_ray: str, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", own_ray)
    run_commands(by_page("sh ray")[page])


def test_an_unknown_broker_is_answered_with_those_there_are(cluster: Any) -> None:
    with pytest.raises(NoClusterError, match="b1"):
        rb.connect(broker="b9")


def test_starting_a_cluster_again_finds_the_one_that_runs(cluster: Any) -> None:
    again = rb.start()
    assert again.pids()["broker"] == cluster.pids()["broker"]


@pytest.mark.parametrize("name", ["", "a b", "../x", "a/b", "-a", "x" * 64])
def test_a_bad_cluster_name_is_refused(own_ray: str, name: str) -> None:
    with pytest.raises(ConfigError, match="cluster name"):
        rb.start(name)
    with pytest.raises(ConfigError, match="cluster name"):
        rb.connect(cluster=name)


def test_what_cannot_be_started_says_so_and_starts_nothing(own_ray: str) -> None:
    with pytest.raises(ConfigError, match=r"2 brokers are asked for.*names 3"):
        rb.start("other", brokers=2, config={"imq.cluster.brokerlist": "a,b,c"})
    with pytest.raises(ConfigError, match="none of the brokers"):
        rb.start("other", config={"imq.cluster.brokerlist": "a,b", "imq.cluster.masterbroker": "c"})
    with pytest.raises(ConfigError, match=r"raybroker\.store\.dir"):
        rb.start("other", config={"raybroker.store.dirr": "x"})
    with pytest.raises(NoClusterError):
        rb.connect(cluster="other")


def test_a_stopped_cluster_is_gone_and_its_processes_have_ended(own_ray: str, tmp_path: Path) -> None:
    with rb.start("brief", config=small_store(tmp_path)) as brief:
        with rb.connect(cluster="brief") as connection:
            connection.session().producer("orders").send("x")
        pids = list(brief.pids().values())
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    with pytest.raises(NoClusterError):
        rb.connect(cluster="brief")


# ---- hosts and restarts ----------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_a_dedicated_queue_has_a_host_of_its_own_that_ends_with_it_and_shared_ones_share(cluster: Any) -> None:
    with rb.connect() as connection:
        admin = connection.admin()
        for name, hosting in (("own", "dedicated"), ("one", "shared"), ("two", "shared")):
            admin.create_destination("queue", name, hosting=hosting)
        hosts = {name: state_of(connection, name)["host"] for name in ("own", "one", "two")}
        assert hosts["one"] == hosts["two"] != hosts["own"]
        own = cluster.pids()[hosts["own"].split("/")[1]]
        connection.session().producer("own").send("x")
        admin.destroy_destination("queue", "own")
        until(lambda: not Path(f"/proc/{own}").exists())
        assert hosts["own"].split("/")[1] not in cluster.pids()
        with pytest.raises(InvalidDestinationError):
            admin.query_destination("queue", "own")
        connection.session().producer("one").send("still here")


def test_a_spare_host_becomes_the_host_of_the_next_dedicated_queue_and_ends_with_the_broker(
    own_ray: str, tmp_path: Path
) -> None:
    config = {**small_store(tmp_path), "raybroker.hosting.spare": True}
    with rb.start("spare", config=config) as cluster, rb.connect(cluster="spare") as connection:
        admin = connection.admin()

        def spares() -> list[tuple[str, int]]:
            try:
                rows = admin.query_broker()["hosts"]
            except BrokerError:
                return []  # The broker is starting again.
            return [(row["host"], row["pid"]) for row in rows if row["hosting"] == "spare"]

        until(lambda: len(spares()) == 1)
        ((key, pid),) = spares()
        admin.create_destination("queue", "quick", hosting="dedicated")
        assert state_of(connection, "quick")["host"] == key
        assert cluster.pids()[key.split("/")[1]] == pid
        until(lambda: len(spares()) == 1)
        ((_, left),) = spares()
        session = connection.session()
        session.producer("quick").send("x")
        os.kill(cluster.pids()["broker"], signal.SIGKILL)
        until(lambda: [now for _, now in spares()] not in ([], [left]))
        until(lambda: not Path(f"/proc/{left}").exists())
        pids = cluster.pids()
        message = session.receive("quick", timeout=WAIT_S)
        assert message is not None
        assert message.body == "x"
    until(lambda: not any(Path(f"/proc/{process}").exists() for process in pids.values()))


def test_after_stopping_and_starting_a_cluster_over_the_same_store_everything_persistent_is_there(
    own_ray: str, tmp_path: Path
) -> None:
    config = small_store(tmp_path)
    with rb.start("again", config=config), rb.connect(cluster="again") as connection:
        connection.admin().create_destination("queue", "dedicated", maxNumMsgs=500)
        connection.admin().create_destination("queue", "empty", hosting="shared")
        session = connection.session(ack="client")
        for name in ("dedicated", "automatic"):
            session.producer(name).send_many(range(100))
            take(session.consumer(name), 10)[-1].acknowledge()
            session.producer(name).send("volatile", persistent=False)
        session.producer("unused").close()
    with rb.start("again", config=config), rb.connect(cluster="again") as connection:
        rows = {row["name"]: row for row in connection.admin().list_destinations()}
        assert set(rows) == {"dedicated", "empty", "automatic", "mq.sys.dmq"}
        assert rows["dedicated"]["attributes"]["maxNumMsgs"] == 500
        for name in ("dedicated", "automatic"):
            found = take(connection.session().consumer(name), 90)
            assert bodies(found) == list(range(10, 100))
            assert not found[0].redelivered, "it was only in the buffer of the last consumer, which gave it back"


@pytest.mark.smoke
def test_a_killed_host_and_a_killed_broker_come_back_and_handles_go_on(cluster: Any) -> None:
    with rb.connect() as connection:
        connection.admin().create_destination("queue", "killed")
        host = state_of(connection, "killed")["host"].split("/")[1]
        session = connection.session(ack="client")
        producer, consumer = session.producer("killed"), session.consumer("killed")
        producer.send_many(range(100))
        pids = cluster.pids()
        os.kill(pids[host], signal.SIGKILL)
        os.kill(pids["broker"], signal.SIGKILL)
        futures = [producer.send_async(n) for n in range(100, 200)]
        assert len({future.result(WAIT_S) for future in futures}) == 100
        seen: list[int] = []
        until(lambda: seen.extend(bodies(consumer.receive_many(100, timeout=0.2))) or set(seen) == set(range(200)))
        assert list(dict.fromkeys(seen)) == list(range(200))
        until(lambda: _pids(cluster).get("broker", pids["broker"]) != pids["broker"])


def _pids(cluster: Any) -> dict[str, int]:
    try:
        found: dict[str, int] = cluster.pids()
    except BrokerError:
        return {}
    return found


def test_connecting_while_the_broker_restarts_waits_for_it(cluster: Any) -> None:
    os.kill(cluster.pids()["broker"], signal.SIGKILL)
    with rb.connect() as connection:
        connection.session().producer("patient").send("x")
        assert take(connection.session().consumer("patient"), 1)[0].body == "x"


def test_a_handle_whose_host_does_not_come_back_says_how_long_it_tried(own_ray: str, tmp_path: Path) -> None:
    told: list[BrokerError] = []
    with rb.start("gone", config=small_store(tmp_path)):
        connection = rb.connect(cluster="gone", **{"raybroker.reconnect.timeout_ms": 300})
        connection.on_exception(told.append)
        connection.start()
        session = connection.session()
        producer, consumer = session.producer("orders"), session.consumer("orders")
        producer.send("x")
        take(consumer, 1)
    with pytest.raises((ConnectionLostError, NoClusterError)):
        producer.send("y")
    with pytest.raises((ConnectionLostError, NoClusterError)):
        until(lambda: consumer.receive(timeout=0.1) and None)
    until(lambda: len(told) >= 2)
    connection.close()


# ---- consumer actors -------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_deployed_listeners_share_a_queue_and_a_killed_one_loses_nothing(cluster: Any, tmp_path: Path) -> None:
    notes = tmp_path / "handled"

    @rb.listener(queue="work", prefetch=20, batch=5)
    def handle(messages: list[Any]) -> None:
        with open(notes, "a") as file:
            file.write("".join(f"{m.body} {m.delivery_count}\n" for m in messages))

    with rb.connect() as connection:
        connection.admin().create_destination("queue", "work", hosting="shared")
        producer = connection.session().producer("work")
        pool = rb.deploy(handle, instances=2, actor_options={"num_cpus": 0})
        try:
            producer.send_many(range(200))
            until(lambda: notes.exists() and len(notes.read_text().splitlines()) >= 20)
            victim = pool.stats()[0]["pid"]
            os.kill(victim, signal.SIGKILL)
            producer.send_many(range(200, 400))
            until(lambda: state_of(connection, "work")["messages"] == 0, "everything is handled", 60)
            rows = [tuple(map(int, line.split())) for line in notes.read_text().splitlines()]
            assert {body for body, _ in rows} == set(range(400))
            fresh = [body for body, attempt in rows if attempt == 1]
            assert len(fresh) == len(set(fresh)), "what comes again says so"
            revived = until(lambda: [s["pid"] for s in pool.stats() if "pid" in s and s["pid"] != victim], timeout_s=60)
            assert revived
        finally:
            stats = pool.stop()
    assert len(stats) == 2


def test_messages_of_a_listener_that_raises_come_again(cluster: Any, tmp_path: Path) -> None:
    notes = tmp_path / "handled"

    @rb.listener(queue="fragile")
    def handle(message: Any) -> None:
        with open(notes, "a") as file:
            file.write(f"{message.body} {message.delivery_count}\n")
        if message.delivery_count == 1:
            raise ValueError("the listener's own")

    pool = rb.deploy(handle, actor_options={"num_cpus": 0})
    try:
        with rb.connect() as connection:
            connection.session().producer("fragile").send_many(["a"])
            until(lambda: state_of(connection, "fragile")["messages"] == 0)
            assert notes.read_text().splitlines() == ["a 1", "a 2"]
            until(lambda: pool.stats()[0]["messages"] == 1)  # Counted once its acknowledgement is confirmed.
            (stats,) = pool.stats()
            assert (stats["messages"], stats["failures"], stats["redelivered"]) == (1, 1, 1)
            assert "the listener's own" in stats["last_error"]
    finally:
        pool.stop()


# ---- strangers -------------------------------------------------------------------------------------------------------


def _address(connection: Any, name: str) -> tuple[str, int]:
    host = state_of(connection, name)["host"]
    for row in connection.admin().query_broker()["hosts"]:
        if row["host"] == host:
            ip, port = row["address"]
            return ip, port
    raise AssertionError(f"{host} is not among the broker's hosts")


STRANGERS = {
    "a wrong token": preface(bytes(32)) + wire.call(1, "hello", {}),
    "no token": wire.call(1, "open_producer", {"handle": 1, "name": "safe", "producer": 7}),
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: broker\r\nUser-Agent: curl\r\n\r\n",
    "garbage": bytes(range(256)) * 100,
    "a declared 4 GiB": b"\xff\xff\xff\xff\x04" * 20,
}


@pytest.mark.parametrize("name", STRANGERS)
def test_a_stranger_at_the_port_reads_nothing_and_changes_nothing(cluster: Any, name: str) -> None:
    with rb.connect() as connection:
        session = connection.session(ack="client")
        producer = session.producer("safe")
        producer.send("secret")
        before = state_of(connection, "safe")
        for _ in range(3):
            with socket.create_connection(_address(connection, "safe"), timeout=WAIT_S) as stranger:
                try:
                    stranger.sendall(STRANGERS[name])
                    assert stranger.recv(1) == b""
                except (ConnectionResetError, BrokenPipeError):
                    pass
        assert state_of(connection, "safe") == before
        message = take(session.consumer("safe"), 1)[0]
        assert message.body == "secret"
        message.acknowledge()


def test_the_stores_of_a_cluster_can_be_read_by_their_owner_only(cluster: Any) -> None:
    with rb.connect() as connection:
        connection.session().producer("private").send("x")
        directory = Path(_setting(connection, "raybroker.store.dir"))
        files = [p for p in directory.rglob("*") if p.is_file()]
        assert files
        assert {p.stat().st_mode & 0o077 for p in files} == {0}


def _setting(connection: Any, name: str) -> str:
    found: str = connection._core.attributes[name]
    return found
