"""The credit pool of a consumer with ``prefetch="auto"``: its limit follows the pace of the application."""

from __future__ import annotations

from collections.abc import Callable

from raybroker.client.consumer.prefetch.credit_pool import CreditPool, Share
from raybroker.client.consumer.prefetch.flow_control import threshold_messages
from raybroker.client.consumer.prefetch.prefetch_tuner import PrefetchTuner


class TunedShare(Share):
    """A share that also tells what happens to the tuner of its pool."""

    __slots__ = ("_pool",)

    def __init__(self, pool: TunedCreditPool) -> None:
        super().__init__(pool)
        self._pool = pool

    def arrived(self, count: int) -> int:
        pool = self._pool
        pool.tuner.came(count, pool.now_ns())
        return super().arrived(count)

    def consumed(self, count: int) -> int:
        pool = self._pool
        if pool.tuner.took(count, pool.now_ns()):
            pool.retune()
        return super().consumed(count)

    def dropped(self, count: int) -> int:
        return super().consumed(count)

    def restart(self) -> None:
        self._pool.tuner.restart()
        super().restart()


class TunedCreditPool(CreditPool):
    """``now_ns``: an even clock. ``tuned``: called with the lock held when the limit is another one."""

    def __init__(
        self,
        tuner: PrefetchTuner,
        percent: int,
        *,
        now_ns: Callable[[], int],
        due: Callable[[], None],
        tuned: Callable[[], None],
    ) -> None:
        super().__init__("credit", percent, by_acks=False, due=due)
        self.tuner = tuner
        self.now_ns = now_ns
        self._tuned = tuned
        self._fix_limit()

    def new_share(self) -> Share:
        return TunedShare(self)

    def asks(self, limit: int) -> int:
        return self.tuner.chosen

    def opened(self, share: Share, limit: int, *, drained: bool, most: int | None = None) -> None:
        super().opened(share, limit, drained=drained, most=most)
        self.tuner.forget_asked()  # Its broker has had that since it was asked to open the consumer.

    def poll(self) -> None:
        self.tuner.waits(self.now_ns())
        super().poll()

    def grant_rest(self, share: Share) -> int:
        if self.used + self.granted >= self.limit:  # It was lowered while more was on its way.
            return 0
        return super().grant_rest(share)

    def retune(self) -> None:
        """The tuner has chosen another number."""
        before = self.limit
        self._fix_limit()
        if self.limit != before:
            self._tuned()

    def _fix_limit(self) -> None:
        """The number that was chosen, or less where a destination allows no more."""
        self.limit = min([self.tuner.chosen, *(most for most in self.shares.values() if most > 0)])
        self._threshold = threshold_messages(self.limit, self._percent)

    def _grant(self, share: Share, credit: int) -> None:
        if credit > 0:
            self.tuner.asked(credit, self.now_ns())
        super()._grant(share, credit)
