"""The side of those who want tasks done: to enqueue one, to ask how it stands, to cancel it.

All of it runs on one event loop, and many calls may be under way: what they send together is stored together.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import Any, Final, NamedTuple

from raybroker.client.aio.handles import Connection
from raybroker.model.errors import BrokerError, ConnectionLostError, IllegalStateError
from raybroker.serve import tasks
from raybroker.serve.connecting import TaskPlan, connected
from raybroker.serve.exported import exported_bodies
from raybroker.serve.sending import SendTogether
from raybroker.system.clock import SystemClock
from raybroker.system.entropy import token

TASK_ID_BYTES: Final = 16
KNOWN_MAX: Final = 1_000
"""Results that are kept here once they were asked for: they do not change."""

log = logging.getLogger("raybroker.serve")


class TaskLine(NamedTuple):
    """A connection with what is made of it."""

    connection: Connection
    producer: SendTogether


class TaskClient:
    """See the module; it connects with its first call, and again after a lost connection."""

    def __init__(self, plan: TaskPlan) -> None:
        self._plan = plan
        self._opening = asyncio.Lock()
        self._line: TaskLine | None = None
        self._known: OrderedDict[str, dict[str, Any]] = OrderedDict()

    async def line(self) -> TaskLine:
        async with self._opening:
            if self._line is None:
                connection = await connected(self._plan)
                session = await connection.session()
                producer = await session.producer(serializer=self._plan.config.serializer)
                self._line = TaskLine(connection, SendTogether(producer))
            return self._line

    async def _lost(self, line: TaskLine) -> None:
        """The connection is of no use any more: the next call makes another one."""
        if self._line is line:
            self._line = None
            try:
                await line.connection.close()
            except BrokerError as error:
                log.debug("a lost connection could not be closed: %s", error)

    async def enqueue(self, name: str, args: Any, kwargs: Any, given: dict[str, Any]) -> str:
        """Store a task; its id."""
        body, options = tasks.body_of(args, kwargs), tasks.send_options(given)
        task_id = str(options.setdefault("correlation_id", token(TASK_ID_BYTES).hex()))
        line = await self.line()
        try:
            await line.producer.send(body, destination=self._plan.queue, type=name, **options)
        except (ConnectionLostError, IllegalStateError):
            await self._lost(line)
            raise
        return task_id

    async def result(self, task_id: str) -> dict[str, Any] | None:
        """The body of the result of a task; None while there is none."""
        if (known := self._known.get(task_id)) is not None:
            return known
        line = await self.line()
        try:
            found = await find_result(line.connection, self._plan, task_id)
        except (ConnectionLostError, IllegalStateError):
            await self._lost(line)
            raise
        if found is not None:
            self._known[task_id] = found
            while len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
        return found

    async def cancel(self, task_id: str) -> dict[str, Any] | None:
        """Have a task not begin, and one that runs as a coroutine end; its result, as of then.

        One that has ended stays as it is. The result comes first: what a replica does from here on is not seen.
        """
        line, plan = await self.line(), self._plan
        cancelled = tasks.cancellations(plan.queue)
        try:
            await send_result(
                line.producer, plan, task_id, tasks.TaskOutcome(tasks.REVOKED).body(0, SystemClock().now_ms() / 1000)
            )
            for destination in (cancelled, f"topic:{cancelled}"):
                await line.producer.send(task_id, destination=destination)
        except (ConnectionLostError, IllegalStateError):
            await self._lost(line)
            raise
        return await self.result(task_id)

    async def queue_figures(self) -> dict[str, Any]:
        """Counts of the queue of tasks."""
        line = await self.line()
        try:
            found = await line.connection.admin().query_destination("queue", self._plan.queue)
        except (ConnectionLostError, IllegalStateError):
            await self._lost(line)
            raise
        names = ("messages", "waiting", "delayed", "unacknowledged", "active_consumers", "messages_in", "messages_out")
        return {"queue": self._plan.queue, **{name: found[name] for name in names if name in found}}

    async def disconnect(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            await line.connection.close()


async def send_result(producer: SendTogether, plan: TaskPlan, task_id: str, body: dict[str, Any]) -> None:
    """Store the result of a task, unless it has one."""
    await producer.send(
        body,
        destination=plan.result_of(task_id),
        correlation_id=task_id,
        dedup_id=task_id,
        ttl_ms=int(plan.config.result_ttl_s * 1000),
    )


async def find_result(connection: Connection, plan: TaskPlan, task_id: str) -> dict[str, Any] | None:
    """The body of the result of a task, whichever broker has it; None while there is none."""
    selector = tasks.selector_of(task_id)
    async for body in exported_bodies(connection, plan.result_of(task_id), selector, plan.config.serializer):
        found: dict[str, Any] = body
        return found
    return None
