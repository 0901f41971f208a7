"""The adapter: what ``TaskProcessorConfig(adapter=RaybrokerTaskProcessor, …)`` has Ray Serve use for its tasks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from ray.serve.schema import TaskProcessorAdapter, TaskProcessorConfig, TaskResult

from raybroker.model.errors import BrokerError, ConfigError, IllegalStateError
from raybroker.model.naming.names import check_destination_name
from raybroker.serve.adapter_config import RaybrokerAdapterConfig
from raybroker.serve.connecting import TaskPlan
from raybroker.serve.loop_thread import LoopThread
from raybroker.serve.retrying import Retrying
from raybroker.serve.running_tasks import RunningTasks
from raybroker.serve.task_client import TaskClient
from raybroker.serve.task_consumer import COUNTS, TaskConsumer
from raybroker.serve.tasks import FAILURE, PENDING
from raybroker.system.clock import SystemClock

CONCURRENCY: Final = 5
"""Tasks that run at once where Serve does not say: its own default of ``max_ongoing_requests``."""
CONCURRENCY_MAX: Final = 10_000


def plan_of(config: TaskProcessorConfig) -> TaskPlan:
    """Raises ConfigError and InvalidDestinationError for what cannot be."""
    own = RaybrokerAdapterConfig.checked(config.adapter_config)
    names = (config.queue_name, config.failed_task_queue_name, config.unprocessable_task_queue_name)
    for name in names:
        if name is not None:
            check_destination_name(name)
    if len({name for name in names if name is not None}) < sum(name is not None for name in names):
        raise ConfigError(f"queue_name and the queues of failed and unprocessable tasks are {names!r}: all different")
    if config.max_retries is not None and config.max_retries < 0:
        raise ConfigError(f"max_retries={config.max_retries}; it is 0 or more, or None for no end")
    first, longest = own.backoff_s
    return TaskPlan(*names, own, Retrying(config.max_retries, own.lost_attempts, (first, longest)))


class RaybrokerTaskProcessor(TaskProcessorAdapter):
    """Tasks of Ray Serve in a queue of raybroker.

    ``adapter_config`` is a :class:`RaybrokerAdapterConfig`. All calls may come from any thread and any event loop;
    handlers may be plain functions, which run on threads, or coroutines, which run on one event loop of their own.
    """

    def __init__(self, config: TaskProcessorConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[no-untyped-call]  # Ray Serve
        self._plan = plan_of(config)
        self._handlers: dict[str, Callable[..., Any]] = {}
        self._concurrency = CONCURRENCY
        self._loop: LoopThread | None = None
        self._client: TaskClient | None = None
        self._consumer: TaskConsumer | None = None
        self._work: Future[None] | None = None

    def initialize(self, consumer_concurrency: int = CONCURRENCY) -> None:
        """Connect, and make the destinations; raises NoClusterError without brokers."""
        if not isinstance(consumer_concurrency, int) or not 1 <= consumer_concurrency <= CONCURRENCY_MAX:
            raise ConfigError(f"consumer_concurrency={consumer_concurrency!r}; it is 1 to {CONCURRENCY_MAX}")
        if self._loop is not None:
            raise IllegalStateError("this task processor is initialized already")
        self._concurrency = consumer_concurrency
        self._loop = LoopThread("raybroker-tasks")
        try:
            self._client = self._loop.run(_made(TaskClient, self._plan))
            self._loop.run(self._client.line())
        except BaseException:
            self.disconnect()
            raise

    def register_task_handle(self, func: Callable[..., Any], name: str | None = None) -> None:
        """Have tasks of that name (without one: of the function's) run by a function or a coroutine function."""
        if not callable(func):
            raise ConfigError(f"a task handler is a function, not {func!r:.80}")
        self._handlers[name or func.__name__] = func

    # ---- tasks -----------------------------------------------------------------------------------------------------

    def enqueue_task_sync(self, task_name: str, args: Any = None, kwargs: Any = None, **options: Any) -> TaskResult:
        """Store a task; returns once it is on disk.

        options   task_id (within ten minutes one id is taken once), priority 0 to 9, countdown and expires in seconds,
                  unit_of_order (tasks of one unit run one after another)
        Raises ConfigError for another option, MessageFormatError for arguments that cannot be stored.
        """
        loop, client = self._initialized()
        return _enqueued(loop.run(client.enqueue(task_name, args, kwargs, options)))

    async def enqueue_task_async(
        self, task_name: str, args: Any = None, kwargs: Any = None, **options: Any
    ) -> TaskResult:
        """The form of :meth:`enqueue_task_sync` for event loops."""
        loop, client = self._initialized()
        return _enqueued(await loop.wait(client.enqueue(task_name, args, kwargs, options)))

    def get_task_status_sync(self, task_id: str) -> TaskResult:
        """How a task stands: SUCCESS with what its handler returned, FAILURE with the text of its error, REVOKED, or
        PENDING while it waits, runs or is to be tried again, and where nothing is known of it (any more)."""
        loop, client = self._initialized()
        return _status(task_id, loop.run(client.result(task_id)))

    async def get_task_status_async(self, task_id: str) -> TaskResult:
        """The form of :meth:`get_task_status_sync` for event loops."""
        loop, client = self._initialized()
        return _status(task_id, await loop.wait(client.result(task_id)))

    def cancel_task_sync(self, task_id: str) -> TaskResult:
        """Cancel a task: it does not begin, a coroutine that runs is cancelled, and what a thread returns is not seen.
        Returns how it stands then: one that has ended stays as it was."""
        loop, client = self._initialized()
        return _status(task_id, loop.run(client.cancel(task_id)))

    async def cancel_task_async(self, task_id: str) -> TaskResult:
        """The form of :meth:`cancel_task_sync` for event loops."""
        loop, client = self._initialized()
        return _status(task_id, await loop.wait(client.cancel(task_id)))

    # ---- the consumer ----------------------------------------------------------------------------------------------

    def start_consumer(self, **kwargs: Any) -> None:
        """Run tasks here, up to ``consumer_concurrency`` at once, until ``stop_consumer``."""
        loop, _ = self._initialized()
        if self._work is not None and not self._work.done():
            return
        self._consumer = loop.run(self._make_consumer(loop.loop))
        self._work = loop.submit(self._consumer.run())

    async def _make_consumer(self, loop: asyncio.AbstractEventLoop) -> TaskConsumer:
        running = RunningTasks(self._concurrency, loop)
        for name, function in self._handlers.items():
            running.register(function, name)
        consumer = TaskConsumer(self._plan, running)
        running.on_ended(consumer.collect)
        return consumer

    def stop_consumer(self, timeout: float = 10.0) -> None:
        """Take nothing more and wait for what runs, ``timeout`` seconds at most: the rest comes again elsewhere."""
        work, consumer, loop = self._work, self._consumer, self._loop
        if work is None or consumer is None or loop is None:
            return
        loop.loop.call_soon_threadsafe(consumer.stop_taking)
        try:
            work.result(timeout)
        except TimeoutError:
            work.cancel()
        finally:
            consumer.running.let_go()
            self._work = self._consumer = None

    def disconnect(self) -> None:
        """Stop, and disconnect."""
        self.stop_consumer()
        loop, client, self._loop, self._client = self._loop, self._client, None, None
        if loop is None:
            return
        try:
            if client is not None:
                loop.run(client.disconnect())
        finally:
            loop.end_thread()

    # ---- watching --------------------------------------------------------------------------------------------------

    def get_metrics_sync(self) -> dict[str, Any]:
        """The queue's messages, waiting, delayed (also those to be tried again), unacknowledged, active_consumers,
        messages_in and messages_out; "replica": what this one has done, where it runs tasks."""
        loop, client = self._initialized()
        return self._with_own(loop.run(client.queue_figures()))

    async def get_metrics_async(self) -> dict[str, Any]:
        """The form of :meth:`get_metrics_sync` for event loops."""
        loop, client = self._initialized()
        return self._with_own(await loop.wait(client.queue_figures()))

    def _with_own(self, found: dict[str, Any]) -> dict[str, Any]:
        consumer = self._consumer
        if consumer is None:
            return found
        own = {"state": consumer.state, "running": consumer.running.count, "last_error": consumer.last_error}
        return {**found, "replica": {**own, **{name: consumer.counts[name] for name in COUNTS}}}

    def health_check_sync(self) -> list[dict[str, Any]]:
        """One row: this processor, "ok" where its broker answers and its consumer is attached, else "error"."""
        loop, client = self._initialized()
        try:
            loop.run(client.queue_figures())
        except BrokerError as error:
            return self._health(str(error))
        return self._health(None)

    async def health_check_async(self) -> list[dict[str, Any]]:
        """The form of :meth:`health_check_sync` for event loops."""
        loop, client = self._initialized()
        try:
            await loop.wait(client.queue_figures())
        except BrokerError as error:
            return self._health(str(error))
        return self._health(None)

    def _health(self, error: str | None) -> list[dict[str, Any]]:
        consumer = self._consumer
        if error is None and consumer is not None and consumer.state != "running":
            error = f"the consumer is {consumer.state}: {consumer.last_error or 'it has just been started'}"
        name = f"raybroker@{self._plan.queue}/{os.getpid()}"
        return [{name: {"ok": "pong"} if error is None else {"error": error}}]

    def _initialized(self) -> tuple[LoopThread, TaskClient]:
        if self._loop is None or self._client is None:
            raise IllegalStateError("this task processor is not initialized; instantiate_adapter_from_config does that")
        return self._loop, self._client


async def _made(kind: Callable[[TaskPlan], TaskClient], plan: TaskPlan) -> TaskClient:
    return kind(plan)


def _enqueued(task_id: str) -> TaskResult:
    return TaskResult(id=task_id, status=PENDING, created_at=SystemClock().now_ms() / 1000, result=None)


def _status(task_id: str, found: dict[str, Any] | None) -> TaskResult:
    if found is None:
        return TaskResult(id=task_id, status=PENDING, result=None)
    value = found["value"]
    if found["status"] == FAILURE and found.get("traceback"):
        value = f"{value}\n{found['traceback']}"
    return TaskResult(id=task_id, status=found["status"], result=value)
