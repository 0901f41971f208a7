"""The plan of an import: the administrative verbs that lead from the definitions that there are to those wanted.

Each step is one verb.  What a step needs comes before it: quotas, templates and policies before destinations, those
before subscriptions and forwarding agents; what is destroyed goes in the opposite order, at the end.  The planner
carries each step out on a copy of what there is, so that it sees what a step brings with it: the destinations that
follow a template, and the subscriptions that go with their topic.
"""

from __future__ import annotations

from dataclasses import dataclass

from raybroker.model.definitions.kinds.destination import TOPIC, refuse_circles
from raybroker.model.definitions.kinds.kind import KindPlace, KindStep, Planning
from raybroker.model.definitions.kinds.quota import QUOTA
from raybroker.model.definitions.kinds.table import KINDS
from raybroker.model.definitions.values import Definitions


@dataclass(frozen=True)
class Plan:
    """The steps to the wanted definitions; ``same``: how many entries are as wanted; ``left``: those that are not
    wanted and stay, without pruning; ``after``: the definitions that there are when every step was carried out."""

    steps: tuple[KindStep, ...]
    same: int
    left: tuple[str, ...]
    after: Definitions


def plan(now: Definitions, wanted: Definitions, place: KindPlace, *, prune: bool = False) -> Plan:
    """Raises ConfigError for wanted definitions that contradict each other. ``prune``: what is not wanted goes."""
    refuse_circles(now, wanted, prune=prune)
    planning = Planning(now, wanted, place, prune)
    for kind in sorted(KINDS, key=lambda kind: kind.last):
        kind.plan(planning)
        if kind is TOPIC:  # Until now thresholds of destinations may be above what a quota is to grant.
            QUOTA.lower(planning)
    left = []
    for kind in reversed(KINDS) if prune else KINDS:
        for key in kind.unwanted(planning):
            if prune:
                kind.plan_end(planning, key)
            else:
                left.append(f"{kind.name} {kind.shown(key)}")
    touched = {(step.kind, step.name) for step in planning.steps}
    same = sum((kind.name, shown) not in touched for kind in KINDS for shown, _ in kind.entries(wanted))
    return Plan(tuple(planning.steps), same, tuple(left), planning.now)
