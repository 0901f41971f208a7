"""Flow control by rate: how many messages a second a producer may send while its destination is over a threshold.

The host says when a destination comes to be over messagesHigh or bytesHigh (*armed*), and when it is no longer.  What
that means for one producer is decided here, without a clock of its own: times are given, in nanoseconds.

    armed     a producer without a limit gets FlowMaximum at once.  Each step multiplies the limit by a constant ratio,
              so that FlowSteps steps lead from FlowMaximum to FlowMinimum, and never below
    disarmed  the limit still holds.  Each step adds (FlowMaximum - FlowMinimum) / FlowSteps, and a producer that
              reaches FlowMaximum has no limit any more

A step is FlowInterval / FlowSteps.  Decided here, since no document says it:

* The clock of the steps is each producer's own: it starts when the producer gets a limit, and runs until it has none.
  Armed anew while limited, a producer keeps its limit until its next step.
* With FlowInterval 0 there are no steps: FlowMinimum holds as soon as the destination is armed, and no limit as soon as
  it is not.
* Limits are fractions, such as 397.16 messages a second, and are not rounded.
* A limit is a token bucket.  It is empty when the limit begins and holds at most one second's worth, so a busy producer
  sends evenly, and one that sends less than its limit is not delayed.  A block of messages goes when there is a token,
  and is paid for afterwards; while there is a limit, blocks hold at most a tenth of a second's worth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from raybroker.client.producer.pacing.one_way import regulates
from raybroker.model.errors import ConfigError
from raybroker.model.settings.settings import ConfigView

SECOND_NS: Final = 1_000_000_000
RUNS_A_SECOND: Final = 10
"""A block of a limited producer has at most so many parts of a second's worth."""
NEARLY: Final = 1e-9
"""What additions of fractions may lack."""


class FlowRates(NamedTuple):
    """The four properties of a connection factory: messages a second, and the interval in nanoseconds."""

    maximum: int
    minimum: int
    interval_ns: int
    steps: int

    @property
    def ratio(self) -> float:
        """What a step down multiplies the limit by."""
        return float((self.minimum / self.maximum) ** (1 / self.steps))

    @property
    def increase(self) -> float:
        """What a step up adds to the limit."""
        return (self.maximum - self.minimum) / self.steps

    @property
    def step_ns(self) -> int:
        return self.interval_ns // self.steps


def flow_rates(attributes: ConfigView) -> FlowRates | None:
    """What a connection's producers obey while a destination is over a threshold; None where FlowControlEnabled is
    false, or one-way sends are regulated by their window.

    Raises ConfigError when FlowMinimum is more than FlowMaximum.
    """
    check_flow_rates(attributes)
    if not attributes["FlowControlEnabled"] or regulates(attributes):
        return None
    interval_ns = attributes["FlowInterval"] * SECOND_NS
    return FlowRates(attributes["FlowMaximum"], attributes["FlowMinimum"], interval_ns, attributes["FlowSteps"])


def check_flow_rates(attributes: ConfigView) -> None:
    """Raises ConfigError when FlowMinimum is more than FlowMaximum."""
    most, low = attributes["FlowMaximum"], attributes["FlowMinimum"]
    if low > most:
        raise ConfigError(f"FlowMinimum = {low} is more than FlowMaximum = {most}; lower the one or raise the other")


def check_rates(values: Mapping[str, Any]) -> None:
    """Raises ConfigError for a FlowMinimum that is more than the FlowMaximum beside it; either may be missing."""
    if "FlowMinimum" in values and "FlowMaximum" in values:
        check_flow_rates(values)


def least(limits: Iterable[float | None]) -> float | None:
    """The smallest of these limits, where None is no limit."""
    return min((limit for limit in limits if limit is not None), default=None)


class FlowRate:
    """The limit of one producer from the moment at which its destination is armed, and what it may send by it."""

    __slots__ = ("_at_ns", "_next_ns", "_rates", "_tokens", "armed", "limit")

    def __init__(self, rates: FlowRates, now_ns: int) -> None:
        self._rates = rates
        self.armed = True
        self.limit: float | None = float(rates.maximum if rates.interval_ns else rates.minimum)
        """Messages a second; None: as many as come, and this object is not needed any more."""
        self._next_ns = now_ns + rates.step_ns
        """When the next step is due."""
        self._tokens = 1.0
        self._at_ns = now_ns
        """Up to when tokens were added."""

    def signal(self, now_ns: int, *, armed: bool) -> None:
        """The host says how it is with the destination."""
        self.advance(now_ns)
        self.armed = armed
        if not self._rates.interval_ns and self.limit is not None:
            self.limit = float(self._rates.minimum) if armed else None

    def advance(self, now_ns: int) -> None:
        """Take the steps that are due, and add the tokens of the time that has passed."""
        if self.limit is not None and self._rates.interval_ns and now_ns >= self._next_ns:
            self._fill(self._next_ns, self.limit)
            step_ns = max(self._rates.step_ns, 1)
            due = (now_ns - self._next_ns) // step_ns + 1
            self._next_ns += due * step_ns
            self.limit = self._after(due, self.limit)
        if self.limit is not None:
            self._fill(now_ns, self.limit)

    def _after(self, steps: int, limit: float) -> float | None:
        rates = self._rates
        if self.armed:
            return max(float(rates.minimum), limit * rates.ratio**steps)
        more = limit + rates.increase * steps
        return None if more >= rates.maximum * (1 - NEARLY) else more

    def _fill(self, now_ns: int, limit: float) -> None:
        if now_ns > self._at_ns:
            self._tokens = min(self._tokens + (now_ns - self._at_ns) * limit / SECOND_NS, max(limit, 1.0))
            self._at_ns = now_ns

    @property
    def turns(self) -> int:
        """Messages that may go now."""
        return int(self._tokens + NEARLY)

    @property
    def run(self) -> int:
        """Messages that a block may have."""
        return max(int((self.limit or 1.0) / RUNS_A_SECOND), 1)

    def take_tokens(self, count: int) -> bool:
        """Send ``count`` messages now; False when not even one may go."""
        if self.turns < 1:
            return False
        self._tokens -= count
        return True

    def reserve(self, count: int) -> int:
        """A turn for ``count`` messages, behind those that have one: nanoseconds until then."""
        wait_ns = self.wait_ns
        self._tokens -= count
        return wait_ns

    def give_back(self, count: int) -> None:
        """They are not sent after all."""
        self._tokens += count

    @property
    def wait_ns(self) -> int:
        """Nanoseconds until a message may go."""
        if self.limit is None:
            return 0
        return max(int((1.0 - self._tokens) * SECOND_NS / self.limit), 0)
