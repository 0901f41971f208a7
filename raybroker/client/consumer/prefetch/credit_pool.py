"""One limit for all members of a consumer: who may send how much (over several brokers).

A consumer's members are its attachments to one destination on several brokers, or to several topics.  The law:

    what was granted and has not arrived + what is used, over all members  <=  the limit
    a member that has nothing to send keeps nothing that another one could use
    whoever has something gets its part, and is not passed over for ever

"Used" is what waits in a buffer; with the rule of prefetch, what is not acknowledged.  Members are asked by draining:
one that has messages says so (:meth:`CreditPool.ready`), gets credit, sends what it has at once, and what it does not
need is void (:meth:`CreditPool.drained`).  While one member alone has messages its credit stands, as with a single
broker, and it is taken back as soon as another one is ready.

Everything is called with the lock of the consumer's buffers held; nothing here is sent: ``due`` is called when
:meth:`CreditPool.grants` has something to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from raybroker.client.consumer.prefetch.flow_control import threshold_messages

UNLIMITED_GRANT: Final = 1 << 24
"""Messages that a member may send at a time where there is no limit."""
STANDS_AFTER: Final = 3
"""A member that was the only one to get credit so often in a row gets it to keep."""


class CreditGrant(NamedTuple):
    """Credit for a member: it stays with the member (``stands``) or is to be drained; 0 to drain takes it back."""

    share: Share
    credit: int
    stands: bool


class Share:
    """One member's part of the credit pool; to its buffer it is what :class:`CreditFlow` is to a single attachment."""

    __slots__ = ("buffered", "credit_pool", "granted", "paused", "recalling", "standing", "used")

    def __init__(self, credit_pool: CreditPool) -> None:
        self.credit_pool = credit_pool
        self.buffered = 0
        self.used = 0
        self.granted = 0
        self.standing = False
        """It keeps what it was granted until it has sent that much."""
        self.recalling = False
        """It was asked to give standing credit back, and has not answered."""
        self.paused = False
        """It gives back what it has (recover), and gets no credit meanwhile."""

    @property
    def limit(self) -> int:
        return self.credit_pool.limit

    def arrived(self, count: int) -> int:
        """``count`` messages came; returns how many to ask for with standing credit, 0 for none."""
        self.buffered += count
        return self.credit_pool.arrived(self, count)

    def consumed(self, count: int) -> int:
        """``count`` messages were handed to the application; returns as :meth:`arrived`."""
        self.buffered -= count
        credit_pool = self.credit_pool
        if credit_pool.by_acks:
            return 0
        self.used -= count
        credit_pool.used -= count
        if self.standing:
            return credit_pool.grant_rest(self)
        if credit_pool.wanting:
            credit_pool.check()
        return 0

    def dropped(self, count: int) -> int:
        """``count`` messages have left the buffer, and the application has not got them; returns as :meth:`arrived`."""
        return self.consumed(count)

    def settled(self, count: int) -> None:
        """``count`` messages were acknowledged, or given back one by one."""
        self.credit_pool.settled(self, count)

    def wanted(self) -> int:
        """The application waits."""
        self.credit_pool.poll()
        return 0

    def restart(self) -> None:
        """Its buffer is empty, and what it was granted is void."""
        self.credit_pool.restart(self)


class Wish:
    """What the application wants of a pool with a limit of 0: ``count`` messages here or asked for, while it waits."""

    __slots__ = ("behind", "count", "drains", "waits")

    def __init__(self) -> None:
        self.count = 1
        self.waits = False
        self.drains: list[asyncio.Future[None]] = []
        """Who waits until no member has anything more for it."""
        self.behind: set[Share] = set()
        """Members that are to be asked once they have answered what they were asked before."""

    def end_drains(self) -> None:
        drains, self.drains, self.waits = self.drains, [], False
        for drain in drains:
            if not drain.done():
                drain.set_result(None)


class CreditPool:
    """The shares of one consumer. ``style`` and ``percent``: see ConsumerOptions.

    by_acks  a message is used until it is acknowledged; otherwise until it is handed to the application
    """

    def __init__(self, style: str, percent: int, *, by_acks: bool, due: Callable[[], None]) -> None:
        self.style = style
        self.by_acks = by_acks
        self.limit = 0
        self.used = 0
        self.granted = 0
        self.shares: dict[Share, int] = {}
        """Each with the limit that its broker allows; -1 before that is known, and for none."""
        self.wanting: dict[Share, None] = {}
        """Those that may have something and hold no credit; whoever got some last is last."""
        self._percent = percent
        self._threshold = 0
        self._full = False
        self.wish = Wish()
        self._recalled: list[Share] = []
        self._last: Share | None = None
        self._streak = 0
        self._due = due
        self._said = False
        self._ended = False

    @property
    def shared(self) -> bool:
        return len(self.shares) > 1

    def end_grants(self) -> None:
        """Nobody gets anything any more."""
        self._ended = self._said = True

    def new_share(self) -> Share:
        return Share(self)

    def asks(self, limit: int) -> int:
        """How many messages a member asks its broker for when it is opened, with that limit of the consumer."""
        return limit

    # ---- members come and go -----------------------------------------------------------------------------------------

    def join(self) -> Share:
        """A new member; from the second one on all of them are drained."""
        share = self.new_share()
        self.shares[share] = -1
        self._recall_others(share)
        return share

    def leave(self, share: Share) -> None:
        """A member is gone, and everything that it had."""
        if share in self.shares:
            self.restart(share)
            del self.shares[share]
            if self._last is share:
                self._last, self._streak = None, 0
            self._fix_limit()
            self.check()

    def opened(self, share: Share, limit: int, *, drained: bool, most: int | None = None) -> None:
        """A member was attached; it holds the whole limit unless it is ``drained``.

        ``most``: what its broker allows where the limit may become another one; None: it is the limit for good.
        """
        if share not in self.shares:
            return
        self.shares[share] = limit if most is None else most
        self._fix_limit()
        if not drained:
            share.standing = True
            self._grant(share, limit if self.style == "credit" and limit > 0 else 0)
            if self.shared:
                self._recall(share)
        self.check()

    def _fix_limit(self) -> None:
        finite = [limit for limit in self.shares.values() if limit >= 0]
        self.limit = min(finite, default=-1)
        self._threshold = threshold_messages(self.limit, self._percent) if self.limit > 0 else 0
        self._full = self._full and self.used * 2 > self.limit > 0

    def restart(self, share: Share) -> None:
        """A member's buffer is empty and its credit void."""
        self._void(share)
        share.standing = share.recalling = share.paused = False
        self.wish.behind.discard(share)
        if share in self._recalled:
            self._recalled.remove(share)
        self.check()
        self._end_drains()

    def _void(self, share: Share) -> None:
        self.used -= share.used
        self.granted -= share.granted
        share.buffered = share.used = share.granted = 0
        self.wanting.pop(share, None)
        if self.used * 2 <= self.limit:
            self._full = False

    def pause(self, share: Share) -> bool:
        """A member is about to give everything back; True when it is to be drained before.

        Whatever it says until then is void.
        """
        self.wanting.pop(share, None)
        share.paused = True
        share.recalling = False
        first = share in self._recalled or (share.standing and self.shared)
        if first:
            if share in self._recalled:
                self._recalled.remove(share)
            share.standing = False
        return first

    def resumed(self, share: Share) -> None:
        """It has given everything back, and may have something again."""
        if share not in self.shares:
            return
        self._void(share)
        share.paused = False
        if share.standing or share.recalling:
            self._grant(share, max(self.limit, 0) if self.style == "credit" or share.recalling else 0)
            self.check()
        else:
            self.ready(share)

    # ---- what members say --------------------------------------------------------------------------------------------

    def ready(self, share: Share) -> None:
        """It has something that it could send."""
        if share in self.shares and not (share.standing or share.recalling or share.paused):
            self.wanting[share] = None
            self._recall_others(share)
            self.check()

    def drained(self, share: Share) -> None:
        """It has nothing more: what it had of credit is void. One that gave standing credit back is asked anew."""
        if not (share.standing or share.paused):
            self.wanting.pop(share, None)
            self.granted -= share.granted
            share.granted = 0
            if share.recalling:
                share.recalling = False
                self.ready(share)
            self._ask_again(share)
            self.check()
            self._end_drains()

    def arrived(self, share: Share, count: int) -> int:
        share.used += count
        self.used += count
        came = min(count, share.granted)
        share.granted -= came
        self.granted -= came
        self.wish.waits = bool(self.wish.drains)
        if self.by_acks and self.used >= self.limit > 0:
            self._full = True
        if share.standing:
            return self.grant_rest(share)
        if not share.granted and not self._ask_again(share):
            self.ready(share)
        self.check()
        self._end_drains()
        return 0

    def settled(self, share: Share, count: int) -> None:
        if self.by_acks:
            share.used -= count
            self.used -= count
            if self.used * 2 <= self.limit:
                self._full = False
            self.check()

    def poll(self) -> None:
        """The application waits, which with a limit of 0 is when messages are asked for."""
        if self.limit == 0:
            self.wish.waits = True
            self.check()

    def start_drain(self, drained: asyncio.Future[None]) -> None:
        """Ask every member whether it has more for what is wished; ``drained`` is done when none has."""
        self.wish.drains.append(drained)
        self.wish.waits = True
        for share, limit in self.shares.items():
            if limit < 0 or share.recalling or share.paused:
                continue
            if share.granted and not share.standing:
                self.wish.behind.add(share)
            else:
                self._recall(share)
        self._end_drains()

    def _ask_again(self, share: Share) -> bool:
        """A member has answered what it was asked before a drain: ask it now, if it is to be."""
        if share not in self.wish.behind:
            return False
        self.wish.behind.discard(share)
        self._recall(share)
        return True

    def _end_drains(self) -> None:
        if not self.wish.drains or self._recalled or self.granted or self.wish.behind:
            return
        if any(share.recalling for share in self.shares):
            return
        if not (self.wanting and self._free() > 0):
            self.wish.end_drains()

    def grant_rest(self, share: Share) -> int:
        """How much the one whose credit stands asks for; 0 for none."""
        if self.style != "credit" or self.limit <= 0 or share.granted or self.used > self._threshold:
            return 0
        credit = self.limit - self.used - self.granted
        self._grant(share, credit)
        return credit

    # ---- who gets what -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Say once that there are grants."""
        if not self._said and (self._recalled or self._free() > 0):
            self._said = True
            self._due()

    def _free(self) -> int:
        """What can be granted now to those who want it."""
        if self.limit == 0:
            asks = self.wish.waits and (bool(self.wanting) or self._stands() is not None)
            return max(self.wish.count - self.granted - self.used, 0) if asks else 0
        if not self.wanting:
            return 0
        if self.limit < 0:
            return UNLIMITED_GRANT * len(self.wanting)
        busy = self.used + self.granted
        if self.by_acks:
            return 0 if self._full else self.limit - busy
        return self.limit - busy if busy <= self._threshold else 0

    def grants(self) -> list[CreditGrant]:
        """The grants that are due now; they count as given."""
        if self._ended:
            return []
        self._said = False
        found = [CreditGrant(share, 0, stands=False) for share in self._recalled]
        self._recalled.clear()
        free = self._free()
        stands = self._stands()
        if free > 0 and self.limit == 0 and stands is not None:
            self._grant(stands, free)
            return [*found, CreditGrant(stands, free, stands=True)]
        takers = list(self.wanting)[: max(free, 0)]
        for index, share in enumerate(takers):
            del self.wanting[share]
            credit = free // len(takers) + (index < free % len(takers))
            share.standing = self._earns(share, takers)
            self._grant(share, credit)
            found.append(CreditGrant(share, credit, share.standing))
        return found

    def _earns(self, share: Share, takers: list[Share]) -> bool:
        """Whether a member gets credit to keep: no other has had any for a while."""
        if self.style != "credit" or self.limit <= 0 or len(takers) > 1 or self.granted:
            self._last, self._streak = None, 0
            return False
        self._streak = self._streak + 1 if share is self._last else 1
        self._last = share
        return self._streak > STANDS_AFTER

    def _grant(self, share: Share, credit: int) -> None:
        share.granted += credit
        self.granted += credit

    def _stands(self) -> Share | None:
        return next((share for share in self.shares if share.standing), None)

    def _recall_others(self, share: Share) -> None:
        for other in self.shares:
            if other is not share and other.standing:
                self._recall(other)

    def _recall(self, share: Share) -> None:
        """Take back the credit of a member; until it has said so, it may send all of it, and gets no more."""
        share.standing = False
        share.recalling = True
        self.wanting.pop(share, None)  # What it was granted before its answer came, the answer would void.
        self._last, self._streak = None, 0
        if self.style == "prefetch" and self.limit > 0:
            self._grant(share, max(self.limit - share.used, 0))
        self._recalled.append(share)
        self.check()
