"""Thresholds of a whole broker: what all its destinations hold together, and whether that slows producers.

About once a second each host is asked what its destinations hold.  The broker is *over* from the first time that the
sum is more than a High, until it is less than the Low of it; messages and bytes are over each by itself.  While it is
over either, producers that obey flow control are slowed on all destinations: the hosts hear it with the next question.
Without thresholds no host is asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from raybroker.engine.measuring.thresholds import is_over
from raybroker.hosting.host_port import HostPort
from raybroker.model.errors import BrokerError
from raybroker.model.settings.setting_thresholds import OF, system_thresholds
from raybroker.model.settings.settings import ConfigView

LOOK_S: Final = 1.0
ASK_TIMEOUT_S: Final = 5.0

log = logging.getLogger("raybroker.broker")


class BrokerThresholds:
    """The thresholds of a broker: ``over``: messages and bytes → whether it is over that one. ``held``: what it held at
    the last look; a host that does not answer counts with what it said last."""

    def __init__(self, config: ConfigView, hosts: Callable[[], Iterable[HostPort]], *, broker: str) -> None:
        self.over = dict.fromkeys(OF, False)
        self.held = dict.fromkeys(OF, 0)
        self._config = config
        self._hosts = hosts
        self._broker = broker
        self._said: dict[str, dict[str, int]] = {}
        """Host → what it holds."""
        self._silent = False
        """Some host has not answered, and may not have heard."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self.check_hosts()

    async def check_hosts(self) -> None:
        """Ask all hosts; those that serve hear at once when the broker is over a threshold now, or not any more."""
        highs = [high for high, _ in system_thresholds(self._config).values()]
        if max(highs) < 0 and not self._said:
            return
        await self._query_hosts()
        if self._judge():
            await self._query_hosts()
        if max(highs) < 0 and not self._silent:
            self._said = {}

    async def _query_hosts(self) -> None:
        hosts, over = list(self._hosts()), any(self.over.values())
        answers = await asyncio.gather(*(self._ask_one(host, over) for host in hosts))
        known, self._silent = self._said, None in answers
        self._said = {
            host.key: known.get(host.key, dict.fromkeys(OF, 0)) if answer is None else answer
            for host, answer in zip(hosts, answers, strict=True)
        }
        self.held = {of: sum(said[of] for said in self._said.values()) for of in OF}

    async def _ask_one(self, host: HostPort, over: bool) -> dict[str, int] | None:
        try:
            said = await asyncio.wait_for(host.figures.thresholds(over), ASK_TIMEOUT_S)
        except (BrokerError, TimeoutError):
            return None  # It is told at the next look.
        return {of: int(said[of]) for of in OF}

    def _judge(self) -> bool:
        """Whether something has changed for producers."""
        before = any(self.over.values())
        for of, (high, low) in system_thresholds(self._config).items():
            held, was = self.held[of], self.over[of]
            self.over[of] = is_over(held, high, low, was=was)
            if self.over[of] == was:
                continue
            if was:
                log.info("[B1153] broker %s holds %d %s and is not over its threshold any more", self._broker, held, of)
            else:
                log.warning(
                    "[B2167] broker %s holds %d %s, more than raybroker.system.%sThresholdHigh=%d; it slows producers",
                    self._broker,
                    held,
                    of,
                    of,
                    high,
                )
        return any(self.over.values()) != before

    def excess_row(self) -> dict[str, Any]:
        """messages, bytes: what the destinations hold, over: of which there is too much; empty without thresholds."""
        if max(high for high, _ in system_thresholds(self._config).values()) < 0:
            return {}
        return {**self.held, "over": [of for of in OF if self.over[of]]}

    def figures(self) -> dict[str, Any]:
        """Return the figures for metrics."""
        return {"system_over_threshold": {of: int(self.over[of]) for of in OF}}
