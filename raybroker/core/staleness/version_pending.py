"""Messages that wait in a queue with bounded staleness: of one version together, stale ones behind all others or gone.

A message is stale once its version is further behind the published one than ``maxStaleness``.  As soon as that is so,
because a version was published or because the message has come, or has come back, it is taken out as a dead one, or put
behind all others, as ``stalenessPolicy`` says.  What a consumer holds is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from raybroker.core.delivery.backlog import Backlog, Bucket
from raybroker.core.delivery.consumers import Consumers
from raybroker.core.delivery.dead_letters import Dead
from raybroker.core.delivery.plain import Classify, PlainPending
from raybroker.core.delivery.run import Run, behind_all, own_priority
from raybroker.core.delivery.selector_index import SELECTORS_MAX
from raybroker.core.policy import DestinationPolicy
from raybroker.core.staleness.starvation import Starvation
from raybroker.core.staleness.version_index import SAME_SELECTORS, STALE, VersionIndex
from raybroker.model.definitions.pauses import CONSUMPTION
from raybroker.model.staleness import LAST, REASON


class VersionPending(PlainPending):
    """Buckets by version. ``stale``: messages that were found stale since the host started."""

    __slots__ = ("_last", "_policy", "stale", "starvation", "versions")

    backlog: Backlog
    always_sorts = True

    def __init__(self, consumers: Consumers, versions: VersionIndex, policy: DestinationPolicy) -> None:
        super().__init__(consumers, versions)
        self._policy = policy
        self._last = policy.attributes.stalenessPolicy == LAST
        self.versions = versions
        self.starvation = Starvation()
        self.stale = 0
        self.backlog.compares = True
        self.needs_headers = True

    def sorts_by_headers(self) -> bool:
        return True

    # ---- versions --------------------------------------------------------------------------------------------------

    def publish(self, version: int) -> None:
        """That is the current version from now on."""
        versions = self.versions
        back = versions.published is not None and version < versions.published
        versions.published = version
        if versions.far or back:
            self._look_again()
        versions.news = True

    def rules_changed(self) -> None:
        """The attributes may have changed."""
        attributes = self._policy.attributes
        rules = attributes.maxStaleness, attributes.stalenessPolicy == LAST
        if rules != (self.versions.bound, self._last):
            self.versions.bound, self._last = rules
            self._look_again()

    def _look_again(self) -> None:
        """All that waits has to be looked at again: what is behind goes to its old place until then, so that of the
        unsorted nothing is put to the end of what came later."""
        backlog = self.backlog
        for bucket in [bucket for bucket in backlog.buckets.values() if bucket.priority < 0]:
            backlog.join(own_priority(bucket.priority), bucket.signature, [bucket])
        self.versions.far = False
        if backlog.count:
            backlog.unsort()
            self.unfinished = True

    def selectors_changed(self) -> None:
        self._look_again()

    def take_stale(self) -> Sequence[Dead]:
        """Take out what is stale, or put it behind all others."""
        versions, backlog = self.versions, self.backlog
        if not versions.news:
            return []
        versions.news = False
        found = [one for one in backlog.buckets.values() if one.priority >= 0 and versions.is_stale(one.signature)]
        if self._last:
            self._put_behind(found)
            return []
        text = f"its {versions.key} is more than maxStaleness={versions.bound} behind {versions.published}"
        dead = [Dead(run, REASON, text) for bucket in found for run in backlog.take_bucket(bucket)]
        self.stale += sum(one.run.count for one in dead)
        return dead

    def _put_behind(self, found: Iterable[Bucket]) -> None:
        together: dict[tuple[int, int], list[Bucket]] = {}
        for bucket in found:
            self.stale += sum(run.count for run in bucket.runs())
            together.setdefault((bucket.priority, bucket.signature & SAME_SELECTORS), []).append(bucket)
        for (priority, selectors), buckets in together.items():
            self.backlog.join(behind_all(priority), selectors | STALE << SELECTORS_MAX, buckets)

    def put_back(self, run: Run, classify: Classify | None = None) -> None:
        super().put_back(run._replace(priority=own_priority(run.priority)), classify)

    # ---- starvation ------------------------------------------------------------------------------------------------

    def watch(self, now_ms: int) -> int | None:
        """Take notice of who has nothing, at the end of a step; returns when time alone changes something."""
        limit_ms = self._policy.attributes.starvationTime
        hungry = CONSUMPTION not in self._policy.paused and self.consumers.hungry()
        return self.starvation.observe(now_ms, limit_ms, hungry=hungry)
