"""The consumer of a replica: takes tasks, runs their handlers, stores what came of them, and then acknowledges.

It takes a message when one of its places is free, and no sooner: what it has not begun is the broker's to give to
others.  What has ended while results were being stored is stored together next.  A message is acknowledged once the
result of its task, or its next attempt, is stored; when the replica dies before, the message comes again, flagged, and
is run again unless there is a result.

Messages are acknowledged up to the first whose task still runs, all with one call; one that has ended behind it is
acknowledged by itself after ``BEHIND_S``.

It survives what happens to its connection: it connects again, for as long as it is not stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any, Final

from raybroker.client.aio.handles import Connection, Consumer
from raybroker.client.consumer.message import Message
from raybroker.model.errors import BrokerError, ConnectionLostError, IllegalStateError, MessageFormatError
from raybroker.serve import tasks
from raybroker.serve.connecting import TaskPlan, connected
from raybroker.serve.exported import exported_bodies
from raybroker.serve.running_tasks import Job, RunningTasks
from raybroker.serve.sending import SendTogether
from raybroker.serve.task_client import find_result, send_result
from raybroker.serve.tasks import FAILURE, SUCCESS, Task, TaskOutcome
from raybroker.system.clock import SystemClock

IDLE_S: Final = 0.2
"""How long it waits for messages before it looks whether it should stop."""
PAUSE_FIRST_S: Final = 0.1
PAUSE_LONGEST_S: Final = 5.0
"""Between attempts to connect again."""
BEHIND_S: Final = 0.25
UNSTORED_MAX: Final = 1_000
"""Tasks that have ended and are not stored; nothing more is taken while there are so many."""
COUNTS: Final = ("succeeded", "failed", "retried", "revoked", "redelivered", "unprocessable", "reattached")

log = logging.getLogger("raybroker.serve")


@dataclass(eq=False)
class Receipt:
    """A message that was received, and the job that it is of: a job whose message comes again has several."""

    message: Message
    job: Job
    settled: bool = False
    """The broker was told what became of it."""


class TaskConsumer:
    """``run`` works until ``stop_taking`` is called, on one event loop; ``collect`` hears that tasks have ended."""

    def __init__(self, plan: TaskPlan, running: RunningTasks) -> None:
        self.running = running
        self.counts = dict.fromkeys(COUNTS, 0)
        self.state = "attaching"
        self.last_error: str | None = None
        self._plan = plan
        self._stopping = False
        self._ended = asyncio.Event()
        self._freed = asyncio.Event()
        self._jobs: dict[tuple[str, int], Job] = {}
        """Those that are not stored yet, by their attempts."""
        self._unstored: list[Job] = []
        self._in_order: deque[Receipt] = deque()
        """What was received with this connection and is not settled, in the order in which it came."""
        self._revoked: OrderedDict[str, None] = OrderedDict()

    def collect(self) -> None:
        """Tasks have ended: their places are free before they are stored."""
        self._unstored += self.running.take_ended()
        self._freed.set()
        self._ended.set()

    def stop_taking(self) -> None:
        """Take nothing more; :meth:`run` returns when what runs has ended and is stored."""
        self._stopping = True
        self._freed.set()

    async def run(self) -> None:
        pause_s = PAUSE_FIRST_S
        while not self._stopping:
            try:
                await self._work()
                continue
            except* BrokerError as group:
                self._lost(_first(group))
            await asyncio.sleep(pause_s)
            pause_s = PAUSE_FIRST_S if self.state == "running" else min(pause_s * 2, PAUSE_LONGEST_S)
        self.state = "stopped"

    def _lost(self, error: BaseException) -> None:
        if self.state == "running" or self.last_error != repr(error):
            log.error("the task processor of %s lost its broker and connects again: %s", self._plan.queue, error)
        self.state, self.last_error = "attaching", repr(error)

    async def _work(self) -> None:
        """Work with one connection until it is stopped; raises what ends the connection before."""
        connection, config = await connected(self._plan), self._plan.config
        self._in_order.clear()
        try:
            cancellations = await self._cancelled(connection)
            session = await connection.session(ack="client")
            producer = SendTogether(await session.producer(serializer=config.serializer))
            queue = await session.consumer(self._plan.queue, prefetch=config.prefetch, serializer=config.serializer)
            if self.last_error is not None:
                self.counts["reattached"] += 1
                log.warning("the task processor of %s is attached again", self._plan.queue)
            self.state, self.last_error = "running", None
            async with asyncio.TaskGroup() as group:
                hearing = group.create_task(self._hear(cancellations))
                taking = group.create_task(self._take_tasks(queue, connection, producer))
                await group.create_task(self._settle(producer, taking))
                hearing.cancel()
        finally:
            with contextlib.suppress(BrokerError):  # It is lost; what is not acknowledged comes again.
                await connection.close()

    async def _cancelled(self, connection: Connection) -> Consumer:
        """Learn which tasks were cancelled before; what tells of those that are from now on."""
        session, name = await connection.session(), tasks.cancellations(self._plan.queue)
        consumer = await session.consumer(f"topic:{name}")
        async for body in exported_bodies(connection, name, None, self._plan.config.serializer):
            self._revoke(str(body))
        return consumer

    async def _hear(self, cancellations: Consumer) -> None:
        async for message in cancellations:
            self._revoke(str(message.body))

    def _revoke(self, task_id: str) -> None:
        self._revoked[task_id] = None
        while len(self._revoked) > tasks.CANCELLED_MAX:
            self._revoked.popitem(last=False)
        self.running.cancel(task_id)

    # ---- taking ----------------------------------------------------------------------------------------------------

    async def _take_tasks(self, queue: Consumer, connection: Connection, producer: SendTogether) -> None:
        while not self._stopping:
            if self.running.free < 1 or len(self._unstored) >= UNSTORED_MAX:
                self._freed.clear()
                await self._freed.wait()
                continue
            for message in await queue.receive_many(self.running.free, timeout=IDLE_S):
                await self._received(message, connection, producer)
        self._ended.set()

    async def _received(self, message: Message, connection: Connection, producer: SendTogether) -> None:
        task = _task_of(message)
        job = (self._jobs.get(task.attempt) if task is not None else None) or Job(task or _unknown(message))
        self._in_order.append(Receipt(message, job))
        if message.redelivered:
            self.counts["redelivered"] += 1
        if job.task.attempt in self._jobs:
            return  # It came again while it runs: the connection was lost meanwhile.
        if job.task.id in self._revoked:
            self.counts["revoked"] += 1
            self._is_stored(job)
        elif (message.redelivered or job.task.retries) and await self._has_ended(job, message, connection):
            pass
        elif task is None or not self.running.knows(task.name):
            await self._unprocessable(job, message, producer)
        else:
            self._jobs[task.attempt] = job
            self.running.run_job(job)

    async def _has_ended(self, job: Job, message: Message, connection: Connection) -> bool:
        """Whether a task that may have been run before has a result, or has taken too many replicas with it."""
        found = await find_result(connection, self._plan, job.task.id)
        if found is not None:
            if found["status"] == FAILURE:
                job.reason = str(found["value"])
            self._is_stored(job)
            return True
        if not self._plan.retrying.is_lost(message.delivery_count):
            return False
        job.reason = (
            f"lost: its replica ended {message.delivery_count - 1} times while it had this task (lost_attempts)"
        )
        self._end_unrun(job, TaskOutcome(FAILURE, job.reason))
        return True

    async def _unprocessable(self, job: Job, message: Message, producer: SendTogether) -> None:
        """A message that is no task, or one of a task without a handler here."""
        known = ", ".join(self.running.names) or "none"
        text = f"unprocessable: no task, or none with a handler here ({known}): {job.task.name!r}"
        self.counts["unprocessable"] += 1
        log.error("message %s of %s is %s", message.id, self._plan.queue, text)
        try:
            body = message.body
        except MessageFormatError:
            job.reason = text  # It is dead as it is: nobody here can read it.
        else:
            job.reason = text if self._plan.unprocessable is None else None
            if self._plan.unprocessable is not None:
                await producer.send(
                    body,
                    properties={**message.properties, "reason": text},
                    destination=self._plan.unprocessable,
                    type=message.type,
                    correlation_id=message.correlation_id,
                )
        self._end_unrun(job, TaskOutcome(FAILURE, text))

    def _end_unrun(self, job: Job, outcome: TaskOutcome) -> None:
        """It has ended without being run."""
        job.outcome, job.final = outcome, True
        self._jobs[job.task.attempt] = job
        self._unstored.append(job)
        self._ended.set()

    # ---- settling --------------------------------------------------------------------------------------------------

    async def _settle(self, producer: SendTogether, taking: asyncio.Task[None]) -> None:
        while True:
            self._ended.clear()
            if self._unstored:
                await self._store(producer)
                self._freed.set()
            await self._acknowledge()
            if taking.done() and not (self.running.count or self._unstored):
                return
            waits = any(receipt.job.stored for receipt in self._in_order)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), BEHIND_S if waits else None)

    async def _store(self, producer: SendTogether) -> None:
        """Store what came of the tasks that have ended; raises what kept one from it, which stays here."""
        found = await asyncio.gather(
            *[self._store_one(job, producer) for job in self._unstored], return_exceptions=True
        )
        self._unstored = [job for job in self._unstored if not job.stored]
        for error in found:
            if error is not None:
                raise error

    async def _store_one(self, job: Job, producer: SendTogether) -> None:
        task, outcome = job.task, job.outcome
        assert outcome is not None
        if task.id in self._revoked:
            self.counts["revoked"] += 1
            self._is_stored(job)
            return
        if outcome.status == FAILURE and not job.final:
            delay_ms = self._plan.retrying.delay_ms(task.retries)
            if delay_ms is not None:
                await self._again(task, delay_ms, producer)
                self.counts["retried"] += 1
                self._is_stored(job)
                return
        try:
            await send_result(
                producer, self._plan, task.id, outcome.body(task.retries + 1, SystemClock().now_ms() / 1000)
            )
        except MessageFormatError as error:
            value = f"its result, of type {type(outcome.value).__qualname__}, cannot be stored: {error}"
            outcome = job.outcome = TaskOutcome(FAILURE, value)
            await send_result(
                producer, self._plan, task.id, outcome.body(task.retries + 1, SystemClock().now_ms() / 1000)
            )
        if outcome.status == FAILURE:
            self.counts["failed"] += 1
            if not job.final:
                job.reason = f"{outcome.value}\n{outcome.traceback}" if outcome.traceback else str(outcome.value)
            log.error("task %s (%s) of %s has failed: %s", task.id, task.name, self._plan.queue, outcome.value)
        else:
            self.counts["succeeded" if outcome.status == SUCCESS else "revoked"] += 1
        self._is_stored(job)

    async def _again(self, task: Task, delay_ms: int, producer: SendTogether) -> None:
        retries = task.retries + 1
        await producer.send(
            tasks.body_of(task.args, task.kwargs),
            properties={tasks.RETRIES: retries},
            destination=self._plan.queue,
            type=task.name,
            correlation_id=task.id,
            dedup_id=f"{task.id}/{retries}",
            delivery_delay_ms=delay_ms,
        )

    def _is_stored(self, job: Job) -> None:
        job.stored, job.stored_s = True, SystemClock.monotonic_ns() / 1e9
        self._jobs.pop(job.task.attempt, None)
        self._ended.set()

    async def _acknowledge(self) -> None:
        """Tell the broker of what is stored."""
        last: Receipt | None = None
        now, order = SystemClock.monotonic_ns() / 1e9, self._in_order
        single = [one for one in order if one.job.stored and not one.settled and one.job.reason is not None]
        try:
            for receipt in single:
                receipt.settled = True
                await receipt.message.reject(receipt.job.reason)
            while order and order[0].job.stored:
                receipt = order.popleft()
                last = last if receipt.settled else receipt
            if last is not None:
                await last.message.acknowledge_up_to()
            for receipt in [one for one in order if one.job.stored and now - one.job.stored_s > BEHIND_S]:
                if not receipt.settled:
                    receipt.settled = True
                    await receipt.message.acknowledge_this()
        except (ConnectionLostError, IllegalStateError) as error:
            log.warning("tasks of %s that have ended come again: %s", self._plan.queue, error)


def _task_of(message: Message) -> Task | None:
    try:
        body = message.body
    except MessageFormatError:
        return None
    return tasks.task_of(message.correlation_id, message.type, body, message.properties.get(tasks.RETRIES))


def _unknown(message: Message) -> Task:
    """Stands for the task of a message that is none."""
    return Task(message.correlation_id or message.id, message.type or "", [], {}, 0)


def _first(group: BaseExceptionGroup[Any]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
