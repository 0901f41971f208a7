"""One broker's copy of one log: what it says of itself, what the other brokers say of theirs, and who is told to lead.

Who may lead is decided by the copies themselves, see raybroker.replication; whom to tell, by
raybroker.cluster.replicas.copy_takeover: of the brokers that keep a copy, the first that is up asks the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from raybroker.broker.copies.copy_port import Address, CopyPort
from raybroker.broker.copies.placed_log import PlacedLog
from raybroker.cluster.replicas.copy_takeover import Copies, CopyAction, CopyTakeovers, HeldCopy
from raybroker.hosting.host_port import HostPort, Row
from raybroker.model.hashing import rendezvous

AFTER_MS: Final = 150
"""How long this broker's copy hears no leader, beyond what it waits itself, before the others are asked."""
FIRST_MS: Final = 1_000
"""How much longer a broker waits at which a new log was not made: that one asks first, and of two at a time one is
deposed at once."""
FRESH_MS: Final = 3_000
"""What another broker has said longer ago does not count."""
LEADER: Final = "LEADER"


def held_copies(log: str, row: Mapping[str, Any]) -> Copies:
    """Return what counts of a copy's row; nothing without a row.

    A promise that has made no leader, and the first leader of all, are no change of leader.
    """
    if not row:
        return {}
    number, nonce, index = row["end"]
    quiet_ms = int(row["voted_ms_ago"])
    changed = quiet_ms >= 0 and row["term"] == number and number > 1
    led = bool(row["led"] or row["elects"])
    return {log: HeldCopy(bool(row["fit"]), (number, nonce, index), led, quiet_ms if changed else None)}


class OwnCopy:
    """``row``: what the copy has said last, empty while it cannot be asked; ``host``: the one that the broker serves
    clients from, None while this copy does not lead.  ``port`` may be a later process by then."""

    def __init__(self, me: str, placed: PlacedLog, port: CopyPort) -> None:
        self.placed = placed
        self.port = port
        self.row: Row = {}
        self.host: HostPort | None = None
        self.leader = ""
        """The broker whose copy was heard to lead last."""
        self.takeovers = CopyTakeovers(me, AFTER_MS)
        self._me = me
        self._others: dict[str, tuple[int, Row]] = {}
        """Broker → when it was asked, and the row of its copy."""
        self._silent_ms: dict[str, int] = {}
        """Broker → for how long it was asked and had no copy."""
        self._unled_ms = -1
        self._known: tuple[int, dict[str, Address]] = (-1, {})
        """The process that was told addresses last, and those."""
        self.place(placed)

    def place(self, placed: PlacedLog) -> None:
        """The record says this of the log now."""
        self.placed = placed
        self._silent_ms = {name: ms for name, ms in self._silent_ms.items() if name in placed.brokers}
        self.takeovers.sets = {placed.home: placed.brokers[1:]}

    def said(self, broker: str, row: Row, now_ms: int) -> None:
        """What another broker says of its copy."""
        asked_ms, _ = self._others.get(broker, (now_ms, row))
        # Whoever was paused itself has not asked meanwhile: that is nobody else's silence.
        self._silent_ms[broker] = 0 if row else self._silent_ms.get(broker, 0) + min(now_ms - asked_ms, FRESH_MS)
        self._others[broker] = (now_ms, row)

    def lost(self, silent_ms: int) -> list[str]:
        """Return the brokers that are to keep a copy, and have not said anything of it for so long."""
        return [name for name in self.placed.staying if self._silent_ms.get(name, 0) >= silent_ms]

    def ids(self, placed: PlacedLog, now_ms: int) -> dict[str, str]:
        """Broker → the copy that it has, as far as is known; ``placed``: what the record says by now."""
        rows = self.known_rows(now_ms)
        return {
            name: str(rows[name]["copy"]) if name in rows else old
            for name, old in zip(placed.brokers, placed.ids, strict=True)
        }

    def known_rows(self, now_ms: int) -> dict[str, Row]:
        """Broker → the row of its copy, of those that are known now."""
        found = {name: row for name, (at_ms, row) in self._others.items() if row and now_ms - at_ms <= FRESH_MS}
        return {**found, self._me: self.row} if self.row else found

    def addresses_to_tell(self, now_ms: int) -> dict[str, Address]:
        """Return where the other copies are, when this copy does not know it yet."""
        rows = self.known_rows(now_ms)
        found = {str(row["copy"]): (str(row["address"][0]), int(row["address"][1])) for row in rows.values()}
        pid = int(self.row.get("pid", -1))
        if pid < 0 or (pid, found) == self._known:
            return {}
        known = self._known[1] if pid == self._known[0] else {}
        self._known = (pid, {**known, **found})
        return found

    def forget_addresses(self) -> None:
        """They did not arrive."""
        self._known = (-1, {})

    @property
    def served(self) -> bool:
        """Whether the broker serves its destination."""
        return self.host is not None

    @property
    def leads(self) -> bool:
        """Whether it leads, and takes clients."""
        return bool(self.row) and self.row["role"] == LEADER and bool(self.row["serves"])

    @property
    def is_led(self) -> bool:
        return bool(self.row) and bool(self.row["led"])

    @property
    def reaches_leader(self) -> bool:
        """Whether it hears a leader, and the link to that has not just ended: then clients reach it no more either."""
        return self.is_led and bool(self.row["linked"])

    def founding(self) -> Sequence[str]:
        """Return the copies that begin the log, where this one is one of them and has not begun it."""
        row, ids = self.row, self.placed.ids
        new = bool(row) and not row["voters"] and not row["learners"] and row["index"] == 0
        return ids if new and row["copy"] in ids else ()

    def due(self, now_ms: int) -> list[CopyAction]:
        """Return what is to be done so that somebody leads."""
        placed, rows = self.placed, self.known_rows(now_ms)
        if self.is_led or not self.row:
            self._unled_ms = -1
        elif self._unled_ms < 0:
            is_guest = placed.home != self._me and not self.row["term"]
            self._unled_ms = now_ms + (FIRST_MS if is_guest else 0)
        waits = {} if self._unled_ms < 0 else {placed.home: self._unled_ms}
        heard = (placed.home,) if self.is_led else ()
        live = [name for name in placed.brokers if name in rows and not self._is_lost(name)]
        return self.takeovers.looked(live, heard, waits, now_ms)

    def _is_lost(self, broker: str) -> bool:
        """Whether the copy of a broker led and is heard no more, and the broker has not answered since: what it said
        before does not make it the one that asks the others."""
        return broker == self.leader != self._me and self._others[broker][0] < self._unled_ms

    def urge(self, now_ms: int) -> bool:
        """Have another copy lead without waiting any longer; False where this broker is not the one that asks."""
        first = next((name for name in self.placed.brokers if name in self.known_rows(now_ms)), "")
        if self.is_led or not self.row or first != self._me:
            return False
        self.takeovers.urge(self.placed.home, now_ms)
        return True

    def heir(self, leaving: Collection[str], now_ms: int) -> tuple[str, str]:
        """Return the broker that is to lead in place of this one, which leads now, and its copy; ("", "") where none
        can.  ``leaving``: brokers that are to lead nothing.  Logs that several can lead are spread over those."""
        rows = self.known_rows(now_ms)
        of_leader = {one["copy"]: one for one in self.row.get("copies", ())}
        able: dict[str, str] = {}
        for broker in self.placed.brokers:
            row = rows.get(broker, {})
            one = of_leader.get(row.get("copy"), {})
            there = one.get("voter") and one["connected"] and not one["trouble"] and row.get("fit")
            if there and broker != self._me and broker not in leaving:
                able[broker] = str(row["copy"])
        if not able:
            return "", ""
        chosen = rendezvous(self.placed.log, sorted(able))
        return chosen, able[chosen]

    def why(self) -> str:
        """Return why nobody leads, for people; "" while somebody does."""
        if self.is_led:
            return ""
        trouble = str(self.row.get("trouble", "")) if self.row else "this broker's own copy cannot be asked"
        return trouble or self.takeovers.why(self.placed.home) or "a copy is about to be told to lead"
