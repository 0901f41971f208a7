"""A client id belongs to one live connection of the whole cluster: the second is refused when it connects, by whichever
way and at whichever broker both come."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker import aio
from raybroker.client.connection import presence
from raybroker.errors import IllegalStateError, InvalidClientIDError
from raybroker.services.clients import client_ids
from tests.contracts.handles import until
from tests.contracts.stomp_rig import Bare
from tests.contracts.test_gateway_cluster import PASSWORD, Gateways

OPEN = Callable[[], Any]


class Ways:
    """Three brokers, and every way in at two of them; each opens a connection with the client id "me"."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self.rig = Gateways(folder, opened).rig

    def all(self) -> dict[str, OPEN]:
        return {
            f"{way.__name__} {broker}": lambda way=way, broker=broker: way(broker)  # type: ignore[misc]
            for way, broker in itertools.product((self.inside, self.native, self.web, self.stomp), ("b1", "b2"))
        }

    def inside(self, broker: str, **more: object) -> Any:
        return self.rig.connect(broker, client_id="me", **more)

    def _outside(self, broker: str, scheme: str, service: str, **more: Any) -> Any:
        port = self.rig.brokers[broker].services.own()[2][service]
        options = {"client_id": "me", **more}
        return rb.connect(f"{scheme}://127.0.0.1:{port}/", username="ann", password=PASSWORD, **options)

    def native(self, broker: str, **more: Any) -> Any:
        return self._outside(broker, "mq", "portmapper", **more)

    def web(self, broker: str) -> Any:
        return self._outside(broker, "http", "httpjms")

    def stomp(self, broker: str) -> Any:
        made = Bare(self.rig.brokers[broker].services.own()[2]["stomp"])
        made.send("CONNECT", {"login": "ann", "passcode": PASSWORD, "accept-version": "1.2", "client-id": "me"})
        answer = made.receive()
        if answer is None or answer.command == "ERROR":
            made.close()
            assert answer is not None
            assert answer.headers["error-code"] == InvalidClientIDError.code, answer
            raise InvalidClientIDError(answer.headers["message"])
        return made


@pytest.fixture
def ways(tmp_path: Path) -> Iterator[Ways]:
    with ExitStack() as opened:
        yield Ways(tmp_path, opened)


def again(way: OPEN) -> Any:
    """As soon as the one before is gone everywhere."""
    found: list[Any] = []

    def opened() -> bool:
        with suppress(InvalidClientIDError):
            found.append(way())
        return bool(found)

    until(opened)
    return found[0]


def test_a_second_connection_is_refused_when_it_connects(ways: Ways, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (client_ids, presence):
        monkeypatch.setattr(module, "WAIT_S", 0.05)
    found = ways.all()
    for first in found.values():
        connection = again(first)
        for name, second in found.items():
            assert _refused(second), f"{name} came in"
        connection.close()


def test_many_that_come_at_the_same_time_are_one(ways: Ways) -> None:
    found = list(ways.all().values())

    def comes(way: OPEN) -> Any:
        try:
            return way()
        except InvalidClientIDError:
            return None

    with ThreadPoolExecutor(len(found)) as threads:
        for _ in range(5):
            came = [connection for connection in threads.map(comes, found) if connection is not None]
            assert len(came) <= 1
            for connection in came:
                connection.close()
    again(ways.all()["inside b2"]).close()


def test_a_connection_comes_back_itself_and_keeps_its_id(ways: Ways) -> None:
    """After a lost link, and where its home broker has died it is found at another one."""
    inside, rig = ways.inside("b2"), ways.rig
    inside.admin().create_destination("queue", "q")
    producer = inside.session().producer("q")
    for _ in range(3):
        for broker in list(rig.brokers.values()):
            for connection in list(broker.host.service.connections):
                rig.io.run(_aborted(connection))
        producer.send("still here")
    until(lambda: _refused(lambda: ways.native("b1")))
    rig.kill("b2")
    producer.send("at another broker")
    until(lambda: _refused(lambda: ways.native("b3")) and _refused(lambda: ways.inside("b1")))
    inside.close()
    outside = again(lambda: ways.native("b1"))
    for control in list(rig.brokers["b1"].local.services.services.listeners["jms"].clients):  # type: ignore[union-attr]
        rig.io.run(_aborted(control))
    outside.session().producer("q").send("still here")
    assert _refused(lambda: ways.inside("b3"))
    outside.close()


async def _aborted(connection: Any) -> None:
    connection.link.abort()


def _refused(way: OPEN) -> bool:
    try:
        way().close()
    except InvalidClientIDError as error:
        return "'me' is in use by another connection" in str(error)
    return False


def test_an_id_that_the_program_names_later_is_its_own_from_the_start_on(ways: Ways) -> None:
    for first in (lambda: ways.rig.connect("b1", started=False), lambda: ways.native("b1", client_id=None)):
        connection = first()
        connection.client_id = "me"
        connection.start()
        for second in (lambda: ways.inside("b2"), lambda: ways.native("b2")):
            assert _refused(second)
        other = ways.rig.connect("b2", started=False)
        other.client_id = "me"
        with pytest.raises(InvalidClientIDError):
            other.start()
        connection.close()


def test_unrestricted_ids_are_of_several(ways: Ways) -> None:
    free = {"ClientIdPolicy": "Unrestricted"}
    several = [ways.inside("b1", **free), ways.inside("b2", **free), ways.native("b1", **free), ways.inside("b1")]
    assert _refused(lambda: ways.native("b2"))
    several.append(ways.native("b2", **free))
    for connection in several:
        connection.close()


def test_connections_of_a_named_loopback_broker_too() -> None:
    with rb.loopback(broker="ids", client_id="me") as first:
        with pytest.raises(InvalidClientIDError, match="'me' is in use"):
            rb.loopback(broker="ids", client_id="me")

        async def on_a_loop() -> None:
            with pytest.raises(InvalidClientIDError, match="'me' is in use"):
                await aio.loopback(broker="ids", client_id="me")

        asyncio.run(on_a_loop())
        with rb.loopback(broker="ids", client_id="other") as other, pytest.raises(IllegalStateError):
            other.client_id = "third"
        assert first.client_id == "me"
