"""The logs of one cluster that have copies, as one of its brokers sees them.

It keeps the copies that the record gives it, looks at them several times a second, asks the other brokers for theirs,
has one told to lead where none does, and serves a destination while the copy here leads its log.  A lost disk is made
good: the copy that was on it goes from the set, and the empty one learns and gets its vote.

Nothing is removed because it is absent: a copy goes from the disk when its destination was destroyed, or when another
broker has its place, by the record that had it here.  A record that was restored may be older than what is stored: a
copy that it places elsewhere joins the set until the others have everything, and one that it does not know stays, for
whoever adopts it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from raybroker.admin.copy_checks import drain_figures, figures_of, led_at
from raybroker.broker.copies.completing import complete
from raybroker.broker.copies.copy_port import LED_CALL, LED_WHERE, CopyMaker, KeptCopy
from raybroker.broker.copies.own_copy import OwnCopy, held_copies
from raybroker.broker.copies.placed_log import PlacedLog
from raybroker.broker.destinations.placement import Placement
from raybroker.broker.remote_broker import RemotePeers
from raybroker.cluster.change_record import Change, RecordState
from raybroker.cluster.replicas.copy_takeover import AskCopies, CopyAction, LevelCopy, StartAt
from raybroker.cluster.replicas.set_repair import pending
from raybroker.hosting.host_port import HostPort, Row, method_of
from raybroker.model.definitions.kinds.table import COPIES
from raybroker.model.errors import BrokerError, ConnectionLostError, NotSupportedError
from raybroker.model.naming.names import check_destination_type
from raybroker.system.supervision import Supervisor

LOOK_S: Final = 0.5
LOOK_SOON_S: Final = 0.1
"""While a log has no leader, or one that is not served yet."""
WATCH_S: Final = 10.0
"""How long the process of a copy is waited for to say that it hears its leader no more, before it is asked anew."""
LEADS_S: Final = 2.0
"""How long a copy that was told to lead may take: longer than it waits for promises itself."""
SERVED_S: Final = 3.0
"""How long whoever asks for the host of a destination waits for one, before he is told that there is none."""
ASK_S: Final = 1.0
"""How often another broker is asked for its copies; more often, as often as this one looks, while there is no
leader."""
ANSWER_S: Final = 1.0
"""How long a copy or a broker may take to answer."""
QUIET_S: Final = 1.0
"""How long a drained broker looks for a moment in which no batch is under way before it hands a log over: those would
have to be sent again."""
TAKEN_S: Final = 10.0
"""How long it is seen to that a log which was handed over is led."""
TAKEN_LOOK_S: Final = 2.0
"""Until its new leader is told once more: copies have heard the old one no more by then."""
FOR_GOOD_MS: Final = 1 << 62
LED_S: Final = 60.0
"""How long the host of a log that is led elsewhere may take to answer."""
JOIN_S: Final = 5.0
"""After how long a copy tries again to be in a record that was restored."""
OPENED_S: Final = 120.0
"""How long a copy that was made for a new destination may be in no record."""
END_OF: Final = "the end of the copy of "
COPIES_OF: Final = "copies"
"""What brokers ask each other: the rows of the copies that one keeps."""
LED_COPIES: Final = "led_copies"
"""What list_brokers asks: how the logs are that are led at a broker."""
LEAD: Final = "lead_copy"
OPEN: Final = "open_copy"
FORGET: Final = "forget_copy"
URGE: Final = "urge_leaders"
NODE: Final = "node"
SET_ASIDE: Final = "set_aside_copies"
LED_ATTRIBUTES: Final = "led_attributes"
SECRET: Final = "copy_secret"
SHOWN: Final = ("copy", "voter", "index", "behind", "in_flight_bytes", "answered_ms_ago", "connected", "trouble")
"""What is shown of each copy, as in raybroker.copies.copy_status."""

log = logging.getLogger("raybroker.cluster")


class AgreedRecord(NamedTuple):
    """The configuration change record as the brokers agree on it.

    state    what it says
    id       another one once a record was restored; "" without a record
    propose  changes it
    """

    state: Callable[[], RecordState]
    id: Callable[[], str]
    propose: Callable[[Change], Awaitable[None]]


class CopiedLogs:
    """``me``: this broker; ``now_ms`` goes on evenly."""

    def __init__(
        self,
        me: str,
        record: AgreedRecord,
        peers: RemotePeers,
        maker: CopyMaker | None,
        placement: Placement,
        now_ms: Callable[[], int],
    ) -> None:
        self._me = me
        self._record = record
        self._peers = peers
        self._maker = maker
        self._placement = placement
        self._now_ms = now_ms
        self._own: dict[str, OwnCopy] = {}
        self._asked_ms: dict[str, int] = {}
        """Broker → when it was asked for its copies last."""
        self._working: dict[str, asyncio.Task[Any]] = {}
        """What is done beside the looks, by its name: one of each at a time."""
        self._apart: dict[str, int] = {}
        """Logs that are in no record → until when nothing is done about it; for good where an operator was told."""
        self._unled = asyncio.Event()
        """A copy has just said that it hears its leader no more."""
        self._handing: dict[str, int] = {}
        """Log → since when this broker has tried to hand it over."""
        self.changes: dict[str, int] = {}
        """Log → how often another copy was seen to lead than before."""
        self._loops = Supervisor(f"copies at broker {me}")

    @property
    def maker(self) -> CopyMaker | None:
        """Makes copies; None where there can be none."""
        return self._maker

    def new_secret(self) -> bytes:
        """Return what all copies of a new log have. Raises NotSupportedError."""
        if self._maker is None:
            raise NotSupportedError(f"broker {self._me} keeps no copies: it is no actor in Ray")
        return self._maker.new_secret()

    def placed(self, key: tuple[str, ...]) -> PlacedLog | None:
        """Return what the record says of a destination whose log has copies; None for any other one."""
        row = self._record.state().copies.get(key)
        return None if row is None else PlacedLog.of_record(key, row)

    def placed_log(self, name: str) -> PlacedLog | None:
        """Do what :meth:`placed` does, by the name of the log."""
        for key, row in self._record.state().copies.items():
            if row["log"] == name:
                return PlacedLog.of_record(key, row)
        return None

    def keeps_destroyed(self) -> bool:
        """Return whether a copy is here of what was destroyed: until it is removed, the record must say that it was."""
        past = self._record.state().past
        return self._maker is not None and any(kept.key in past for kept in self._maker.kept().values())

    def moving(self) -> list[PlacedLog]:
        """Return the logs that members of a destination without copies move into: of this broker, or led here."""
        found = [placed for key in self._record.state().copies if (placed := self.placed(key)) is not None]
        return [placed for placed in found if placed.sources and (self._me in placed.sources or self._leads(placed))]

    def _leads(self, placed: PlacedLog) -> bool:
        copy = self._own.get(placed.log)
        return copy is not None and copy.leads

    def led_host(self, log: str) -> tuple[PlacedLog, HostPort]:
        """Return a log and the host that it is led by here; raises ConnectionLostError where the copy here does not
        lead."""
        placed = self.placed_log(log)
        host = None if placed is None or not self._leads(placed) else self.host_here(placed)
        if placed is None or host is None:
            raise ConnectionLostError(f"{log} is not led by broker {self._me} now; ask again")
        return placed, host

    def host_here(self, placed: PlacedLog) -> HostPort | None:
        """Return the host of this broker's copy; None where it has none."""
        copy = self._own.get(placed.log)
        return None if copy is None or self._maker is None else self._maker.host(copy.port)

    # ---- looks

    async def run(self) -> None:
        """Look, for as long as the broker lives."""
        while self._maker is not None:
            drained = self._me in self.drained_brokers()
            unsteady = drained or any(
                not one.is_led or (one.leads != one.served and one.placed.opened) for one in self._own.values()
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SOON_S if unsteady else LOOK_S):
                    await self._unled.wait()
            self._unled.clear()
            try:
                await self._look_at_logs(self._maker)
            except Exception:  # the next look may fare better, and without looks nobody leads
                log.exception("broker %s could not look at its copies", self._me)

    async def _look_at_logs(self, maker: CopyMaker) -> None:
        wanted = {placed.log: placed for key in self._record.state().copies if (placed := self.placed(key))}
        mine = {name: placed for name, placed in wanted.items() if self._me in placed.brokers}
        for name in [name for name in self._own if name not in mine]:
            self._leave(self._own.pop(name))
        for name, kept in list(maker.kept().items()):
            if name in mine and kept.record != self._record.id():
                self._once(f"the note of {name}", maker.keep(name, kept._replace(record=self._record.id())))
            elif name not in mine and self._now_ms() >= self._apart.get(name, 0):
                self._once(END_OF + name, self._end_copy(maker, name, kept))
        for name, placed in mine.items():
            self._apart.pop(name, None)
            if name in self._own:
                self._own[name].place(placed)
            elif (found := maker.kept().get(name)) is not None:
                self._own[name] = OwnCopy(self._me, placed, await maker.open(name, found.secret))
            else:
                self._once(f"the secret of {name}", self._learn_secret(maker, placed))
        await asyncio.gather(*(self._ask_own(maker, copy) for copy in self._own.values()))
        self._ask_others()
        for copy in list(self._own.values()):
            await self._look_at_copy(copy)

    def _once(self, name: str, work: Any) -> None:
        """Do something beside the looks, unless it is being done."""
        before = self._working.get(name)
        if before is not None and not before.done():
            work.close()
            return
        task = self._working[name] = self._loops.once(name, work)
        task.add_done_callback(lambda done: self._working.get(name) is done and self._working.pop(name))

    async def _ask_own(self, maker: CopyMaker, copy: OwnCopy) -> None:
        """Ask this broker's copy; one that does not answer may be another process by now."""
        try:
            copy.row = await asyncio.wait_for(copy.port.copy_row(), ANSWER_S)
        except (BrokerError, TimeoutError):
            copy.row = {}
            name = copy.placed.log
            kept = maker.kept().get(name)
            if kept is not None:
                self._once(f"the process of {name}", self._find_again(maker, copy, kept.secret))

    @staticmethod
    async def _find_again(maker: CopyMaker, copy: OwnCopy, secret: bytes) -> None:
        copy.port = await maker.open(copy.placed.log, secret)

    def _ask_others(self) -> None:
        """Ask the other brokers for their copies of these logs; what they answer counts with the next look."""
        now_ms = self._now_ms()
        unled = {name for copy in self._own.values() if not copy.is_led for name in copy.placed.brokers}
        for broker in {name for copy in self._own.values() for name in copy.placed.brokers} - {self._me}:
            apart_ms = LOOK_S * 1000 if broker in unled else ASK_S * 1000
            if now_ms - self._asked_ms.get(broker, -(10**9)) >= apart_ms:
                self._asked_ms[broker] = now_ms
                self._once(f"the copies of broker {broker}", self._ask_broker(broker))

    async def _ask_broker(self, broker: str, fresh: str = "") -> dict[str, Row]:
        """The rows of the copies that a broker keeps, as of its last look; none when it cannot be asked.
        ``fresh``: the log of which it is to say how that is now."""
        asked_ms = self._now_ms()
        args = {"fresh": fresh} if fresh else {}
        try:
            rows: dict[str, Row] = await self._peers.call_broker(broker, COPIES_OF, args, timeout_s=ANSWER_S)
        except BrokerError:
            rows = {}
        for name, copy in self._own.items():
            copy.said(broker, rows.get(name, {}), asked_ms)
        return rows

    async def _look_at_copy(self, copy: OwnCopy) -> None:
        """One copy: found its log, tell it where the others are, have somebody lead, and serve where it leads."""
        now_ms, name = self._now_ms(), copy.placed.log
        if founding := copy.founding():
            await self._told(copy, copy.port.found(founding, copy.placed.min_in_sync))
        if addresses := copy.addresses_to_tell(now_ms):
            await self._told(copy, copy.port.know(addresses))
        self._note_leader(copy)
        if copy.served and not copy.leads:
            self._leave(copy)
        elif copy.leads and not copy.served:
            self._once(f"the start of {name}", self._serve(copy))
        elif copy.leads:
            going = self.drained_brokers() | set(copy.placed.leaving)
            heir, heirs_copy = copy.heir(going, now_ms) if self._me in going else ("", "")
            if heir:
                self._once(f"the hand-over of {name}", self._hand_over(copy, heir, heirs_copy))
            else:
                self._handing.pop(name, None)
                self._once(f"the set of {name}", complete(copy, now_ms, self._record.propose))
        if copy.is_led and not copy.leads:
            self._once(f"the end of the leader of {name}", self._watch(copy))
        for action in copy.due(now_ms):
            self._carry_out(copy, action)

    async def _watch(self, copy: OwnCopy) -> None:
        """Look at once when the copy hears its leader no more."""
        try:
            if await copy.port.until_unled(WATCH_S):
                self._unled.set()
        except BrokerError:
            await asyncio.sleep(LOOK_S)  # The looks find another process.

    async def _told(self, copy: OwnCopy, work: Awaitable[None]) -> None:
        try:
            await asyncio.wait_for(work, ANSWER_S)
        except (BrokerError, TimeoutError) as error:
            copy.forget_addresses()
            log.info("copy of %s at broker %s: %s", copy.placed.log, self._me, str(error) or "no answer in time")

    def _note_leader(self, copy: OwnCopy) -> None:
        """Log who leads, when it is another one."""
        leader = self._broker_of(copy, str(copy.row.get("leader", "")))
        if leader and leader != copy.leader:
            name, before, copy.leader = copy.placed.log, copy.leader, leader
            if before:
                self.changes[name] = self.changes.get(name, 0) + 1
            if leader == self._me:
                why = f"the copy of broker {before} was heard no more" if before else "nobody was heard to lead it"
                why = f"broker {before} is drained" if before in self.drained_brokers() else why
                log.warning(
                    "[B2205] %s %s is led by broker %s, in term %d: %s",
                    *copy.placed.key,
                    leader,
                    copy.row["term"],
                    why,
                )

    def _broker_of(self, copy: OwnCopy, id: str) -> str:
        """The broker that has this copy; "" when that is not known."""
        rows = copy.known_rows(self._now_ms())
        found = next((broker for broker, row in rows.items() if row["copy"] == id), "")
        known = dict(zip(copy.placed.ids, copy.placed.brokers, strict=True))
        return found or known.get(id, "")

    # ---- what is served here

    async def _serve(self, copy: OwnCopy) -> None:
        maker, placed = self._maker, copy.placed
        attributes = self._record.state().destinations.get(placed.key)
        if maker is None or attributes is None:
            return  # It is being made, or was destroyed.
        host = maker.host(copy.port)
        try:
            pauses = self._pauses(placed) if placed.opened else {}
            await self._placement.serve_led(placed.key, host, dict(attributes), pauses, opened=placed.opened)
        except BrokerError as error:
            log.info("%s %s is not served here yet: %s", *placed.key, error)
            self._placement.leave_led(placed.key, host)
            return
        copy.host = host if placed.opened else None

    def _pauses(self, placed: PlacedLog) -> dict[str, int]:
        return {which: int(str(until)) for which, until in self._record.state().pauses.get(placed.key, {}).items()}

    def _leave(self, copy: OwnCopy) -> None:
        """This broker does not serve it any more."""
        host, copy.host = copy.host, None
        if host is not None:
            self._placement.leave_led(copy.placed.key, host)

    # ---- who leads

    def _carry_out(self, copy: OwnCopy, action: CopyAction) -> None:
        name = copy.placed.log
        if isinstance(action, AskCopies):
            self._answered(copy, action, self._me, copy.row)
            for peer in action.peers:
                if peer != self._me:  # One that is lost is not waited for, and not asked again before it answers.
                    self._once(f"how far broker {peer} is with {name}", self._ask_copy(copy, action, peer))
        else:
            self._once(f"the leader of {name}, attempt {action.attempt}", self._have_lead(copy, action))

    async def _ask_copy(self, copy: OwnCopy, ask: AskCopies, peer: str) -> None:
        rows = await self._ask_broker(peer, fresh=copy.placed.log)
        self._answered(copy, ask, peer, rows.get(copy.placed.log, {}))

    def _answered(self, copy: OwnCopy, ask: AskCopies, peer: str, row: Row) -> None:
        """Go on as soon as enough have answered."""
        if row:
            for then in copy.takeovers.answered(ask, peer, held_copies(copy.placed.log, row)):
                self._carry_out(copy, then)

    async def _have_lead(self, copy: OwnCopy, action: StartAt | LevelCopy) -> None:
        """Tell a copy to lead. Nobody is told anything more before it does, or has had the time for it: of two that
        are told, the later deposes the first."""
        chosen = action.peer if isinstance(action, StartAt) else action.leader
        try:
            await self._tell_to_lead(chosen, copy.placed.log)
            await asyncio.sleep(LEADS_S)
        except BrokerError as error:
            log.info("broker %s could not be told to lead %s: %s", chosen, copy.placed.log, error)
        finally:
            copy.takeovers.ended(action)

    def drained_brokers(self) -> frozenset[str]:
        """Return the brokers that are drained, and lead nothing that another one can lead."""
        return frozenset(name for what, name in self._record.state().drains if what == "broker")

    async def _hand_over(self, copy: OwnCopy, heir: str, heirs_copy: str) -> None:
        """Have another broker's copy lead; with that the process of the copy here ends, and its answer may be lost."""
        name, now_ms = copy.placed.log, self._now_ms()
        quiet = now_ms - self._handing.setdefault(name, now_ms) < QUIET_S * 1000
        try:
            why = await asyncio.wait_for(copy.port.hand_over(heirs_copy, quiet=quiet), ANSWER_S)
        except (BrokerError, TimeoutError) as error:
            why = ""
            log.info("broker %s has asked its copy of %s to hand over: %s", self._me, name, str(error) or "no answer")
        if why:
            log.info("%s %s is not handed over to broker %s yet: %s", *copy.placed.key, heir, why)
            return
        self._handing.pop(name, None)
        why = "its copy is to go" if self._me in copy.placed.leaving else f"broker {self._me} is drained"
        log.warning("[B2209] %s %s is handed over to broker %s: %s", *copy.placed.key, heir, why)
        for _ in range(int(TAKEN_S / TAKEN_LOOK_S)):
            await asyncio.sleep(TAKEN_LOOK_S)
            if copy.is_led:
                return
            try:
                await self._tell_to_lead(heir, name)
            except BrokerError as error:
                log.info("broker %s could not be told to lead %s: %s", heir, name, error)

    async def _tell_to_lead(self, broker: str, name: str) -> None:
        log.warning("[B2206] broker %s tells broker %s to lead %s", self._me, broker, name)
        if broker == self._me:
            await self.lead(name)
        else:
            await self._peers.call_broker(broker, LEAD, {"log": name}, timeout_s=ANSWER_S)

    async def leader_of(self, placed: PlacedLog) -> str:
        """The broker whose copy leads a log; raises ConnectionLostError while none is known to."""
        copy = self._own.get(placed.log)
        if copy is not None and copy.reaches_leader:
            with contextlib.suppress(ConnectionLostError):
                return self._heard_by(copy)
        brokers = [name for name in placed.brokers if name != self._me]
        for work in asyncio.as_completed([self._led_by(placed, name) for name in brokers]):
            if leader := await work:
                return leader
        why = copy.why() if copy is not None else f"brokers {', '.join(placed.brokers)} keep copies of it"
        raise ConnectionLostError(f"{placed.key[0]} {placed.key[1]!r} has no leader now: {why}")

    def _heard_by(self, copy: OwnCopy) -> str:
        """The broker whose copy leads, as this one's hears; raises ConnectionLostError."""
        leader = self._broker_of(copy, str(copy.row["leader"])) if copy.reaches_leader else ""
        if not leader:
            type_, name = copy.placed.key
            raise ConnectionLostError(f"{type_} {name!r} has no leader now: {copy.why() or 'it is not reached'}")
        return leader

    def known_leader(self, placed: PlacedLog) -> str:
        """The broker whose copy was heard to lead last; where none was, one that can say that it is not."""
        copy = self._own.get(placed.log)
        leader = "" if copy is None else self._broker_of(copy, str(copy.row.get("leader", ""))) or copy.leader
        return leader or next(name for name in placed.brokers if name != self._me)

    async def _led_by(self, placed: PlacedLog, broker: str) -> str:
        """Who leads a log, as a broker that keeps a copy of it has heard."""
        row = (await self._ask_broker(broker, fresh=placed.log)).get(placed.log, {})
        if not row or not row["led"] or not row["linked"]:
            return ""
        known = {row["copy"]: broker, **dict(zip(placed.ids, placed.brokers, strict=True))}
        return known.get(row["leader"], "")

    async def host_of(self, placed: PlacedLog) -> tuple[HostPort, str]:
        """The host that serves a destination, and its broker; raises ConnectionLostError while there is none."""
        maker = self._maker
        if maker is None:
            raise ConnectionLostError(f"broker {self._me} keeps no copies")
        leader = await self._until_served(maker, placed)
        copy = self._own.get(placed.log)
        if leader == self._me and copy is not None:
            return maker.host(copy.port), leader
        kept = maker.kept().get(placed.log)
        secret = await self._ask_secret(placed) if kept is None else kept.secret
        ask = partial(self._ask_where_led, leader, placed.log)
        return maker.host_elsewhere(leader, placed.log, secret, ask), leader

    async def _ask_where_led(self, leader: str, log: str, method: str, args: Row) -> Any:
        """Ask a broker for the host of a log that is led there: Ray's control store, by which a process is found, may
        be down while the copies choose another leader."""
        return await self._peers.call_broker(leader, method, {"log": log, **args}, timeout_s=LED_S)

    async def _until_served(self, maker: CopyMaker, placed: PlacedLog) -> str:
        """The broker that serves a destination, which is waited for a little: who asks again and again would find it
        later."""
        until_ms = self._now_ms() + SERVED_S * 1000
        while True:
            copy = self._own.get(placed.log)
            if copy is not None and not copy.leads:  # Who asks may have just lost the leader.
                await self._ask_own(maker, copy)
            try:
                leader = await self.leader_of(placed) if copy is None or not copy.row else self._heard_by(copy)
                if await self._is_served_by(leader, placed.log):
                    return leader
                error = ConnectionLostError(
                    f"{placed.key[0]} {placed.key[1]!r} is about to be served by broker {leader}"
                )
            except ConnectionLostError as lost:
                error = lost
            if self._now_ms() >= until_ms:
                raise error
            await asyncio.sleep(LOOK_SOON_S)

    async def _is_served_by(self, broker: str, name: str) -> bool:
        copy = self._own.get(name)
        if broker == self._me:
            return copy is not None and copy.served
        row = {} if copy is None else copy.known_rows(self._now_ms()).get(broker, {})
        return bool(row.get("served") or (await self._ask_broker(broker)).get(name, {}).get("served"))

    # ---- what is shown

    def replication_row(self, key: tuple[str, ...]) -> Row:
        """Return who leads the log of a destination, and how far each copy is, as this broker knows it: all of them
        where its own copy leads.  Nothing for a destination without copies, and at a broker that keeps none."""
        placed = self.placed(key)
        copy = None if placed is None else self._own.get(placed.log)
        if copy is None:
            return {}
        row, rows = copy.row, copy.known_rows(self._now_ms())
        own = {str(other["copy"]): str(other.get("trouble", "")) for other in rows.values()}
        return {
            "log": copy.placed.log,
            "leader": self._broker_of(copy, str(row.get("leader", ""))) if copy.is_led else "",
            "leader_changes": self.changes.get(copy.placed.log, 0),
            "why": copy.why(),
            "changing": self._changing(copy, placed),
            **{name: row[name] for name in ("term", "index", "committed", "lease", "min_in_sync") if name in row},
            "copies": [
                {
                    "broker": self._broker_of(copy, one["copy"]),
                    **{name: one[name] for name in SHOWN},
                    "trouble": one["trouble"] or own.get(one["copy"], ""),
                }
                for one in row.get("copies", ())
            ],
        }

    def _changing(self, copy: OwnCopy, placed: PlacedLog | None) -> list[str]:
        """What the set waits for until it is as wanted; known where the copy here leads."""
        if placed is None or not copy.leads:
            return []
        return pending(copy.ids(placed, self._now_ms()), placed.leaving, copy.row["copies"])

    def figures(self) -> Row:
        """Return what metrics say of the copies that are kept here."""
        shown = [self.replication_row(copy.placed.key) for copy in self._own.values()]
        heirs = [self._heir_of(copy) for copy in self._own.values() if copy.leads]
        return {
            **figures_of(self._me, shown, sum(self.changes.values())),
            **drain_figures(heirs, drained=self._me in self.drained_brokers()),
        }

    def lost(self, silent_ms: int) -> list[tuple[PlacedLog, str]]:
        """Return, of the logs that are led here, the brokers whose copies have not answered for so long."""
        return [(copy.placed, broker) for copy in self._own.values() if copy.leads for broker in copy.lost(silent_ms)]

    def replication_rows(self) -> dict[tuple[str, str], Row]:
        """Destination → its :meth:`replication_row`, of those whose copy here leads."""
        return {copy.placed.key: self.replication_row(copy.placed.key) for copy in self._own.values() if copy.leads}

    # ---- secrets, and copies that nobody wants any more

    async def _learn_secret(self, maker: CopyMaker, placed: PlacedLog) -> None:
        """This broker's disk is new: ask the others what all copies have."""
        await maker.keep(placed.log, KeptCopy(await self._ask_secret(placed), placed.key, self._record.id()))

    async def secret_of(self, placed: PlacedLog) -> str:
        """Return what all copies of a log have, in hexadecimal digits; raises ConnectionLostError."""
        kept = {} if self._maker is None else self._maker.kept()
        found = kept[placed.log].secret if placed.log in kept else await self._ask_secret(placed)
        return found.hex()

    async def _ask_secret(self, placed: PlacedLog) -> bytes:
        for broker in placed.brokers:
            if broker != self._me:
                try:
                    found = await self._peers.call_broker(broker, SECRET, {"log": placed.log}, timeout_s=ANSWER_S)
                except BrokerError:
                    continue
                return bytes.fromhex(str(found))
        raise ConnectionLostError(f"no broker that has a copy of {placed.log} can be asked for it")

    async def _end_copy(self, maker: CopyMaker, name: str, kept: KeptCopy) -> None:
        """The record does not have this copy: its destination was destroyed, or an older record was restored."""
        state, placed = self._record.state(), self.placed_log(name)
        if kept.record != self._record.id() and placed is not None:
            await self._join_again(maker, placed, kept)
        elif kept.record == self._record.id() and (kept.key in state.past or kept.key in state.copies):
            # The latter: it is elsewhere now, or was made anew.
            await maker.end_copy(name, remove=True)
            await maker.keep(name, None)
            log.info("the copy of %s (%s %s), which is not wanted here any more, was removed", name, *kept.key)
        else:
            self._apart[name] = FOR_GOOD_MS
            log.warning(
                "[B2208] the copy of %s (%s %s) is in no record, and stays on disk: raybroker adopt dst -t q -n %s puts"
                " it there",
                name,
                *kept.key,
                kept.key[1],
            )

    async def _join_again(self, maker: CopyMaker, placed: PlacedLog, kept: KeptCopy) -> None:
        """A restored record has the log at other brokers: it may be older than the set, in which this copy may be one
        of a majority.  It goes as any copy whose place another one gets."""
        try:
            row = await (await maker.open(placed.log, kept.secret)).copy_row()
            after = placed.after(
                brokers=(*placed.brokers, self._me),
                ids=(*placed.ids, str(row["copy"])),
                leaving=(*placed.leaving, self._me),
            )
            await self._record.propose(Change(COPIES.change, placed.key, after.attributes()))
        except BrokerError as error:
            self._apart[placed.log] = self._now_ms() + int(JOIN_S * 1000)
            log.info("the copy of %s at broker %s is not in the restored record yet: %s", placed.log, self._me, error)
        else:
            log.warning(
                "[B2217] the copy of %s (%s %s), which a restored record has at brokers %s, is one of them again until"
                " those have everything",
                placed.log,
                *placed.key,
                ", ".join(placed.brokers),
            )

    # ---- what other brokers ask

    def methods(self) -> dict[str, Callable[..., Awaitable[Any]]]:
        """What brokers ask each other, by name."""
        return {
            COPIES_OF: self.copy_rows,
            LED_COPIES: self.led_copies,
            SECRET: self.secret,
            LEAD: self.lead,
            OPEN: self.open,
            FORGET: self.forget_copy,
            URGE: self.urge_leaders,
            NODE: self.node,
            SET_ASIDE: self.set_aside,
            LED_ATTRIBUTES: self.led_attributes,
            LED_WHERE: self.led_where,
            LED_CALL: self.led_call,
        }

    async def node(self) -> str:
        """Return the node of the copies of this broker."""
        if self._maker is None:
            raise NotSupportedError(f"broker {self._me} keeps no copies: it is no actor in Ray")
        return self._maker.node

    async def copy_rows(self, fresh: str = "") -> dict[str, Row]:
        """Log → the row of this broker's copy, as of the last look; of the log ``fresh`` as it is now."""
        asked = self._own.get(fresh)
        if asked is not None and self._maker is not None:
            await self._ask_own(self._maker, asked)
        return {
            name: {**copy.row, "served": copy.served, "name": copy.placed.key[1], "heir": self._heir_of(copy)}
            for name, copy in self._own.items()
            if copy.row
        }

    def _heir_of(self, copy: OwnCopy) -> str:
        """Who leads a log once this broker is drained; "" where it does not lead, or nobody else can."""
        return copy.heir(self.drained_brokers(), self._now_ms())[0] if copy.leads else ""

    async def led_copies(self) -> Row:
        """Return how the logs are that are led here; see raybroker.admin.copy_checks."""
        return led_at(list(self.replication_rows().values()))

    async def secret(self, log: str) -> str:
        """Return what all copies of a log have, in hexadecimal digits, to a broker that is to keep or reach one."""
        kept = {} if self._maker is None else self._maker.kept()
        if log not in kept:
            raise ConnectionLostError(f"broker {self._me} has no copy of {log}")
        return kept[log].secret.hex()

    async def lead(self, log: str) -> None:
        """Have this broker's copy ask for promises."""
        copy = self._own.get(log)
        if copy is None:
            raise ConnectionLostError(f"broker {self._me} has no copy of {log}")
        await copy.port.lead()

    async def open(self, log: str, secret: str, type: str, name: str) -> str:
        """Make a copy of a log that is about to be; returns its id. Raises StoreError, and NotSupportedError."""
        maker = self._maker
        if maker is None:
            raise NotSupportedError(f"broker {self._me} keeps no copies: it is no actor in Ray")
        self._apart[log] = self._now_ms() + int(OPENED_S * 1000)
        if (ending := self._working.get(END_OF + log)) is not None:  # One that was here before goes first.
            await asyncio.wait({ending}, timeout=OPENED_S)
        await maker.keep(log, KeptCopy(bytes.fromhex(secret), (check_destination_type(type), name), self._record.id()))
        row = await (await maker.open(log, bytes.fromhex(secret))).copy_row()
        return str(row["copy"])

    async def set_aside(self, type: str, name: str) -> dict[str, Row]:
        """Log → the row of this broker's copy, of the logs of a destination that are in no record."""
        found: dict[str, Row] = {}
        maker, key = self._maker, (check_destination_type(type), name)
        for log, kept in {} if maker is None else dict(maker.kept()).items():
            if kept.key == key and self.placed_log(log) is None and maker is not None:
                found[log] = await (await maker.open(log, kept.secret)).copy_row()
        return found

    async def led_where(self, log: str) -> tuple[str, int, int, bytes]:
        """Return where clients reach the host of a log that is led here: ip, port, process id, certificate."""
        self.led_host(log)
        return await self._own[log].port.where()

    async def led_call(self, log: str, role: str, method: str, args: Sequence[Any]) -> Any:
        """Call a method of a role of the host of a log that is led here."""
        _, host = self.led_host(log)
        return await method_of(host, role, method)(*args)

    async def led_attributes(self, log: str) -> Row:
        """Return the attributes of a destination as its log has them, which is led here."""
        placed, host = self.led_host(log)
        rows = await host.destinations.destination_rows()
        return next(dict(row["traits"]) for row in rows if (row["type"], row["name"]) == placed.key)

    async def forget_copy(self, log: str) -> None:
        """A log that was about to be will not be."""
        maker = self._maker
        if maker is not None and log in maker.kept() and self.placed_log(log) is None:
            await maker.end_copy(log, remove=True)
            await maker.keep(log, None)

    async def urge_leaders(self, broker: str) -> list[str]:
        """Have other copies lead at once what nobody leads of the logs of a lost broker; which this one sees to."""
        now_ms = self._now_ms()
        found = [copy for copy in self._own.values() if broker in copy.placed.brokers and copy.urge(now_ms)]
        return [copy.placed.log for copy in found]
