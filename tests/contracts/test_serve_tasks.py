"""The adapter of Ray Serve's task processors, over a broker in this process: Serve itself is in tests/cluster."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import ConfigError, IllegalStateError, MessageFormatError
from tests.contracts.handles import until

schema = pytest.importorskip("ray.serve.schema", reason="Ray Serve is not installed")
from ray.serve.task_consumer import instantiate_adapter_from_config  # noqa: E402

from raybroker.serve import RaybrokerAdapterConfig, RaybrokerTaskProcessor  # noqa: E402

BROKER = "serve-tasks"
Make = Callable[..., RaybrokerTaskProcessor]


def config(**options: Any) -> Any:
    own = RaybrokerAdapterConfig(**{"loopback": BROKER, "backoff_s": (0.01, 0.05)} | options.pop("own", {}))
    given = {"queue_name": "q", "adapter": RaybrokerTaskProcessor, "adapter_config": own, "max_retries": 2}
    return schema.TaskProcessorConfig(**given | options)


@pytest.fixture
def connection() -> Iterator[rb.Connection]:
    with rb.loopback(broker=BROKER) as found:
        yield found


@pytest.fixture
def make(connection: rb.Connection) -> Iterator[Make]:
    """Makes task processors; with handlers their consumers are started."""
    made: list[RaybrokerTaskProcessor] = []

    def one(*handlers: Callable[..., Any], concurrency: int = 5, **options: Any) -> RaybrokerTaskProcessor:
        processor = RaybrokerTaskProcessor(config(**options))
        made.append(processor)
        processor.initialize(concurrency)
        for handler in handlers:
            processor.register_task_handle(handler)
        if handlers:
            processor.start_consumer()
        return processor

    yield one
    for processor in made:
        processor.disconnect()


def ended(processor: RaybrokerTaskProcessor, task_id: str) -> Any:
    """The result of a task, once there is one."""
    return until(
        lambda: found if (found := processor.get_task_status_sync(task_id)).status != "PENDING" else None,
        f"no result of {task_id}",
    )


def bodies(connection: rb.Connection, queue: str) -> list[Any]:
    return [message.body for message in connection.session().browser(queue)]


def test_a_replica_may_choose_how_many_tasks_it_has_ahead(connection: rb.Connection, make: Make) -> None:
    def double(value: int) -> int:
        return 2 * value

    processor = make(double, own={"prefetch": "auto:1-50"})
    tasks = [processor.enqueue_task_sync("double", args=[value]) for value in range(20)]
    assert [ended(processor, task.id).result for task in tasks] == [2 * value for value in range(20)]
    assert [row["tuned"] for row in connection.admin().list_consumers("q")] == [True]


def test_serve_makes_the_adapter_and_tasks_have_results(connection: rb.Connection) -> None:
    def add(left: int, right: int = 1) -> int:
        return left + right

    async def later(value: str) -> dict[str, str]:
        await asyncio.sleep(0.01)
        return {"value": value}

    processor = instantiate_adapter_from_config(task_processor_config=config())
    try:
        first = processor.enqueue_task_sync("add", [1], {"right": 2})
        assert (first.status, first.result) == ("PENDING", None)
        assert processor.get_task_status_sync(first.id).status == "PENDING"
        processor.register_task_handle(add)
        processor.register_task_handle(later, "another name")
        processor.start_consumer()
        processor.start_consumer()  # It runs already.
        second = processor.enqueue_task_sync("another name", args=["a"])
        assert (ended(processor, first.id).status, ended(processor, first.id).result) == ("SUCCESS", 3)
        assert ended(processor, second.id).result == {"value": "a"}
        assert processor.get_task_status_sync("nobody's").status == "PENDING"
        until(lambda: processor.get_metrics_sync()["messages"] == 0)
        own = processor.get_metrics_sync()["replica"]
        assert (own["succeeded"], own["failed"], own["state"]) == (2, 0, "running")
    finally:
        processor.disconnect()


def test_what_a_queue_of_tasks_has_beside_it_is_in_one_host() -> None:
    """A broker in a cluster gives each destination a host of its own, unless something else is asked for."""
    with rb.loopback(broker="serve-hosts", properties={"raybroker.hosting.default": "dedicated"}) as connection:
        processor = RaybrokerTaskProcessor(config(own={"loopback": "serve-hosts"}))
        processor.initialize(1)
        processor.disconnect()
        admin = connection.admin()
        beside = [(row["type"], row["name"]) for row in admin.list_destinations() if row["name"].startswith("q.")]
        assert len(beside) == 18  # 16 with results, and a queue and a topic of cancellations
        assert {admin.query_destination(*one)["effective"]["hosting"] for one in beside} == {"shared"}
        assert admin.query_destination("queue", "q")["effective"]["hosting"] == "dedicated"


def test_all_calls_have_a_form_for_event_loops(make: Make) -> None:
    async def work(value: int) -> int:
        return value * 2

    async def main() -> None:
        ids = [
            task.id for task in await asyncio.gather(*[processor.enqueue_task_async("work", [n]) for n in range(50)])
        ]
        for n, one in enumerate(ids):
            assert (await asyncio.to_thread(ended, processor, one)).result == n * 2
            assert (await processor.get_task_status_async(one)).result == n * 2
        assert "ok" in next(iter((await processor.health_check_async())[0].values()))
        assert (await processor.get_metrics_async())["replica"]["succeeded"] == 50
        assert (await processor.cancel_task_async(ids[0])).status == "SUCCESS"  # It has ended, and stays so.

    processor = make(work)
    asyncio.run(main())


def test_a_failed_task_is_tried_again_and_then_dead(make: Make, connection: rb.Connection) -> None:
    calls: list[float] = []

    def fails(value: int) -> None:
        calls.append(time.monotonic())
        raise ValueError(f"not {value}")

    def twice() -> str:
        calls.append(0.0)
        if calls.count(0.0) < 2:
            raise OSError("not yet")
        return "done"

    processor = make(fails, twice, failed_task_queue_name="failed")
    task = processor.enqueue_task_sync("fails", [7])
    found = ended(processor, task.id)
    assert found.status == "FAILURE"
    assert found.result.startswith("ValueError: not 7\nTraceback")
    assert len(calls) == 3
    until(lambda: bodies(connection, "failed") == [{"args": [7], "kwargs": {}}])
    assert ended(processor, processor.enqueue_task_sync("twice").id).result == "done"
    assert processor.get_metrics_sync()["replica"]["retried"] == 3


def test_what_no_handler_can_take_is_unprocessable(make: Make, connection: rb.Connection) -> None:
    processor = make(print, unprocessable_task_queue_name="odd")
    task = processor.enqueue_task_sync("nobody", [1])
    assert "unprocessable" in ended(processor, task.id).result
    connection.session().producer("q").send("no task")
    until(lambda: len(bodies(connection, "odd")) == 2)
    assert bodies(connection, "odd") == [{"args": [1], "kwargs": {}}, "no task"]
    until(lambda: processor.get_metrics_sync()["messages"] == 0)


def test_a_result_that_cannot_be_stored_is_a_failure_that_says_so(make: Make) -> None:
    def odd() -> object:
        return object()

    processor = make(odd)
    found = ended(processor, processor.enqueue_task_sync("odd").id)
    assert found.status == "FAILURE"
    assert "of type object, cannot be stored" in found.result
    with pytest.raises(MessageFormatError):
        processor.enqueue_task_sync("odd", [object()])


def test_with_pickle_arguments_and_results_are_any_objects(make: Make) -> None:
    def same(value: Any) -> Any:
        return value

    processor = make(same, own={"serializer": "pickle"})
    assert ended(processor, processor.enqueue_task_sync("same", [{1, 2}]).id).result == {1, 2}


def test_a_cancelled_task_does_not_begin_and_a_coroutine_ends(make: Make) -> None:
    begun, ran = threading.Event(), list[int]()

    async def sleeps() -> None:
        begun.set()
        await asyncio.sleep(60)

    def work(number: int) -> None:
        ran.append(number)

    processor = make()
    waits = processor.enqueue_task_sync("work", [1])
    assert processor.cancel_task_sync(waits.id).status == "REVOKED"
    runs = processor.enqueue_task_sync("sleeps")
    processor.register_task_handle(sleeps)
    processor.register_task_handle(work)
    processor.start_consumer()
    assert begun.wait(10)
    assert processor.cancel_task_sync(runs.id).status == "REVOKED"
    last = processor.enqueue_task_sync("work", [2])
    assert ended(processor, last.id).status == "SUCCESS"
    until(lambda: processor.get_metrics_sync()["messages"] == 0)
    assert ran == [2]
    assert processor.get_task_status_sync(waits.id).status == "REVOKED"


def test_one_task_id_is_taken_once(make: Make) -> None:
    ran = list[int]()
    processor = make(ran.append)
    for _ in range(3):
        assert processor.enqueue_task_sync("append", [1], task_id="order-7").id == "order-7"
    assert ended(processor, "order-7").status == "SUCCESS"
    until(lambda: processor.get_metrics_sync()["messages"] == 0)
    assert ran == [1]


def test_what_a_stopped_replica_has_not_begun_goes_to_others(make: Make, connection: rb.Connection) -> None:
    gate, begun = threading.Event(), threading.Event()
    done = list[int]()

    def work(number: int) -> None:
        begun.set()
        gate.wait(30)
        done.append(number)

    first = make(work, concurrency=1)
    ids = [first.enqueue_task_sync("work", [number]).id for number in range(20)]
    assert begun.wait(10)
    threading.Timer(0.2, gate.set).start()
    first.stop_consumer()
    assert len(done) < 20
    second = make(work)
    assert [ended(second, one).status for one in ids] == ["SUCCESS"] * 20
    assert sorted(done) == list(range(20))


def test_a_task_whose_result_is_there_is_not_run_again(make: Make, connection: rb.Connection) -> None:
    """As after a replica that died between the result and the acknowledgement."""
    ran = list[int]()
    processor = make()
    task = processor.enqueue_task_sync("append", [1])
    loop, client = processor._initialized()
    plan = processor._plan

    async def stored_before() -> None:
        from raybroker.serve.task_client import send_result
        from raybroker.serve.tasks import SUCCESS, TaskOutcome

        await send_result((await client.line()).producer, plan, task.id, TaskOutcome(SUCCESS, "before").body(1, 0.0))

    loop.run(stored_before())
    with connection.session(ack="client") as session:  # It is received, and comes again, flagged.
        assert session.consumer("q").receive(10) is not None
        session.recover()
    processor.register_task_handle(ran.append)
    processor.start_consumer()
    until(lambda: processor.get_metrics_sync()["messages"] == 0)
    assert ran == []
    assert processor.get_task_status_sync(task.id).result == "before"
    assert processor.get_metrics_sync()["replica"]["redelivered"] == 1


def test_a_task_that_ends_its_replicas_is_given_up(make: Make, connection: rb.Connection) -> None:
    processor = make(failed_task_queue_name="failed", own={"lost_attempts": 2})
    task = processor.enqueue_task_sync("work")
    for _ in range(2):
        with connection.session(ack="client") as session:
            assert session.consumer("q").receive(10) is not None
            session.recover()
    ran = list[int]()
    processor.register_task_handle(lambda: ran.append(1), "work")
    processor.start_consumer()
    assert "lost: its replica ended 2 times" in ended(processor, task.id).result
    until(lambda: len(bodies(connection, "failed")) == 1)
    assert ran == []


def test_what_cannot_be_is_refused(make: Make, connection: rb.Connection) -> None:
    for options, said in (
        ({"failed_task_queue_name": "q"}, "all different"),
        ({"max_retries": -1}, "max_retries=-1"),
    ):
        with pytest.raises(ConfigError, match=said):
            RaybrokerTaskProcessor(config(**options))
    with pytest.raises(IllegalStateError, match="not initialized"):
        RaybrokerTaskProcessor(config()).enqueue_task_sync("work")
    processor = make()
    with pytest.raises(ConfigError, match="no option 'eta'"):
        processor.enqueue_task_sync("work", eta=1)
    with pytest.raises(ConfigError, match="consumer_concurrency=0"):
        make(concurrency=0)
    connection.admin().update_destination("queue", "q", errorDestination="elsewhere")
    with pytest.raises(ConfigError, match="its errorDestination is 'elsewhere'"):
        make(failed_task_queue_name="failed")
