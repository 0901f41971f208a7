"""Reasons for which a destination takes nothing from producers, or has them wait."""

from __future__ import annotations

from raybroker.core.admission import limits
from raybroker.core.admission.admission import Admission
from raybroker.core.policy import DestinationPolicy
from raybroker.core.why.pauses import production_paused
from raybroker.core.why.reason import Reason


def held_up(name: str, policy: DestinationPolicy, admission: Admission) -> list[Reason]:
    """What a message of one byte would meet now."""
    found = production_paused(policy)
    messages, held_bytes = admission.charged()
    facts = {"messages": messages, "bytes": held_bytes, "limit_behavior": policy.attributes.limitBehavior}
    if admission.slow:
        text = "the destination is full, and its producers were told to wait (FLOW_CONTROL)"
        found.append(Reason("slow", text, facts))
    _, refused = limits.admit(name, policy.limits, messages, held_bytes, (1,), [(0, 1)])
    found += [Reason("full", row.text, facts) for row in refused]
    account = policy.account
    if account is not None and not account.share.fits(1, 1):
        share = account.share
        facts = {
            "quota": share.name,
            "messages": share.used_messages,
            "bytes": share.used_bytes,
            "waiting": len(share.waiting),
        }
        found.append(Reason("quota", share.refusal(), facts))
    return found
