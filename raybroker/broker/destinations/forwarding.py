"""Forwarding between the members of a distributed queue: from members without consumers to members that have some.

A queue with forwardDelay is looked at every second.  When its member here has had messages and no consumer for so long,
its messages are handed over to members that have consumers, some at a time, each in one transaction of both hosts (see
engine.destinations.transfer): none is lost or duplicated.  Messages of units of order stay, since their unit is here;
so does what a consumer-paused member has, and nothing goes to a member that takes no messages now.  A member whose
limits leave less room than is handed over at a time is offered fewer messages, so that it is filled up, under
FLOW_CONTROL as under REJECT_NEWEST.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from raybroker.broker.destinations.destination_registry import Key, Registry
from raybroker.broker.remote_broker import RemotePeers
from raybroker.hosting.host_port import HostPort, Row
from raybroker.model.balancing import Chooser
from raybroker.model.definitions.pauses import INSERTION
from raybroker.model.errors import BrokerError, ResourceAllocationError
from raybroker.model.naming.names import check_destination_type
from raybroker.system import entropy
from raybroker.system.clock import SystemClock

LOOK_S: Final = 1.0
"""How often queues are looked at."""
MESSAGES_MAX: Final = 1000
BYTES_MAX: Final = 4 << 20
"""What is handed over at a time."""
FEWER: Final = 4
"""A hand-over that has no room as a whole is tried again with so many times fewer messages."""
PARTS_MAX: Final = 100
"""Hand-overs of one queue in one look; then others have their turn."""
ASK_TIMEOUT_S: Final = 5.0
HAND_OVER_TIMEOUT_S: Final = 20.0
KEY_BYTES: Final = 20
"""Of a transaction: other than the 16 bytes of keys that sessions count up."""
CONSUMING: Final = ("RUNNING", "PRODUCERS_PAUSED")
"""States in which consumers get messages."""
TAKING: Final = ("RUNNING", "CONSUMERS_PAUSED")

log = logging.getLogger("raybroker.forwarding")


class MemberForwarding:
    """The forwarding between members of the broker ``name``; ``live`` names the brokers that are up, this one first."""

    def __init__(self, name: str, registry: Registry, peers: RemotePeers, live: Callable[[], list[str]]) -> None:
        self._name = name
        self._registry = registry
        self._peers = peers
        self._live = live
        self._clock = SystemClock()
        self._since_ns: dict[Key, int] = {}
        """Queues without consumers that have messages → since when."""
        self._choosers: dict[Key, Chooser] = {}
        self.forwarded = 0
        """Messages, since the broker started."""

    # ---- who has consumers -----------------------------------------------------------------------------------------

    async def consumers(self, type: str, name: str) -> Row:
        """Return of this broker's member how many consumers there are, and whether it takes messages."""
        row = await self._registry.host_of(type, name).destinations.query(type, name)
        takes = row["state"] in TAKING and INSERTION not in row["paused"]
        return {"consumers": row["active_consumers"] + row["backup_consumers"], "takes": takes}

    async def members(self, key: Key, brokers: Sequence[str]) -> dict[str, int]:
        """Broker → consumers of its member, of those that answer."""
        return {broker: row["consumers"] for broker, row in (await self._ask_all(key, brokers)).items()}

    async def _ask_all(self, key: Key, brokers: Sequence[str]) -> dict[str, Row]:
        args = {"type": key[0], "name": key[1]}

        async def ask(broker: str) -> Row:
            if broker == self._name:
                return await self.consumers(*key)
            found: Row = await self._peers.call_broker(broker, "consumers", args, timeout_s=ASK_TIMEOUT_S)
            return found

        rows = await asyncio.gather(*map(ask, brokers), return_exceptions=True)
        found: dict[str, Row] = {}
        for broker, row in zip(brokers, rows, strict=True):
            if isinstance(row, dict):
                found[broker] = row
            elif not isinstance(row, BrokerError):
                raise row
        return found

    # ---- the way out -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Look again and again, for as long as the broker lives."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self.forward_overdue()
            except Exception:  # the next look may fare better
                log.exception("broker %s could not look for messages to forward", self._name)

    async def forward_overdue(self) -> None:
        """Hand over what has waited for long enough."""
        due = [
            (key, traits)
            for key, own in list(self._registry.traits.items())
            if key[0] == "queue"
            and own.get("distributed")
            and (traits := self._registry.held_traits(key)).get("forwardDelay", -1) >= 0
        ]
        now_ns = self._clock.monotonic_ns()
        lonely: dict[Key, int] = {}
        for key, traits in due:
            host = self._registry.where.get(key)
            try:
                if host is not None and not traits.get("unitOfOrder") and await _is_lonely(host, key):
                    lonely[key] = self._since_ns.get(key, now_ns)
            except BrokerError:
                continue
        self._since_ns = lonely
        self._choosers = {key: self._choosers[key] for key, _ in due if key in self._choosers}
        for key, traits in due:
            since_ns, host = lonely.get(key), self._registry.where.get(key)
            if since_ns is None or host is None or now_ns - since_ns < traits["forwardDelay"] * 1_000_000_000:
                continue
            try:
                await self._forward(key, host, str(traits.get("loadBalancingPolicy", "Round-Robin")))
            except BrokerError as error:
                log.warning("messages of %s %s could not be forwarded: %s", *key, error)

    async def _forward(self, key: Key, host: HostPort, policy: str) -> None:
        """Hand over until nothing is left, a consumer has come, or nobody takes more."""
        others = [name for name in self._live() if name != self._name]
        rows = await self._ask_all(key, sorted(others))
        to = [broker for broker, row in rows.items() if row["consumers"] and row["takes"]]
        chooser = self._choosers.get(key)
        if chooser is None or chooser.policy != policy:
            chooser = self._choosers[key] = Chooser(policy, lambda: int.from_bytes(entropy.token(4), "little"))
        for _ in range(PARTS_MAX):
            if not to or not await _is_lonely(host, key):
                return
            broker = to[chooser.choose([0] * len(to))]
            try:
                if not await self._fill(key, host, broker):
                    return
            except BrokerError as error:
                log.info("broker %s does not take messages of %s %s now: %s", broker, *key, error)
                to.remove(broker)

    async def _fill(self, key: Key, host: HostPort, broker: str) -> int:
        """Hand over as many messages as have room there, up to a bound; how many."""
        most = MESSAGES_MAX
        while True:
            try:
                return await self._hand_over(key, host, broker, most)
            except ResourceAllocationError:
                if most == 1:
                    raise
                most = max(most // FEWER, 1)

    async def _hand_over(self, key: Key, host: HostPort, broker: str, most: int) -> int:
        """How many messages; raises what keeps the other broker from taking them, and then they are here again."""
        txn = entropy.token(KEY_BYTES).hex()
        blocks = await host.handover.set_aside(*key, txn, most, BYTES_MAX)
        if not blocks:
            return 0
        args = {"type": key[0], "name": key[1], "txn": txn}
        try:
            taken = {**args, "coordinator": host.key, "blocks": blocks}
            count = int(await self._peers.call_broker(broker, "take_over", taken, timeout_s=HAND_OVER_TIMEOUT_S))
            await host.handover.give(txn)
        except BrokerError:
            await host.handover.keep(txn)
            raise
        self.forwarded += count
        log.info("%d messages of %s %s were forwarded to broker %s", count, *key, broker)
        try:
            await self._peers.call_broker(broker, "decide_over", args, timeout_s=HAND_OVER_TIMEOUT_S)
        except BrokerError:
            return count  # It asks by itself what became of them.
        await host.transactions.forget_transaction(txn)
        return count

    # ---- the way in ------------------------------------------------------------------------------------------------

    async def take_over(self, type: str, name: str, txn: str, coordinator: str, blocks: list[bytes]) -> int:
        """Take messages of another broker's host, which decides; how many."""
        return await self._registry.host_of(type, name).handover.take_over(type, name, txn, coordinator, blocks)

    async def decide_over(self, type: str, name: str, txn: str) -> None:
        """They are here for good."""
        await self._registry.host_of(type, name).transactions.decide(txn, True)


async def _is_lonely(host: HostPort, key: Key) -> bool:
    """It has messages that a consumer could have, and no consumer."""
    row: dict[str, Any] = await host.destinations.query(check_destination_type(key[0]), key[1])
    nobody = not row["active_consumers"] and not row["backup_consumers"]
    return nobody and row["waiting"] > 0 and row["state"] in CONSUMING
