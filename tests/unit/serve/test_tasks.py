"""Tasks as messages, the rules of retries and the settings of the adapter; nothing of Ray is imported for them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.errors import ConfigError
from raybroker.model.naming.names import check_destination_name
from raybroker.serve import tasks
from raybroker.serve.adapter_config import RaybrokerAdapterConfig
from raybroker.serve.retrying import Retrying


@given(st.text(min_size=1, max_size=tasks.TASK_ID_CHARS_MAX))
def test_a_task_has_one_result_queue_among_those_of_its_queue(task_id: str) -> None:
    found = tasks.result_queue("documents", task_id)
    assert found == tasks.result_queue("documents", task_id)
    assert found in tasks.result_queues("documents")
    assert check_destination_name(found) == found


def test_results_are_spread_over_all_queues() -> None:
    assert {tasks.result_queue("q", str(number)) for number in range(1_000)} == set(tasks.result_queues("q"))


@pytest.mark.parametrize(("args", "kwargs"), [(None, None), ([1, "a"], None), ((1,), {"b": 2}), ([], {})])
def test_what_is_enqueued_is_the_task_that_comes(args: Any, kwargs: Any) -> None:
    task = tasks.task_of("1", "work", tasks.body_of(args, kwargs), None)
    assert task == tasks.Task("1", "work", list(args or []), kwargs or {}, 0)


@pytest.mark.parametrize(("args", "kwargs"), [("text", None), (None, [1]), (None, {1: 2}), (7, None)])
def test_arguments_of_no_call_are_refused_by_name(args: Any, kwargs: Any) -> None:
    with pytest.raises(ConfigError, match="args="):
        tasks.body_of(args, kwargs)


@pytest.mark.parametrize(
    ("task_id", "name", "body"),
    [
        (None, "work", {"args": [], "kwargs": {}}),
        ("1", None, {"args": [], "kwargs": {}}),
        ("1", "work", "text"),
        ("1", "work", {"args": [], "kwargs": {}, "more": 1}),
        ("1", "work", {"args": 7, "kwargs": {}}),
        ("1", "work", {"args": [], "kwargs": []}),
    ],
)
def test_another_message_is_no_task(task_id: str | None, name: str | None, body: Any) -> None:
    assert tasks.task_of(task_id, name, body, 0) is None


def test_options_of_a_task_are_those_of_its_message() -> None:
    found = tasks.send_options({"task_id": "a", "priority": 9, "countdown": 1.5, "expires": 60, "unit_of_order": "u"})
    assert found == {
        "correlation_id": "a",
        "dedup_id": "a",
        "priority": 9,
        "delivery_delay_ms": 1500,
        "ttl_ms": 60_000,
        "unit_of_order": "u",
    }
    assert tasks.send_options({"countdown": None}) == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"eta": 1}, "no option 'eta'"),
        ({"countdown": "soon"}, "countdown='soon'"),
        ({"expires": -1}, "expires=-1"),
        ({"countdown": True}, "countdown=True"),
        ({"task_id": ""}, "task_id=''"),
        ({"task_id": "a" * 129}, "128 characters"),
    ],
)
def test_options_that_cannot_be_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        tasks.send_options(given)


def test_a_selector_finds_ids_with_quotes() -> None:
    assert tasks.selector_of("it's") == "JMSCorrelationID = 'it''s'"


def test_pauses_double_up_to_the_longest_and_end_with_the_last_attempt() -> None:
    rules = Retrying(4, 10, (1.0, 5.0))
    assert [rules.delay_ms(retries) for retries in range(6)] == [1000, 2000, 4000, 5000, None, None]
    assert Retrying(None, 10, (0.5, 60.0)).delay_ms(10_000) == 60_000
    assert Retrying(0, 10, (1.0, 5.0)).delay_ms(0) is None


def test_a_task_that_takes_its_replicas_with_it_is_given_up() -> None:
    rules = Retrying(3, 2, (1.0, 5.0))
    assert [rules.is_lost(deliveries) for deliveries in (1, 2, 3)] == [False, False, True]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "RaybrokerAdapterConfig"),
        ({"broker_url": "redis://"}, "'broker_url'"),
        ({"serializer": "json"}, "serializer='json'"),
        ({"backoff_s": 3}, "backoff_s=3"),
        ({"backoff_s": (5, 1)}, "backoff_s"),
        ({"lost_attempts": 0}, "lost_attempts=0"),
        ({"results_max": 10**9}, "results_max"),
        ({"result_ttl_s": 0}, "result_ttl_s=0"),
        ({"cluster": "a/b"}, "a/b"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(given: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        RaybrokerAdapterConfig.checked(given)


def test_settings_may_be_a_dict_as_in_yaml() -> None:
    found = RaybrokerAdapterConfig.checked({"cluster": "c", "backoff_s": [2, 30]})
    assert (found.cluster, found.serializer) == ("c", None)
    assert RaybrokerAdapterConfig.checked(found) is found
