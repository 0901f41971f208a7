"""What a seed draws before anything runs."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

THREADS: Final = 4
CALLS: Final = 60
"""Calls of one thread in one round."""
QUEUES: Final = ("a", "b", "c")
"""Where everything is tried."""
UNIQUE: Final = "d"
"""Where all messages with a deduplication id go: elsewhere the same id is another message."""
FORWARDED: Final = "f"
TARGET: Final = "g"
"""A forwarding agent takes what is in the one to the other, exactly once."""
PASSING: Final = "e"
"""It is destroyed now and then with all it holds, and made again by whoever uses it."""
TOPIC: Final = "t"
SUBSCRIPTIONS: Final = ("passing", "kept", "other")
"""Durable, shared ones of the topic; the first is ended now and then, and made again by its next consumer."""
LARGE_BYTES: Final = 1_200_000
"""A body that travels in pieces."""
LIMITS: Final = ("REJECT_NEWEST", "REMOVE_OLDEST", "REMOVE_LOW_PRIORITY")
"""Without FLOW_CONTROL: its producers wait until somebody consumes, here for ever once the other threads have ended."""


def copies(ids: Iterable[int], subscription: int) -> list[int]:
    """The numbers of what a subscription of the topic gets for messages: each is a message of its own to the oracle."""
    return [number + (subscription + 1) * 10**10 for number in ids]


@dataclass
class Round:
    """``kill_after_s``: the process is killed so long after its threads have begun; None: it comes to its end."""

    kill_after_s: float | None


@dataclass
class Plan:
    """``queues``: name → attributes. ``face``: how clients reach the broker, as tests/contracts/handles.py has it.
    ``steps``: the machine's clock is put forward by an hour and back meanwhile. ``stomp``: a thread speaks STOMP."""

    seed: int
    face: str = "blocking"
    steps: bool = False
    stomp: bool = False
    queues: dict[str, dict[str, Any]] = field(default_factory=dict)
    rounds: list[Round] = field(default_factory=list)


def plan_of(seed: int, *, kills: bool) -> Plan:
    """The plan of a seed; ``kills``: the store outlives its process."""
    draw = random.Random(seed)
    plan = Plan(seed, draw.choice(("blocking", "sockets", "direct", "aio", "own")), draw.random() < 0.2)
    plan.stomp = draw.random() < 0.5
    for name in QUEUES:
        attributes: dict[str, Any] = {
            "duplicateWindowMs": draw.choice((0, 600_000)),
            "consumerFlowLimit": draw.choice((1, 3, 100, 1000)),
        }
        if draw.random() < 0.3:
            attributes |= {"maxNumMsgs": draw.choice((3, 20, 100)), "limitBehavior": draw.choice(LIMITS)}
        elif draw.random() < 0.2:
            attributes |= {"maxTotalMsgBytes": draw.choice((500, 5_000)), "limitBehavior": draw.choice(LIMITS)}
        if draw.random() < 0.2:
            attributes["redeliveryLimit"] = draw.choice((1, 3))
        plan.queues[name] = attributes
    for _ in range(draw.choice((1, 2, 3)) if kills else 0):
        plan.rounds.append(Round(draw.uniform(0.05, 2.0) if draw.random() < 0.8 else None))
    plan.rounds.append(Round(None))
    return plan
