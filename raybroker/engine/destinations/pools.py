"""Pools of a host: which destination is charged to which, and this host's share of each.

A destination is charged to one pool at most:

* that of the quota that its attribute ``quota`` names.  Destinations of a quota with Shared have one pool on each
  broker; of any other each has a pool of its own.
* otherwise the pool of the limits of the whole broker, imq.system.max_count and imq.system.max_size.  Temporary and
  auto-created destinations count there as well, but for two kinds: mq.sys.dmq, where dead messages always have a place
  and which has limits of its own, and metrics topics, which carry the broker's own messages.

Without limits there is no pool and no account, and a message costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from raybroker.core.admission.pool_share import Account, PoolLimits, PoolRoom, PoolShare
from raybroker.core.blocks.block_index import BlockIndex
from raybroker.core.policy import DestinationPolicy
from raybroker.engine.destinations.destination_registry import DMQ
from raybroker.engine.path.blocked_sends import DESTROYED, REPOINTED, BlockedSends
from raybroker.engine.path.observers import Observers
from raybroker.engine.path.wakeups import Durations
from raybroker.engine.ports import Notice
from raybroker.model.definitions.quota import Quota
from raybroker.model.naming.names import is_metrics_topic
from raybroker.model.settings.settings import ConfigView

SYSTEM: Final = "system"
"""The pool of the broker's own limits."""
_QUOTA: Final = "quota:"
VERSION_BITS: Final = 16
"""A share can begin so many bits of versions in each millisecond."""
TOLD_EVERY_MS: Final = 60_000
"""Least time between two lines about one pool that stays full."""


class Charged(Protocol):
    """What a pool has to know of a destination."""

    number: int
    name: str
    policy: DestinationPolicy
    block_index: BlockIndex

    @property
    def kind(self) -> str: ...


def system_limits(config: ConfigView) -> PoolLimits | None:
    """The limits of the whole broker; None when there are none."""
    messages, nbytes = config["imq.system.max_count"], config["imq.system.max_size"]
    if messages < 0 and nbytes < 0:
        return None
    return PoolLimits(messages, nbytes, config["raybroker.system.blockingSendPolicy"])


def quota_pool(name: str) -> str:
    """The pool that all destinations of a quota have together on a broker."""
    return _QUOTA + name


def quota_limits(name: str, quota: Quota) -> PoolLimits:
    """The limits of the pool of a quota, or of each of its pools."""
    messages, nbytes, policy = quota["MessagesMaximum"], quota["BytesMaximum"], quota["Policy"]
    return PoolLimits(
        int(str(messages)), int(str(nbytes)), str(policy), f"quota {name!r}", "MessagesMaximum", "BytesMaximum"
    )


def _unknown(name: str) -> PoolLimits:
    """Return the limits of a quota that there is not (any more): an orphaned destination may refer to one. Nothing has
    room in it."""
    owner = f"quota {name!r}, which there is not on this broker (give the destination another one),"
    return PoolLimits(0, 0, owner=owner, messages_name="MessagesMaximum", bytes_name="BytesMaximum")


class _Pool(NamedTuple):
    """The pool that a destination belongs to. ``alone``: no other host has a part of it."""

    name: str
    limits: PoolLimits
    alone: bool


class _Told:
    """What the log has heard of a pool."""

    __slots__ = ("at_ms", "full", "refused")

    def __init__(self) -> None:
        self.at_ms = -TOLD_EVERY_MS
        self.refused = 0
        self.full = False


class Pools:
    """``shares`` by the pool's name; ``ask``: asks the broker for more of a pool, which answers by ``granted`` or
    ``unanswered``; None: this host is the whole broker; ``quotas``: those there are, see :meth:`define`."""

    def __init__(
        self,
        config: ConfigView,
        destinations: Callable[[], Iterable[Charged]],
        observers: Observers,
        blocked: Callable[[], BlockedSends],
        durations: Durations,
        started_ms: int,
        report: Callable[[str], None],
        ask: Callable[[PoolShare], None] | None,
    ) -> None:
        """``started_ms``: later than that of the process before, for the versions of shares."""
        self.shares: dict[str, PoolShare] = {}
        self._ask = ask
        self.quotas: Mapping[str, Quota] = {}
        self._config = config
        self._destinations = destinations
        self._observers = observers
        self._blocked = blocked
        self.now_ms = durations.now_ms
        self._report = report
        self._told: dict[str, _Told] = {}
        self._charged: dict[str, dict[int, Charged]] = {}
        """Pool of a quota → the destinations that are charged to it, by number."""
        self._refused: dict[str, int] = {}
        """Quota → messages that pools have refused that are no more."""
        self._version = started_ms << VERSION_BITS
        """What the version of a new share begins above: the broker takes no statement of an older one, so that each
        process of a host begins above those before it."""

    # ---- which destination is in which pool ------------------------------------------------------------------------

    def define(self, quotas: Mapping[str, Quota]) -> None:
        """Replace the quotas there are by these; who waits in one whose limits change waits by the new ones."""
        self.quotas = dict(quotas)
        self._refused = {name: count for name, count in self._refused.items() if name in self.quotas}
        self.configure()

    def configure(self) -> None:
        """Limits may have changed: make pools, change them, and let go of those that are no more."""
        self._configure_system()
        for destination in list(self._destinations()):
            self.assign(destination)
        for name in list(self._charged):
            share, (first, *_) = self.shares[name], self._charged[name].values()
            limits = self._pool_of(first)
            assert limits is not None
            if limits.limits != share.limits:
                share.configure(limits.limits)
                self._after(share)

    def _configure_system(self) -> None:
        wanted, share = system_limits(self._config), self.shares.get(SYSTEM)
        if share is None:
            if wanted is not None:
                self.shares[SYSTEM] = self._new_share(_Pool(SYSTEM, wanted, self._ask is None))
                self._after(self.shares[SYSTEM])
        elif wanted is not None:
            share.configure(wanted)
            self._after(share)
        else:
            self._drop(share)
            self._blocked().serve(share)

    def _new_share(self, pool: _Pool) -> PoolShare:
        return PoolShare(pool.name, pool.limits, alone=pool.alone, version=self._version)

    def _drop(self, share: PoolShare) -> None:
        """The pool is no more, or nothing here is charged to it: whoever waits goes in."""
        del self.shares[share.name]
        self._version = max(self._version, share.version + 1)
        if quota := _quota_of(share.name):
            self._refused[quota] = self._refused.get(quota, 0) + share.refused
        self._told.pop(share.name, None)
        share.configure(PoolLimits(-1, -1))

    def assign(self, destination: Charged) -> None:
        """Charge the destination to its pool; whoever waits for room in another one is refused."""
        pool, account = self._pool_of(destination), destination.policy.account
        if account is not None:
            if pool is not None and account.share is self.shares.get(pool.name):
                return
            if account.share.name in self.shares:
                self._blocked().turn_away(account.share, lambda one: one.destination is destination, REPOINTED)
            self._release(destination, account)
        if pool is not None:
            self._charge(destination, pool)
        if account is not None:
            self._blocked().serve(account.share)

    def _charge(self, destination: Charged, pool: _Pool) -> None:
        share = self.shares.get(pool.name)
        if share is None:
            share = self.shares[pool.name] = self._new_share(pool)
        if pool.name != SYSTEM:
            self._charged.setdefault(pool.name, {})[destination.number] = destination
        account = destination.policy.account = Account(share)
        account.charge(destination.block_index.messages, destination.block_index.bytes_held)
        share.cover()
        self._observers.add(destination.number, self.after_command)
        self.ask_if_wanted(share)

    def forget_destination(self, destination: Charged) -> None:
        """It is about to be destroyed."""
        account = destination.policy.account
        if account is not None:
            self._blocked().turn_away(account.share, lambda one: one.destination is destination, DESTROYED)
            self._release(destination, account)
            self._blocked().serve(account.share)

    def halted(self, destination: Charged, why: str) -> None:
        """It is about to be halted with its producers: none of them waits for room any longer. What it holds counts."""
        account = destination.policy.account
        if account is not None:
            self._blocked().turn_away(account.share, lambda one: one.destination is destination, why)

    def _release(self, destination: Charged, account: Account) -> None:
        """Charge it to nothing; whoever waits for the room that this makes is still to be served."""
        self._observers.remove(destination.number, self.after_command)
        account.close()
        destination.policy.account = None
        name = account.share.name
        if name in self._charged:
            del self._charged[name][destination.number]
            if not self._charged[name]:
                del self._charged[name]
                self._drop(account.share)

    def _pool_of(self, destination: Charged) -> _Pool | None:
        if name := destination.policy.attributes.quota:
            quota = self.quotas.get(name)
            if quota is None:
                return _Pool(f"{_QUOTA}{name}/", _unknown(name), alone=True)
            if quota["Shared"]:
                return _Pool(quota_pool(name), quota_limits(name, quota), self._ask is None)
            return _Pool(f"{_QUOTA}{name}/{destination.kind} {destination.name}", quota_limits(name, quota), alone=True)
        share = self.shares.get(SYSTEM)
        if share is None or destination.name == DMQ or is_metrics_topic(destination.name):
            return None
        return _Pool(SYSTEM, share.limits, share.alone)

    # ---- room ------------------------------------------------------------------------------------------------------

    def after_command(self, destination: Charged) -> None:
        """A destination of a pool has carried out a command."""
        account = destination.policy.account
        if account is not None:
            if account.share.waiting:
                self._blocked().serve(account.share)
            self.ask_if_wanted(account.share)

    def ask_if_wanted(self, share: PoolShare) -> None:
        if self._ask is not None and share.wants_more(self.now_ms()):
            self._ask(share)

    def granted(self, pool: str, version: int, lease: PoolRoom, ahead: PoolRoom, *, short: bool) -> None:
        """The broker's answer."""
        share = self.shares.get(pool)
        if share is not None:
            share.granted(version, lease, ahead, short=short, now_ms=self.now_ms())
            self._after(share)

    def answer_outdated(self, pool: str, newest: int) -> None:
        """The broker's answer to a question of an older version than the latest that it knows."""
        share = self.shares.get(pool)
        if share is not None:
            share.surpass(newest)
            self._after(share)

    def unanswered(self, pool: str) -> None:
        share = self.shares.get(pool)
        if share is not None:
            share.unanswered(self.now_ms())
            self._blocked().serve(share)

    def recall(self, pool: str, owed: PoolRoom) -> dict[str, Any]:
        """Give back what is not used, and say what is; ``owed``: room to set aside for others that wait."""
        share = self.shares.get(pool)
        if share is None:  # Nothing here is charged to a quota; the broker's limits may still have to come.
            known = _quota_of(pool) != ""
            return {"version": self._version, "lease": (0, 0), "waiting": 0, "known": known}
        share.surrender()
        share.set_aside(owed, self.now_ms())
        self._blocked().serve(share)
        return {"version": share.version, "lease": tuple(share.lease), "waiting": len(share.waiting), "known": True}

    def _after(self, share: PoolShare) -> None:
        self._blocked().serve(share)
        self.ask_if_wanted(share)

    # ---- about once a second ---------------------------------------------------------------------------------------

    def ask_for_room(self) -> None:
        """Ask for what is wanted, and write to the log what pools have refused: one line with a count."""
        for name, share in self.shares.items():
            self.ask_if_wanted(share)
            told = self._told.get(name)
            if told is None and not share.refused:
                continue
            told = self._told.setdefault(name, _Told())
            now_ms, more = self.now_ms(), share.refused - told.refused
            if more and now_ms - told.at_ms >= TOLD_EVERY_MS:
                told.at_ms, told.refused, told.full = now_ms, share.refused, True
                count = "1 message was" if more == 1 else f"{more} messages were"
                self._report(f"[B2011] {share.refusal()}: {count} refused")
            elif told.full and not share.waiting and not more and share.fits(1, 1):
                told.full, told.at_ms = False, -TOLD_EVERY_MS
                self._report(Notice(f"[B1153] {share.limits.owner} has room for messages again ({_maxima(share)})"))

    # ---- figures ---------------------------------------------------------------------------------------------------

    def system_row(self) -> dict[str, int]:
        """Return this host's part of the limits of the whole broker: messages and bytes held, blocks that wait,
        messages refused; empty when there are no limits."""
        share = self.shares.get(SYSTEM)
        if share is None:
            return {}
        return {
            "messages": share.used_messages,
            "bytes": share.used_bytes,
            "waiting": len(share.waiting),
            "refused": share.refused,
        }

    def pool_rows(self) -> list[dict[str, Any]]:
        """One row a pool of a quota: quota, messages, bytes, waiting, refused, and the destinations charged to it."""
        return [
            {
                "quota": _quota_of(name),
                "messages": share.used_messages,
                "bytes": share.used_bytes,
                "waiting": len(share.waiting),
                "refused": share.refused,
                "destinations": sorted(
                    f"{destination.kind} {destination.name}" for destination in self._charged[name].values()
                ),
            }
            for name, share in self.shares.items()
            if name in self._charged
        ]

    def metrics(self) -> dict[str, Any]:
        """See the catalogue of metrics."""
        found = self._quota_metrics()
        share = self.shares.get(SYSTEM)
        if share is None:
            return found
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
        return found | row

    def _quota_metrics(self) -> dict[str, dict[str, int]]:
        """Return the metrics by quota, of those there are; no row where there is none."""
        found: dict[str, dict[str, int]] = {}

        def add(key: str, quota: str, value: int) -> None:
            row = found.setdefault(key, {})
            row[quota] = row.get(quota, 0) + value

        for quota, refused in self._refused.items():
            add("quota_refused_messages_total", quota, refused)
        for row in self.pool_rows():
            quota = row["quota"]
            if quota in self.quotas:
                add("quota_messages", quota, row["messages"])
                add("quota_message_bytes", quota, row["bytes"])
                add("quota_blocked_sends", quota, row["waiting"])
                add("quota_refused_messages_total", quota, row["refused"])
        for quota in found.get("quota_messages", ()):
            limits = quota_limits(quota, self.quotas[quota])
            if limits.messages >= 0:
                add("quota_limit_messages", quota, limits.messages)
            if limits.bytes >= 0:
                add("quota_limit_bytes", quota, limits.bytes)
        return found


def _quota_of(pool: str) -> str:
    """The quota that a pool is of; "" for another one."""
    return pool.removeprefix(_QUOTA).partition("/")[0] if pool.startswith(_QUOTA) else ""


def _maxima(share: PoolShare) -> str:
    limits = share.limits
    rows = ((limits.messages_name, limits.messages), (limits.bytes_name, limits.bytes))
    return ", ".join(f"{name}={most}" for name, most in rows if most >= 0)
