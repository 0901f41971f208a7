"""Flow control of a consumer at one broker with ``prefetch="auto"``: its limit follows the pace of the application."""

from __future__ import annotations

from collections.abc import Callable

from raybroker.client.consumer.prefetch.flow_control import CreditFlow, threshold_messages
from raybroker.client.consumer.prefetch.prefetch_tuner import PrefetchTuner


class TunedFlow(CreditFlow):
    """``now_ns``: an even clock. ``tuned``: called with the lock held when the limit is another one."""

    __slots__ = ("_most", "_now_ns", "_percent", "_tuned", "tuner")

    def __init__(
        self, tuner: PrefetchTuner, percent: int, now_ns: Callable[[], int], tuned: Callable[[], None]
    ) -> None:
        super().__init__(tuner.chosen, percent)
        self.tuner = tuner
        self._percent = percent
        self._now_ns = now_ns
        self._tuned = tuned
        self._most = tuner.most
        """What its broker allows."""

    def opened(self, limit: int, most: int) -> None:
        """The broker has granted ``limit``, and allows up to ``most``."""
        self._most = most if most > 0 else self.tuner.most
        self._fit()
        self.restart()
        self.to_come = limit

    def arrived(self, count: int) -> int:
        self.tuner.came(count, self._now_ns())
        return super().arrived(count)

    def consumed(self, count: int) -> int:
        if self.tuner.took(count, self._now_ns()):
            before = self.limit
            self._fit()
            if self.limit != before:
                self._tuned()
        return super().consumed(count)

    def dropped(self, count: int) -> int:
        return super().consumed(count)

    def wanted(self) -> int:
        self.tuner.waits(self._now_ns())
        return 0

    def restart(self) -> None:
        self.tuner.restart()
        super().restart()

    def _fit(self) -> None:
        self.limit = min(self.tuner.chosen, self._most)
        self.threshold = threshold_messages(self.limit, self._percent)

    def _request_rest(self) -> int:
        credit = super()._request_rest()
        if credit:
            self.tuner.asked(credit, self._now_ns())
        return credit
