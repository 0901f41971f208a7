"""Reads of Ray Data that go on, and reads whose tasks are killed."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import IllegalStateError
from tests.cluster.load import until as wait_until
from tests.cluster.task_kills import Account, held_until, killing
from tests.contracts.handles import state_of, until

MESSAGES = 300
QUEUE = "streams"


@pytest.fixture
def filled(cluster: Any) -> Iterator[Callable[..., Any]]:
    """Makes the queue with messages 0 … 299 and gives what is left of them, which nobody holds."""
    with rb.connect() as connection:
        connection.admin().create_destination("queue", QUEUE, hosting="shared")
        connection.session().producer(QUEUE).send_many({"n": n} for n in range(MESSAGES))

        def left() -> list[Any]:
            until(lambda: state_of(connection, QUEUE)["unacknowledged"] == 0)
            return [message.body["n"] for message in connection.session().browser(QUEUE)]

        yield left
        connection.admin().destroy_destination("queue", QUEUE)


def source(**options: Any) -> Any:
    return rb.data.read_queue(QUEUE, **{"batch": 20, "idle_s": 1.0} | options)


def ns(rows: Any) -> list[int]:
    return sorted(row["n"] for row in rows)


def reading(queue: str) -> list[int]:
    """The processes that run a read task of a queue."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes()
        except OSError:
            continue
        if text.startswith(b"ray::") and f"RaybrokerQueue({queue})".encode() in text:
            found.append(int(path.parent.name))
    return found


def test_a_read_goes_on_until_it_is_stopped_and_takes_what_came_meanwhile(filled: Callable[[], list[int]]) -> None:
    dataset = source(until="stopped")
    seen: list[int] = []
    with rb.connect() as connection:
        producer = connection.session().producer(QUEUE)
        for batch in dataset.iter_batches(batch_size=100, batch_format="pyarrow"):
            seen += batch.column("n").to_pylist()
            if len(seen) == MESSAGES:
                producer.send_many({"n": n} for n in range(MESSAGES, 2 * MESSAGES))
            elif len(seen) == 2 * MESSAGES:
                dataset.stop_reading()
    assert seen == list(range(2 * MESSAGES))
    assert filled() == []


def test_rounds_are_taken_one_by_one_and_a_failed_one_comes_again(
    filled: Callable[[], list[int]], tmp_path: Path
) -> None:
    def fails(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == 150 and not row["redelivered"]:
            raise ValueError("no 150")
        return {"n": row["n"], "again": row["redelivered"]}

    seen: list[Any] = []
    read = source(until="stopped", round_messages=100).map(fails)
    with pytest.raises(Exception, match="no 150"):
        seen.extend(read.iter_rows())
    assert ns(seen) == list(range(100))
    assert filled() == list(range(100, MESSAGES))
    rest = source(until=30, round_messages=100).map(fails)
    stopping = threading.Thread(target=lambda: (until(lambda: len(os.listdir(tmp_path)) == 2, 60), rest.stop_reading()))
    stopping.start()
    rest.write_parquet(str(tmp_path))  # Two rounds, each with a file.
    stopping.join()
    assert filled() == []
    import pyarrow.dataset

    found = pyarrow.dataset.dataset(tmp_path).to_table().to_pylist()
    assert ns(found) == list(range(100, MESSAGES))
    assert all(row["again"] for row in found if row["n"] < 200)


def test_a_read_that_would_never_return_is_refused(filled: Callable[[], list[int]]) -> None:
    for action in ("take_all", "materialize", "to_pandas"):
        with pytest.raises(IllegalStateError, match="would never return"):
            getattr(source(until="stopped"), action)()
    assert ns(source(until="stopped", limit=30).take_all()) == list(range(30))
    assert len(source(until="stopped").take(5)) == 5
    assert len(filled()) == MESSAGES - 35


def test_a_killed_read_task_is_run_again_and_loses_and_doubles_nothing(filled: Callable[[], list[int]]) -> None:
    dataset = source(until="stopped", limit=2 * MESSAGES)
    found: list[Any] = []
    taking = threading.Thread(target=lambda: found.extend(dataset.take_all()))
    taking.start()
    with rb.connect() as connection:
        (task,) = wait_until(lambda: reading(QUEUE), "a read task runs")
        wait_until(lambda: state_of(connection, QUEUE)["unacknowledged"] == MESSAGES, "it has passed on messages")
        os.kill(task, signal.SIGKILL)
        connection.session().producer(QUEUE).send_many({"n": n} for n in range(MESSAGES, 2 * MESSAGES))
        taking.join(60)
    assert ns(found) == list(range(2 * MESSAGES))
    assert not any(row["redelivered"] for row in found)
    assert filled() == []


@pytest.mark.long
def test_a_task_with_a_transformation_that_dies_once_loses_and_doubles_nothing(
    filled: Callable[[], list[int]], tmp_path: Path
) -> None:
    def dies_once(batch: dict[str, Any]) -> dict[str, Any]:
        if 130 in batch["n"]:
            try:
                (tmp_path / "died").touch(exist_ok=False)
            except FileExistsError:
                return batch
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    rows = source(tasks=2).map_batches(dies_once, batch_size=20).take_all()
    assert ns(rows) == list(range(MESSAGES))
    assert not any(row["redelivered"] for row in rows)
    assert filled() == []


def test_a_write_task_that_dies_on_its_way_stores_each_row_once(
    filled: Callable[[], list[int]], tmp_path: Path
) -> None:
    import ray.data

    from raybroker.data.writing import QueueSink

    class DyingSink(QueueSink):
        """Its first task dies behind its first transaction."""

        def _rows(self, blocks: Any) -> Iterator[Any]:
            for number, row in enumerate(super()._rows(blocks)):
                if number == 1500 and not (tmp_path / "died").exists():
                    (tmp_path / "died").touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                yield row

    sink = DyingSink(QUEUE, "default", "id", None)
    ray.data.range(4000, override_num_blocks=2).write_datasink(sink)
    assert (tmp_path / "died").exists()
    assert sorted(body for body in bodies() if isinstance(body, int)) == list(range(4000))
    ray.data.range(1000, override_num_blocks=1).write_datasink(sink)  # Another execution is another write.
    assert len(bodies()) == MESSAGES + 5000
    assert list(bodies("raybroker-written")) == []


@pytest.mark.parametrize("rounds", [1, pytest.param(6, marks=[pytest.mark.long, pytest.mark.timeout(600)])])
def test_reads_and_writes_lose_and_double_nothing_while_tasks_are_killed(
    cluster: Any, tmp_path: Path, rounds: int
) -> None:
    import ray.data

    rng, account = random.Random(rounds), Account()
    with rb.connect() as connection:
        connection.admin().create_destination("queue", "total", hosting="shared")
        for number in range(rounds):
            values = range(number * MESSAGES, (number + 1) * MESSAGES)
            for step in ("write", "read"):
                folder = tmp_path / f"{step}{number}"
                folder.mkdir()
                held = held_until(folder, kills=2)
                with killing(folder, 2, rng):
                    if step == "write":
                        rows = ray.data.range(MESSAGES, override_num_blocks=3)
                        rows = rows.map_batches(lambda batch, first=values.start: {"id": batch["id"] + first})
                        account.sends(values)
                        rb.data.write_queue(rows.map_batches(held), "total", body_column="id")
                        account.sent(values)
                    else:
                        read = rb.data.read_queue("total", tasks=2, batch=20, idle_s=2.0).map_batches(held)
                        account.took((row["body"], row["redelivered"]) for row in read.take_all())
                assert len(list(folder.iterdir())) == 2, "tasks were killed"
        assert state_of(connection, "total")["messages"] == 0
        connection.admin().destroy_destination("queue", "total")
    verdict = account.verdict()
    assert verdict.valid, verdict
    assert (account.unflagged, verdict.duplicated, verdict.recovered) == ([], {}, {})


@pytest.mark.long
def test_a_queue_is_written_to_another_round_by_round(filled: Callable[[], list[int]]) -> None:
    read = source(until="stopped", round_messages=100, limit=MESSAGES).map(lambda row: {"twice": row["n"] * 2})
    with rb.connect() as connection:
        connection.admin().create_destination("queue", "doubled", hosting="shared")
        rb.data.write_queue(read, "doubled")
        assert sorted(body["twice"] for body in bodies("doubled")) == [2 * n for n in range(MESSAGES)]
        connection.admin().destroy_destination("queue", "doubled")
    assert filled() == []


def bodies(queue: str = QUEUE) -> list[Any]:
    with rb.connect() as connection:
        return [message.body for message in connection.session().browser(queue)]


def test_the_example_of_the_manual_has_one_result_for_each_order(cluster: Any) -> None:
    from raybroker.examples import etl_ray_data

    report = etl_ray_data.run(400)
    assert report == {"orders": 400, "results": 400, "different": 400, "wrong": 0, "left": 0, "tasks_lost": 2}
