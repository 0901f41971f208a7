"""Placing of copies for a destination that is made: at which brokers they are, and that all of them are there before
the record has it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from raybroker.broker.cluster.broker_calls import BrokerCalls
from raybroker.broker.copies.copied_logs import COPIES_OF, FORGET, NODE, OPEN, CopiedLogs
from raybroker.broker.copies.placed_log import PlacedLog
from raybroker.broker.destinations.destination_registry import Key
from raybroker.cluster.change_record import Change, RecordState
from raybroker.cluster.replicas.replica_placement import peers_of
from raybroker.hosting.host_port import Row
from raybroker.model.definitions.kinds.destination import DESTINATION
from raybroker.model.definitions.kinds.table import COPIES
from raybroker.model.errors import (
    BrokerError,
    ConfigError,
    InvalidDestinationError,
    NotSupportedError,
    RequestTimeoutError,
)
from raybroker.system import entropy

WORD_BYTES: Final = 6
NODE_S: Final = 5.0
"""How long a broker may take to say where it is."""
OPEN_S: Final = 120.0
"""How long a copy may take to be made; on a busy machine a process of Ray takes half a minute."""
LED_S: Final = 30.0
"""How long whoever makes the destination waits until it takes clients."""
LED_LOOK_S: Final = 0.1


class Placing:
    """``agreed``: what the record says; ``propose`` changes it, and waits for the brokers that are up."""

    def __init__(
        self,
        logs: CopiedLogs,
        brokers: BrokerCalls,
        agreed: Callable[[], RecordState],
        propose: Callable[[Change], Awaitable[None]],
    ) -> None:
        self._logs = logs
        self._brokers = brokers
        self._agreed = agreed
        self._propose = propose
        self._alone = asyncio.Lock()
        """Held while a destination is made."""

    def refuse_impossible(self, key: Key, attributes: Mapping[str, Any]) -> None:
        """Raises ConfigError for a destination whose log cannot have copies, with the reason."""
        replicas = attributes["replicas"]
        label = f"{key[0]} {key[1]!r} with replicas = {replicas}"
        if self._logs.maker is None:
            raise NotSupportedError(f"{label} needs brokers that are actors on several Ray nodes")
        if key[0] == "topic":
            raise ConfigError(
                f"{label}: copies of topics are not built yet; make a queue, or leave replicas at 1 for the topic"
            )
        for name in ("isLocalOnly", "distributed"):
            if attributes.get(name):
                raise ConfigError(f"{label} and {name}=true exclude each other: it has one place, where it is led")
        if not attributes["useDMQ"]:
            return
        dead = str(attributes.get("errorDestination") or "")
        other = self._agreed().destinations.get(("queue", dead))
        if not dead or other is None or int(str(other.get("replicas", 1))) < replicas:
            raise ConfigError(
                f"{label}: its dead messages would be in {dead or 'mq.sys.dmq'}, of which there are fewer copies."
                f" Name a queue with replicas = {replicas} or more as errorDestination (that one with useDMQ=false, or"
                " an error destination of its own), or choose useDMQ=false, which discards what is dead"
            )

    async def create(self, key: Key, attributes: Row) -> None:
        """Make a destination whose log has copies; raises ConfigError where they have no place."""
        self.refuse_impossible(key, attributes)
        async with self._alone:  # Whoever asks again while it is being made must not have it made twice.
            if key in self._agreed().destinations:
                raise InvalidDestinationError(f"{key[0]} {key[1]!r} exists already; update or destroy it")
            if key in self._agreed().copies:  # From a creation that ended in the middle.
                await self._propose(Change(COPIES.end, key))
            placed = await self._make(key, attributes)
        await self._until_served(placed)

    async def _make(self, key: Key, attributes: Row) -> PlacedLog:
        """Have the copies made, and then the record say where they are, and that there is the destination."""
        placed, secret = await self._place(key, attributes), self._logs.new_secret().hex()
        try:
            placed = replace(placed, ids=await self._open_copies(placed, secret))
        except BrokerError:
            await self._forget(placed)
            raise
        await self._propose(Change(COPIES.make, key, placed.attributes()))
        try:
            await self._propose(Change(DESTINATION.make, key, attributes))
        except BrokerError as error:
            now = self._logs.placed(key)
            own = now is not None and now.log == placed.log
            if error.definite and own and key not in self._agreed().destinations:
                await self._propose(Change(COPIES.end, key))
            raise
        return placed

    async def _place(self, key: Key, attributes: Row) -> PlacedLog:
        me = self._brokers.name
        names = self._brokers.live()
        answers = await asyncio.gather(
            *(self._brokers.ask_at(name, NODE, {}, NODE_S) for name in names), return_exceptions=True
        )
        nodes: dict[str, str] = {}
        for name, answer in zip(names, answers, strict=True):
            if not isinstance(answer, BaseException):
                nodes[name] = str(answer)
            elif not isinstance(answer, BrokerError):
                raise answer
        peers = peers_of(me, int(attributes["replicas"]), nodes)
        return PlacedLog(key, f"{me}/r{entropy.token(WORD_BYTES).hex()}", (me, *peers), (), attributes["minInSync"])

    async def _open_copies(self, placed: PlacedLog, secret: str) -> tuple[str, ...]:
        type_, name = placed.key
        args = {"log": placed.log, "secret": secret, "type": type_, "name": name}
        work = (self._brokers.ask_at(broker, OPEN, args, OPEN_S) for broker in placed.brokers)
        answers = await asyncio.gather(*work, return_exceptions=True)
        for broker, answer in zip(placed.brokers, answers, strict=True):
            if isinstance(answer, BrokerError):
                raise type(answer)(f"broker {broker} makes no copy of {type_} {name!r}: {answer}")
            if isinstance(answer, BaseException):
                raise answer
        return tuple(map(str, answers))

    async def _forget(self, placed: PlacedLog) -> None:
        """What was made is of no use; a broker that cannot be told finds it in no record later."""
        work = (self._brokers.ask_at(broker, FORGET, {"log": placed.log}, NODE_S) for broker in placed.brokers)
        await asyncio.gather(*work, return_exceptions=True)

    async def _until_served(self, placed: PlacedLog) -> None:
        """Raises RequestTimeoutError when it takes no clients in time; it may do so later."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + LED_S
        why = ""
        while loop.time() < until_s:
            try:
                leader = await self._logs.leader_of(placed)
                row = (await self._brokers.ask_at(leader, COPIES_OF, {}, NODE_S)).get(placed.log, {})
                if row.get("served"):
                    return
                why = f"broker {leader} leads it, and does not serve it yet"
            except BrokerError as error:
                why = str(error)
            await asyncio.sleep(LED_LOOK_S)
        raise RequestTimeoutError(f"{placed.key[0]} {placed.key[1]!r} was made, and takes no clients yet: {why}")
