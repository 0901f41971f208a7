"""Moves of this broker's members of queues into logs with copies, as cluster.replicas.member_move decides.

A queue that has no copies, and is to have some, gets a log first, which nobody uses.  Each broker moves its member
there, some messages at a time, each time in one transaction of both hosts (see engine.destinations.transfer): none is
lost or doubled, and the order stays.  The last one to be done opens the log: from then on all clients use that.  A
broker that is lost meanwhile is not waited for; what it has comes behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from raybroker.broker.cluster.broker_calls import BrokerCalls
from raybroker.broker.copies.copied_logs import CopiedLogs
from raybroker.broker.copies.placed_log import PlacedLog
from raybroker.broker.destinations.destination_registry import Key
from raybroker.broker.destinations.placement import Placement
from raybroker.cluster.change_record import Change
from raybroker.cluster.replicas.member_move import MemberMove, MovePhase, SeenMember
from raybroker.hosting.host_port import HostPort, Row
from raybroker.model.definitions.kinds.table import COPIES
from raybroker.model.errors import BrokerError, ConfigError, ConnectionLostError, IllegalStateError
from raybroker.system import entropy
from raybroker.system.supervision import Supervisor

LOOK_S: Final = 0.2
MESSAGES_MAX: Final = 2000
BYTES_MAX: Final = 4 << 20
IDS_MAX: Final = 20_000
"""What is handed over at a time."""
ROUND_PARTS: Final = 20
"""Hand-overs between two looks at the member."""
HAND_OVER_S: Final = 20.0
ASK_S: Final = 2.0
GONE_MS: Final = 10_000
"""A broker that is down for so long is not waited for any more."""
KEY_BYTES: Final = 20
"""Of a transaction: other than the 16 bytes of keys that sessions count up."""
MOVED: Final = "moved_members"
"""What brokers ask each other: log → how far the move of a member is."""
TAKE: Final = "take_moved"
DECIDE: Final = "decide_moved"
HELD: Final = "held_moved"
REMEMBER: Final = "remember_moved"
"""What they ask the broker where the log is led."""

log = logging.getLogger("raybroker.cluster")


class MemberMoves:
    """``propose`` changes the record; ``now_ms`` goes on evenly."""

    def __init__(
        self,
        placement: Placement,
        logs: CopiedLogs,
        brokers: BrokerCalls,
        propose: Callable[[Change], Awaitable[None]],
        now_ms: Callable[[], int],
    ) -> None:
        self._placement = placement
        self._logs = logs
        self._brokers = brokers
        self._propose = propose
        self._now_ms = now_ms
        self._moves: dict[str, MemberMove] = {}
        self._left: dict[str, int] = {}
        """Log → messages that are left in the member here."""
        self._trouble: dict[str, str] = {}
        self._gone_ms: dict[str, int] = {}
        """Log → since when no broker is up that has something to move."""
        self._loops = Supervisor(f"moves of members at broker {brokers.name}")
        self._tasks: dict[str, asyncio.Task[Any]] = {}

    # ---- what others may see

    def require_open(self, placed: PlacedLog) -> None:
        """Raises ConnectionLostError while clients have to wait until the log is opened."""
        move = self._moves.get(placed.log)
        if placed.opened or (move is not None and move.serves):
            return
        raise ConnectionLostError(
            f"{placed.key[0]} {placed.key[1]!r} moves into a log with copies:"
            f" {'; '.join(self.shown(placed)) or 'it is about to be served from there'}"
        )

    def shown(self, placed: PlacedLog) -> list[str]:
        """Return what is left to be moved from this broker, for people; nothing where that is nothing."""
        me, move, trouble = self._brokers.name, self._moves.get(placed.log), self._trouble.get(placed.log, "")
        if me not in placed.sources:
            return [trouble] if trouble else []
        if move is None:
            return [f"the messages of broker {me} are to move: {trouble or 'the log is about to be led'}"]
        left = f"{self._left.get(placed.log, 0):,} messages of broker {me} are to move"
        return [f"{left}: {trouble or move.phase.value}"]

    # ---- what other brokers ask

    def methods(self) -> dict[str, Callable[..., Awaitable[Any]]]:
        """Return them by their names; all but MOVED need the log to be led here."""
        return {
            MOVED: self.moved_members,
            TAKE: self.take_moved,
            DECIDE: self.decide_moved,
            HELD: self.held_moved,
            REMEMBER: self.remember_moved,
        }

    async def moved_members(self) -> Row:
        """Log → messages that are left here, and whether that is little enough for clients to be ended."""
        return {
            name: {"left": self._left.get(name, 0), "waits": move.is_waiting(self._left.get(name, 0))}
            for name, move in self._moves.items()
        }

    async def take_moved(self, log: str, coordinator: str, txn: str, blocks: list[bytes]) -> int:
        """Take messages of a member, whose host decides; how many."""
        placed, host = self._logs.led_host(log)
        return await host.handover.take_over(*placed.key, txn, coordinator, blocks)

    async def decide_moved(self, log: str, txn: str, commit: bool) -> None:
        """They are here for good, or never will be."""
        _, host = self._logs.led_host(log)
        await host.transactions.decide(txn, commit)

    async def held_moved(self, log: str, coordinator: str) -> list[str]:
        """Return the transactions of a member's host that are not decided here."""
        _, host = self._logs.led_host(log)
        rows = await host.transactions.transaction_rows()
        return [str(row["key"]) for row in rows if row["coordinator"] == coordinator]

    async def remember_moved(self, log: str, ids: list[tuple[str, int, bool]]) -> None:
        """Know the deduplication ids that a member knows."""
        placed, host = self._logs.led_host(log)
        await host.handover.take_ids(*placed.key, ids)

    # ---- looks

    async def run(self) -> None:
        """Look, for as long as the broker lives."""
        while self._logs.maker is not None:
            await asyncio.sleep(LOOK_S)
            moving = {placed.log: placed for placed in self._logs.moving()}
            for name in [name for name in self._moves if name not in moving]:
                del self._moves[name]
            for name, placed in moving.items():
                running = self._tasks.get(name)
                if running is None or running.done():
                    self._tasks[name] = self._loops.once(f"the move into {name}", self._step(placed))

    async def _step(self, placed: PlacedLog) -> None:
        name = placed.log
        try:
            if self._brokers.name in placed.sources:
                await self._move(placed)
            if not placed.opened:
                await self._open_without(placed)
        except BrokerError as error:
            if self._trouble.get(name) != str(error):
                log.warning("[B2212] %s %s does not move now: %s", *placed.key, error)
            self._trouble[name] = str(error)
        else:
            self._trouble.pop(name, None)

    async def _open_without(self, placed: PlacedLog) -> None:
        """Open a log whose last members are at brokers that are down: those are not waited for."""
        now_ms, up = self._now_ms(), self._brokers.live()
        if any(broker in up for broker in placed.sources):
            self._gone_ms.pop(placed.log, None)
        elif now_ms - self._gone_ms.setdefault(placed.log, now_ms) >= GONE_MS:
            _, host = self._logs.led_host(placed.log)
            if await host.handover.remembers_ids(*placed.key):
                raise IllegalStateError(
                    f"broker {', '.join(placed.sources)} is down, and remembers deduplication ids: start it, or have"
                    " duplicateWindowMs=0, and what is sent again may be taken twice"
                )
            await self._propose(Change(COPIES.change, placed.key, placed.after(opened=True).attributes()))

    # ---- one member

    async def _move(self, placed: PlacedLog) -> None:
        """Take one step with the member here."""
        key, host = placed.key, await self._placement.member(placed.key, placed.log)
        if host is None:
            await self._tell_moved(placed)
            return
        move = self._moves.get(placed.log)
        if move is None:
            await self._logs.leader_of(placed)  # Nobody waits for a log that nobody leads yet.
            move = self._moves[placed.log] = MemberMove(self._now_ms(), late=placed.opened)
        if move.serves:
            await host.destinations.pause(*key, "consumers", 0)
        clients = 0 if move.serves else await host.clients.retire(f"{key[0]} {key[1]!r} moves into a log with copies")
        row = await host.destinations.query(*key)
        left = self._left[placed.log] = int(row["messages"])
        others = move.phase is MovePhase.COPYING and await self._others_wait(placed)
        phase = move.saw(SeenMember(left, int(row["unacknowledged"]), clients, others), self._now_ms())
        if phase in (MovePhase.COPYING, MovePhase.EMPTYING) and left:
            await self._decide_held(placed, host)
            for _ in range(ROUND_PARTS):
                if not await self._hand_over(placed, host):
                    break
            else:
                return
            if phase is MovePhase.EMPTYING:
                _refuse_held(row)
        elif phase is MovePhase.OVER:
            await self._end_member(placed, host, move)

    async def _others_wait(self, placed: PlacedLog) -> bool:
        """Whether clients may be ended: the others that are up have moved nearly all, so that nobody waits for long."""
        others = [name for name in placed.sources if name != self._brokers.name and name in self._brokers.live()]
        work = (self._brokers.ask_at(name, MOVED, {}, ASK_S) for name in others)
        answers = await asyncio.gather(*work, return_exceptions=True)
        rows = [answer.get(placed.log, {}) for answer in answers if isinstance(answer, dict)]
        return len(rows) == len(others) and all(row.get("waits", False) for row in rows)

    async def _hand_over(self, placed: PlacedLog, host: HostPort) -> bool:
        """Hand over the next messages; False when no more wait, as far as this shows. Raises what keeps the log from
        taking them."""
        txn = entropy.token(KEY_BYTES).hex()
        blocks = await host.handover.set_aside(*placed.key, txn, MESSAGES_MAX, BYTES_MAX, True)
        if not blocks:
            return False
        try:
            taking = {"coordinator": host.key, "txn": txn, "blocks": blocks}
            count = int(await self._at_leader(placed, TAKE, taking))
            await host.handover.give(txn)
        except BrokerError:
            await host.handover.keep(txn)
            raise
        await self._at_leader(placed, DECIDE, {"txn": txn, "commit": True})
        await host.transactions.forget_transaction(txn)
        return count >= MESSAGES_MAX or sum(map(len, blocks)) >= BYTES_MAX

    async def _decide_held(self, placed: PlacedLog, host: HostPort) -> None:
        """Have the log know of everything that it was given whether it stays: what comes next is behind that."""
        for txn in await self._at_leader(placed, HELD, {"coordinator": host.key}):
            await host.handover.keep(txn)  # Unless it was given, it never will be.
            commit = await host.transactions.outcome(txn) == "committed"
            await self._at_leader(placed, DECIDE, {"txn": txn, "commit": commit})
            await host.transactions.forget_transaction(txn)

    async def _at_leader(self, placed: PlacedLog, method: str, args: Row) -> Any:
        leader = await self._logs.leader_of(placed)
        return await self._brokers.ask_at(leader, method, {"log": placed.log, **args}, HAND_OVER_S)

    async def _end_member(self, placed: PlacedLog, host: HostPort, move: MemberMove) -> None:
        """Nothing is left: end the member."""
        await self._decide_held(placed, host)
        await self._hand_ids_over(placed, host)
        await self._placement.end_member(placed.key, host)
        log.warning(
            "[B2213] the messages of %s %s at broker %s are in the log with copies; its clients have waited for %d ms",
            *placed.key,
            self._brokers.name,
            self._now_ms() - move.closed_ms,
        )
        await self._tell_moved(placed)

    async def _hand_ids_over(self, placed: PlacedLog, host: HostPort) -> None:
        """Have the log know which deduplication ids the member has taken: before it is opened, where it may be."""
        start = 0
        while ids := await host.handover.known_ids(*placed.key, start, IDS_MAX):
            await self._at_leader(placed, REMEMBER, {"ids": ids})
            start += len(ids)

    async def _tell_moved(self, placed: PlacedLog) -> None:
        sources = tuple(name for name in placed.sources if name != self._brokers.name)
        after = placed.after(sources=sources, opened=placed.opened or not sources)
        await self._propose(Change(COPIES.change, placed.key, after.attributes()))


def _refuse_held(row: Row) -> None:
    """Raises IllegalStateError where messages stay because somebody has them."""
    if row["in_transaction"]:
        raise IllegalStateError(
            f"{row['in_transaction']} messages are in prepared transactions: let their manager decide, or decide by"
            " hand (raybroker list txn, commit txn)"
        )
    if row["dying"]:
        raise IllegalStateError(f"{row['dying']} messages are dead, and do not reach their dead message queue")


def refuse_unmovable(key: Key, attributes: Row, rows: Mapping[str, Row], schedules: int) -> None:
    """Raises ConfigError for a queue that cannot move into a log, with the reason. ``rows``: broker → its member."""
    label = f"{key[0]} {key[1]!r} cannot get copies while it is used"
    if attributes["hosting"] != "dedicated":
        raise ConfigError(
            f"{label}: hosting={attributes['hosting']}, and its host has other destinations, whose clients would be"
            " ended too; create a queue with copies, have clients use that, pause the consumers of this one, and move"
            " its messages (raybroker move msg)"
        )
    if schedules:
        raise ConfigError(
            f"{label}: it has {schedules} recurring schedules, which do not move; destroy them (raybroker list sch,"
            " raybroker destroy sch), and make them again when the queue has its copies"
        )
    if halted := [broker for broker, row in rows.items() if row["state"] in ("HALTED", "UNKNOWN")]:
        raise ConfigError(f"{label}: its members at brokers {', '.join(halted)} are halted, or cannot be asked")
    for limit, what in (("maxNumMsgs", "messages"), ("maxTotalMsgBytes", "bytes")):
        most, now = int(attributes[limit]), sum(int(row[what]) for row in rows.values())
        if 0 < most < now:
            raise ConfigError(
                f"{label}: its members have {now} {what} together, and in one place it has {limit}={most}; raise that"
            )
