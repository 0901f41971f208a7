"""Scaling by a promise: no message is to wait longer than ``promise_s`` seconds. A pure decision.

A worker's pace is learnt: what was acknowledged in a second in which something waited all the time, for each worker
that there was.  The workers that are needed can do what is here before the oldest message has waited so long, and as
much as comes; there are none when nothing has come for as long as that.  More are wanted at once; fewer only when that
was so for SHRINK_LOOKS looks in a row.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from raybroker.client.listener.autoscaling import SHRINK_LOOKS
from raybroker.model.errors import ConfigError

NEW_PART: Final = 0.3
"""Weight of what was just seen in the pace of a worker."""
LEAST_PART: Final = 0.1
"""Of the promise: so much time is reckoned with where less than that is left."""
LOOK_S_MIN: Final = 0.2
"""Looks closer to one another say nothing of a pace."""


PROMISE_S_MAX: Final = 86_400.0


def check_promise_s(value: object) -> float:
    """The seconds of a promise; raises ConfigError for what they cannot be."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= PROMISE_S_MAX:
        raise ConfigError(f"promise_s={value!r}; it is a number of seconds, more than 0, up to {PROMISE_S_MAX:g}")
    return float(value)


class Demand(NamedTuple):
    """What a queue asks of its workers at one moment; ``came`` and ``done`` count on."""

    backlog: int
    oldest_s: float
    came: int
    done: int
    at_s: float


class Workforce(NamedTuple):
    """How many workers there should be, and why, for logs and for people."""

    workers: int
    reason: str


class Promise:
    """The number of workers between ``low``, which may be 0, and ``high``."""

    def __init__(self, low: int, high: int, promise_s: float) -> None:
        self.low = low
        self.high = high
        self.promise_s = promise_s
        self._last: Demand | None = None
        self._pace: float | None = None
        """Messages a second of one worker."""
        self._coming = 0.0
        """Messages a second that come."""
        self._came_s = 0.0
        """When something came last."""
        self._recent: list[int] = []

    def wanted(self, now: Demand, workers: int) -> Workforce:
        """How many workers there should be from now on."""
        self._learn(now, workers)
        needed, reason = self._needed(now, workers)
        bounded = min(max(needed, self.low), self.high)
        if bounded < needed:
            reason += f"; at most {self.high} are allowed"
        self._recent = [*self._recent[-SHRINK_LOOKS + 1 :], bounded]
        if bounded >= workers:
            return Workforce(bounded, reason)
        most = max(self._recent) if len(self._recent) == SHRINK_LOOKS else workers
        return Workforce(min(workers, max(most, self.low), self.high), reason)

    def _learn(self, now: Demand, workers: int) -> None:
        last = self._last
        if last is not None and now.at_s - last.at_s < LOOK_S_MIN:
            return
        self._last = now
        if last is None or now.came < last.came or now.done < last.done:
            return  # The first look, or a broker that counts anew.
        seconds = now.at_s - last.at_s
        if now.came > last.came:
            self._came_s = now.at_s
        part = min(seconds / self.promise_s, 1.0)  # A burst that is here already counts as backlog, and not twice.
        self._coming += part * ((now.came - last.came) / seconds - self._coming)
        if workers > 0 and min(now.backlog, last.backlog) > workers and now.done > last.done:
            pace = (now.done - last.done) / seconds / workers
            self._pace = pace if self._pace is None else self._pace + NEW_PART * (pace - self._pace)

    def _needed(self, now: Demand, workers: int) -> tuple[int, str]:
        if not now.backlog:
            if self._pace is None or now.at_s - self._came_s > self.promise_s:
                return 0, f"nothing waits, and nothing has come for {self.promise_s:g} s"
            return self._for(self._coming), f"nothing waits, and {self._coming:.1f} a second come"
        left_s = max(self.promise_s - now.oldest_s, self.promise_s * LEAST_PART)
        said = f"{now.backlog} messages, the oldest {now.oldest_s:.1f} s of {self.promise_s:g} s"
        if self._pace is None:
            late = now.oldest_s > self.promise_s / 2
            return max(workers * 2 if late else workers, 1), f"{said}; the pace of a worker is not known yet"
        rate = max(now.backlog / left_s, self._coming)
        return self._for(rate), f"{said}; {rate:.1f} a second are needed, and a worker does {self._pace:.1f}"

    def _for(self, rate: float) -> int:
        """Workers for so many messages a second; the pace is known."""
        assert self._pace is not None
        return max(-int(-rate // self._pace), 1)
