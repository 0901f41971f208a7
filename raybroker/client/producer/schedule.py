"""Recurring schedules, as a producer makes them: the message is handed over once, with when it is to be sent."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, NamedTuple

from raybroker.client.arguments import check_arguments
from raybroker.client.options import MESSAGE, SendOptions
from raybroker.client.producer.bodies.compression import compressed
from raybroker.client.producer.members.unit_routing import RoutedProducer
from raybroker.client.producer.producer import ProducerCore
from raybroker.client.producer.producer_state import Shared
from raybroker.model.blocks.block import encode_block
from raybroker.model.bounds import SCHEDULED_BYTES_MAX
from raybroker.model.errors import (
    ConfigError,
    IllegalStateError,
    MessageFormatError,
    MessageTooLargeError,
    RequestTimeoutError,
)
from raybroker.system.clock import SystemClock
from raybroker.system.entropy import token

ID_BYTES: Final = 12
OF_SCHEDULES: Final = frozenset(SendOptions.__annotations__) - frozenset(MESSAGE)
"""The options that only a send with a schedule has."""


class SchedulePlan(NamedTuple):
    """The times when a message is sent: see engine/schedules/recurrence.py. ``repeat`` None: for ever."""

    schedule: str
    timezone: str
    repeat: int | None
    catch_up: bool


def take_plan(options: SendOptions) -> SchedulePlan | None:
    """Take the options of a schedule out of those of ``send``; None when the message is sent once.

    They are checked as far as they can be here; raises ConfigError, MessageFormatError.
    """
    schedule = options.pop("schedule", None)
    given: dict[str, Any] = {
        "timezone": options.pop("timezone", "UTC"),
        "repeat": options.pop("repeat", None),
        "catch_up": options.pop("catch_up", False),
    }
    if schedule is None:  # Without a schedule these say nothing.
        for (name, value), default in zip(given.items(), ("UTC", None, False), strict=True):
            if value != default:
                raise ConfigError(f"{name}={value!r:.80} is nothing without schedule=, such as schedule='@every 10s'")
        return None
    check_arguments(schedule=schedule, **given)
    dedup_id = options.get("dedup_id")
    if dedup_id is not None:
        raise MessageFormatError(f"dedup_id={dedup_id!r} names one message; a schedule sends many: leave it out")
    return SchedulePlan(schedule, **given)


def scheduled(
    core: object, body: Any, header: bytes, shared: Shared, plan: SchedulePlan, timeout_s: float | None
) -> Coroutine[Any, Any, str]:
    """Work for the IO loop that makes the schedule and returns its id, once it is durable.

    Raises IllegalStateError in a transacted session and for a pattern of topics, MessageTooLargeError; the work raises
    what the broker answers. Asking again after a lost connection makes no second schedule.
    """
    if not isinstance(core, ProducerCore | RoutedProducer):
        raise IllegalStateError("a schedule belongs to one destination; make a producer for one")
    if core.transacted:
        raise IllegalStateError("a schedule is no part of a transaction; make it in a session that is not transacted")
    home = core.home if isinstance(core, RoutedProducer) else core
    kind, data = home.encode(body)
    if header:
        kind, data, header = compressed(kind, data, header)
    block = encode_block(
        [data],
        producer=0,
        first_seq=1,
        timestamp_ms=SystemClock().now_ms() if shared.stamped else 0,
        persistent=shared.persistent,
        kinds=kind,
        headers=[header] if header else None,
        priority=shared.priority,
    )
    if len(block) > SCHEDULED_BYTES_MAX:
        raise MessageTooLargeError(
            f"a message of {len(block)} bytes; that of a schedule has at most {SCHEDULED_BYTES_MAX}: send where it is"
        )
    args = {
        "id": token(ID_BYTES).hex(),
        "message": block,
        "schedule": plan.schedule,
        "timezone": plan.timezone,
        "repeat": plan.repeat,
        "catch_up": plan.catch_up,
        "ttl_ms": shared.ttl_ms,
        "delay_ms": shared.delay_ms,
    }
    return _asked(core, shared.unit, args, timeout_s)


async def _asked(
    wanted: ProducerCore | RoutedProducer, unit: str | None, args: dict[str, Any], timeout_s: float | None
) -> str:
    core = await wanted.member_of(unit) if isinstance(wanted, RoutedProducer) else wanted
    try:
        async with asyncio.timeout(timeout_s):
            return str((await core.call_host("schedule", args))["id"])
    except TimeoutError:
        raise RequestTimeoutError(
            f"no answer about a schedule from {core.name} within imqAckTimeout={timeout_s} s; list_schedules tells"
        ) from None
