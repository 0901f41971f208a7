"""``python -m tests.simulation_control.copy_takeover_mutants``: rules of takeovers by copies that are switched off.

Some are rules of the decision, some of the copies; every one has to be noticed within ``SEEDS_MAX`` seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from raybroker.cluster.replicas import copy_takeover
from raybroker.cluster.replicas.copy_takeover import CopyTakeovers
from tests import seeds
from tests.seeds import Catch
from tests.simulation_control.copy_takeovers import CopyWorld, Log

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


# ---- when


@mutant
def heartbeats_do_not_count(patch: Patch) -> None:
    old = CopyTakeovers.looked

    def looked(self: CopyTakeovers, live: Any, heard: Any, silent_since: Any, now_ms: int) -> Any:
        return old(self, live, (), {**dict.fromkeys(heard, 0), **silent_since}, now_ms)

    patch(CopyTakeovers, "looked", looked)


@mutant
def nobody_waits_after_a_silence(patch: Patch) -> None:
    old = CopyTakeovers.__init__
    patch(CopyTakeovers, "__init__", lambda self, me, after_ms: old(self, me, 0))


@mutant
def leaders_change_as_often_as_may_be(patch: Patch) -> None:
    patch(copy_takeover, "APART_MS", 0)


@mutant
def a_takeover_tells_others_to_lead_as_often_as_it_likes(patch: Patch) -> None:
    patch(copy_takeover, "TELLS_MAX", 1 << 30)
    patch(copy_takeover, "SETTLED_MS", 1 << 30)


@mutant
def copies_that_hear_a_leader_count(patch: Patch) -> None:
    """A broker that the coordinator alone does not hear is taken over."""
    old = CopyTakeovers.answered

    def answered(self: CopyTakeovers, ask: Any, peer: str, copies: Any) -> Any:
        return old(self, ask, peer, {log: replace(copy, led=False, quiet_ms=None) for log, copy in copies.items()})

    patch(CopyTakeovers, "answered", answered)


@mutant
def an_attempt_goes_on_for_ever(patch: Patch) -> None:
    """What its taker could not carry out is not tried again."""
    patch(copy_takeover, "ATTEMPT_MS", 1 << 60)
    patch(CopyTakeovers, "ended", lambda self, action: None)


@mutant
def copies_are_asked_once(patch: Patch) -> None:
    """What they say then holds for ever."""
    patch(copy_takeover, "AGAIN_MS", 1 << 59)
    patch(copy_takeover, "ATTEMPT_MS", 1 << 60)


# ---- whom


@mutant
def one_answer_is_enough(patch: Patch) -> None:
    patch(CopyTakeovers, "_majority", lambda self, name: 1)


@mutant
def copies_without_a_vote_count(patch: Patch) -> None:
    patch(copy_takeover, "_has_vote", lambda copies, log: log in copies and not copies[log].led)


@mutant
def the_copy_that_is_furthest_behind_is_chosen(patch: Patch) -> None:
    old = copy_takeover.best_peer

    def best(answers: Any, candidates: Any, majority: int) -> str:
        able = [peer for peer in candidates if peer in answers and copy_takeover._is_able(answers, peer)]
        worst = min(able, key=lambda peer: sum(copy.end[2] for copy in answers[peer].values()), default="")
        return worst or old(answers, candidates, majority)

    patch(copy_takeover, "best_peer", best)
    patch(copy_takeover, "leads_behind", lambda answers, peer, majority: {})


@mutant
def a_copy_that_is_behind_is_not_brought_up_to_date(patch: Patch) -> None:
    patch(copy_takeover, "leads_behind", lambda answers, peer, majority: {})


@mutant
def every_copy_is_brought_up_to_date(patch: Patch) -> None:
    def behind(answers: Any, peer: str, majority: int) -> dict[str, str]:
        return dict.fromkeys(answers[peer], peer)

    patch(copy_takeover, "leads_behind", behind)


@mutant
def the_longest_log_is_the_most_recent(patch: Patch) -> None:
    """Entries of a leader that was cut off make a log long."""
    old = CopyTakeovers.answered

    def answered(self: CopyTakeovers, ask: Any, peer: str, copies: Any) -> Any:
        shown = {log: replace(copy, end=(0, 0, copy.end[2])) for log, copy in copies.items()}
        return old(self, ask, peer, shown)

    patch(CopyTakeovers, "answered", answered)


# ---- the copies


@mutant
def a_copy_leads_without_a_majority(patch: Patch) -> None:
    old = Log.__init__

    def made(self: Log, world: CopyWorld, nodes: tuple[str, ...]) -> None:
        old(self, world, nodes)
        self.majority = 1

    patch(Log, "__init__", made)


def hunt(name: str, seeds_max: int = SEEDS_MAX, seconds: float | None = None) -> Catch:
    """See tests.seeds."""
    return seeds.hunt(name, lambda: applied(name), CopyWorld, seeds_max, seconds)


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
