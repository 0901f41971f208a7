"""Pool: a maximum of messages and bytes that destinations of one broker have together, and one host's share of it.

The broker divides a pool among its hosts.  What a host was granted is its *lease*: it admits messages as long as what
its destinations hold stays within the lease, and asks the broker for more before it refuses any.  The lease is a number
of messages and a number of bytes, each -1 where the pool has no such limit.

Senders that find no room wait here, in order of arrival.  Policy FIFO: while one waits, all later ones wait behind it,
even those that would fit.  Policy Preemptive: whoever fits is let in, but blocks of one producer stay in order.

A share is *whole* when the broker could not grant it more.  Any other is short only once the broker has said so to a
question that was asked after the sender came; a broker that says nothing for ``ANSWER_MS`` counts as having said so, so
that every wait ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

FIFO: Final = "FIFO"
WAITING_MAX: Final = 1_000
"""Blocks that wait at one share; a further one is refused at once."""
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of messages that wait at one share."""
RETRY_MS: Final = 25
"""A share that was told that the pool is short asks again after so long, while senders wait."""
ANSWER_MS: Final = 5_000
"""So long a sender waits at most to learn whether the pool has room, beside its own send timeout."""
OWED_MS: Final = 100
"""So long room is set aside for another host that waits, unless the broker says it again."""
VERSIONS_AHEAD: Final = 1 << 16
"""By so much a share surpasses the version of a process before it, which may have begun some more that nobody heard."""
_NEVER: Final = -(1 << 62)


class PoolLimits(NamedTuple):
    """The maxima of a pool, -1 for none, its policy, and the words for them in the text of a refusal."""

    messages: int
    bytes: int
    policy: str = FIFO
    owner: str = "the broker"
    messages_name: str = "imq.system.max_count"
    bytes_name: str = "imq.system.max_size"


class PoolRoom(NamedTuple):
    """Room for so many messages, and so many bytes."""

    messages: int
    bytes: int


@dataclass(eq=False, slots=True)
class PoolWaiter:
    """A block that waits for room. ``key``: its producer; ``what`` is the caller's."""

    messages: int
    bytes: int
    since_ms: int
    deadline_ms: int
    key: int
    what: Any


class Statement(NamedTuple):
    """What a host says of its share: since ``version`` its lease was at least this, what its destinations hold, and
    what more it needs now for the first that waits."""

    version: int
    lease: PoolRoom
    used: PoolRoom
    need: PoolRoom
    waiting: int


class PoolShare:
    """See the module.

    limits   of the whole pool
    alone    nobody else has a share: the lease is the whole pool
    used     messages and bytes of the destinations that the pool is charged for
    version  grows when the host gives some of its lease back; a grant for an older one is void.  The first is above
             the one given
    refused  messages that were refused for lack of room, by sends of clients
    """

    __slots__ = (
        "_asked_ms",
        "_low_bytes",
        "_low_messages",
        "_new",
        "_next_ask_ms",
        "_owed",
        "_owed_until_ms",
        "_short_ms",
        "_waiting_bytes",
        "_wanted",
        "alone",
        "asking",
        "lease",
        "limits",
        "name",
        "refused",
        "used_bytes",
        "used_messages",
        "version",
        "waiting",
    )

    def __init__(self, name: str, limits: PoolLimits, *, alone: bool, version: int = 0) -> None:
        self.name = name
        self.limits = limits
        self.alone = alone
        self.used_messages = self.used_bytes = 0
        self.version = version
        self.waiting: list[PoolWaiter] = []
        self.asking = False
        """The broker was asked and has not answered."""
        self.refused = 0
        self.lease = PoolRoom(0, 0)
        self._waiting_bytes = 0
        self._owed = PoolRoom(0, 0)
        self._owed_until_ms = 0
        self._asked_ms = self._short_ms = _NEVER
        """When the broker was asked last, and when it was asked what it answered with "short" last."""
        self._new = True
        """The broker has granted it nothing yet: it is asked before somebody needs it."""
        self._next_ask_ms = _NEVER
        self._wanted = PoolRoom(0, 0)
        """What the host itself would send, and has no room for."""
        self._low_messages = self._low_bytes = 0
        self.surrender()

    # ---- the lease -------------------------------------------------------------------------------------------------

    def configure(self, limits: PoolLimits) -> None:
        """The pool has other limits: nothing but what is used is leased until the broker grants it again."""
        if limits != self.limits:
            self.limits = limits
            self.surrender()

    def surrender(self) -> None:
        """Give back what is not used."""
        self.version += 1
        limits = self.limits
        if self.alone:
            self.lease = PoolRoom(limits.messages, limits.bytes)
            return
        self.lease = PoolRoom(
            self.used_messages if limits.messages >= 0 else -1, self.used_bytes if limits.bytes >= 0 else -1
        )
        self._short_ms = self._next_ask_ms = _NEVER
        self._low_messages = self._low_bytes = 0

    def set_aside(self, owed: PoolRoom, now_ms: int) -> None:
        """Senders of another host come first: so much of what becomes free is not for those of this one."""
        self._owed, self._owed_until_ms = owed, now_ms + OWED_MS

    def granted(self, version: int, lease: PoolRoom, ahead: PoolRoom, *, short: bool, now_ms: int) -> None:
        """The broker has answered: the lease is this at least. ``short``: the pool has no more; ``ahead``: how much of
        the lease was more than asked for, so that the next question can come before it is used up."""
        self.asking = False
        if version != self.version:
            return
        self._wanted, self._new = PoolRoom(0, 0), False
        self.lease = PoolRoom(_larger(self.lease.messages, lease.messages), _larger(self.lease.bytes, lease.bytes))
        self._low_messages, self._low_bytes = ahead.messages // 2, ahead.bytes // 2
        if short:
            self._short_ms = self._asked_ms
        if short or (self.waiting and not self.fits(self.waiting[0].messages, self.waiting[0].bytes)):
            self._next_ask_ms = now_ms + RETRY_MS

    def unanswered(self, now_ms: int) -> None:
        """The broker could not be asked."""
        self.asking = False
        self._next_ask_ms = now_ms + RETRY_MS

    def surpass(self, newest: int) -> None:
        """The broker takes nothing but statements from ``newest`` on: begin a later version, if that is not this
        share's own."""
        self.asking = False
        if newest > self.version:
            self.version = newest + VERSIONS_AHEAD
            self._new = True

    @property
    def whole(self) -> bool:
        """Nobody could grant it more."""
        limits, lease = self.limits, self.lease
        return self.alone or (_at_least(lease.messages, limits.messages) and _at_least(lease.bytes, limits.bytes))

    def wants_more(self, now_ms: int) -> bool:
        """Whether to ask the broker now."""
        if self.asking or now_ms < self._next_ask_ms or self.whole:
            return False
        if self.waiting or self._new or self._wanted != (0, 0):
            return True
        lease = self.lease
        return (0 <= lease.messages < self.used_messages + self._low_messages) or (
            0 <= lease.bytes < self.used_bytes + self._low_bytes
        )

    def begin_question(self, now_ms: int) -> Statement:
        """The question; whoever calls this tells :meth:`granted` or :meth:`unanswered` what came of it."""
        self.asking, self._asked_ms = True, now_ms
        return self.statement()

    def statement(self) -> Statement:
        wanted, used = self._wanted, PoolRoom(self.used_messages, self.used_bytes)
        if self.waiting:
            first = self.waiting[0]
            wanted = PoolRoom(max(wanted.messages, first.messages), max(wanted.bytes, first.bytes))
        need = PoolRoom(0, 0)
        if wanted != (0, 0):
            need = PoolRoom(
                max(used.messages + wanted.messages - self.lease.messages, 0) if self.lease.messages >= 0 else 0,
                max(used.bytes + wanted.bytes - self.lease.bytes, 0) if self.lease.bytes >= 0 else 0,
            )
        return Statement(self.version, self.lease, used, need, len(self.waiting))

    def want(self, messages: int, nbytes: int) -> None:
        """The host itself would send so much and has no room: ask for it, although nobody waits."""
        if not self.whole:
            self._wanted = PoolRoom(messages, nbytes)

    # ---- charges ---------------------------------------------------------------------------------------------------

    def charge(self, messages: int, nbytes: int) -> None:
        """A destination holds so much more, or less."""
        self.used_messages += messages
        self.used_bytes += nbytes

    def cover(self) -> None:
        """A destination came that holds messages already: the lease is at least what is used."""
        lease = self.lease
        over = 0 <= lease.messages < self.used_messages or 0 <= lease.bytes < self.used_bytes
        if over and not self.alone:
            self.version += 1
            self.lease = PoolRoom(_larger(lease.messages, self.used_messages), _larger(lease.bytes, self.used_bytes))
            self._new = True  # The broker has to know, so that it grants others less.

    # ---- admission -------------------------------------------------------------------------------------------------

    def fits(self, messages: int, nbytes: int) -> bool:
        lease, owed = self.lease, self._owed
        return (lease.messages < 0 or self.used_messages + owed.messages + messages <= lease.messages) and (
            lease.bytes < 0 or self.used_bytes + owed.bytes + nbytes <= lease.bytes
        )

    def refusal(self, messages: int = 1, nbytes: int = 0) -> str:
        """Why so many more messages are not taken. ``nbytes``: of one message, which may be larger than the pool."""
        limits, lease = self.limits, self.lease
        if 0 < limits.bytes < nbytes:
            return (
                f"a message of {nbytes} bytes is larger than {limits.owner} allows to all together,"
                f" {limits.bytes_name}={limits.bytes}; send it smaller or raise the limit"
            )
        if self._new and not self.whole:
            return f"{limits.owner} has not said in time whether there is room within its limits; try again"
        if 0 <= lease.messages < self.used_messages + self._owed.messages + messages:
            return f"{limits.owner} holds its {limits.messages_name}={limits.messages} messages; {_HELP}"
        return (
            f"{limits.owner} has no room for the message within its {limits.bytes_name}={limits.bytes} bytes; {_HELP}"
        )

    # ---- waiting ---------------------------------------------------------------------------------------------------

    def must_wait(self, messages: int, nbytes: int, key: int) -> bool:
        """Whether a block has to wait for others, or for room."""
        if self.waiting and (self.limits.policy == FIFO or any(waiter.key == key for waiter in self.waiting)):
            return True
        return not self.fits(messages, nbytes)

    def has_room_to_wait(self, nbytes: int) -> bool:
        return len(self.waiting) < WAITING_MAX and self._waiting_bytes + nbytes <= WAITING_BYTES_MAX

    def wait(self, waiter: PoolWaiter) -> None:
        self.waiting.append(waiter)
        self._waiting_bytes += waiter.bytes

    def leave(self, waiter: PoolWaiter) -> None:
        """It waits no longer."""
        self.waiting.remove(waiter)
        self._waiting_bytes -= waiter.bytes

    def take_next(self, now_ms: int) -> tuple[PoolWaiter, bool] | None:
        """The next whose waiting is over, taken out: because it fits, or because its time is over. With it whether it
        may have what room there is: others that wait before it come first."""
        if now_ms >= self._owed_until_ms:
            self._owed = PoolRoom(0, 0)
        fifo, before = self.limits.policy == FIFO, set[int]()
        for at, waiter in enumerate(self.waiting):
            first = at == 0 if fifo else waiter.key not in before
            if (first and self.fits(waiter.messages, waiter.bytes)) or self._over(waiter, now_ms):
                del self.waiting[at]
                self._waiting_bytes -= waiter.bytes
                return waiter, first
            before.add(waiter.key)
        return None

    def due_ms(self, now_ms: int) -> int:
        """Return when time alone ends the waiting of somebody, or the broker is to be asked again; somebody waits."""
        soonest = min(
            waiter.deadline_ms if now_ms < waiter.deadline_ms else waiter.since_ms + ANSWER_MS
            for waiter in self.waiting
        )
        if not self.asking and not self.whole:
            soonest = min(soonest, self._next_ask_ms)
        return max(soonest, now_ms + 1)

    def _over(self, waiter: PoolWaiter, now_ms: int) -> bool:
        if now_ms < waiter.deadline_ms:
            return False
        return self._short_ms >= waiter.since_ms or self.whole or now_ms >= waiter.since_ms + ANSWER_MS


class Account:
    """What one destination is charged to a share."""

    __slots__ = ("bytes", "messages", "share")

    def __init__(self, share: PoolShare) -> None:
        self.share = share
        self.messages = self.bytes = 0

    def charge(self, messages: int, nbytes: int) -> None:
        """The destination holds so much now."""
        if messages != self.messages or nbytes != self.bytes:
            self.share.charge(messages - self.messages, nbytes - self.bytes)
            self.messages, self.bytes = messages, nbytes

    def close(self) -> None:
        """The destination is charged elsewhere, or is gone."""
        self.charge(0, 0)


def _larger(one: int, other: int) -> int:
    """Return the larger of two limits; -1 is none."""
    return -1 if one < 0 or other < 0 else max(one, other)


def _at_least(lease: int, most: int) -> bool:
    return lease < 0 or 0 <= most <= lease


_HELP: Final = "consume some or raise the limit"
