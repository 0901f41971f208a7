"""A connection of a task processor, and the destinations that it needs."""

from __future__ import annotations

from typing import Final, NamedTuple

from raybroker.client.aio.handles import Connection
from raybroker.client.connection.factory import connect_async, loopback_async
from raybroker.model.errors import ConfigError
from raybroker.serve import tasks
from raybroker.serve.adapter_config import RaybrokerAdapterConfig
from raybroker.serve.retrying import Retrying

ONCE_MS: Final = 600_000
"""A task with a ``task_id`` is taken once within this time, and so is each further attempt of any."""
ONCE_IDS_MAX: Final = 100_000
"""Ids that are remembered for it."""
RESULT_IDS_MIN: Final = 20_000
"""Tasks that are known to have a result, in each queue of results: also where fewer results are kept."""
BESIDE: Final = "shared"
"""Where cancellations and results are: a process for each of these destinations would be many that do little, and
results that are stored together are synced together."""


class TaskPlan(NamedTuple):
    """One task processor: its queue, where what cannot be processed goes, and its rules."""

    queue: str
    failed: str | None
    unprocessable: str | None
    config: RaybrokerAdapterConfig
    retrying: Retrying

    def result_of(self, task_id: str) -> str:
        return tasks.result_queue(self.queue, task_id)


async def connected(plan: TaskPlan) -> Connection:
    """A started connection; the destinations are there.

    Raises NoClusterError without brokers, and ConfigError for a queue that is there and leads failed tasks elsewhere.
    """
    config = plan.config
    if config.loopback is not None:
        connection = await loopback_async(broker=config.loopback)
    else:
        connection = await connect_async(cluster=config.cluster)
    try:
        await _require_destinations(connection, plan)
        await connection.start()
    except BaseException:
        await connection.close()
        raise
    return connection


async def _require_destinations(connection: Connection, plan: TaskPlan) -> None:
    admin, config = connection.admin(), plan.config
    for name in (plan.failed, plan.unprocessable):
        if name is not None:
            await admin.create_destination("queue", name, if_exists="keep", maxNumProducers=-1)
    made = await admin.create_destination(
        "queue",
        plan.queue,
        if_exists="keep",
        maxNumProducers=-1,
        duplicateWindowMs=ONCE_MS,
        duplicateIdsMax=ONCE_IDS_MAX,
        redeliveryLimit=-1,
        errorDestination=plan.failed or "",
    )
    if made == "kept" and plan.failed is not None:
        await _lead_to_failed(connection, plan.queue, plan.failed)
    cancelled = tasks.cancellations(plan.queue)
    await admin.create_destination("topic", cancelled, if_exists="keep", hosting=BESIDE, maxNumProducers=-1)
    await admin.create_destination(
        "queue",
        cancelled,
        if_exists="keep",
        hosting=BESIDE,
        maxNumProducers=-1,
        maxNumMsgs=tasks.CANCELLED_MAX,
        limitBehavior="REMOVE_OLDEST",
        useDMQ=False,
    )
    results = tasks.result_queues(plan.queue)
    if await _has_all(connection, results):
        return
    most = -(-config.results_max // tasks.RESULT_QUEUES)
    for name in results:
        await admin.create_destination(
            "queue",
            name,
            if_exists="keep",
            hosting=BESIDE,
            duplicateWindowMs=int(config.result_ttl_s * 1000),
            maxNumProducers=-1,
            maxNumMsgs=most,
            duplicateIdsMax=max(most, RESULT_IDS_MIN),
            limitBehavior="REMOVE_OLDEST",
            useDMQ=False,
        )


async def _has_all(connection: Connection, names: list[str]) -> bool:
    there = {row["name"] for row in await connection.admin().list_destinations("queue")}
    return there.issuperset(names)


async def _lead_to_failed(connection: Connection, queue: str, failed: str) -> None:
    found = (await connection.admin().query_destination("queue", queue))["effective"]["errorDestination"]
    if not found:
        await connection.admin().update_destination("queue", queue, errorDestination=failed)
    elif found != failed:
        raise ConfigError(
            f"failed_task_queue_name={failed!r}: the queue {queue!r} is there already, and its errorDestination is"
            f" {found!r}; name that one, or change the queue: raybroker update dst -t q -n {queue} -o"
            f" errorDestination={failed}"
        )
