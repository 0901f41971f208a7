"""What can be checked of a schedule before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.client.producer.producer_state import Shared
from raybroker.client.producer.schedule import Plan, check_unscheduled, plan_of, scheduled
from raybroker.model.errors import ConfigError, IllegalStateError, MessageFormatError


def test_a_plan_is_what_was_asked_for() -> None:
    assert plan_of("@every 10s", "UTC", 3, True, None) == Plan("@every 10s", "UTC", 3, True)


@pytest.mark.parametrize("args", [("", "UTC", None, False), ("@daily", "", None, False), ("@daily", "UTC", 0, False)])
def test_what_is_out_of_range_is_refused(args: Any) -> None:
    with pytest.raises(ConfigError):
        plan_of(*args, None)


def test_a_deduplication_id_is_for_one_message() -> None:
    with pytest.raises(MessageFormatError, match="a schedule sends many"):
        plan_of("@daily", "UTC", None, False, "id")


@pytest.mark.parametrize("args", [("Europe/Zurich", None, False), ("UTC", 3, False), ("UTC", None, True)])
def test_without_a_schedule_its_arguments_say_nothing(args: Any) -> None:
    check_unscheduled("UTC", None, False)
    with pytest.raises(ConfigError, match="is nothing without schedule="):
        check_unscheduled(*args)


def test_a_schedule_belongs_to_one_destination() -> None:
    with pytest.raises(IllegalStateError, match="belongs to one destination"):
        scheduled(object(), b"", b"", Shared(True, 4), Plan("@daily", "UTC", None, False), None)
