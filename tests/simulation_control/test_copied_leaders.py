"""A leader is lost: seeds of who leads next, how soon and how often; and rules that are switched off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from raybroker.broker.copies import copied_logs
from raybroker.broker.copies.own_copy import OwnCopy
from raybroker.replication.positions import Term
from raybroker.replication.replica import Replica
from tests.simulation_control.copied_leaders import SIMULATION, LeaderWorld

SHORT_SEEDS = 8
SEEDS = 100_000
SEEDS_MAX = 200
MEAN_SEEDS = 100
MEAN_MS = {"node": 1300, "process": 1500, "cut": 2500}
"""On the average of MEAN_SEEDS; what a seed takes is no news, what all of them take is."""


def look(seeds: range, seconds: float | None = None) -> Counter[str]:
    counts = Counter[str]()
    for batch in SIMULATION.batches(seeds, jobs=1, seconds=seconds):
        assert batch.failure is None, batch.failure
        counts += batch.counts
    if sum(counts[fault] for fault in MEAN_MS) >= MEAN_SEEDS:
        require_mean(counts)
    return counts


def require_mean(counts: Counter[str]) -> None:
    for fault, mean_ms in MEAN_MS.items():
        assert counts[f"{fault} ms"] <= mean_ms * counts[fault], f"{fault}: {counts}"


def test_a_lost_leader_is_followed_soon_and_by_one_election() -> None:
    look(range(SHORT_SEEDS))


@pytest.mark.sweep
def test_no_seed_takes_long(sweep_seconds: float) -> None:
    print(look(range(SEEDS), sweep_seconds))


def test_the_same_seed_is_the_same_run() -> None:
    runs = []
    for _ in range(2):
        world = LeaderWorld(5)
        world.run()
        runs.append((world.loop.count, world.counts))
    assert runs[0] == runs[1]


def _seen(change: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a seed, or what seeds take on the average, notices what was changed."""
    change(monkeypatch)
    counts = Counter[str]()
    for seed in range(SEEDS_MAX):
        world = LeaderWorld(seed)
        try:
            world.run()
            counts += world.counts
            if seed + 1 >= MEAN_SEEDS:
                require_mean(counts)
        except AssertionError:
            return True
    return False


def _lost_brokers_ask(patch: pytest.MonkeyPatch) -> None:
    """The broker of a lost leader is the one that has to ask, until what it said is old."""
    patch.setattr(OwnCopy, "_is_lost", lambda self, broker: False)


def _told_again_at_once(patch: pytest.MonkeyPatch) -> None:
    """A second copy is told to lead while the first one asks for promises: it deposes that one."""
    patch.setattr(copied_logs, "LEADS_S", 0.0)
    patch.setattr(Replica, "awaits_leader", lambda self, now_ms: False)


def _who_hears_of_a_leader_has_voted(patch: pytest.MonkeyPatch) -> None:
    """A copy that has just come back makes it seem that its leader has just changed, and the next one waits."""
    old = Replica._accepts

    def accepts(copy: Replica, sender: str, term: Term) -> bool:
        if term > copy.promised:
            copy._voted_ms = copy._state.now_ms
        return old(copy, sender, term)

    patch.setattr(Replica, "_accepts", accepts)


@pytest.mark.sweep
def test_seeds_notice_nothing_where_nothing_was_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not _seen(lambda patch: None, monkeypatch)


@pytest.mark.sweep
@pytest.mark.parametrize("change", [_lost_brokers_ask, _told_again_at_once, _who_hears_of_a_leader_has_voted])
def test_what_makes_it_slow_or_double_is_noticed(
    change: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _seen(change, monkeypatch), f"{SEEDS_MAX} seeds notice nothing"
