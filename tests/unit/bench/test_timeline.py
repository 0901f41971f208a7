"""The timeline of traced sends: the parts between stamps, which add up to the whole."""

from __future__ import annotations

from pathlib import Path

import pytest

import raybroker as rb
from raybroker.bench import LoadPlan, run_load
from raybroker.bench import timeline as tl
from raybroker.bench.timeline import PARTS, Timeline, parts_of
from raybroker.client.producer.tracing import ProducerTrace, TracedSend, trace_of
from raybroker.model.errors import BrokerError, IllegalStateError
from raybroker.system.clock import monotonic_clock
from raybroker.wire.native import frames as wire

KEYS = [key for key, _ in PARTS]


def traced(
    *, same_clock: bool = True, offset_ns: int = 0, stored: bool = True, slow_ns: int = 0, events: int = 0
) -> TracedSend:
    """A send that was called at 0; ``slow_ns``: of a sync that took so much longer."""
    o, late = offset_ns, offset_ns + slow_ns
    commit = (o + 500, late + 900, 300 + slow_ns) if stored else (0, 0, 0)
    host = wire.TracedFrame(1, 7, 0, o + 200, o + 400, *commit, confirmed_ns=late + 1000, events=events)
    return TracedSend(100, 1100 + slow_ns, host, same_clock)


@pytest.mark.parametrize(
    ("send", "parts"),
    [
        (traced(), [100, 100, 200, 100, 100, 300, 100, 100, 150, 0]),
        (traced(stored=False), [100, 100, 200, 0, 0, 0, 600, 100, 150, 0]),
        (traced(same_clock=False, offset_ns=1 << 40), [100, 0, 200, 100, 100, 300, 100, 0, 150, 200]),
        # It may be named the same and be another one, where containers have their own.
        (traced(offset_ns=1 << 40), [100, 0, 200, 100, 100, 300, 100, 0, 150, 200]),
    ],
)
def test_the_parts_of_a_send_add_up_to_the_whole(send: TracedSend, parts: list[int]) -> None:
    found = parts_of(0, 1250, send)
    assert list(found) == parts
    assert sum(found) == 1250


def test_means_and_the_slowest_add_up_and_show_which_part_was_slow() -> None:
    timeline = Timeline()
    for number in range(200):
        slow_ns = 1_000_000 if number % 100 == 50 else 0
        events = wire.COLLECTED if number in {50, 51} else 0
        timeline.record(0, 1250 + slow_ns, traced(slow_ns=slow_ns, events=events))
    timeline.record(0, 1, None)
    found = timeline.to_json()
    assert (found["sends"], found["untraced"]) == (200, 1)
    whole = found["parts"].pop("whole")
    for column in ("mean", "slowest"):
        assert sum(part[column] for part in found["parts"].values()) == pytest.approx(whole[column], abs=0.5)
    assert found["parts"]["sync"]["slowest"] == pytest.approx(1000.3, abs=0.1)
    assert found["parts"]["sync"]["p50"] == pytest.approx(0.3)
    assert "ways" not in found["parts"], "a part that no send has is not shown"
    assert found["events"] == {"collected": {"of_all": 0.01, "of_slowest": 0.5}}
    assert len(timeline.lines()) == 2 + len(found["parts"]) + 1 + 1


def test_what_is_kept_is_bounded_and_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tl, "SENDS_MAX", 3)
    one, other = Timeline(), Timeline()
    for timeline in (one, other):
        for _ in range(2):
            timeline.record(0, 1250, traced())
    one.merge(other)
    one.record(0, 1250, traced())
    assert (len(one), one.untraced) == (3, 2)
    assert Timeline().to_json() == {"sends": 0, "untraced": 0, "parts": {}, "events": {}}


def test_a_trace_tells_of_the_last_send_once_and_of_no_other() -> None:
    times = iter(range(10, 100, 10))
    trace = ProducerTrace(lambda: next(times))
    trace.frame(1, 0, 7, b"block")
    trace.heard(traced().host._replace(first_seq=6, clock=monotonic_clock()))
    assert trace.take_last() is None
    trace.heard(traced().host._replace(clock=monotonic_clock()))
    found = trace.take_last()
    assert found is not None
    assert (found.written_ns, found.heard_ns, found.same_clock) == (10, 20, True)
    assert trace.take_last() is None


@pytest.mark.parametrize("stored", [True, False])
def test_a_load_shows_where_the_time_of_its_sends_goes(tmp_path: Path, stored: bool) -> None:
    with rb.loopback(store=tmp_path / "store" if stored else None) as connection:
        plan = LoadPlan(duration_seconds=0.3, warmup_seconds=0.0, rate_per_second=100, trace=True, consumers=0)
        report = run_load(plan, connect=lambda _: connection, in_threads=True)
    found = report.to_json()["trace"]
    assert (found["sends"], found["untraced"]) == (30, 0)
    assert ("sync" in found["parts"]) is stored
    whole = found["parts"].pop("whole")
    assert sum(part["mean"] for part in found["parts"].values()) == pytest.approx(whole["mean"], abs=1)
    assert whole["mean"] == pytest.approx(report.latencies["confirm"].mean_us(), rel=0.01, abs=2)
    assert "the whole call" in report.text()


def test_a_send_that_is_refused_is_not_traced_and_leaves_nothing_behind() -> None:
    with rb.loopback() as connection:
        connection.admin().create_destination("queue", "small", maxBytesPerMsg=10)
        producer = connection.session().producer("small")
        trace = trace_of(producer)
        with pytest.raises(BrokerError):
            producer.send(bytes(100))
        assert trace.take_last() is None
        producer.send(b"x")
        assert trace.take_last() is not None
        unnamed = connection.session().producer()
        with pytest.raises(IllegalStateError, match="cannot be traced"):
            trace_of(unnamed)
