"""Counters of a broker never go down while it lives, whatever its hosts do (M-11)."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from raybroker.metrics.totals import DestinationTotals, Totals, gauges, plus

KEY = "messages_in_total"


def told(count: int, seconds: float = 0.0) -> dict[str, dict[str, Any]]:
    return {
        "queue": {KEY: count, "service_seconds": ([count, 0], seconds), "messages": 5},
        "host": {"routed_messages_total": {"b1": count}},
    }


def total(totals: Totals) -> int:
    return int(totals.counter_rows().get("queue", {}).get(KEY, 0))


class Hosts:
    """Hosts that count, restart and go, with what really happened since the broker's start."""

    def __init__(self, before: dict[str, int]) -> None:
        self.totals = Totals()
        self.counts = dict(before)
        self.incarnations = dict.fromkeys(before, 1)
        self.unseen = 0
        self.seen = 0
        self.look(older=set(before))

    def look(self, older: set[str] = frozenset()) -> None:  # type: ignore[assignment]
        for host, count in self.counts.items():
            self.totals.take_rows(host, self.incarnations[host], told(count), older=host in older)
        self.totals.keep(set(self.counts))
        self.seen += self.unseen
        self.unseen = 0

    def count(self, host: str, more: int) -> None:
        if host not in self.counts:
            self.counts[host], self.incarnations[host] = 0, 1
        self.counts[host] += more
        self.unseen += more

    def restart(self, host: str) -> None:
        if host in self.counts:
            self.look()
            self.counts[host], self.incarnations[host] = 0, self.incarnations[host] + 1

    def end(self, host: str) -> None:
        self.look()
        self.counts.pop(host, None)
        self.incarnations.pop(host, None)
        self.look()  # a name is never given again


NAMES = st.sampled_from(["h1", "h2", "h3"])
STEPS = st.one_of(
    st.tuples(st.just("count"), NAMES, st.integers(0, 50)),
    st.tuples(st.just("restart"), NAMES),
    st.tuples(st.just("end"), NAMES),
    st.tuples(st.just("look")),
)


@given(st.dictionaries(NAMES, st.integers(0, 100)), st.lists(STEPS, max_size=40))
def test_the_total_is_what_happened_since_the_broker_started(before: dict[str, int], steps: list[Any]) -> None:
    hosts = Hosts(before)
    assert total(hosts.totals) == 0
    reached = 0
    for name, *arguments in steps:
        getattr(hosts, name)(*arguments)
        assert total(hosts.totals) >= reached
        reached = total(hosts.totals)
    hosts.look()
    assert total(hosts.totals) == hosts.seen
    rows = hosts.totals.counter_rows()
    assert rows.get("queue", {}).get("service_seconds", ([0], 0.0))[0][0] == hosts.seen
    assert rows.get("host", {}).get("routed_messages_total", {}).get("b1", 0) == hosts.seen


def test_what_a_host_counted_between_the_last_scrape_and_its_end_is_added() -> None:
    totals = Totals()

    def take(incarnation: int, count: int, recovered: int, lasting: int) -> int:
        rows = {kind: {"queue": {KEY: n}} for kind, n in (("recovered", recovered), ("lasting", lasting))}
        totals.take_rows("h1", incarnation, told(count), older=False, **rows)
        return total(totals)

    assert take(1, 1000, 50, 1050) == 1000  # 50 are from before the broker.
    assert take(2, 3, 2050, 2053) == 2003
    assert take(2, 5, 2050, 2055) == 2005
    assert take(3, 0, 2000, 2000) == 2005, "what left no record takes nothing away"
    assert take(3, 7, 2000, 2007) == 2012
    assert totals.counter_rows()["host"]["routed_messages_total"]["b1"] == 1000 + 5 + 7


def test_a_destination_goes_on_with_what_its_host_has_recovered() -> None:
    totals = DestinationTotals()

    def take(incarnation: int, count: int, recovered: int) -> int:
        row = {"type": "queue", "name": "q", KEY: count, "recovered": {KEY: recovered}, "messages": 1}
        found = totals.take_row("h1", incarnation, row)
        assert "recovered" not in found
        return int(found[KEY])

    assert take(1, 100, 40) == 100  # 40 are from before the broker.
    assert take(2, 0, 1140) == 1100
    assert take(3, 2, 1000) == 1102, "what left no record takes nothing away"
    assert take(3, 9, 1000) == 1109


def test_gauges_are_no_totals() -> None:
    totals = Totals()
    totals.take_rows("h1", 1, told(3), older=False)
    assert "messages" not in totals.counter_rows()["queue"]


def test_a_host_that_does_not_answer_keeps_what_it_counted() -> None:
    totals = Totals()
    totals.take_rows("h1", 1, told(3), older=False)
    totals.take_rows("h2", 1, told(4), older=False)
    totals.keep({"h1", "h2"})
    totals.take_rows("h1", 1, told(5), older=False)
    assert total(totals) == 9


def test_gauges_are_added_or_the_largest_stands() -> None:
    rows = [{"queue": {"messages": 2, "quota_used_ratio": 0.25}}, {"queue": {"messages": 3, "quota_used_ratio": 0.5}}]
    assert gauges(rows) == {"queue": {"messages": 5, "quota_used_ratio": 0.5}}  # type: ignore[arg-type]
    split = [{"host": {"process_threads": {"host": 2}}}, {"host": {"process_threads": {"host": 5, "broker": 1}}}]
    assert gauges(split) == {"host": {"process_threads": {"host": 7, "broker": 1}}}  # type: ignore[arg-type]


def test_what_one_side_lacks_is_zero() -> None:
    assert plus(0, ([1, 2], 0.5)) == ([1, 2], 0.5)
    assert plus(([1, 2], 0.5), 0, -1) == ([1, 2], 0.5)
    assert plus({"a": 1}, {"a": 2, "b": 3}, -1) == {"a": -1, "b": -3}
