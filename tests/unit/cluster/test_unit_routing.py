"""Where units of order go: by hash and by the path map (W-118 … W-120, U12 … U14)."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from raybroker.cluster.unit_routing import LEASE_MS, UNITS_MAX, PathMap, RouteCandidate
from raybroker.model.errors import StoreDamagedError
from raybroker.model.hashing import rendezvous

D = ("queue", "orders")


def first(unit: str) -> str:
    return "b1"


# ---- hash


def test_a_unit_goes_to_the_same_member_for_ever() -> None:
    names = ["b1", "b2", "b3"]
    assert [rendezvous(unit, names) for unit in ("a", "b", "order-4711", "日本", "")] == [
        rendezvous(unit, names[::-1]) for unit in ("a", "b", "order-4711", "日本", "")
    ]
    assert [rendezvous(f"unit{n}", names) for n in range(8)] == ["b3", "b2", "b1", "b2", "b3", "b1", "b1", "b3"]


def test_units_spread_evenly() -> None:
    counts = Counter(rendezvous(f"u{n}", ["b1", "b2", "b3", "b4"]) for n in range(8000))
    assert all(1800 < count < 2200 for count in counts.values()), counts


def test_only_what_must_move_moves() -> None:
    units = [f"u{n}" for n in range(3000)]
    before = {unit: rendezvous(unit, ["b1", "b2", "b3"]) for unit in units}
    more = {unit: rendezvous(unit, ["b1", "b2", "b3", "b4"]) for unit in units}
    fewer = {unit: rendezvous(unit, ["b1", "b3"]) for unit in units}
    assert {more[unit] for unit in units if more[unit] != before[unit]} == {"b4"}
    assert {before[unit] for unit in units if fewer[unit] != before[unit]} == {"b2"}


def test_nothing_to_route_over_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one name"):
        rendezvous("u", [])
    assert rendezvous("u", ["only"]) == "only"


# ---- the path map


def test_the_first_use_mask_a_member_and_all_producers_share_it() -> None:
    paths = PathMap()
    members = iter(["b1", "b2"])
    found = paths.resolve(D, ["u", "v"], "p1", lambda unit: next(members), 0)
    assert found.where == {"u": "b1", "v": "b2"}
    assert len(found.frames) == 1
    again = paths.resolve(D, ["u", "v"], "p2", first, 0)
    assert again == ({"u": "b1", "v": "b2"}, ())
    assert list(paths._paths[D]["u"].owners) == ["p1", "p2"]


def test_equal_units_of_two_destinations_are_two() -> None:
    paths = PathMap()
    paths.resolve(D, ["u"], "p", lambda unit: "b1", 0)
    found = paths.resolve(("topic", "orders"), ["u"], "p", lambda unit: "b2", 0)
    assert found.where == {"u": "b2"}


def test_a_question_is_bounded() -> None:
    with pytest.raises(ValueError, match="1001 units"):
        PathMap().resolve(D, ["u"] * (UNITS_MAX + 1), "p", first, 0)


def test_a_path_ends_with_its_last_producer_and_its_last_message() -> None:  # U14
    paths = PathMap()
    paths.resolve(D, ["u", "v"], "p", first, 0)
    assert paths.candidates(0) == []
    paths.release(D, "p")
    (asked,) = paths.candidates(0)
    assert (asked.destination, asked.member, asked.units) == (D, "b1", ("u", "v"))
    assert len(paths.settle_units(asked, ["v"])) == 1
    assert (paths.member_of(D, "u"), paths.member_of(D, "v")) == (None, "b1")
    (asked,) = paths.candidates(0)
    assert asked.units == ("v",)
    paths.settle_units(asked, [])
    assert paths.count == 0
    assert paths.resolve(D, ["u"], "p", lambda unit: "b2", 0).where == {"u": "b2"}, "it may begin again elsewhere"


def test_a_unit_that_was_used_since_the_member_was_asked_stays() -> None:
    paths = PathMap()
    paths.resolve(D, ["u"], "p", first, 0)
    paths.release(D, "p", ["u"])
    (asked,) = paths.candidates(0)
    paths.resolve(D, ["u"], "q", first, 1)
    assert paths.settle_units(asked, []) == ()
    paths.release(D, "q")
    assert paths.settle_units(asked, []) == (), "its messages may have come after the member answered"
    assert paths.member_of(D, "u") == "b1"


def test_a_producer_that_is_not_heard_for_a_lease_loses_its_units() -> None:
    paths = PathMap(lease_ms=1000)
    paths.resolve(D, ["u"], "p", first, 0)
    paths.resolve(D, ["u", "v"], "q", first, 0)
    assert paths.renew("q", 900)
    assert paths.expire(1000) == ["p"]
    assert list(paths._paths[D]["u"].owners) == ["q"]
    assert paths.expire(1900) == ["q"]
    assert paths.candidates(1900)[0].units == ("u", "v")
    assert not paths.renew("q", 1901), "it has to ask again"


def test_those_that_wait_longest_are_asked_for_first_and_a_bounded_number() -> None:
    paths = PathMap()
    paths.resolve(D, [f"u{n}" for n in range(10)], "p", first, 0)
    paths.release(D, "p")
    order = sorted(f"u{n}" for n in range(10))
    seen = []
    for _ in range(5):
        (asked,) = paths.candidates(0, 2)
        seen += asked.units
        paths.settle_units(asked, asked.units)
    assert sorted(seen) == order


def test_the_map_survives_a_restart_and_units_are_held_for_a_lease() -> None:
    paths = PathMap()
    log = list(paths.resolve(D, ["u", "v", "w"], "p", first, 0).frames)
    paths.release(D, "p", ["w"])
    log += paths.settle_units(paths.candidates(0)[0], [])
    again = PathMap.load(log, 5000)
    assert (again.member_of(D, "u"), again.member_of(D, "w"), again.count) == ("b1", None, 2)
    assert again.candidates(5000 + LEASE_MS - 1) == []
    again.resolve(D, ["v"], "p", lambda unit: "b9", 6000)
    assert [asked.units for asked in again.candidates(5000 + LEASE_MS)] == [("u",)]


def test_a_log_that_cannot_be_read_names_the_frame() -> None:
    good = PathMap().resolve(D, ["u"], "p", first, 0).frames[0]
    for bad in (b"{", b"[1,2,3,4]", b'["forget","queue","x",["u"]]', b'["what","queue","x",[]]'):
        with pytest.raises(StoreDamagedError, match="frame 1 of the path map"):
            PathMap.load([good, bad], 0)


def test_a_log_that_is_mostly_history_is_due_for_compaction() -> None:
    paths, log = PathMap(), []
    for round_ in range(12):
        units = [f"{round_}-{n}" for n in range(UNITS_MAX)]
        log += paths.resolve(D, units, "p", first, 0).frames
        if round_:
            paths.release(D, "p", units)
            log += paths.settle_units(paths.candidates(0)[0], [])
    assert paths.compaction_due
    short = paths.snapshot()
    assert not paths.compaction_due
    one, other = PathMap.load(log, 0), PathMap.load(short, 0)
    assert one.count == other.count == UNITS_MAX
    assert all(other.member_of(D, f"0-{n}") == "b1" for n in range(UNITS_MAX))


def test_a_broker_that_is_gone_for_good_takes_its_paths_with_it() -> None:  # W-119
    paths = PathMap()
    log = list(paths.resolve(D, ["u", "v"], "p", lambda unit: {"u": "b1", "v": "b2"}[unit], 0).frames)
    log += paths.drop_member("b2")
    assert (paths.member_of(D, "u"), paths.member_of(D, "v")) == ("b1", None)
    assert (paths.count, PathMap.load(log, 0).count) == (1, 1)
    assert paths.drop_member("b2") == ()
    paths.release(D, "p")
    assert [asked.units for asked in paths.candidates(0)] == [("u",)]


UNITS = [f"u{n}" for n in range(5)]
PRODUCERS = ["p", "q"]


class Paths(RuleBasedStateMachine):
    """U12, U14: a unit has one member as long as anybody uses it or a message of it lives, whatever happens."""

    def __init__(self) -> None:
        super().__init__()
        self.paths = PathMap(lease_ms=100)
        self.log: list[bytes] = []
        self.now = 0
        self.where: dict[str, str] = {}
        self.holds: dict[str, set[str]] = {producer: set() for producer in PRODUCERS}
        self.heard = dict.fromkeys(PRODUCERS, 0)
        self.messages: Counter[str] = Counter()
        self.asked: list[tuple[RouteCandidate, list[str]]] = []

    @rule(unit=st.sampled_from(UNITS), producer=st.sampled_from(PRODUCERS), member=st.sampled_from(["b1", "b2"]))
    def use(self, unit: str, producer: str, member: str) -> None:
        found = self.paths.resolve(D, [unit], producer, lambda _: member, self.now)
        self.log += found.frames
        if unit in self.where:
            assert found.where[unit] == self.where[unit], "all live messages of a unit are on one member (U12)"
        self.where[unit] = found.where[unit]
        self.holds[producer].add(unit)
        self.heard[producer] = self.now

    @precondition(lambda self: any(self.holds.values()))
    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        producer = data.draw(st.sampled_from([p for p, held in self.holds.items() if held]))
        self.messages[data.draw(st.sampled_from(sorted(self.holds[producer])))] += 1

    @rule(unit=st.sampled_from(UNITS))
    def consume(self, unit: str) -> None:
        self.messages[unit] = 0

    @rule(producer=st.sampled_from(PRODUCERS))
    def close(self, producer: str) -> None:
        self.paths.release(D, producer)
        self.holds[producer].clear()

    @rule(ms=st.integers(1, 150))
    def wait(self, ms: int) -> None:
        self.now += ms
        gone = self.paths.expire(self.now)
        for producer, heard in self.heard.items():
            if self.now >= heard + 100:
                self.holds[producer].clear()
                assert not self.paths.renew(producer, self.now)
            else:
                assert producer not in gone

    @rule()
    def ask(self) -> None:
        for candidate in self.paths.candidates(self.now):
            assert all(self.where[unit] == candidate.member for unit in candidate.units)
            self.asked.append((candidate, [unit for unit in candidate.units if self.messages[unit]]))

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def hear(self, data: st.DataObject) -> None:
        candidate, live = self.asked.pop(data.draw(st.integers(0, len(self.asked) - 1)))
        self.log += self.paths.settle_units(candidate, live)
        for unit in candidate.units:
            if self.paths.member_of(D, unit) is None:
                assert not self.messages[unit], "a path was forgotten while a message of it lives (U14)"
                assert not any(unit in held for held in self.holds.values())
                self.where.pop(unit, None)

    @rule()
    def restart(self) -> None:
        self.paths = PathMap.load(self.log, self.now, lease_ms=100)
        self.asked.clear()
        for producer in PRODUCERS:
            self.holds[producer].clear()

    @invariant()
    def paths_are_where_they_were(self) -> None:
        for unit in UNITS:
            assert self.paths.member_of(D, unit) == self.where.get(unit)
        assert self.paths.count == len(self.where)


TestPaths = Paths.TestCase
TestPaths.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
