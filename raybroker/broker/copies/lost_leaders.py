"""Taking over what a lost broker leads, by an administrator's word: without the wait between two changes of leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from raybroker.broker.cluster.broker_calls import BrokerCalls
from raybroker.broker.copies.copied_logs import URGE
from raybroker.broker.copies.placed_log import PlacedLog
from raybroker.broker.observing.alone import NotShared
from raybroker.cluster.change_record import RecordState
from raybroker.hosting.host_port import Row
from raybroker.model.errors import BrokerError, IllegalStateError

ASK_S: Final = 5.0


class LostLeaders:
    """``agreed``: what the record says."""

    def __init__(self, brokers: BrokerCalls, agreed: Callable[[], RecordState]) -> None:
        self._brokers = brokers
        self._agreed = agreed

    async def takeover_broker(self, broker: str) -> Row:
        """See the verb."""
        placed = [PlacedLog.of_record(key, row) for key, row in self._agreed().copies.items()]
        copied = [one for one in placed if broker in one.brokers]
        if not copied:
            return await NotShared().takeover_broker(broker)
        up = self._brokers.live()
        if broker in up:
            raise IllegalStateError(
                f"broker {broker} is up, and nobody takes over what lives: raybroker shutdown bkr -b {broker} stops it"
            )
        work = (self._brokers.ask_at(name, URGE, {"broker": broker}, ASK_S) for name in up)
        answers = await asyncio.gather(*work, return_exceptions=True)
        urged = {str(log) for answer in answers if isinstance(answer, list) for log in answer}
        if error := next((found for found in answers if not isinstance(found, list | BrokerError)), None):
            raise error
        names = [" ".join(one.key) for one in copied if one.log in urged]
        return {"broker": broker, "taker": self._brokers.name, "destinations": sorted(names)}
