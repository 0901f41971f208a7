"""A batch: how many messages a consumer wants together, and how long the broker may wait for them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from raybroker.model.errors import ConfigError

MESSAGES_MAX: Final = 2_048
"""Most messages of one batch: as many as a broker looks at to form one."""
COST_MAX: Final = 1e15
DEADLINE_S_MAX: Final = 3_600.0
PROPERTY_CHARS_MAX: Final = 255


@dataclass(frozen=True, slots=True)
class Batch:
    """What a consumer of batches asks for, ``session.consumer(…, batch=rb.Batch(…))`` or ``rb.listener(batch=…)``.

    max_messages  a batch of so many messages is full
    max_cost      the costs of its messages are together at most this; None: they do not count. A message that costs
                  more goes in a batch of its own
    cost          the property that has the cost of a message, a number such as its tokens; 1 for a message without
    key           a property, such as the shape of an input: messages of one batch have the same value of it, or all
                  have none; None: any may go together
    deadline_s    a batch that is not full goes when its oldest message has waited so long

    Raises ConfigError for what cannot be.
    """

    max_messages: int = 32
    max_cost: float | None = None
    cost: str = "cost"
    key: str | None = None
    deadline_s: float = 0.1

    def __post_init__(self) -> None:
        most = self.max_messages
        if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= MESSAGES_MAX:
            raise ConfigError(f"max_messages={most!r}; it is a whole number from 1 to {MESSAGES_MAX}")
        if self.max_cost is not None and not _is_number(self.max_cost, COST_MAX, positive=True):
            raise ConfigError(f"max_cost={self.max_cost!r}; it is a number above 0, at most {COST_MAX:g}, or None")
        if not _is_number(self.deadline_s, DEADLINE_S_MAX):
            raise ConfigError(f"deadline_s={self.deadline_s!r}; it is 0 to {DEADLINE_S_MAX:g} seconds")
        for name, value in (("cost", self.cost), ("key", self.key)):
            if name == "key" and value is None:
                continue
            if not isinstance(value, str) or not 1 <= len(value) <= PROPERTY_CHARS_MAX:
                raise ConfigError(
                    f"{name}={value!r:.80}; it is the name of a property, of 1 to {PROPERTY_CHARS_MAX} characters"
                )

    @property
    def deadline_ms(self) -> int:
        return math.ceil(self.deadline_s * 1000)

    @property
    def needs_headers(self) -> bool:
        """Whether what goes together depends on more than the number of messages."""
        return self.key is not None or self.max_cost is not None

    def as_arguments(self) -> dict[str, Any]:
        """The plain values that :meth:`from_arguments` understands."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, Any]) -> Batch:
        """The batch of plain values; raises ConfigError for what is none."""
        unknown = sorted(set(arguments) - set(cls.__slots__))
        if unknown:
            raise ConfigError(f"a batch has no {', '.join(map(repr, unknown))}")
        return cls(**arguments)


def _is_number(value: object, most: float, *, positive: bool = False) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return False
    return (value > 0 if positive else value >= 0) and value <= most
