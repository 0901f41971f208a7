"""What can be checked of a schedule before anything is sent."""

from __future__ import annotations

import pytest

from raybroker.client.options import SendOptions
from raybroker.client.producer.producer_state import Shared
from raybroker.client.producer.schedule import SchedulePlan, scheduled, take_plan
from raybroker.model.errors import ConfigError, IllegalStateError, MessageFormatError


def test_a_plan_is_what_was_asked_for_and_the_rest_is_left() -> None:
    options: SendOptions = {"priority": 3, "schedule": "@every 10s", "repeat": 3, "catch_up": True}
    assert take_plan(options) == SchedulePlan("@every 10s", "UTC", 3, True)
    assert options == {"priority": 3}
    assert take_plan(options) is None


@pytest.mark.parametrize(
    "options",
    [{"schedule": ""}, {"schedule": "@daily", "timezone": ""}, {"schedule": "@daily", "repeat": 0}],
)
def test_what_is_out_of_range_is_refused(options: SendOptions) -> None:
    with pytest.raises(ConfigError):
        take_plan({**options})


def test_a_deduplication_id_is_for_one_message() -> None:
    with pytest.raises(MessageFormatError, match="a schedule sends many"):
        take_plan({"schedule": "@daily", "dedup_id": "id"})


@pytest.mark.parametrize("options", [{"timezone": "Europe/Zurich"}, {"repeat": 3}, {"catch_up": True}])
def test_without_a_schedule_its_arguments_say_nothing(options: SendOptions) -> None:
    assert take_plan({"schedule": None, "timezone": "UTC", "repeat": None, "catch_up": False}) is None
    with pytest.raises(ConfigError, match="is nothing without schedule="):
        take_plan({**options})


def test_a_schedule_belongs_to_one_destination() -> None:
    with pytest.raises(IllegalStateError, match="belongs to one destination"):
        scheduled(object(), b"", b"", Shared(True, 4), SchedulePlan("@daily", "UTC", None, False), None)
