"""Latencies at a given rate: the timetable, what counts, and what the report says of it."""

from __future__ import annotations

import itertools

import pytest

from benchmarks import latency, pace, table
from benchmarks.goals import ABSOLUTE
from benchmarks.latency import HEAD, Latency, lowest_p99, rows
from benchmarks.pace import Pace, Receiver, Sender, send_all
from benchmarks.readings import OURS
from raybroker.bench.latency import LatencyCounts

SECOND = 1_000_000_000
PACE = Pace(1000.0, duration_s=1.0, warmup_s=0.5, size_bytes=64)


class Clock:
    def __init__(self, now_ns: int = 0) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += max(1, round(seconds * SECOND))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(pace, "monotonic_ns", made)
    monkeypatch.setattr(pace, "sleep", made.sleep)
    return made


def test_messages_are_due_at_the_rate_whatever_became_of_those_before() -> None:
    assert PACE.messages == 1500
    assert [PACE.due_ns(SECOND, number) for number in (0, 1, 500)] == [SECOND, SECOND + 1_000_000, SECOND * 3 // 2]
    for now_ns, due in ((SECOND - 1, 0), (SECOND, 1), (SECOND + 1_500_000, 2), (SECOND * 9, 1500)):
        assert PACE.due_by(SECOND, now_ns) == due


def test_a_sender_that_was_kept_sends_what_was_due_with_its_own_time(clock: Clock) -> None:
    sender, receiver = Sender(PACE, 0), Receiver(PACE, 0)
    clock.now_ns = 0
    assert [len(body) for body in sender.due()] == [64]
    assert sender.due() == []
    assert sender.wait_seconds() == pytest.approx(0.001)
    clock.now_ns = 2 * SECOND  # Nothing could be sent for two seconds: all of it was due long ago.
    for body in itertools.chain.from_iterable(iter(sender.due, [])):
        receiver.take(body, clock.now_ns)
    assert sender.over
    assert receiver.from_due.total == 1000
    assert receiver.from_due.percentile_us(100.0) >= 1_490_000
    assert receiver.from_send.percentile_us(100.0) == 0


def test_messages_of_the_warm_up_are_received_and_not_counted(clock: Clock) -> None:
    sender, receiver = Sender(PACE, 0), Receiver(PACE, 0)
    send_all(sender, lambda bodies: [receiver.take(body, clock.now_ns) for body in bodies])
    assert (receiver.received, receiver.from_due.total, receiver.over) == (1500, 1000, True)
    assert receiver.from_due.percentile_us(99.9) <= 1000


def test_what_does_not_come_in_time_is_an_error_and_not_a_short_list(clock: Clock) -> None:
    receiver = Receiver(PACE, 0)
    assert not receiver.over
    clock.now_ns = 60 * SECOND
    with pytest.raises(TimeoutError, match="0 of 1500"):
        _ = receiver.over


def test_a_body_of_another_run_is_refused() -> None:
    with pytest.raises(ValueError, match="another run"):
        Receiver(PACE, 0).take(bytes(64), 0)


def of(system: str, *values_us: int, fault: str = "", hogged: bool = False, rate: float = 10_000.0) -> Latency:
    counts = LatencyCounts()
    for value in values_us:
        counts.record(value)
    return Latency(system, rate, counts, counts, hogged, fault)


def test_a_row_has_the_percentiles_or_what_went_wrong() -> None:
    good, bad = rows([of(OURS, 1000, 2000, hogged=True), of("kafka", fault="it does not keep up")])
    assert good == ("10,000 msg/s, hog", OURS, "1.00", "2.00", "2.00", "2.00", "2 messages")
    assert bad[2:] == ("–", "–", "–", "–", "it does not keep up")
    assert len(good) == len(bad) == len(HEAD)


def test_only_peers_that_sync_and_answered_are_compared_with() -> None:
    found = [of(OURS, 2000), of("rabbitmq", 3000), of("kafka", 1000), of("redis-streams", fault="no")]
    synced = [OURS, "rabbitmq", "redis-streams"]
    assert lowest_p99(found, 10_000.0, synced).endswith("(rabbitmq) 3.00 ms: reached")
    assert lowest_p99([*found, of("nats-current", 2000)], 10_000.0, [*synced, "nats-current"]).endswith("missed")
    assert lowest_p99(found, 10_000.0, [OURS]).endswith("not measured")


def test_the_table_takes_percentiles_of_the_runs_that_kept_up() -> None:
    runs = [of(OURS, 1000), of(OURS, 3000), of(OURS, fault="no"), of(OURS, 9000, rate=1.0), of("kafka", 1)]
    found = table.percentiles(runs)
    assert (found["p99_10k"].low, found["p99_10k"].high, found["p99_10k"].rounds) == (1.0, 3.0, 2)
    assert table.percentiles([of("kafka", 1)]) == {}


def test_the_table_has_a_verdict_for_every_goal_measured_or_not() -> None:
    found = table.Found(absolute=table.percentiles([of(OURS, 900)]))
    words = {one.goal.figure: one.word for one in found.verdicts() if one.goal in ABSOLUTE}
    assert words["p50_10k"] == words["p99_10k"] == "reached"
    assert {word for figure, word in words.items() if "10k" not in figure} == {"not measured"}
    shown = table.text(found, {"cpu": "c", "cpus": 2, "sync": [{}, {"median_ms": 0.1}]})
    assert all(one.goal.title in shown for one in found.verdicts())


def test_every_measured_system_has_a_paced_form() -> None:
    from benchmarks.__main__ import build_systems

    having = {system.name for system in build_systems(quick=True) if getattr(type(system), "paced", None)}
    assert set(latency.MEASURED) <= having
