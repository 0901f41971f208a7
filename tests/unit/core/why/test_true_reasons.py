"""In random states every message that is not delivered has a reason, and each reason is true: see ``truth``."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from time import monotonic
from typing import Any, Final

import pytest

from raybroker.core.delivery.delayed import Delayed
from raybroker.core.why import consumers, messages, place
from raybroker.core.why.reason import Reason
from tests.unit.core.why.truth import check_state, state

STATES: Final = 30
STATES_SWEPT: Final = 500
MUTANT_STATES: Final = 150
"""States in which a fault of the explanation has to be found."""
ONES: Final = 2
"""Messages of each state whose reasons are taken away."""


def test_every_message_that_is_not_delivered_has_a_true_reason() -> None:
    assert sum(check_state(state(seed), Random(seed), ONES) for seed in range(STATES)) > STATES


@pytest.mark.sweep
def test_reasons_are_true_in_500_states(sweep_seconds: float) -> None:
    began, seed = monotonic(), 0
    while seed < STATES_SWEPT or monotonic() < began + sweep_seconds:
        check_state(state(seed), Random(seed), 3)
        seed += 1


def _none(*_: Any) -> list[Reason]:
    return []


def _paused_always(policy: Any) -> list[Reason]:
    return [Reason("consumption_paused", "consumers are paused", {"until_ms": 0})]


def _without(code: str) -> Callable[..., list[Reason]]:
    def found(queue: Any, consumer: Any) -> list[Reason]:
        return [reason for reason in _obstacles(queue, consumer) if reason.code != code]

    return found


def _as(code: str, other: str) -> Callable[..., list[Reason]]:
    def found(queue: Any, consumer: Any) -> list[Reason]:
        return [row._replace(code=other) if row.code == code else row for row in _obstacles(queue, consumer)]

    return found


def _unpicked(*_: Any) -> None:
    return None


def _first_of_nothing(*_: Any) -> None:
    return None


_obstacles = consumers.obstacles
MUTANTS: Final[dict[str, tuple[Any, str, Any]]] = {
    "a pause is not seen": (messages, "consumption_paused", _none),
    "a pause is seen that is none": (messages, "consumption_paused", _paused_always),
    "a pause of insertion is not seen": (messages, "insertion_paused", _none),
    "a stopped consumer is not seen": (messages, "obstacles", _without("stopped")),
    "credit is not seen": (messages, "obstacles", _without("no_credit")),
    "a full prefetch window is not seen": (messages, "obstacles", _without("not_acknowledged")),
    "a full buffer is not seen": (messages, "obstacles", _without("buffer_full")),
    "a backup is not seen": (messages, "obstacles", _without("backup")),
    "a consumer of another broker is not seen": (messages, "obstacles", _without("not_local")),
    "a consumer without credit is told to be stopped": (messages, "obstacles", _as("no_credit", "stopped")),
    "the selector is not asked": (messages, "unselected", _unpicked),
    "a session that has the unit is not seen": (messages, "_in_unit", lambda q, p, r, found: (found, [])),
    "earlier messages of the unit are not seen": (messages, "_earlier", _first_of_nothing),
    "what rests is not found": (Delayed, "find", _first_of_nothing),
    "what is with a consumer is not found": (place, "_delivery", _first_of_nothing),
    "a transaction that consumed is not found": (place, "_acknowledged", _first_of_nothing),
}


SLOWER: Final = ("a pause is not seen", "credit is not seen", "a consumer of another broker is not seen")
"""Faults that take more than a dozen states."""


@pytest.mark.parametrize(
    "mutant", [pytest.param(name, marks=[pytest.mark.sweep] if name in SLOWER else []) for name in MUTANTS]
)
def test_an_explanation_that_is_wrong_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTANTS[mutant])
    for seed in range(MUTANT_STATES):
        try:
            check_state(state(seed), Random(seed), ONES)
        except (AssertionError, KeyError, StopIteration):
            return
    pytest.fail(f"{mutant}: nobody has noticed in {MUTANT_STATES} states")
