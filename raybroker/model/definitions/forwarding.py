"""Attributes of forwarding agents, which take messages from a queue and put them into one of another cluster.

An agent is defined by its name and attributes; this is where attributes are checked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from raybroker.model.errors import BrokerError, ConfigError
from raybroker.model.naming.names import (
    DEAD_MESSAGE_QUEUE,
    check_cluster_name,
    check_destination_name,
    is_temporary_name,
)
from raybroker.model.naming.nearest import nearest
from raybroker.model.settings.setting import INT_MAX

EXACTLY_ONCE: Final = "Exactly-once"
AT_LEAST_ONCE: Final = "At-least-once"
AT_MOST_ONCE: Final = "At-most-once"
QUALITIES: Final = (EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE)
DISCARD, LOG, REDIRECT, ALWAYS_FORWARD = "Discard", "Log", "Redirect", "Always-forward"
POLICIES: Final = (DISCARD, LOG, REDIRECT, ALWAYS_FORWARD)
WINDOW_MAX: Final = 1000
"""Messages under way at a time: what comes again after a failure."""
MULTIPLIER_MAX: Final = 100.0


@dataclass(frozen=True, slots=True)
class Forwarding:
    """The attributes of an agent.

    queue                 where it takes from, in its own cluster
    to                    "cluster/queue": where it puts
    qos                   Exactly-once: in both clusters it is one transaction; At-least-once: stored there before it is
                          acknowledged here; At-most-once: acknowledged here before it is sent
    windowSize            messages that go at a time
    windowInterval        milliseconds that a window waits for more messages
    acknowledgeInterval   milliseconds after which a message that was taken is on its way to be confirmed at the latest,
                          however long windowInterval is; -1: no limit of its own
    conversationIdleTimeMaximum  milliseconds without a message after which the connection to the other cluster is
                          closed, until the next one; 0: it stays open
    retryDelayBase        milliseconds before a failed window is tried again, each time retryDelayMultiplier times as
                          many as before, up to retryDelayMaximum
    errorPolicy           what becomes of a message that is too old, or that the other cluster will never take: Discard,
                          Log it and discard, Redirect to errorDestination, or Always-forward: its age does not matter,
                          and it is tried for ever
    timeToLive            milliseconds after which a message is too old, whatever its producer says; -1: what that says
    compressionThreshold  bodies of more bytes are compressed for the way, with zlib, and stay so at the other cluster,
                          unless that makes them larger or their producers have compressed them; 2147483647: none are
    """

    queue: str
    to: str
    qos: str = EXACTLY_ONCE
    windowSize: int = 10
    windowInterval: int = 0
    acknowledgeInterval: int = -1
    conversationIdleTimeMaximum: int = 0
    retryDelayBase: int = 20_000
    retryDelayMaximum: int = 180_000
    retryDelayMultiplier: float = 1.0
    errorPolicy: str = DISCARD
    errorDestination: str = ""
    timeToLive: int = -1
    compressionThreshold: int = INT_MAX

    @property
    def cluster(self) -> str:
        return self.to.partition("/")[0]

    @property
    def target(self) -> str:
        """The queue of the other cluster."""
        return self.to.partition("/")[2]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def wait_ms(self) -> int:
        """The longest wait of a window for more messages."""
        most_ms = self.acknowledgeInterval
        return self.windowInterval if most_ms < 0 else min(self.windowInterval, most_ms)

    def delay_ms(self, failures: int) -> int:
        """The pause after so many failures in a row, at least one."""
        delay_ms = float(self.retryDelayBase)
        for _ in range(failures - 1):
            delay_ms *= self.retryDelayMultiplier
            if self.retryDelayMultiplier == 1.0 or delay_ms >= self.retryDelayMaximum:
                break
        return int(min(delay_ms, self.retryDelayMaximum))


_CHOICES: Final = {"qos": QUALITIES, "errorPolicy": POLICIES}
_BOUNDS: Final = {
    "windowSize": (1, WINDOW_MAX),
    "windowInterval": (0, INT_MAX),
    "retryDelayBase": (1, INT_MAX),
    "retryDelayMaximum": (1, INT_MAX),
    "timeToLive": (-1, INT_MAX),
    "acknowledgeInterval": (-1, INT_MAX),
    "conversationIdleTimeMaximum": (0, INT_MAX),
    "compressionThreshold": (0, INT_MAX),
}


def forwarding(attributes: Mapping[str, object]) -> Forwarding:
    """The checked definition; raises ConfigError naming the attribute, what is wrong, and what is right.

    Numbers may be text, as the command line has them.
    """
    names = {field.name for field in fields(Forwarding)}
    found: dict[str, Any] = {}
    for name, value in attributes.items():
        if name not in names:
            near = nearest(str(name), sorted(names), least=0.0)
            raise ConfigError(f"{name!r} is not an attribute of a forwarding agent; the nearest is {near!r}")
        if name in _CHOICES:
            found[name] = _chosen(name, value)
        elif name in _BOUNDS:
            found[name] = _whole(name, value)
        elif name == "retryDelayMultiplier":
            found[name] = _multiplier(value)
        else:
            found[name] = str(value)
    for name in ("queue", "to"):
        if not found.get(name):
            raise ConfigError(f"a forwarding agent needs {name}" + ("='cluster/queue'" if name == "to" else ""))
    made = Forwarding(**found)
    _check_places(made)
    return made


def _check_places(made: Forwarding) -> None:
    _check_queue("queue", made.queue)
    if not made.cluster or not made.target:
        raise ConfigError(f"to = {made.to!r}; it is 'cluster/queue'")
    try:
        check_cluster_name(made.cluster)
    except BrokerError as error:
        raise ConfigError(f"to = {made.to!r}: {error}") from None
    _check_queue("to", made.target)
    if made.errorPolicy == REDIRECT and not made.errorDestination:
        raise ConfigError("errorPolicy=Redirect needs errorDestination, a queue of the agent's own cluster")
    if made.errorDestination:
        _check_queue("errorDestination", made.errorDestination)
        if made.errorDestination == made.queue:
            raise ConfigError("errorDestination is the queue that the agent takes from; name another one")


def _check_queue(attribute: str, name: str) -> None:
    if is_temporary_name(name):
        raise ConfigError(f"{attribute} = {name!r} is temporary; an agent outlives the connection that it belongs to")
    try:
        check_destination_name(name, allow_reserved=name == DEAD_MESSAGE_QUEUE)
    except BrokerError as error:
        raise ConfigError(f"{attribute} = {name!r}: {error}") from None


def _chosen(name: str, value: object) -> str:
    for choice in _CHOICES[name]:
        if str(value).lower() == choice.lower():
            return choice
    raise ConfigError(f"{name} = {value!r}; allowed: {', '.join(_CHOICES[name])}")


def _whole(name: str, value: object) -> int:
    low, high = _BOUNDS[name]
    number = int(value) if isinstance(value, str) and value.strip().lstrip("-").isdigit() else value
    if not isinstance(number, int) or isinstance(number, bool) or not low <= number <= high:
        raise ConfigError(f"{name} = {value!r}; it is a whole number from {low} to {high}")
    return number


def _multiplier(value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]  # what is no number raises
    except (TypeError, ValueError):
        number = math.nan
    if not 1.0 <= number <= MULTIPLIER_MAX or isinstance(value, bool):
        raise ConfigError(f"retryDelayMultiplier = {value!r}; it is a number from 1 to {MULTIPLIER_MAX:g}")
    return number
