"""Clients of STOMP, HTTP and WebSocket at one broker, while another one dies and comes back: what a native client
survives, they survive."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

import raybroker as rb
from raybroker.hosting.host_service import HostService
from raybroker.security.user_file import UserEntry, UserFile
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.handles import WAIT_S, until
from tests.contracts.stomp_rig import VERIFIERS, Bare

PASSWORD = "secret"
NOT_LATE_S = 10.0
"""An answer that waits for a broker that is gone takes three times as long: the whole reconnect time."""


class Gateways:
    """Three brokers with all services, and clients of them."""

    def __init__(self, folder: Path, opened: ExitStack, **more: object) -> None:
        security = folder / "security"
        security.mkdir(exist_ok=True)
        UserFile(security / "passwd").add("ann", UserEntry(VERIFIERS, "user"))
        properties: dict[str, object] = {
            "imq.service.activelist": "jms,stomp,amqp,httpjms",
            "imq.hostname": "127.0.0.1",
            "imq.portmapper.port": 0,
            **more,
        }
        self.opened = opened
        self.rig = opened.enter_context(ClusterRig(folder, **properties))  # type: ignore[arg-type]

    def port(self, broker: str, service: str) -> int:
        return self.rig.brokers[broker].services.own()[2][service]

    def stomp(self, broker: str) -> Bare:
        made = Bare(self.port(broker, "stomp")).login("ann")
        self.opened.callback(made.close)
        return made

    def http(self, broker: str) -> httpx.Client:
        made = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port(broker, 'httpjms')}", auth=("ann", PASSWORD), timeout=2 * WAIT_S
        )
        self.opened.callback(made.close)
        return made

    def native(self, broker: str, scheme: str = "http") -> Any:
        port = self.port(broker, "portmapper" if scheme == "mq" else "httpjms")
        made = rb.connect(f"{scheme}://127.0.0.1:{port}/", username="ann", password=PASSWORD)
        self.opened.callback(made.close)
        made.start()
        return made

    def end(self, broker: str, way: str) -> HostService | None:
        """The broker is gone, or its process alone."""
        if way == "process":
            return self.rig.kill_process(broker)
        self.rig.kill(broker)
        return None


@pytest.fixture
def gateways(tmp_path: Path) -> Iterator[Gateways]:
    with ExitStack() as opened:
        yield Gateways(tmp_path, opened)


ways = pytest.mark.parametrize("way", ["broker", "process"])
"""The whole broker is killed, or its process alone: its host goes on."""


def sent_at(gateways: Gateways, broker: str, queue: str, body: str) -> None:
    gateways.rig.connect(broker).session().producer(queue).send(body)


def subscribed(client: Bare, destination: str) -> None:
    client.done("SUBSCRIBE", {"destination": destination, "id": 1, "ack": "client-individual"})


def received(client: Bare) -> tuple[str, bool]:
    """The next message, which is acknowledged, and whether it came before."""
    frame = client.expect("MESSAGE")
    client.done("ACK", {"id": frame.headers["ack"]})
    return frame.body.decode(), "redelivered" in frame.headers


@ways
def test_stomp_clients_survive_the_death_of_another_broker(gateways: Gateways, way: str) -> None:
    rig, queue = gateways.rig, gateways.rig.name()
    consumer, idle, producer = (gateways.stomp("b2") for _ in range(3))
    subscribed(consumer, f"/queue/{queue}")
    rig.connect("b2").admin().create_destination("topic", "news")
    subscribed(idle, "/topic/news")

    def goes_through(text: str) -> None:
        producer.done("SEND", {"destination": f"/queue/{queue}"}, text.encode())
        assert received(consumer) == (text, False)

    goes_through("before")
    sent_at(gateways, "b1", queue, "stored at b1")
    assert received(consumer) == ("stored at b1", False)
    host = gateways.end("b1", way)
    goes_through("while it is gone")
    sent_at(gateways, "b3", queue, "stored at b3")
    assert received(consumer) == ("stored at b3", False)
    rig.start("b1", host)
    sent_at(gateways, "b1", queue, "stored at b1 again")
    assert received(consumer) == ("stored at b1 again", False)
    goes_through("after")
    until(lambda: rig.io.run(rig.brokers["b1"].cluster.members("topic", "news")).get("b1"), "it subscribes there again")
    rig.connect("b1").session().producer("topic:news").send("a new day")
    assert received(idle) == ("a new day", False)


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_a_late_ack_of_a_message_whose_broker_was_lost_ends_no_stomp_client(gateways: Gateways, ack: str) -> None:
    """It comes again, flagged, as to a native client; what the same ACK says of other brokers' messages holds."""
    rig, queue = gateways.rig, gateways.rig.name()
    client = gateways.stomp("b2")
    client.done("SUBSCRIBE", {"destination": f"/queue/{queue}", "id": 1, "ack": ack})
    sent_at(gateways, "b3", queue, "kept")
    kept = client.expect("MESSAGE")
    sent_at(gateways, "b1", queue, "lost")
    lost = client.expect("MESSAGE")
    rig.kill("b1")
    for frame in (kept, lost) if ack == "client-individual" else (lost,):
        client.send("ACK", {"id": frame.headers["ack"]})
    client.done("SEND", {"destination": f"/queue/{queue}"}, b"next")
    assert received(client) == ("next", False)
    until(lambda: rig.connect("b3").admin().query_destination("queue", queue)["messages"] == 0)
    rig.start("b1")
    assert received(client) == ("lost", True)


def test_a_client_that_waits_for_the_receipt_of_such_an_ack_is_told(gateways: Gateways) -> None:
    queue = gateways.rig.name()
    client = gateways.stomp("b2")
    subscribed(client, f"/queue/{queue}")
    sent_at(gateways, "b1", queue, "lost")
    lost = client.expect("MESSAGE")
    gateways.rig.kill("b1")
    error = client.refused("ACK", {"id": lost.headers["ack"], "receipt": "r"})
    assert (error.headers["error-code"], error.headers["receipt-id"]) == ("connection_lost", "r")
    assert "comes again, flagged as redelivered" in error.headers["message"]


def taken(client: httpx.Client, queue: str, wait_ms: int = 1000) -> list[Any]:
    """What one request receives, and acknowledges; it comes as soon as it is there, or when its time is over."""
    begun = time.monotonic()
    answer = client.post(f"/queues/{queue}/receive?max=10&wait_ms={wait_ms}")
    assert time.monotonic() - begun < NOT_LATE_S, answer.text
    assert answer.status_code == 200, answer.text
    found = answer.json()["messages"]
    if found:
        done = client.post(f"/queues/{queue}/acknowledge", json={"receipts": [row["receipt"] for row in found]})
        assert done.status_code == 200, done.text
    return [row["body"] for row in found]


def come(client: httpx.Client, queue: str, count: int) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count:
        assert time.monotonic() < deadline, found
        found += taken(client, queue)
    return found


@ways
def test_http_requests_at_other_brokers_are_answered_in_time(gateways: Gateways, way: str) -> None:
    rig, queue = gateways.rig, gateways.rig.name()
    client = gateways.http("b2")
    sent_at(gateways, "b1", queue, "before")
    assert come(client, queue, 1) == ["before"]
    host = gateways.end("b1", way)
    for _ in range(3):
        assert taken(client, queue, 100) == []
    assert client.post(f"/queues/{queue}/messages", json={"body": "x"}).status_code == 201
    sent_at(gateways, "b3", queue, "y")
    assert sorted(come(client, queue, 2)) == ["x", "y"]
    rig.start("b1", host)
    for _ in range(3):
        assert taken(client, queue, 100) == []
    sent_at(gateways, "b1", queue, "after")
    assert come(client, queue, 1) == ["after"]


@ways
def test_a_receive_over_http_that_is_under_way_goes_on(gateways: Gateways, way: str) -> None:
    rig, queue = gateways.rig, gateways.rig.name()
    client = gateways.http("b2")
    sent_at(gateways, "b1", queue, "before")
    assert come(client, queue, 1) == ["before"]
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(taken, client, queue, 8000)
        time.sleep(0.5)
        host = gateways.end("b1", way)
        time.sleep(0.5)
        sent_at(gateways, "b3", queue, "y")
        assert under_way.result() == ["y"]
    rig.start("b1", host)
    sent_at(gateways, "b1", queue, "after")
    assert come(client, queue, 1) == ["after"]


@ways
@pytest.mark.parametrize("scheme", ["mq", "http"])
def test_native_clients_from_outside_survive_it_too(gateways: Gateways, way: str, scheme: str) -> None:
    rig, queue = gateways.rig, gateways.rig.name()
    session = gateways.native("b2", scheme).session(ack="client")
    consumer, producer = session.consumer(queue), session.producer(queue)

    def receive() -> Any:
        message = consumer.receive(WAIT_S)
        assert message is not None
        message.acknowledge()
        return message.body

    sent_at(gateways, "b1", queue, "before")
    assert receive() == "before"
    host = gateways.end("b1", way)
    producer.send("while it is gone")
    assert receive() == "while it is gone"
    rig.start("b1", host)
    sent_at(gateways, "b1", queue, "after")
    assert receive() == "after"


@pytest.mark.parametrize(
    "addresses",
    [
        {"imq.hostname": ""},
        {"imq.hostname": "0.0.0.0"},
        {"imq.hostname": "127.0.0.1"},
        {"imq.jms.tcp.hostname": "127.0.0.3"},
        {"imq.portmapper.hostname": "127.0.0.3"},
        {"raybroker.service.advertised": "broker.invalid"},
    ],
    ids=lambda addresses: "=".join(next(iter(addresses.items()))),
)
def test_gateways_reach_other_brokers_where_these_listen(tmp_path: Path, addresses: dict[str, object]) -> None:
    """Not at the machine's address in the Ray cluster, unless they listen everywhere, and not at the one that clients
    outside are told."""
    with ExitStack() as opened:
        gateways = Gateways(tmp_path, opened, **addresses)
        queue, client = gateways.rig.name(), gateways.http("b2")
        sent_at(gateways, "b1", queue, "there")
        assert come(client, queue, 1) == ["there"]


@pytest.mark.parametrize(
    ("addresses", "told"),
    [
        ({"imq.hostname": ""}, "127.0.0.2"),
        ({"imq.hostname": "127.0.0.1"}, "127.0.0.1"),
        ({"imq.portmapper.hostname": "127.0.0.3"}, "127.0.0.3"),
        ({"raybroker.service.advertised": "broker.example"}, "broker.example"),
    ],
)
def test_clients_outside_are_told_where_the_port_mapper_listens(
    tmp_path: Path, addresses: dict[str, object], told: str
) -> None:
    with ExitStack() as opened:
        gateways = Gateways(tmp_path, opened, **addresses)
        assert gateways.rig.brokers["b1"].services.own()[0] == told


def test_a_broker_that_answers_at_the_address_of_another_one_is_not_taken_for_it(gateways: Gateways) -> None:
    """Ports go to others when a broker has ended."""
    rig, queue = gateways.rig, gateways.rig.name()
    client = gateways.http("b2")
    sent_at(gateways, "b1", queue, "before")
    assert come(client, queue, 1) == ["before"]
    at = gateways.port("b1", "jms")
    rig.kill("b1")
    rig.kill("b3")
    rig.config = rig.config.with_values({"imq.jms.tcp.port": at}, origin="test")
    rig.start("b3")
    rig.config = rig.config.with_values({"imq.jms.tcp.port": 0}, origin="test")
    rig.start("b1")
    for broker in ("b1", "b3"):
        sent_at(gateways, broker, queue, broker)
    assert sorted(come(client, queue, 2)) == ["b1", "b3"]
