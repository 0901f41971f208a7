"""``python -m tests.simulation_control.takeover_mutants``: rules of takeovers that are switched off, one at a time.

Some are rules of the decision, some of the tables; every one has to be noticed within ``SEEDS_MAX`` seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from raybroker.cluster import takeover
from raybroker.cluster.takeover import Takeovers, TakeoverStep
from raybroker.model.shared_store import SharedRow
from tests import seeds
from tests.seeds import Catch
from tests.simulation_control.takeovers import SharedModel, TakeoverWorld

SEEDS_MAX = 300

Patch = Callable[[Any, str, Any], None]
TABLE: dict[str, Callable[[Patch], None]] = {}


def mutant(apply: Callable[[Patch], None]) -> Callable[[Patch], None]:
    TABLE[apply.__name__] = apply
    return apply


@contextmanager
def applied(name: str) -> Iterator[None]:
    undo: list[tuple[Any, str, Any]] = []

    def patch(owner: Any, attribute: str, value: Any) -> None:
        undo.append((owner, attribute, getattr(owner, attribute)))
        setattr(owner, attribute, value)

    TABLE[name](patch)
    try:
        yield
    finally:
        for item in reversed(undo):
            setattr(*item)


# ---- the decision


@mutant
def signs_of_life_in_the_store_do_not_count(patch: Patch) -> None:
    """Whoever is not heard is taken over."""
    old = Takeovers._is_lost
    patch(Takeovers, "_is_lost", lambda self, row, heard, patience: old(self, row, heard, 0))
    patch(SharedModel, "is_as_seen", lambda self, row, tenure, beats: row.tenure == tenure)


@mutant
def heartbeats_do_not_count(patch: Patch) -> None:
    old = Takeovers._is_lost
    patch(Takeovers, "_is_lost", lambda self, row, heard, patience: old(self, row, (), patience))


@mutant
def takeovers_follow_each_other_at_once(patch: Patch) -> None:
    patch(takeover, "APART_MS", 0)


@mutant
def a_broker_is_started_before_its_store_is_fenced(patch: Patch) -> None:
    old = Takeovers.done

    def done(self: Takeovers, work: Any) -> Any:
        return old(self, work) and old(self, self.work) if work.step is TakeoverStep.TAKE else old(self, work)  # type: ignore[arg-type]

    patch(Takeovers, "done", done)


@mutant
def a_failed_takeover_is_never_tried_again(patch: Patch) -> None:
    patch(Takeovers, "ended", lambda self, work: None)


@mutant
def nobody_gives_signs_of_life_for_what_is_being_taken(patch: Patch) -> None:
    patch(Takeovers, "vicarious", None)


@mutant
def only_what_operates_is_taken_over(patch: Patch) -> None:
    """What its taker has left half-way stays so."""
    old = Takeovers._is_lost
    patch(
        Takeovers,
        "_is_lost",
        lambda self, row, heard, patience: row.state == "OPERATING" and old(self, row, heard, patience),
    )


# ---- the tables


@mutant
def two_take_the_same_tenure(patch: Patch) -> None:
    old = SharedModel.take

    def take(self: SharedModel, name: str, tenure: int, beats: int, taker: str) -> bool:
        old(self, name, tenure, beats, taker)
        return True

    patch(SharedModel, "take", take)


@mutant
def a_commit_of_an_older_tenure_is_accepted(patch: Patch) -> None:
    patch(SharedModel, "may_write", lambda self, name, tenure: self.holder[name] >= tenure)


@mutant
def a_late_hand_over_gives_the_store_back_to_an_older_tenure(patch: Patch) -> None:
    patch(SharedModel, "is_later", lambda self, tenure, than: True)


@mutant
def a_tenure_that_is_over_goes_on_to_give_signs_of_life(patch: Patch) -> None:
    def beat(self: SharedModel, name: str, tenure: int) -> Any:
        row: SharedRow = self.rows[name]
        self.rows[name] = replace(row, beats=row.beats + 1, beat_ms=self._now_ms())
        return self.view()

    patch(SharedModel, "beat", beat)


def hunt(name: str, seeds_max: int = SEEDS_MAX, seconds: float | None = None) -> Catch:
    """See tests.seeds."""
    return seeds.hunt(name, lambda: applied(name), TakeoverWorld, seeds_max, seconds)


def hunt_all(names: list[str], jobs: int, seconds: float | None = None) -> Iterator[Catch]:
    """These mutants, in order."""
    return seeds.hunt_all(hunt, names, jobs, SEEDS_MAX, seconds)


def main() -> int:
    missed = 0
    for catch in hunt_all(list(TABLE), 2):
        print(f"{catch.name:64} {catch.seeds or '-':>5}  {catch.how}", flush=True)
        missed += not catch.seeds
    return missed


if __name__ == "__main__":
    sys.exit(main())
