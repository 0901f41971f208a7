"""Pools of a host: which destination is charged to which, and this host's share of each.

The limits of the whole broker, imq.system.max_count and imq.system.max_size, are one pool.  All destinations are
charged to it, also temporary and auto-created ones, but for two kinds: mq.sys.dmq, where dead messages always have a
place and which has limits of its own, and metrics topics, which carry the broker's own messages.  Without limits there
is no pool and no account, and a message costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from raybroker.core.admission.pool_share import Account, PoolLimits, PoolShare, Room
from raybroker.core.blocks.block_index import BlockIndex
from raybroker.core.policy import Policy
from raybroker.engine.blocked_sends import REPOINTED, BlockedSends
from raybroker.engine.destination_registry import DMQ
from raybroker.engine.observers import Observers
from raybroker.engine.ports import Notice
from raybroker.model.names import is_metrics_topic
from raybroker.model.settings import ConfigView

SYSTEM: Final = "system"
"""The pool of the broker's own limits."""
TOLD_EVERY_MS: Final = 60_000
"""Least time between two lines about one pool that stays full."""


class Charged(Protocol):
    """What a pool has to know of a destination."""

    number: int
    name: str
    policy: Policy
    block_index: BlockIndex


def system_limits(config: ConfigView) -> PoolLimits | None:
    """The limits of the whole broker; None when there are none."""
    messages, nbytes = config["imq.system.max_count"], config["imq.system.max_size"]
    if messages < 0 and nbytes < 0:
        return None
    return PoolLimits(messages, nbytes, config["raybroker.system.blockingSendPolicy"])


class _Told:
    """What the log has heard of a pool."""

    __slots__ = ("at_ms", "full", "refused")

    def __init__(self) -> None:
        self.at_ms = -TOLD_EVERY_MS
        self.refused = 0
        self.full = False


class Pools:
    """``shares`` by the pool's name; ``ask``: asks the broker for more of a pool, which answers by ``granted`` or
    ``unanswered``; None: this host is the whole broker."""

    def __init__(
        self, config: ConfigView, homes: Callable[[], Iterable[Charged]], observers: Observers,
        blocked: Callable[[], BlockedSends], now_ms: Callable[[], int], report: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.shares: dict[str, PoolShare] = {}
        self.ask: Callable[[PoolShare], None] | None = None
        self._config = config
        self._homes = homes
        self._observers = observers
        self._blocked = blocked
        self._now_ms = now_ms
        self._report = report
        self._told: dict[str, _Told] = {}

    # ---- which destination is in which pool ------------------------------------------------------------------------

    def configure(self) -> None:
        """The configuration may have changed: make pools, change them, and let go of those that are no more."""
        wanted = system_limits(self._config)
        if wanted is None and SYSTEM not in self.shares:
            return
        share = self.shares.get(SYSTEM)
        if wanted is None:
            share = self.shares.pop(SYSTEM)
            share.configure(PoolLimits(-1, -1))  # Whoever waits goes in.
        elif share is None:
            share = self.shares[SYSTEM] = PoolShare(SYSTEM, wanted, alone=self.ask is None)
        else:
            share.configure(wanted)
        self._blocked().serve(share)
        for home in self._homes():
            self.assign(home)
        if wanted is not None:
            self.ask_if_wanted(share)

    def assign(self, home: Charged) -> None:
        """Charge the destination to its pool; whoever waits for room in another one is refused."""
        share, account = self._share_of(home), home.policy.account
        if account is not None and account.share is share:
            return
        if account is not None:
            if account.share.name in self.shares:
                self._blocked().turn_away(account.share, lambda one: one.home is home, REPOINTED)
            self._release(home, account)
        if share is not None:
            account = home.policy.account = Account(share)
            account.charge(home.block_index.messages, home.block_index.bytes_held)
            share.cover()
            self._observers.add(home.number, self.look)

    def forget(self, home: Charged) -> None:
        """It is destroyed."""
        account = home.policy.account
        if account is not None:
            self._release(home, account)

    def _release(self, home: Charged, account: Account) -> None:
        self._observers.remove(home.number, self.look)
        account.close()
        home.policy.account = None
        self._blocked().serve(account.share)

    def _share_of(self, home: Charged) -> PoolShare | None:
        if not self.shares or home.name == DMQ or is_metrics_topic(home.name):
            return None
        return self.shares.get(SYSTEM)

    # ---- room ------------------------------------------------------------------------------------------------------

    def look(self, home: Charged) -> None:
        """A destination of a pool has carried out a command."""
        account = home.policy.account
        if account is not None:
            if account.share.waiting:
                self._blocked().serve(account.share)
            self.ask_if_wanted(account.share)

    def ask_if_wanted(self, share: PoolShare) -> None:
        if self.ask is not None and share.wants_more(self._now_ms()):
            self.ask(share)

    def granted(self, pool: str, version: int, lease: Room, ahead: Room, *, short: bool) -> None:
        """The broker's answer."""
        share = self.shares.get(pool)
        if share is not None:
            share.granted(version, lease, ahead, short=short, now_ms=self._now_ms())
            self._after(share)

    def unanswered(self, pool: str) -> None:
        share = self.shares.get(pool)
        if share is not None:
            share.unanswered(self._now_ms())
            self._blocked().serve(share)

    def recall(self, pool: str, owed: Room) -> dict[str, Any]:
        """Give back what is not used, and say what is; ``owed``: room to set aside for others that wait."""
        share = self.shares.get(pool)
        if share is None:
            return {"version": 0, "lease": (0, 0), "waiting": 0, "known": False}
        share.surrender()
        share.set_aside(owed, self._now_ms())
        self._blocked().serve(share)
        return {"version": share.version, "lease": tuple(share.lease), "waiting": len(share.waiting), "known": True}

    def _after(self, share: PoolShare) -> None:
        self._blocked().serve(share)
        self.ask_if_wanted(share)

    # ---- about once a second ---------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Ask for what is wanted, and write to the log what pools have refused: one line with a count."""
        for name, share in self.shares.items():
            self.ask_if_wanted(share)
            told = self._told.get(name)
            if told is None and not share.refused:
                continue
            told = self._told.setdefault(name, _Told())
            now_ms, more = self._now_ms(), share.refused - told.refused
            if more and now_ms - told.at_ms >= TOLD_EVERY_MS:
                told.at_ms, told.refused, told.full = now_ms, share.refused, True
                count = "1 message was" if more == 1 else f"{more} messages were"
                self._report(f"[B2011] {share.refusal()}: {count} refused")
            elif told.full and not share.waiting and not more and share.fits(1, 1):
                told.full, told.at_ms = False, -TOLD_EVERY_MS
                self._report(Notice(f"[B1153] {share.limits.owner} has room for messages again ({_maxima(share)})"))

    # ---- figures ---------------------------------------------------------------------------------------------------

    def system_row(self) -> dict[str, int]:
        """Of the limits of the whole broker, this host's part: messages and bytes held, blocks that wait, messages
        refused; empty when there are no limits."""
        share = self.shares.get(SYSTEM)
        if share is None:
            return {}
        return {
            "messages": share.used_messages, "bytes": share.used_bytes, "waiting": len(share.waiting),
            "refused": share.refused,
        }  # fmt: skip

    def metrics(self) -> dict[str, int]:
        """See the catalogue of metrics."""
        share = self.shares.get(SYSTEM)
        if share is None:
            return {}
        row = {
            "system_messages": share.used_messages,
            "system_message_bytes": share.used_bytes,
            "blocked_sends": len(share.waiting),
            "system_refused_messages_total": share.refused,
        }
        if share.limits.messages >= 0:
            row["system_limit_messages"] = share.limits.messages
        if share.limits.bytes >= 0:
            row["system_limit_bytes"] = share.limits.bytes
        return row


def _maxima(share: PoolShare) -> str:
    limits = share.limits
    rows = ((limits.messages_name, limits.messages), (limits.bytes_name, limits.bytes))
    return ", ".join(f"{name}={most}" for name, most in rows if most >= 0)
