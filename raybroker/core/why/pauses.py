"""Reasons that are pauses of a destination."""

from __future__ import annotations

from raybroker.core.policy import DestinationPolicy
from raybroker.core.why.reason import Reason
from raybroker.model.definitions import pauses


def consumption_paused(policy: DestinationPolicy) -> list[Reason]:
    """Nothing is handed out."""
    return _paused(policy, pauses.CONSUMPTION, "consumption_paused", "consumers are paused")


def insertion_paused(policy: DestinationPolicy) -> list[Reason]:
    """What arrives is not seen."""
    return _paused(policy, pauses.INSERTION, "insertion_paused", "insertion is paused, and messages are hidden")


def production_paused(policy: DestinationPolicy) -> list[Reason]:
    """Nothing is taken from producers."""
    found = _paused(policy, pauses.PRODUCTION, "production_paused", "producers are paused")
    return found + insertion_paused(policy)


def _paused(policy: DestinationPolicy, work: str, code: str, what: str) -> list[Reason]:
    if work not in policy.paused:
        return []
    until_ms = policy.paused[work]
    since_ms = policy.paused_since.get(work)
    facts = {"until_ms": until_ms, **({"since_ms": since_ms} if since_ms is not None else {})}
    return [Reason(code, what if until_ms else f"{what} until resumed", facts)]
