"""Where dead messages go: attributes of the destination, configuration, and what each message asks for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.core.outcome import DeadLetter
from raybroker.engine.dead_letters.dead_letter_policy import ROUNDS_MAX, DeadLetterPolicy
from raybroker.model.settings.settings import destination_attributes
from tests.unit.engine.rig import DMQ

Wish = tuple[bool | None, bool | None, bool | None]
NONE: Wish = (None, None, None)


def sort(
    reason: str,
    *wishes: Wish,
    cut: bool = False,
    name: str = "q",
    deaths: dict[tuple[int, str], int] | None = None,
    **attributes: Any,
) -> list[Any]:
    """What becomes of a block with a message for each wish; ``deaths``: of a message in a queue, before."""
    died = deaths or {}
    codec: Any = SimpleNamespace(
        wish=lambda block, index: wishes[index], deaths=lambda block, index, queue: died.get((index, queue), 0)
    )
    config: Any = {"imq.destination.DMQ.truncateBody": cut}
    destination: Any = SimpleNamespace(
        kind="queue", name=name, attributes=destination_attributes(attributes, type="queue")
    )
    effect = DeadLetter(0, 1, (1 << len(wishes)) - 1, 1, reason, "")
    block: Any = None
    return DeadLetterPolicy(codec, config).sort(destination, effect, block)


@pytest.mark.parametrize("reason", ["UNDELIVERABLE", "ERROR"])
def test_failures_go_to_the_error_destination_before_the_dead_message_queue(reason: str) -> None:
    assert sort(reason, NONE) == [(DMQ, 1, False)]
    assert sort(reason, NONE, errorDestination="e") == [("e", 1, False)]
    assert sort(reason, NONE, errorDestination="e", name="e") == [(DMQ, 1, False)], "not to itself"


@pytest.mark.parametrize("reason", ["UNDELIVERABLE", "ERROR", "EXPIRED"])
def test_error_destinations_that_lead_back_turn_no_message_for_ever(reason: str) -> None:
    deaths = {(0, "e"): ROUNDS_MAX, (1, "e"): ROUNDS_MAX - 1, (1, "q"): 99}
    given: dict[str, Any] = {"deaths": deaths, "errorDestination": "e", "expirationPolicy": "Redirect"}
    assert sort(reason, NONE, NONE, **given) == [(DMQ, 0b01, False), ("e", 0b10, False)]
    assert sort(reason, NONE, NONE, useDMQ=False, **given) == [(None, 0b01, False), ("e", 0b10, False)]


def test_what_a_limit_removed_goes_to_the_dead_message_queue_alone() -> None:
    assert sort("OLDEST", NONE, errorDestination="e") == [(DMQ, 1, False)]
    assert sort("OLDEST", NONE, useDMQ=False) == [(None, 1, False)]


@pytest.mark.parametrize(("policy", "target"), [("Default", DMQ), ("Discard", None), ("Log", None), ("Redirect", "e")])
def test_the_expired_go_where_the_policy_says(policy: str, target: str | None) -> None:
    assert sort("EXPIRED", NONE, expirationPolicy=policy, errorDestination="e") == [(target, 1, False)]


def test_messages_are_grouped_by_what_they_ask_for() -> None:
    keep, drop, whole = (True, None, None), (False, None, None), (None, None, False)
    found = sort("OLDEST", NONE, drop, keep, whole, NONE, cut=True)
    assert found == [(DMQ, 0b10101, True), (None, 0b00010, True), (DMQ, 0b01000, False)]
    assert sort("OLDEST", keep, NONE, useDMQ=False) == [(DMQ, 0b01, False), (None, 0b10, False)]


def test_the_dead_of_the_dead_message_queue_go_nowhere() -> None:
    assert sort("EXPIRED", (True, None, None), NONE, name=DMQ) == [(None, 0b11, False)]
