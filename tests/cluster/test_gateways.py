"""One of three brokers' processes is killed: clients of every kind at the others go on, and are answered in time."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

import raybroker as rb
from raybroker.actors import runtime
from raybroker.errors import RequestTimeoutError
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.wire.scram import Verifier
from tests.cluster import rays
from tests.contracts.handles import WAIT_S, until
from tests.contracts.stomp_socket import StompSocket

NOT_LATE_S: Final = 10.0
"""An answer that waits for a broker that is gone takes three times as long: the whole reconnect time."""
LOOK_S: Final = 5.0
"""So long is looked at what happens after the kill."""


class Gateways:
    """Three brokers with all services, and clients of them."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        users = folder / "security"
        users.mkdir()
        UserFile(users / "passwd").add("ann", UserEntry(str(Verifier.from_password("secret", b"s" * 16, 64)), "user"))
        self._opened = opened
        self.running = opened.enter_context(
            rb.start(
                brokers=3,
                config={
                    **rays.small_store(folder / "store"),
                    "imq.service.activelist": "jms,stomp,httpjms",
                    "imq.hostname": "127.0.0.1",
                    "imq.portmapper.port": 0,
                    "raybroker.security.dir": str(users),
                },
            )
        )

    def port(self, broker: str, service: str) -> int:
        actor: Any = runtime.find_actor(runtime.broker_name("default", broker))
        ports: dict[str, int] = runtime.call_blocking(actor.peer, "doors", {})[2]
        return ports[service]

    def inside(self, broker: str) -> Any:
        made = rb.connect(broker=broker)
        made.start()
        self._opened.callback(made.close)
        return made

    def outside(self, broker: str, scheme: str) -> Any:
        port = self.port(broker, "portmapper" if scheme == "mq" else "httpjms")
        made = rb.connect(f"{scheme}://127.0.0.1:{port}/", username="ann", password="secret")
        made.start()
        self._opened.callback(made.close)
        return made

    def stomp(self, broker: str) -> StompSocket:
        made = socket.create_connection(("127.0.0.1", self.port(broker, "stomp")), WAIT_S)
        client = StompSocket(made).login()
        self._opened.callback(client.close)
        return client

    def http(self, broker: str) -> httpx.Client:
        made = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port(broker, 'httpjms')}", auth=("ann", "secret"), timeout=2 * WAIT_S
        )
        self._opened.callback(made.close)
        return made


class Times:
    """How long what was asked took, by who asked."""

    def __init__(self) -> None:
        self.worst: dict[str, float] = {}

    def of(self, who: str, begun: float) -> None:
        took_s = time.monotonic() - begun
        self.worst[who] = max(self.worst.get(who, 0.0), took_s)
        assert took_s < NOT_LATE_S, f"{who} waited for {took_s:.1f} s"


@pytest.fixture
def gateways(own_ray: str, tmp_path: Path) -> Iterator[Gateways]:
    with ExitStack() as opened:
        yield Gateways(tmp_path, opened)


def rest_goes(client: httpx.Client, queue: str, body: str) -> None:
    assert client.post(f"/queues/{queue}/messages", json={"body": body}).status_code == 201
    assert taken(client, queue, 5000) == [body]


def taken(client: httpx.Client, queue: str, wait_ms: int) -> list[str]:
    answer = client.post(f"/queues/{queue}/receive", json={"max": 1, "wait_ms": wait_ms})
    assert answer.status_code == 200, answer.text
    found = answer.json()["messages"]
    for row in found:
        done = client.post(f"/queues/{queue}/acknowledge", json={"receipts": [row["receipt"]]})
        assert done.status_code == 200, done.text
    return [row["body"] for row in found]


def came(client: StompSocket) -> str:
    frame = client.expect("MESSAGE")
    client.done("ACK", {"id": frame.headers["ack"]})
    return frame.body.decode()


def _made(admin: Any, queue: str) -> bool:
    """Just after the start the master may be too busy to answer in time."""
    try:
        admin.create_destination("queue", queue, if_exists="keep")
    except RequestTimeoutError:
        return False
    return True


@pytest.mark.timeout(400)
def test_clients_at_other_brokers_go_on_when_a_brokers_process_is_killed(gateways: Gateways) -> None:
    admin = gateways.inside("b3").admin()
    for name in ("by-stomp", "by-rest", "under-way", "by-ws", "by-mq", "by-ray"):
        until(lambda name=name: _made(admin, name), "the brokers are there")  # type: ignore[misc]
    admin.create_destination("topic", "news")
    producer, consumer, idle = (gateways.stomp("b2") for _ in range(3))
    for client, where in ((consumer, "/queue/by-stomp"), (idle, "/topic/news")):
        client.done("SUBSCRIBE", {"destination": where, "id": 1, "ack": "client-individual"})
    https = {broker: gateways.http(broker) for broker in ("b2", "b3")}
    natives = {
        "by-ws": gateways.outside("b2", "http"),
        "by-mq": gateways.outside("b3", "mq"),
        "by-ray": gateways.inside("b2"),
    }
    sessions = {queue: connection.session() for queue, connection in natives.items()}
    ends = {queue: (session.producer(queue), session.consumer(queue)) for queue, session in sessions.items()}
    times = Times()

    def all_go(text: str) -> None:
        begun = time.monotonic()
        producer.done("SEND", {"destination": "/queue/by-stomp"}, text.encode())
        assert came(consumer) == text
        times.of("STOMP", begun)
        for broker, client in https.items():
            begun = time.monotonic()
            assert taken(client, "by-rest", 100) == []
            times.of(f"REST receive at {broker}", begun)
            begun = time.monotonic()
            rest_goes(client, "by-rest", text)
            times.of(f"REST at {broker}", begun)
        for queue, (sender, receiver) in ends.items():
            begun = time.monotonic()
            sender.send(text)
            message = receiver.receive(WAIT_S)
            assert message is not None
            assert message.body == text
            times.of(queue, begun)

    all_go("before")
    before = gateways.running.pids("b1")["broker"]
    with ThreadPoolExecutor(1) as pool, gateways.http("b2") as another:
        under_way = pool.submit(taken, another, "under-way", 20_000)
        time.sleep(0.5)
        times.worst.clear()
        killed = time.monotonic()
        os.kill(before, signal.SIGKILL)
        turn = 0
        while time.monotonic() < killed + LOOK_S:
            all_go(f"{turn} while b1 is gone")
            turn += 1
        gateways.inside("b3").session().producer("under-way").send("at last")
        assert under_way.result(WAIT_S) == ["at last"]
    print(f"after the kill, {turn} turns: {times.worst}")
    until(lambda: all(row["state"] == "UP" for row in admin.list_brokers()), "b1 is back", 2 * WAIT_S)
    assert gateways.running.pids("b1")["broker"] != before
    all_go("after")
    there = gateways.inside("b1").session()
    there.producer("by-stomp").send("from b1")
    assert came(consumer) == "from b1"
    there.producer("by-rest").send("from b1")
    assert taken(https["b3"], "by-rest", 10_000) == ["from b1"]

    idle.socket.settimeout(1.0)

    def news() -> str:
        there.producer("topic:news").send("a new day")
        try:
            return came(idle)
        except TimeoutError:
            return ""

    assert until(news, "it subscribes at b1 again") == "a new day"
