"""Recurring schedules, as a producer makes them: the message is handed over once, with when it is to be sent."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, NamedTuple

from raybroker.client.arguments import check_arguments
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


class Plan(NamedTuple):
    """When a message is sent: see engine/schedules/recurrence.py. ``repeat`` None: for ever."""

    schedule: str
    timezone: str
    repeat: int | None
    catch_up: bool


def plan_of(schedule: str, timezone: str, repeat: int | None, catch_up: bool, dedup_id: str | None) -> Plan:
    """The arguments of ``send``, as far as they can be checked here; raises ConfigError, MessageFormatError."""
    check_arguments(schedule=schedule, timezone=timezone, repeat=repeat, catch_up=catch_up)
    if dedup_id is not None:
        raise MessageFormatError(f"dedup_id={dedup_id!r} names one message; a schedule sends many: leave it out")
    return Plan(schedule, timezone, repeat, catch_up)


def check_unscheduled(timezone: str, repeat: int | None, catch_up: bool) -> None:
    """Without a schedule these say nothing; raises ConfigError when one is given."""
    given = (("timezone", timezone, "UTC"), ("repeat", repeat, None), ("catch_up", catch_up, False))
    for name, value, default in given:
        if value != default:
            raise ConfigError(f"{name}={value!r:.80} is nothing without schedule=, such as schedule='@every 10s'")


def scheduled(
    core: object, body: Any, header: bytes, shared: Shared, plan: Plan, timeout_s: float | None
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
            return str((await core.ask("schedule", args))["id"])
    except TimeoutError:
        raise RequestTimeoutError(
            f"no answer about a schedule from {core.name} within imqAckTimeout={timeout_s} s; list_schedules tells"
        ) from None
