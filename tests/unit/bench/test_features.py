"""The benchmark of features: what each figure sends, who receives it, and what it is compared with."""

from __future__ import annotations

from typing import Any

import pytest

import raybroker as rb
from benchmarks import ours_features as features
from benchmarks.goals import GOALS, PLAIN, judge
from benchmarks.ours_features import OPTIONS, PLANS, SELECTOR, Plan
from benchmarks.readings import FEATURES, FIGURE, ONE_BY_ONE, OURS, Amounts, Reading
from benchmarks.report import Report, markdown
from benchmarks.selector_cost import HEADERS_ONLY, SHORT, cost_us, encoded, evaluation
from benchmarks.selector_cost import SELECTOR as MICRO
from tests.unit.bench.test_report import MACHINE

SIZE = 64


class Job:
    """A harness that lets everybody go at once."""

    def ready(self, value: Any = None) -> None:
        """Nobody waits."""


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Any:
    """All workers share one broker in this process; their closing it does nothing."""
    with rb.loopback() as made:

        class Shared:
            def __enter__(self) -> Any:
                return made

            def __exit__(self, *_: object) -> None:
                """It stays open."""

        monkeypatch.setattr(features, "connect", lambda address: Shared())
        yield made


def test_every_plan_has_a_figure_and_every_goal_of_features_the_plain_queue_of_the_run() -> None:
    assert tuple(plan.key for plan in PLANS) == FEATURES
    assert {FIGURE[key].unit for key in FEATURES} == {FIGURE["through"].unit}
    goals = {goal.figure: goal.limit for goal in GOALS if goal.over == PLAIN}
    assert goals == {
        "selector": 0.6,
        "priority": 0.6,
        "expiry": 0.5,
        "units": 0.5,
        "tx_send": 0.5,
        "tx_take": 0.6,
        "topic_1": 1.0,
        "topic_64": 0.7,
    }
    assert [goal.limit for goal in GOALS if goal.figure == "selector_eval"] == [2.0]


def test_what_is_sent_is_what_the_figure_says() -> None:
    assert {OPTIONS["priority"](number) for number in range(100)} == set(range(10))
    assert sum(OPTIONS["ttl_ms"](number) > 0 for number in range(1000)) == 100
    sent = {plan.key: plan.sends for plan in PLANS if plan.producer is features.send_each}
    assert sent == {
        "selector": ("properties",),
        "priority": ("priority",),
        "expiry": ("ttl_ms",),
        "units": ("unit_of_order",),
    }
    assert len({OPTIONS["unit_of_order"](number) for number in range(5000)}) == features.UNITS
    assert set(ONE_BY_ONE) == sent.keys()


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.key)
def test_a_topic_has_its_subscribers_in_a_few_processes_and_a_queue_one_consumer(plan: Plan) -> None:
    *consumers, producer = plan.works({}, "x", 1000, SIZE)
    assert producer[0] is plan.producer
    assert len(consumers) == (min(2, plan.copies) if plan.copies else 1)
    if plan.copies:
        assert sum(args[-1] for _, args in consumers) == plan.copies
        assert {work for work, _ in consumers} == {features.subscribe}


@pytest.mark.parametrize("plan", [plan for plan in PLANS if not plan.copies], ids=lambda plan: plan.key)
def test_a_queue_is_empty_after_each_figure(plan: Plan, connection: Any) -> None:
    (consumer, taken), (producer, sent) = plan.works({}, "q", 1000, SIZE)
    span = producer(Job(), *sent)
    assert span["ended_ns"] > span["began_ns"]
    found = consumer(Job(), *taken)
    assert found["ended_ns"] > span["began_ns"]
    queue = connection.admin().query_destination("queue", "q")
    assert (queue["messages_in"], queue["messages"]) == (1000, 0)


def test_the_selector_wants_every_message_that_is_sent_with_properties(connection: Any) -> None:
    features.send_each(Job(), {}, "q", 1000, SIZE, "properties")
    session = connection.session()
    assert sum(1 for _ in session.browser("q", SELECTOR)) == 1000
    assert sum(1 for _ in session.browser("q", f"NOT ({SELECTOR})")) == 0


def test_a_transaction_is_of_a_hundred_messages(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = []
    make = connection.session

    def session(*args: Any, **options: Any) -> Any:
        made = make(*args, **options)
        commit = made.commit
        monkeypatch.setattr(made, "commit", lambda: commits.append(commit()))
        return made

    monkeypatch.setattr(connection, "session", session)
    features.send_in_transactions(Job(), {}, "q", 1000, SIZE)
    sent = len(commits)
    assert 10 <= sent <= 10 + features.TX_SESSIONS
    features.take_in_transactions(Job(), {}, "q", 1000, SIZE)
    assert 10 <= len(commits) - sent <= 10 + features.TX_SESSIONS


def test_every_subscriber_gets_everything(connection: Any) -> None:
    class Publishing(Job):
        def ready(self, value: Any = None) -> None:
            features.send_many(Job(), {}, "t", 500, SIZE, "topic")

    span = features.subscribe(Publishing(), {}, "t", 500, SIZE, 3)
    assert span["cpu_s"] >= 0
    topic = connection.admin().query_destination("topic", "t")
    assert (topic["messages_in"], topic["messages"]) == (500, 0)


def test_the_report_has_both_ratios_and_the_verdicts() -> None:
    report = Report("now", Amounts(), 1, MACHINE)
    report.readings = [
        Reading(OURS, figure, value, 1, "CPU")
        for figure, value in {"plain": 1000.0, "each": 500.0, "selector": 450.0, "topic_64": 800.0}.items()
    ]
    text = markdown(report)
    assert f"| {FIGURE['selector'].title} | 450 | 0.45 | 0.90 | CPU |" in text
    assert f"| {FIGURE['topic_64'].title} | 800 | 0.80 | – | CPU |" in text
    words = {verdict.goal.figure: verdict.word for verdict in judge(report.readings) if verdict.goal.over == PLAIN}
    assert (words["selector"], words["topic_64"], words["expiry"]) == ("missed", "reached", "not measured")


def test_the_evaluation_looks_at_all_three_comparisons_of_half_the_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.selector_cost.TURNS", 1)
    monkeypatch.setattr("benchmarks.selector_cost.ROUNDS", 1)
    data = encoded(SIZE, 100)
    for text, wanted in ((MICRO, 0.5), (SHORT, 0), (HEADERS_ONLY, 1)):
        assert cost_us(data, text, wanted) > 0
    with pytest.raises(AssertionError, match="chose 50 of 100"):
        cost_us(data, MICRO, 1)
    value, note = evaluation(Job(), {}, Amounts())["selector_eval"]
    assert value > 0
    assert "with 10 properties" in note
