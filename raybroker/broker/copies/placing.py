"""Placing of copies: which brokers keep them, when a destination is made and when it is to have more, fewer or others.

All copies of a new destination are there before the record has it.  Of one that is there the record says only what is
wanted; whoever leads the log takes one step after the other towards that, see ``completing``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from raybroker.broker.cluster.broker_calls import BrokerCalls
from raybroker.broker.copies.copied_logs import (
    COPIES_OF,
    FORGET,
    LED_ATTRIBUTES,
    NODE,
    OPEN,
    SET_ASIDE,
    CopiedLogs,
)
from raybroker.broker.copies.member_moves import refuse_unmovable
from raybroker.broker.copies.placed_log import PlacedLog
from raybroker.broker.destinations.destination_registry import Key
from raybroker.cluster.change_record import Change, RecordState
from raybroker.cluster.replicas.replica_placement import joined, peers_of, surplus
from raybroker.hosting.host_port import Row
from raybroker.model.definitions.kinds.destination import DESTINATION
from raybroker.model.definitions.kinds.table import COPIES
from raybroker.model.errors import (
    BrokerError,
    ConfigError,
    IllegalStateError,
    InvalidDestinationError,
    NotSupportedError,
    RequestTimeoutError,
)
from raybroker.model.naming.names import check_destination_type
from raybroker.system import entropy

WORD_BYTES: Final = 6
NODE_S: Final = 5.0
"""How long a broker may take to say where it is."""
SEEN_S: Final = 10.0
"""How long brokers are waited for that this one does not see yet, where there are too few for all copies."""
OPEN_S: Final = 120.0
"""How long a copy may take to be made; on a busy machine a process of Ray takes half a minute."""
LED_S: Final = 30.0
"""How long whoever makes the destination waits until it takes clients."""
LED_LOOK_S: Final = 0.1
TRIES: Final = 5
"""How often a change is made anew when the leader of the log has told the record of a step meanwhile."""
LOST_LOOK_S: Final = 10.0
"""How often it is looked whether a broker is gone for good."""

log = logging.getLogger("raybroker.cluster")
T = TypeVar("T")


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
        peers = await self._peers(int(attributes["replicas"]))
        return PlacedLog(key, f"{me}/r{entropy.token(WORD_BYTES).hex()}", (me, *peers), (), attributes["minInSync"])

    async def _peers(self, replicas: int) -> tuple[str, ...]:
        """Choose the brokers that keep the other copies; raises ConfigError where there are not enough. Brokers that
        have just started do not see each other yet: they are waited for."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + SEEN_S
        while True:
            nodes = await self._nodes()
            try:
                return peers_of(self._brokers.name, replicas, nodes)
            except ConfigError as error:
                awaited = [*self._brokers.awaited(), *(name for name in self._brokers.live() if name not in nodes)]
                if not awaited:
                    raise
                if loop.time() >= until_s:
                    raise ConfigError(
                        f"{error}. Brokers {', '.join(awaited)} have not said yet where they are: start them, or ask"
                        " again"
                    ) from None
            await asyncio.sleep(LED_LOOK_S)

    async def _nodes(self) -> dict[str, str]:
        """Broker → node, of those that are up and say it."""
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
        return nodes

    async def _open_copies(
        self, placed: PlacedLog, secret: str, brokers: Sequence[str] | None = None
    ) -> tuple[str, ...]:
        """Have copies made, at these of the brokers; returns the id of each."""
        type_, name = placed.key
        args = {"log": placed.log, "secret": secret, "type": type_, "name": name}
        wanted = placed.brokers if brokers is None else brokers
        answers = await asyncio.gather(
            *(self._brokers.ask_at(broker, OPEN, args, OPEN_S) for broker in wanted), return_exceptions=True
        )
        for broker, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, BrokerError):
                raise type(answer)(f"broker {broker} makes no copy of {type_} {name!r}: {answer}")
            if isinstance(answer, BaseException):
                raise answer
        return tuple(map(str, answers))

    # ---- more, fewer, others

    async def change(self, key: Key, attributes: Mapping[str, Any]) -> None:
        """Have the log of a destination get as many copies as these attributes say, of which so many have to have a
        message. It is begun when this returns, and goes on step by step.

        Raises ConfigError where it cannot have them, ConnectionLostError while nobody leads the log.
        """
        async with self._alone:
            await self._anew(key, lambda: self._change(key, attributes))

    async def _anew(self, key: Key, work: Callable[[], Awaitable[T]]) -> T:
        """Do something with what the record says of a log; once more where that was changed meanwhile."""
        for _ in range(TRIES - 1):
            before = self._agreed().copies.get(key)
            try:
                return await work()
            except IllegalStateError:
                await asyncio.sleep(LED_LOOK_S)
                if self._agreed().copies.get(key) == before:
                    raise
        return await work()

    async def _change(self, key: Key, attributes: Mapping[str, Any]) -> None:
        if key not in self._agreed().copies:
            await self._begin_moving(key, dict(attributes))
            return
        placed, replicas = self._placed(key), int(attributes["replicas"])
        if not placed.opened:
            raise IllegalStateError(
                f"{key[0]} {key[1]!r} still moves into a log with copies, from brokers {', '.join(placed.sources)}:"
                " wait until it has (raybroker query dst)"
            )
        if replicas > len(placed.staying):
            self.refuse_impossible(key, attributes)
            await self._add(placed, replicas, min_in_sync=attributes["minInSync"])
            return
        self._refuse_fewer(key, replicas)
        leader = await self._logs.leader_of(placed)
        gone = surplus(placed.staying, replicas, leader, self._brokers.live())
        leaving = tuple(name for name in placed.brokers if name in gone or name in placed.leaving)
        await self._changed(placed.after(leaving=leaving, min_in_sync=attributes["minInSync"]))

    async def replace_replica(self, type: str, name: str, old: str, to: str | None = None) -> Row:
        """See the verb."""
        key: Key = (check_destination_type(type), name)
        async with self._alone:
            found = await self._anew(key, lambda: self._replace(key, old, to or ""))
        return {"type": key[0], "name": name, "old": old, "to": found}

    async def _replace(self, key: Key, old: str, to: str) -> str:
        placed = self._placed(key)
        if old not in placed.staying:
            raise ConfigError(
                f"broker {old} keeps no copy of {key[0]} {key[1]!r} that could be replaced; those that do:"
                f" {', '.join(placed.staying)}"
            )
        await self._logs.leader_of(placed)  # Without a majority nothing can be replaced.
        return await self._add(placed, len(placed.staying), gone=old, to=to)

    async def _begin_moving(self, key: Key, attributes: Row) -> None:
        """Make a log with copies for a destination that has none; all brokers move into it what they have."""
        if int(attributes["replicas"]) == 1:
            return  # minInSync of one copy.
        self.refuse_impossible(key, attributes)
        known, up = self._brokers.known(), self._brokers.live()
        if down := [name for name in known if name not in up]:
            raise IllegalStateError(
                f"{key[0]} {key[1]!r} has messages at each broker, and {', '.join(down)} cannot be asked: start what is"
                " down first"
            )
        args = {"type": key[0], "name": key[1]}
        rows = {name: await self._brokers.verb_at(name, "query_destination", args, NODE_S) for name in known}
        schedules = [
            row
            for name in known
            for row in await self._brokers.verb_at(
                name, "list_schedules", {"destination": key[1], "type": key[0]}, NODE_S
            )
        ]
        refuse_unmovable(key, attributes, rows, len(schedules))
        placed = replace(await self._place(key, attributes), sources=tuple(known), opened=False)
        try:
            ids = await self._open_copies(placed, self._logs.new_secret().hex())
        except BrokerError:
            await self._forget(placed)
            raise
        await self._propose(Change(COPIES.make, key, replace(placed, ids=ids).attributes()))
        log.warning("[B2214] %s %s moves into a log with copies at brokers %s", *key, ", ".join(placed.brokers))

    def _placed(self, key: Key) -> PlacedLog:
        placed = self._logs.placed(key)
        if placed is None:
            known = "has no copies" if key in self._agreed().destinations else "does not exist"
            raise ConfigError(f"{key[0]} {key[1]!r} {known}: raybroker update dst -o replicas=3 gives a queue copies")
        return placed

    async def _add(
        self, placed: PlacedLog, count: int, *, gone: str = "", to: str = "", min_in_sync: int | None = None
    ) -> str:
        """Have copies made so that there are ``count`` without that of ``gone``; returns the brokers that get one."""
        keeping = tuple(name for name in placed.staying if name != gone)
        nodes = {name: node for name, node in (await self._nodes()).items() if name != gone}
        new = joined(keeping, count, nodes, to)
        await self._open_copies(placed, await self._logs.secret_of(placed), new)
        ids = dict(zip(placed.brokers, placed.ids, strict=True))
        brokers = (*placed.brokers, *(name for name in new if name not in placed.brokers))
        leaving = tuple(name for name in (*placed.leaving, gone) if name and name not in new)
        least = placed.min_in_sync if min_in_sync is None else min_in_sync
        # The log of an id in the record was begun with it: what comes later learns, and is entered with its vote.
        after = placed.after(
            brokers=brokers, ids=tuple(ids.get(name, "") for name in brokers), leaving=leaving, min_in_sync=least
        )
        await self._changed(after)
        return ", ".join(new)

    async def _changed(self, placed: PlacedLog) -> None:
        await self._propose(Change(COPIES.change, placed.key, placed.attributes()))
        log.warning("[B2210] %s %s is to have copies at brokers %s", *placed.key, ", ".join(placed.staying))

    def _refuse_fewer(self, key: Key, replicas: int) -> None:
        """Raises ConfigError where what dies elsewhere would have fewer copies here."""
        for other, row in self._agreed().destinations.items():
            copies = int(str(row.get("replicas", 1)))
            if row.get("useDMQ", True) and row.get("errorDestination") == key[1] and copies > replicas:
                raise ConfigError(
                    f"{key[0]} {key[1]!r} takes the dead messages of {' '.join(other)}, which has {copies} copies, and"
                    f" cannot have {replicas}: change that one first"
                )

    # ---- what a restored record does not know

    async def adopt(self, key: Key) -> None:
        """Put a log into the record that is in none, with its destination as the log has it.

        Raises IllegalStateError where no majority of its copies is at brokers that are up, RequestTimeoutError when it
        is not led in time: it may be asked for again.
        """
        async with self._alone:
            if key not in self._agreed().copies:
                await self._propose(Change(COPIES.make, key, (await self._set_aside(key)).attributes()))
            placed = self._placed(key)
            await self._propose(Change(DESTINATION.make, key, await self._led_attributes(placed)))
        await self._until_served(placed)

    async def _set_aside(self, key: Key) -> PlacedLog:
        """Return where the copies are of the log of a destination that is in no record; of several logs the newest."""
        names = self._brokers.live()
        args = {"type": key[0], "name": key[1]}
        answers = await asyncio.gather(
            *(self._brokers.ask_at(name, SET_ASIDE, args, OPEN_S) for name in names), return_exceptions=True
        )
        logs: dict[str, dict[str, Row]] = {}
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, BaseException) and not isinstance(answer, BrokerError):
                raise answer
            for log_, row in answer.items() if isinstance(answer, dict) else ():
                logs.setdefault(log_, {})[name] = row
        if not logs:
            raise InvalidDestinationError(
                f"{key[0]} {key[1]!r} does not exist, and no broker that is up keeps a copy of it that is in no record"
            )
        ends = {log_: max(tuple(row["end"]) for row in rows.values()) for log_, rows in logs.items()}
        chosen = max(logs, key=lambda log_: ends[log_])
        rows = logs[chosen]
        newest = max(rows.values(), key=lambda row: tuple(row["end"]))
        brokers = {str(row["copy"]): name for name, row in rows.items()}
        voters = [str(copy) for copy in newest["voters"]]
        there = [copy for copy in voters if copy in brokers]
        if len(there) <= len(voters) // 2:
            raise IllegalStateError(
                f"{key[0]} {key[1]!r} has {len(voters)} copies, and {len(there)} of them at brokers that are up, which"
                f" is no majority ({', '.join(brokers[copy] for copy in there)}): start the others"
            )
        ids = tuple(there)
        return PlacedLog(key, chosen, tuple(brokers[copy] for copy in ids), ids, int(newest["required"]))

    async def _led_attributes(self, placed: PlacedLog) -> Row:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + LED_S
        while True:
            try:
                leader = await self._logs.leader_of(placed)
                attributes: Row = await self._brokers.ask_at(leader, LED_ATTRIBUTES, {"log": placed.log}, NODE_S)
            except BrokerError as error:
                if loop.time() > until_s:
                    raise RequestTimeoutError(
                        f"{placed.key[0]} {placed.key[1]!r} is not led yet: {error}; adopt it again"
                    ) from None
                await asyncio.sleep(LED_LOOK_S)
            else:
                return attributes

    # ---- brokers that are gone for good

    async def run(self, after_s: Callable[[], int]) -> None:
        """Replace what is lost for longer than ``after_s`` says, 0 for never, for as long as the broker lives."""
        while self._logs.maker is not None:
            await asyncio.sleep(LOST_LOOK_S)
            lost = self._logs.lost(after_s() * 1000) if after_s() else []
            for placed, broker in lost:
                try:
                    found = await self.replace_replica(*placed.key, broker)
                except BrokerError as error:
                    log.info(
                        "the copy of %s %s at broker %s, which is lost, is not replaced: %s", *placed.key, broker, error
                    )
                else:
                    log.warning(
                        "[B2211] %s %s: the copy at broker %s, which has not answered for %d s, is replaced by one at"
                        " broker %s",
                        *placed.key,
                        broker,
                        after_s(),
                        found["to"],
                    )

    # ---- what is made and not wanted

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
