"""Takeovers where brokers keep copies of each other's logs: one broker's part in who leads a lost broker's, and when.

The copies alone decide who may lead a log: whoever is told to asks the others for their promise, and a majority that
knows of more refuses it.  So nothing here can lose a message.  What is decided here is whom to tell, so that a lost
broker comes back soon, and once.

The coordinator of the cluster asks the copies of a broker that has been silent for ``after_ms``, and begins once a
majority of each log has answered that it hears no leader: a broker that is cut off from the coordinator alone goes on.
A broker comes back as a whole, at one of its peers, and each of its logs has copies of its own: it is started at a peer
whose copies may lead all of them.  Where there is none, the logs that the chosen peer is behind with are led where they
are best for so long as it takes to bring the peer up to date.

A broker that starts on its own node asks its copies in the same way, and leads again if no other one does: they may
know of more than its own disk, from a takeover that came to nothing.

A broker whose copies are in no majority waits, and everybody can see for what (:meth:`CopyTakeovers.why`).  Between two
changes of a log's leader are ``APART_MS`` at least, unless an administrator asks: the copies say how long ago the last
one was, and any two majorities have a copy in common.  A leader that was told to begin and has ended at once was no
change: for ``SETTLED_MS`` it belongs to the takeover that has told it, which may tell ``TELLS_MAX`` times.  A broker
that was shut down in order is left alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from raybroker.model.errors import ConfigError, IllegalStateError

APART_MS: Final = 30_000
"""Between two changes of leader, so that a broker that cannot live anywhere is not carried round the cluster."""
SETTLED_MS: Final = 5_000
"""From the first time that a takeover has told a copy to lead: what leads within this time is its work."""
TELLS_MAX: Final = 3
"""How often one takeover tells a copy to lead, where what comes of it ends again."""
AGAIN_MS: Final = 1_200
"""Until copies are asked again that were not enough; answers to an earlier asking do not count any more, so it is
longer than they are waited for."""
AGAIN_SOON_MS: Final = 250
"""Where one has answered that it hears a leader: it may notice later than others that this one is lost."""
ATTEMPT_MS: Final = 60_000
"""A takeover that has not come to its end by then has failed, and may be tried again."""

LogEnd = tuple[int, int, int]
"""Where a copy's log ends: number and nonce of the term of the last entry, and its index; the greater is more
recent."""


@dataclass(frozen=True, slots=True)
class HeldCopy:
    """One copy of a log.

    fit      it has a vote, and lacks nothing that it has ever answered for
    end      where its log ends
    led      it hears a leader, or has promised itself to one that is about to begin
    quiet_ms how long ago it has had a part in the election of its leader; None: not since its process began
    """

    fit: bool
    end: LogEnd
    led: bool = False
    quiet_ms: int | None = None


Copies = Mapping[str, HeldCopy]
"""Log of the lost broker → the copy that one of its peers has."""


class CopyStep(Enum):
    """What a takeover does now."""

    ASK = "ask the copies how far they are"
    LEVEL = "bring the copies of one peer up to date"
    START = "start it"


@dataclass(frozen=True, slots=True)
class AskCopies:
    """Have these brokers say how far their copies of a broker's logs are."""

    broker: str
    attempt: int
    peers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LevelCopy:
    """Have the copy of ``leader`` lead a log until that of ``peer`` has all of it, and then no more."""

    broker: str
    attempt: int
    log: str
    leader: str
    peer: str


@dataclass(frozen=True, slots=True)
class StartAt:
    """Start the broker at a peer, whose copies lead from then on."""

    broker: str
    attempt: int
    peer: str


CopyAction = AskCopies | LevelCopy | StartAt


@dataclass(slots=True)
class _Attempt:
    """``number``: of the asking, 0 before the first; ``began_ms``: on the caller's clock; ``asked_ms``: when copies
    were asked last; ``wanted``: by an administrator, or by the broker itself, which starts; ``levels``: logs that are
    being brought up to date."""

    number: int
    began_ms: int
    asked_ms: int
    wanted: bool
    step: CopyStep = CopyStep.ASK
    answers: dict[str, Copies] = field(default_factory=dict)
    levels: set[str] = field(default_factory=set)
    peer: str = ""

    @property
    def again_ms(self) -> int:
        led = any(copy.led for copies in self.answers.values() for copy in copies.values())
        return AGAIN_SOON_MS if led else AGAIN_MS


class CopyTakeovers:
    """The part of broker ``me``.

    sets      broker → the peers that have copies of its logs; it has one itself
    starting  this broker starts, and does not lead its logs yet
    """

    def __init__(self, me: str, after_ms: int) -> None:
        self.me = me
        self.sets: dict[str, tuple[str, ...]] = {}
        self.starting = False
        self._after_ms = after_ms
        self._number = 0
        self._tells: dict[str, tuple[int, int]] = {}
        """Broker → since when its takeover has told others to lead, and how often."""
        self._attempts: dict[str, _Attempt] = {}

    # ---- when

    def looked(
        self, live: Sequence[str], heard: Collection[str], silent_since: Mapping[str, int], now_ms: int
    ) -> list[CopyAction]:
        """Return what is to be done now.

        live          brokers that operate as far as this one knows, the coordinator first
        heard         those whose heartbeats come, operating or not
        silent_since  broker → when it was heard last, of those that are down and have not said goodbye
        """
        mine = bool(live) and live[0] == self.me and not self.starting
        for name, attempt in list(self._attempts.items()):
            over = name in heard or now_ms - attempt.began_ms >= ATTEMPT_MS
            if over or name not in self.sets or not (mine or attempt.wanted):
                del self._attempts[name]
        if self.starting and self.me in self.sets and self.me not in self._attempts:
            self._begin_attempt(self.me, now_ms, wanted=True)
        for name, since_ms in sorted(silent_since.items()) if mine else ():
            due = name in self.sets and name not in heard and now_ms - since_ms >= self._after_ms
            if due and name not in self._attempts:
                self._begin_attempt(name, now_ms, wanted=False)
        out: list[CopyAction] = []
        for name, attempt in self._attempts.items():
            if attempt.step is CopyStep.ASK and now_ms - attempt.asked_ms >= attempt.again_ms:
                self._number += 1
                attempt.number, attempt.asked_ms, attempt.answers = self._number, now_ms, {}
                out.append(AskCopies(name, attempt.number, (name, *self.sets[name])))
        return out

    def request_takeover(self, name: str, heard: Collection[str], now_ms: int) -> None:
        """An administrator wants a broker to be taken over now; :meth:`looked` begins.

        Raises ConfigError for one whose logs have no copies, and IllegalStateError for one that lives.
        """
        if name not in self.sets:
            known = ", ".join(sorted(self.sets)) or "none"
            raise ConfigError(
                f"broker {name!r} has no copies of what it stores at other brokers; those that do: {known}"
            )
        if name in heard or name == self.me:
            raise IllegalStateError(
                f"broker {name} is up, and nobody takes over what lives: raybroker shutdown bkr -b {name} stops it"
            )
        if name in self._attempts:
            raise IllegalStateError(f"broker {name} is being taken over: {self.why(name)}")
        self._begin_attempt(name, now_ms, wanted=True)

    def urge(self, name: str, now_ms: int) -> None:
        """An administrator does not wait for the time between two changes of leader; the copies decide as ever."""
        if name not in self._attempts:
            self._begin_attempt(name, now_ms, wanted=True)
        self._attempts[name].wanted = True

    def _begin_attempt(self, name: str, now_ms: int, *, wanted: bool) -> None:
        self._attempts[name] = _Attempt(0, now_ms, now_ms - AGAIN_MS, wanted)

    # ---- whom

    def answered(self, ask: AskCopies, peer: str, copies: Copies) -> list[CopyAction]:
        """A peer has said how far its copies are; ``copies``: none where it has none.  Return what is to be done."""
        attempt = self._current(ask.broker, ask.attempt)
        if attempt is None or attempt.step is not CopyStep.ASK or peer not in ask.peers:
            return []
        attempt.answers[peer] = copies
        if self.missing(ask.broker) or self._too_soon_ms(ask.broker, attempt):
            return []
        majority = self._majority(ask.broker)
        first = ask.broker if ask.broker == self.me else ""
        candidates = {self.me} if first and _is_able(attempt.answers, first) else set(self.sets[ask.broker])
        attempt.peer = best_peer(attempt.answers, candidates, majority)
        if not attempt.peer:
            return []
        since_ms, tells = self._told(ask.broker, attempt)
        self._tells[ask.broker] = since_ms, tells + 1
        behind = leads_behind(attempt.answers, attempt.peer, majority)
        if not behind:
            return [self._start_at(ask.broker, attempt)]
        attempt.step, attempt.levels = CopyStep.LEVEL, set(behind)
        return [
            LevelCopy(ask.broker, attempt.number, log, leader, attempt.peer) for log, leader in sorted(behind.items())
        ]

    def levelled(self, level: LevelCopy) -> list[CopyAction]:
        """A peer's copy of a log has all of it.  Return what is to be done."""
        attempt = self._current(level.broker, level.attempt)
        if attempt is None or attempt.step is not CopyStep.LEVEL:
            return []
        attempt.levels.discard(level.log)
        return [] if attempt.levels else [self._start_at(level.broker, attempt)]

    def _told(self, name: str, attempt: _Attempt) -> tuple[int, int]:
        """Return since when the takeover of which this is an attempt has told others to lead, and how often."""
        since_ms, tells = self._tells.get(name, (attempt.asked_ms, 0))
        return (since_ms, tells) if attempt.asked_ms - since_ms < SETTLED_MS else (attempt.asked_ms, 0)

    def _too_soon_ms(self, name: str, attempt: _Attempt) -> int:
        """Return how long it is until there may be another leader; 0: there may be one now."""
        if 0 < self._told(name, attempt)[1] < TELLS_MAX:
            return 0
        quiet = (copy.quiet_ms for copies in attempt.answers.values() for copy in copies.values())
        least_ms = min((ms for ms in quiet if ms is not None), default=APART_MS)
        return 0 if attempt.wanted else max(APART_MS - least_ms, 0)

    def _start_at(self, name: str, attempt: _Attempt) -> StartAt:
        attempt.step = CopyStep.START
        return StartAt(name, attempt.number, attempt.peer)

    def ended(self, action: CopyAction) -> None:
        """The broker takes clients, or a step has failed: the attempt is over."""
        if self._current(action.broker, action.attempt) is not None:
            del self._attempts[action.broker]

    def _current(self, name: str, number: int) -> _Attempt | None:
        found = self._attempts.get(name)
        return found if found is not None and found.number == number and name in self.sets else None

    def _majority(self, name: str) -> int:
        return (1 + len(self.sets[name])) // 2 + 1

    # ---- what is shown

    def missing(self, name: str) -> dict[str, int]:
        """Return log → how many copies without a leader it lacks for a majority; "" → all, while nobody answers."""
        attempt = self._attempts.get(name)
        if attempt is None:
            return {}
        need = self._majority(name)
        logs = {log for copies in attempt.answers.values() for log in copies}
        have = {log: sum(_has_vote(copies, log) for copies in attempt.answers.values()) for log in logs}
        return {log: need - count for log, count in have.items() if count < need} if logs else {"": need}

    def why(self, name: str) -> str:
        """Return what a takeover waits for, in words; "" where there is none."""
        attempt = self._attempts.get(name)
        if attempt is None:
            return ""
        match attempt.step:
            case CopyStep.START:
                return f"it starts at broker {attempt.peer}"
            case CopyStep.LEVEL:
                return (
                    f"the copies of broker {attempt.peer} are brought up to date: {', '.join(sorted(attempt.levels))}"
                )
        lacking = self.missing(name)
        if not lacking and (wait_ms := self._too_soon_ms(name, attempt)):
            return f"its leader has just changed: another one comes {APART_MS} ms later, in {wait_ms} ms"
        if not lacking:
            return (
                "no other broker has a copy of each of its logs that may lead: start one that has, or repair its copy"
            )
        silent = [peer for peer in self.sets[name] if peer not in attempt.answers]
        which = ", ".join(f"{log} {count}" for log, count in sorted(lacking.items()) if log) or str(lacking.get("", 0))
        led = [peer for peer, copies in attempt.answers.items() if any(copy.led for copy in copies.values())]
        return (
            f"no majority of its copies has answered that it hears no leader: {which} more are needed; silent:"
            f" {', '.join(silent) or 'none'}; led: {', '.join(led) or 'none'}"
        )


def _has_vote(copies: Copies, log: str) -> bool:
    return log in copies and copies[log].fit and not copies[log].led


def _is_able(answers: Mapping[str, Copies], peer: str) -> bool:
    """Whether a peer has a copy with a vote of every log."""
    copies = answers.get(peer, {})
    return all(_has_vote(copies, log) for held in answers.values() for log in held)


def best_peer(answers: Mapping[str, Copies], candidates: Collection[str], majority: int) -> str:
    """Return the peer at which a broker is to be started: the one that may lead most of its logs, and of those that
    has the most recent; "" where none has a copy of every log that can have a vote."""
    logs = {log for copies in answers.values() for log in copies}
    able = [peer for peer in answers if peer in candidates and _is_able(answers, peer)]

    def rank(peer: str) -> tuple[int, int, str]:
        own = answers[peer]
        leads = sum(_may_lead(answers, log, own[log], majority) for log in logs)
        return leads, sum(own[log].end[2] for log in logs), peer

    return max(able, key=rank, default="")


def leads_behind(answers: Mapping[str, Copies], peer: str, majority: int) -> dict[str, str]:
    """Return log → the peer that should lead it first, of those whose copy at ``peer`` may not."""
    own = answers[peer]
    found: dict[str, str] = {}
    for log, copy in own.items():
        if not _may_lead(answers, log, copy, majority):
            fit = {other: copies[log].end for other, copies in answers.items() if _has_vote(copies, log)}
            found[log] = max(fit, key=lambda other: (fit[other], other))
    return found


def _may_lead(answers: Mapping[str, Copies], log: str, copy: HeldCopy, majority: int) -> bool:
    """Whether a majority would promise to follow this copy: those with a vote whose log is not more recent."""
    votes = (copies[log] for copies in answers.values() if _has_vote(copies, log))
    return copy.fit and sum(other.end <= copy.end for other in votes) >= majority
