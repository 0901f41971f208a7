"""One broker's view of the brokers of its cluster: which are up, since when, and which of them is the coordinator.

A broker that is silent for ``suspect_ms`` is suspect, after ``down_ms`` it is down (own heartbeats: Ray's verdict takes
minutes).  ``joined`` is a number that a broker takes when it becomes operating, greater than every one it has heard of;
so (joined, name) is an order that all who agree on the view agree on, with or without a master, and a clock that runs
behind does not make a newcomer the eldest.  The coordinator is the eldest live operating broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from raybroker.model.errors import StaleError

HEARTBEAT_MS: Final = 500
SUSPECT_MS: Final = 1000
DOWN_MS: Final = 1500
EXCUSES_MAX: Final = 3
"""How often between two messages of a broker its silence is not counted because this broker itself stood still."""
assert HEARTBEAT_MS < SUSPECT_MS < DOWN_MS


class BrokerState(StrEnum):
    """JOINING: greeted, not integrated yet; DOWN: silent or never heard; LEFT: shut down in order."""

    JOINING = "JOINING"
    UP = "UP"
    SUSPECT = "SUSPECT"
    DOWN = "DOWN"
    LEFT = "LEFT"


LIVE: Final = frozenset({BrokerState.UP, BrokerState.SUSPECT})
HEARD: Final = frozenset({BrokerState.JOINING, BrokerState.UP, BrokerState.SUSPECT})

NEXT: Final[dict[BrokerState, frozenset[BrokerState]]] = {
    BrokerState.JOINING: frozenset({BrokerState.UP, BrokerState.DOWN, BrokerState.LEFT}),
    BrokerState.UP: frozenset({BrokerState.SUSPECT, BrokerState.JOINING, BrokerState.LEFT}),
    BrokerState.SUSPECT: frozenset({BrokerState.UP, BrokerState.DOWN, BrokerState.JOINING, BrokerState.LEFT}),
    BrokerState.DOWN: frozenset({BrokerState.JOINING, BrokerState.UP, BrokerState.LEFT}),
    BrokerState.LEFT: frozenset({BrokerState.JOINING, BrokerState.UP}),
}
"""Which state may follow which; a new incarnation starts at JOINING."""


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """One broker.  ``incarnation`` 0: never heard.  ``joined`` 0: not operating yet.  ``version``: its protocol.

    ``number``: how far its copy of the configuration record goes.  ``last_heard_ms``: on the clock of the view.
    ``excused``: how often since then this broker itself stood still.
    """

    name: str
    state: BrokerState = BrokerState.DOWN
    incarnation: int = 0
    joined: int = 0
    last_heard_ms: int = 0
    excused: int = 0
    version: int = 0
    number: int = 0

    @property
    def live(self) -> bool:
        return self.state in LIVE

    @property
    def order(self) -> tuple[int, str]:
        return self.joined, self.name


@dataclass(frozen=True, slots=True)
class Moved:
    """A broker's state changed; ``restarted``: it is another instance than before."""

    name: str
    before: BrokerState
    after: BrokerState
    restarted: bool = False


class Membership:
    """The view of broker ``me``, whose own row never ages.  ``version`` grows with each change that a row shows.

    ``known``: incarnations that were heard in an earlier life; older ones are refused from the start.
    Changes of ``number`` and ``last_heard_ms`` alone are no change of the view.
    """

    def __init__(
        self,
        me: str,
        incarnation: int,
        names: Iterable[str],
        *,
        known: Mapping[str, int] | None = None,
        suspect_ms: int = SUSPECT_MS,
        down_ms: int = DOWN_MS,
    ) -> None:
        assert 0 < suspect_ms < down_ms
        self.me = me
        self.version = 1
        self._suspect_ms = suspect_ms
        self._down_ms = down_ms
        self._rows = {name: BrokerRow(name) for name in (*names, me)}
        for name, number in (known or {}).items():
            self._rows[name] = BrokerRow(name, incarnation=number)
        self._rows[me] = BrokerRow(me, BrokerState.JOINING, incarnation)

    # ---- what is heard

    def check(self, name: str, incarnation: int) -> None:
        """Raises StaleError when a later instance of the broker is known."""
        known = self._rows.get(name)
        if known is not None and incarnation < known.incarnation:
            raise StaleError(
                f"broker {name!r} of incarnation {incarnation} is refused: incarnation {known.incarnation} is known"
            )

    def heard(
        self,
        name: str,
        incarnation: int,
        now_ms: int,
        *,
        joined: int = 0,
        operating: bool = False,
        version: int = 0,
        number: int = 0,
    ) -> Moved | None:
        """Note a heartbeat of another broker; returns the change of state.  Raises StaleError for an older instance.

        A broker that left stays so until a new instance of it is heard: late messages of the old instance do not count.
        """
        assert name != self.me
        self.check(name, incarnation)
        old = self._rows.get(name, BrokerRow(name))
        same = old.incarnation == incarnation
        if same and old.state is BrokerState.LEFT:
            return None
        if same and joined < old.joined:
            joined, operating = old.joined, True  # a message that was overtaken
        state = BrokerState.UP if operating else BrokerState.JOINING
        return self._put(
            replace(
                old,
                state=state,
                incarnation=incarnation,
                joined=joined,
                last_heard_ms=now_ms,
                excused=0,
                version=version or (old.version if same else 0),
                number=number or (old.number if same else 0),
            )
        )

    def left(self, name: str, incarnation: int) -> Moved | None:
        """The broker has left in order.  Raises StaleError for an older instance."""
        self.check(name, incarnation)
        old = self._rows.get(name, BrokerRow(name))
        return self._put(replace(old, state=BrokerState.LEFT, incarnation=incarnation))

    def find_silent(self, now_ms: int) -> list[Moved]:
        """The changes of brokers that have been silent for too long."""
        found = (self._aged(row, now_ms - row.last_heard_ms) for row in list(self._rows.values()))
        return [moved for moved in found if moved is not None]

    def excuse(self, late_ms: int, now_ms: int) -> None:
        """This broker itself stood still for ``late_ms``: what the others said meanwhile may still be on its way.

        Counts EXCUSES_MAX times for a broker between two of its messages, so that one that is lost is seen as lost by
        a broker that is always late, too.
        """
        for row in list(self._rows.values()):
            if row.name != self.me and row.state in HEARD and row.excused < EXCUSES_MAX:
                heard_ms = min(row.last_heard_ms + late_ms, now_ms)
                self._rows[row.name] = replace(row, last_heard_ms=heard_ms, excused=row.excused + 1)

    def _aged(self, row: BrokerRow, silent_ms: int) -> Moved | None:
        if row.name == self.me or row.state not in HEARD:
            return None
        before = row.state
        if before is BrokerState.UP and silent_ms >= self._suspect_ms:
            self._put(replace(row, state=BrokerState.SUSPECT))
        row = self._rows[row.name]
        if row.state is not BrokerState.UP and silent_ms >= self._down_ms:
            self._put(replace(row, state=BrokerState.DOWN))
        after = self._rows[row.name].state
        return Moved(row.name, before, after) if after is not before else None

    def next_ms(self) -> int | None:
        """Return when :meth:`find_silent` can change something at the earliest, if nothing is heard until then."""
        due = [
            row.last_heard_ms + (self._suspect_ms if row.state is BrokerState.UP else self._down_ms)
            for row in self._rows.values()
            if row.state in HEARD and row.name != self.me
        ]
        return min(due, default=None)

    def operating(self, now_ms: int) -> int:
        """This broker is integrated now; its joined number."""
        mine = self._rows[self.me]
        joined = max([now_ms, *(row.joined + 1 for row in self._rows.values())])
        self._put(replace(mine, state=BrokerState.UP, joined=joined))
        return joined

    def progress(self, number: int) -> None:
        """This broker's copy of the record goes up to ``number``."""
        self._rows[self.me] = replace(self._rows[self.me], number=number)

    def expect(self, names: Iterable[str]) -> None:
        """The brokers of the cluster by configuration: new ones are down until heard, others go unless heard."""
        wanted = dict.fromkeys(names)
        for name in wanted:
            if name not in self._rows:
                self._rows[name] = BrokerRow(name)
                self.version += 1
        for name, row in list(self._rows.items()):
            if name not in wanted and name != self.me and row.state not in HEARD:
                del self._rows[name]
                self.version += 1

    def _put(self, row: BrokerRow) -> Moved | None:
        old = self._rows.get(row.name, BrokerRow(row.name))
        self._rows[row.name] = row
        restarted = row.incarnation != old.incarnation
        if row.state is old.state and row.joined == old.joined and row.version == old.version and not restarted:
            return None
        assert restarted or row.state is old.state or row.state in NEXT[old.state], (old, row)
        self.version += 1
        return Moved(row.name, old.state, row.state, restarted)

    # ---- what is known

    def __iter__(self) -> Iterator[str]:
        """All names."""
        return iter(self._rows)

    def broker_rows(self) -> tuple[BrokerRow, ...]:
        """Return the rows by name."""
        return tuple(self._rows[name] for name in sorted(self._rows))

    def broker_row(self, name: str) -> BrokerRow:
        """A broker that is not known is down."""
        return self._rows.get(name, BrokerRow(name))

    def state(self, name: str) -> BrokerState:
        return self.broker_row(name).state

    def live(self) -> tuple[str, ...]:
        """Brokers that are integrated and not given up, the eldest first; this one among them when it is operating."""
        return tuple(row.name for row in sorted((r for r in self._rows.values() if r.live), key=lambda row: row.order))

    def heard_peers(self) -> tuple[str, ...]:
        """Other brokers that live, integrated or not, by name."""
        return tuple(name for name, row in sorted(self._rows.items()) if row.state in HEARD and name != self.me)

    def eldest(self) -> BrokerRow | None:
        """The live broker that joined first."""
        return min((row for row in self._rows.values() if row.live), key=lambda row: row.order, default=None)

    def coordinator(self) -> str:
        """Name of the eldest; "" while no broker is operating."""
        found = self.eldest()
        return found.name if found is not None else ""

    @property
    def joined(self) -> int:
        return self._rows[self.me].joined
