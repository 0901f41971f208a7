"""The end of a broker, by itself: hosts, services and the process are fakes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from raybroker.broker.ending import ClusterEnding, Ending
from raybroker.broker.services.service_administration import ServiceAdministration
from raybroker.errors import BrokerGoneError, ConnectionLostError, NotSupportedError

STARTED_MS = 1_700_000_000_000


class Host:
    """``left``: what consumers have not acknowledged, look by look; the last one stays."""

    def __init__(self, *left: int, lost: bool = False) -> None:
        self.left = list(left)
        self.process = self.destinations = self
        self.lost = lost
        self.waits = False
        self.sent = 0

    async def stop_intake(self) -> None:
        if self.lost:
            raise ConnectionLostError("it restarts")
        self.waits = True

    async def consumers(self, kind: str | None, name: str | None) -> list[dict[str, Any]]:
        if self.lost:
            raise ConnectionLostError("it restarts")
        left = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        self.sent += left
        return [{"unacknowledged": left, "sent": self.sent}]


class World:
    def __init__(self, *hosts: Host, delivery_s: int = 30, able: bool = True) -> None:
        self.ends: list[bool] = []
        self.closed = 0
        services = ServiceAdministration("b1")
        services.take_nobody_new = self._close  # type: ignore[method-assign]
        config: Any = {"raybroker.shutdown.delivery": delivery_s}
        known: Any = hosts
        end = self._end if able else None
        self.ending = Ending(config, services, lambda: known, STARTED_MS, end, broker="b1")

    def _close(self) -> None:
        self.closed += 1

    async def _end(self, restart: bool) -> None:
        self.ends.append(restart)

    async def ended(self) -> None:
        assert self.ending._task is not None
        await asyncio.wait_for(self.ending._task, 60)


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


@pytest.mark.parametrize("restart", [False, True])
def test_consumers_finish_before_the_broker_ends(restart: bool) -> None:
    async def work() -> None:
        host, other = Host(7, 3, 0), Host(0)
        world = World(host, other)
        verb = world.ending.restart_broker if restart else world.ending.shutdown_broker
        row = await verb("b1")
        state = "RESTARTING" if restart else "STOPPING"
        assert row == {"broker": "b1", "state": state, "started_ms": STARTED_MS, "time_s": 0, "delivery_s": 30}
        assert (world.closed, world.ends) == (1, []), "it answers at once"
        await world.ended()
        assert (host.waits, other.waits, host.left, world.ends) == (True, True, [0], [restart])

    run(work)


def test_what_is_not_acknowledged_in_time_is_not_waited_for() -> None:
    async def work() -> None:
        world = World(Host(5), delivery_s=0)
        await world.ending.shutdown_broker()
        await world.ended()
        assert world.ends == [False]

    run(work)


def test_a_host_that_cannot_be_asked_keeps_no_broker_from_its_end() -> None:
    async def work() -> None:
        world = World(Host(0, lost=True), Host(0))
        await world.ending.shutdown_broker()
        await world.ended()
        assert world.ends == [False]

    run(work)


def test_the_last_request_before_the_time_counts() -> None:
    async def work() -> None:
        host = Host(0)
        world = World(host)
        assert (await world.ending.shutdown_broker(time_s=3600))["time_s"] == 3600
        first = world.ending._task
        await asyncio.sleep(0)
        assert (world.ending.ending_row()["state"], host.waits, world.closed) == ("STOPPING", False, 1)
        await world.ending.restart_broker(time_s=0)
        await world.ended()
        assert (world.ends, world.ending.state) == ([True], "RESTARTING")
        assert first is not None
        assert first.cancelled()
        await world.ending.shutdown_broker()
        assert (world.ending.state, world.ends) == ("RESTARTING", [True]), "it is too late"

    run(work)


def test_who_cannot_be_ended_says_so_and_goes_on() -> None:
    async def work() -> None:
        world = World(Host(0), able=False)
        with pytest.raises(NotSupportedError, match="restart_broker: broker b1 was started by a program"):
            await world.ending.restart_broker()
        with pytest.raises(BrokerGoneError, match="broker b2 cannot be asked here; this is b1"):
            await world.ending.shutdown_broker("b2")
        assert (world.closed, world.ending.state) == (0, "UP")

    run(work)


def test_in_a_cluster_the_broker_that_is_named_is_asked() -> None:
    class Brokers:
        name = "b1"

        def __init__(self) -> None:
            self.asked: list[tuple[str, str, dict[str, Any]]] = []

        def live(self) -> list[str]:
            return ["b1", "b2"]

        async def verb_at(self, broker: str, verb: str, args: dict[str, Any], timeout_s: float) -> dict[str, Any]:
            self.asked.append((broker, verb, args))
            return {}

    async def work() -> None:
        brokers = Brokers()
        ending = ClusterEnding(brokers)
        await ending.shutdown_broker("b2", 5)
        await ending.restart_broker()
        assert brokers.asked == [
            ("b2", "shutdown_broker", {"time_s": 5}),
            ("b1", "restart_broker", {"time_s": 0}),
        ]
        with pytest.raises(BrokerGoneError, match="broker b3 is not up; up are b1, b2"):
            await ending.shutdown_broker("b3")

    run(work)
