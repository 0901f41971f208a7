"""The end of a broker that an administrator asks for: ``shutdown_broker`` and ``restart_broker``.

In this order: its services that carry messages take no new clients; after the time that was asked for, producers are
told to wait, and consumers have raybroker.shutdown.delivery seconds to acknowledge what they were given; then the hosts
close their stores, and the process ends.  Administration goes on until then.  What is not acknowledged by then stays in
the stores as in any end, and comes again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final

from raybroker.broker.services.service_administration import ServiceAdministration
from raybroker.hosting.host_port import HostPort, Row
from raybroker.model import refusals
from raybroker.model.errors import BrokerError, BrokerGoneError, NotSupportedError
from raybroker.model.settings.settings import ConfigView
from raybroker.system.supervision import Supervisor

if TYPE_CHECKING:
    from raybroker.broker.cluster.broker_calls import BrokerCalls

LOOK_S: Final = 0.1
"""How often consumers are looked at while they finish."""
HOST_TIMEOUT_S: Final = 2.0
"""How long a host may take to answer meanwhile; one that takes longer is not waited for."""
ASK_TIMEOUT_S: Final = 10.0
"""How long another broker may take to begin with its end."""

RUNNING: Final = "UP"
STOPPING: Final = "STOPPING"
RESTARTING: Final = "RESTARTING"

log = logging.getLogger("raybroker.broker")

End = Callable[[bool], Awaitable[None]]
"""Closes what the broker has and ends its process; True: it is started again with the options that it had."""


class Ending:
    """The end of one broker. ``end`` ends what has started it; None where the broker ends with its program alone.

    stored      what the store that brokers share has of it
    started_ms  when it was started, milliseconds since 1970: another life has another one
    """

    def __init__(
        self,
        config: ConfigView,
        services: ServiceAdministration,
        hosts: Callable[[], Iterable[HostPort]],
        started_ms: int,
        end: End | None,
        *,
        broker: str,
        stored: Callable[[], Row] = dict,
    ) -> None:
        self._end = end
        self._stored = stored
        self.state = RUNNING
        self._config = config
        self._services = services
        self._hosts = hosts
        self._started_ms = started_ms
        self._broker = broker
        self._task: asyncio.Task[None] | None = None
        self._loops = Supervisor(f"broker {broker}")
        self.finishing = False
        """Its time is over: consumers finish, and then it ends."""

    def ending_row(self) -> Row:
        return {"broker": self._broker, "state": self.state, "started_ms": self._started_ms}

    def shown(self) -> Row:
        """Return the row with what the store that brokers share has of it."""
        return {**self.ending_row(), **self._stored()}

    async def shutdown_broker(self, broker: str | None = None, time_s: int = 0) -> Row:
        return self._schedule_end("shutdown_broker", STOPPING, broker, time_s)

    async def restart_broker(self, broker: str | None = None, time_s: int = 0) -> Row:
        return self._schedule_end("restart_broker", RESTARTING, broker, time_s)

    def _schedule_end(self, verb: str, state: str, broker: str | None, time_s: int) -> Row:
        """A request in the time before the end takes the place of the one before; later ones change nothing."""
        if broker not in (None, self._broker):
            raise BrokerGoneError(f"broker {broker} cannot be asked here; this is {self._broker}")
        if self._end is None:
            raise NotSupportedError(refusals.of_ending_broker(verb, self._broker))
        if not self.finishing:
            if self._task is not None:
                self._task.cancel()
            self.state = state
            self._services.take_nobody_new()
            log.info("[B1047] broker %s is %s in %d s; no new clients are taken", self._broker, state, time_s)
            self._task = self._loops.once("the end", self._run(self._end, time_s))
        return {**self.ending_row(), "time_s": time_s, "delivery_s": self._config["raybroker.shutdown.delivery"]}

    async def _run(self, end: End, time_s: int) -> None:
        await asyncio.sleep(time_s)
        self.finishing = True
        try:
            await asyncio.gather(*(_answer(host.process.stop_intake()) for host in self._hosts()))
            left = await self._finished()
            log.info(
                "[B1048] broker %s is %s: %d messages with consumers are not acknowledged",
                self._broker,
                self.state,
                left,
            )
        finally:
            await end(self.state == RESTARTING)

    async def _finished(self) -> int:
        """Wait until consumers have acknowledged everything and are given nothing more, for a bounded time; how many
        messages they have not."""
        loop, handed = asyncio.get_running_loop(), -1
        until_s = loop.time() + self._config["raybroker.shutdown.delivery"]
        while True:
            answers = await asyncio.gather(
                *(_answer(host.destinations.consumers(None, None)) for host in self._hosts())
            )
            rows = [row for answer in answers for row in answer or ()]
            before, handed = handed, sum(row["sent"] for row in rows)
            left: int = sum(row["unacknowledged"] for row in rows)
            if (not left and handed == before) or loop.time() >= until_s:
                return left
            await asyncio.sleep(LOOK_S)


async def _answer(asked: Awaitable[list[Row] | None]) -> list[Row] | None:
    """What a host answers; None for one that cannot be asked."""
    try:
        return await asyncio.wait_for(asked, HOST_TIMEOUT_S)
    except (BrokerError, TimeoutError) as error:
        log.warning("a host is not waited for: %s", str(error) or "it does not answer in time")
        return None


class ClusterEnding:
    """The end of any broker of the cluster that is up; without a name of the one that is asked."""

    def __init__(self, brokers: BrokerCalls) -> None:
        self._brokers = brokers

    async def shutdown_broker(self, broker: str | None = None, time_s: int = 0) -> Row:
        return await self._at("shutdown_broker", broker, time_s)

    async def restart_broker(self, broker: str | None = None, time_s: int = 0) -> Row:
        return await self._at("restart_broker", broker, time_s)

    async def _at(self, verb: str, broker: str | None, time_s: int) -> Row:
        up = self._brokers.live()
        if broker is not None and broker not in up:
            raise BrokerGoneError(f"broker {broker} is not up; up are {', '.join(sorted(up))}")
        found: Row = await self._brokers.verb_at(broker or self._brokers.name, verb, {"time_s": time_s}, ASK_TIMEOUT_S)
        return found
