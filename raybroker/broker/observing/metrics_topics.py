"""Publisher of metrics: messages to each topic mq.metrics.* that has a subscriber, and lines in the log.

Each broker publishes to its own member of the topic; a consumer, which takes from all members, hears of every broker,
and the property ``brokerName`` says of which.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from typing import Any, Final

from raybroker.broker.destinations.destination_registry import Registry
from raybroker.broker.observing.broker_metrics import Measuring
from raybroker.content.bodies import encode_body
from raybroker.content.headers import encode_header
from raybroker.engine.ports import Clock
from raybroker.metrics import messages
from raybroker.metrics.block import Blocks, look
from raybroker.metrics.snapshot import Snapshot
from raybroker.model.blocks.block import encode_block
from raybroker.model.errors import BrokerError, InvalidDestinationError
from raybroker.model.naming.names import is_metrics_topic
from raybroker.model.settings.settings import ConfigView
from raybroker.system import entropy

log = logging.getLogger("raybroker.metrics")

TURN_S: Final = 1.0
"""How often it tells of demand, and looks whether the interval for the others is over."""


class Publishing:
    """``address``: host and port that the messages name."""

    def __init__(self, config: ConfigView, registry: Registry, measuring: Measuring, clock: Clock) -> None:
        self._config = config
        self._registry = registry
        self._measuring = measuring
        self._clock = clock
        self._producer = int.from_bytes(entropy.token(8), "little")
        self._next_seq = 1
        self.address = ("localhost", 0)
        self._blocks = Blocks()

    async def run(self) -> None:
        """Publish as long as the broker lives."""
        sent_ns = written_ns = self._clock.monotonic_ns()
        while True:
            await asyncio.sleep(TURN_S)
            now_ns = self._clock.monotonic_ns()
            try:
                await self.publish(demand=True)
                if now_ns - sent_ns >= self._config["imq.metrics.topic.interval"] * 1e9:
                    sent_ns = now_ns
                    await self.publish()
                interval_s = self._config["imq.metrics.interval"] if self._config["imq.metrics.enabled"] else -1
                if 0 < interval_s <= (now_ns - written_ns) / 1e9:
                    written_ns = now_ns
                    snapshot = await self._measuring.snapshot()
                    log.info("%s", self._blocks.text(look(snapshot, now_ns / 1e9)))
            except BrokerError as error:
                log.warning("metrics could not be sent or written: %s", error)

    async def publish(self, *, demand: bool = False) -> int:
        """Send to all metrics topics that have a subscriber, those of demand or the others; how many messages."""
        topics = [name for _, name in self._registry.keys("topic") if is_metrics_topic(name)]
        wanted = [name for name in topics if name.startswith(messages.DEMAND) == demand]
        wanted = [name for name in wanted if await self._is_subscribed(name)]
        if not wanted:
            return 0
        detailed = any(name == messages.LIST or messages.wanted_destination(name) for name in wanted)
        # A timer may end a little before its second is over: what the last turn told would be told again.
        snapshot = await self._measuring.snapshot("*" if detailed else None, oldest_s=TURN_S / 2)
        return sum([await self._send(name, snapshot) for name in wanted])

    async def _is_subscribed(self, name: str) -> bool:
        host = self._registry.find("topic", name)
        try:
            return host is not None and bool((await host.destinations.query("topic", name))["subscriptions"])
        except InvalidDestinationError:
            return False  # It was reaped while others were asked.

    async def _send(self, name: str, snapshot: Snapshot) -> int:
        body = messages.body(name, snapshot)
        host = self._registry.find("topic", name)
        if body is None or host is None:
            return 0
        try:
            await host.messages.put("topic", name, [self._block(name, body)])
        except InvalidDestinationError:
            return 0  # It was reaped meanwhile.
        return 1

    def _block(self, name: str, body: dict[str, Any]) -> bytes:
        now_ms, (ip, port) = self._clock.now_ms(), self.address
        kind, data = encode_body(body)
        properties = {
            "type": name,
            "timestamp": now_ms,
            "brokerHost": ip,
            "brokerPort": port,
            "brokerAddress": f"{ip}:{port}",
            "brokerName": self._measuring.broker,
        }
        life_ms = self._config["imq.metrics.topic.timetolive"] * 1000
        self._next_seq += 1
        return encode_block(
            [data],
            producer=self._producer,
            first_seq=self._next_seq,
            timestamp_ms=now_ms,
            kinds=kind,
            persistent=self._config["imq.metrics.topic.persist"],
            headers=[encode_header(properties, None, None, None)],
            expires=array("Q", [now_ms + life_ms]) if life_ms else None,
        )
