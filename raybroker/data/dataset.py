"""A queue as a dataset, whose actions acknowledge what they have handed over and no more: ``read_queue`` returns it.

Ray Data runs ahead of whoever asks for rows, and throws away what nobody asks for: a read task cannot know what becomes
of its blocks.  The action that the application calls knows, so each action runs an execution of its own, with readers
that hold the messages (``reader.py``), and settles them when it has handed over its result:

    all of it       take_all, materialize, to_pandas …, write_…, iter_… to its end: acknowledged when the action returns
    the first rows  limit(n), take(n), take_batch(n), without transformations: n messages are taken, and no more
    iter_rows, iter_batches without transformations: what was handed over is acknowledged when the next is asked for
    a look          show, count, schema, columns: the queue is browsed, and nothing is taken

What was not acknowledged comes again, flagged ``redelivered``: all of it when an execution fails, and what an iteration
that is left early has not handed over, and the rows that it handed over last, which nobody may have worked on.  With
transformations nobody can tell which messages are in a row, so an iteration that is left early gives back all, and the
first rows are refused.  ``materialize()`` takes the messages and returns a dataset of Ray, with everything that has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import ray
import ray.data
from ray.data import Datasource, ReadTask
from ray.data.block import BlockMetadata

from raybroker.data.reader import ROW, QueueReader, ReadingOptions
from raybroker.model.errors import ConfigError, IllegalStateError

STEPS: Final = (
    "add_column",
    "drop_columns",
    "filter",
    "flat_map",
    "map",
    "map_batches",
    "random_shuffle",
    "randomize_block_order",
    "rename_columns",
    "repartition",
    "select_columns",
    "sort",
    "with_column",
)
"""Transformations: methods of a dataset of Ray that give another one."""
WHOLE: Final = (
    "take_all",
    "materialize",
    "to_pandas",
    "to_arrow_refs",
    "to_numpy_refs",
    "to_pandas_refs",
    "write_bigquery",
    "write_clickhouse",
    "write_csv",
    "write_datasink",
    "write_iceberg",
    "write_images",
    "write_json",
    "write_lance",
    "write_mongo",
    "write_numpy",
    "write_parquet",
    "write_snowflake",
    "write_sql",
    "write_tfrecords",
    "write_webdataset",
)
"""Actions whose result has all rows."""
UNDER_WAY: Final = 64
"""Calls that tell readers what was handed over, and whose answers were not awaited, at most."""


class DatasetStep(NamedTuple):
    """One transformation: a method of the dataset with its arguments."""

    name: str
    args: tuple[Any, ...]
    options: dict[str, Any]


class QueueSource(Datasource):
    """One read task a reader."""

    def __init__(self, queue: str, readers: list[Any]) -> None:
        self._queue = queue
        self._readers = readers

    def get_name(self) -> str:
        return f"RaybrokerQueue({self._queue})"

    def estimate_inmemory_data_size(self) -> int | None:
        """None: the size is unknown before the messages are taken."""
        return None

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """One read task a reader, whatever ``parallelism`` Ray Data proposes."""
        metadata = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
        return [
            ReadTask(lambda reader=reader: passed_on(reader), metadata)  # type: ignore[misc]  # mypy infers no type of a lambda with a default
            for reader in self._readers
        ]


def passed_on(reader: Any) -> Iterator[Any]:
    """The tables of a reader; one is asked for while the one before is passed on."""
    ray.get(reader.require_first_run.remote())
    ahead = reader.next.remote()
    while (table := ray.get(ahead)) is not None:
        ahead = reader.next.remote()
        yield table


class Execution:
    """The readers of one action, and the dataset that reads from them."""

    def __init__(self, options: ReadingOptions, limits: list[int | None], numbered: bool, looks: bool) -> None:
        # Spread, and without a processor of their own: they mostly wait.
        actor: Any = ray.remote(QueueReader).options(num_cpus=0, max_concurrency=2, scheduling_strategy="SPREAD")
        step = len(limits)
        self._readers: list[Any] = [
            actor.remote(options, limit, index if numbered else None, step, looks) for index, limit in enumerate(limits)
        ]
        self._pending: list[Any] = []
        self.dataset = ray.data.read_datasource(
            QueueSource(options.queue, self._readers), override_num_blocks=max(1, step)
        )

    def handed(self, rows: list[int]) -> None:
        """These rows, by the numbers of the column ROW, were handed over."""
        step = len(self._readers)
        parts: list[list[int]] = [[] for _ in self._readers]
        for row in rows:
            parts[row % step].append(row)
        for reader, part in zip(self._readers, parts, strict=True):
            if part:
                self._pending.append(reader.handed.remote(part))
        if len(self._pending) > UNDER_WAY:
            ray.get(self._pending)
            self._pending.clear()

    def finish(self, acknowledge: bool) -> None:
        """Settle what the readers hold and end them; raises what an acknowledgement raised."""
        try:
            ray.get(self._pending)
            ray.get([reader.finish.remote(acknowledge) for reader in self._readers])
        finally:
            self.kill()

    def give_up(self) -> None:
        """The action failed: whatever can still be told to the readers is, and its own error is the one to raise."""
        try:
            self.finish(acknowledge=False)
        except Exception:  # noqa: BLE001 - the error that made the action fail is raised; what is held comes again
            pass

    def kill(self) -> None:
        for reader in self._readers:
            ray.kill(reader)


def _step(name: str) -> Callable[..., QueueDataset]:
    def transformation(self: QueueDataset, *args: Any, **options: Any) -> QueueDataset:
        return self._with(DatasetStep(name, args, options))

    transformation.__name__ = name
    transformation.__doc__ = f"As ``ray.data.Dataset.{name}``."
    return transformation


def _whole(name: str) -> Callable[..., Any]:
    def action(self: QueueDataset, *args: Any, **options: Any) -> Any:
        return self._run(lambda dataset: getattr(dataset, name)(*args, **options))

    action.__name__ = name
    action.__doc__ = f"As ``ray.data.Dataset.{name}``; the messages are acknowledged before it returns."
    return action


class QueueDataset:
    """Messages of a queue as a dataset: transformations and actions of ``ray.data.Dataset``; see the module.

    Made by :func:`raybroker.data.read_queue`. Each action takes messages of its own from the queue.
    """

    def __init__(
        self, options: ReadingOptions, tasks: int, limit: int | None, steps: tuple[DatasetStep, ...] = ()
    ) -> None:
        self._options = options
        self._tasks = tasks
        self._limit = limit
        self._steps = steps

    def __repr__(self) -> str:
        steps = "".join(f".{step.name}(…)" for step in self._steps)
        limit = "" if self._limit is None else f", limit={self._limit}"
        return f"<QueueDataset of {self._options.queue}{limit}>{steps}"

    def __getattr__(self, name: str) -> Any:
        # Only what is not here at all comes by here.
        if not name.startswith("_") and hasattr(ray.data.Dataset, name):
            raise AttributeError(
                f"{name} is not for a dataset of a queue, because it could not tell which messages it has handed over;"
                " materialize() takes them and returns a dataset of Ray, which has it"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def limit(self, limit: int) -> QueueDataset:
        """A dataset that takes ``limit`` messages and no more; raises IllegalStateError after a transformation."""
        self._require_plain("limit()")
        return QueueDataset(self._options, self._tasks, self._first(limit))

    def take(self, limit: int = 20) -> list[dict[str, Any]]:
        """Take ``limit`` messages and no more; raises IllegalStateError after a transformation."""
        self._require_plain("take()")
        rows: list[dict[str, Any]] = self.limit(limit).take_all()
        return rows

    def take_batch(self, batch_size: int = 20, *, batch_format: str | None = "default") -> Any:
        """Take ``batch_size`` messages and no more, as one batch; raises IllegalStateError after a transformation."""
        self._require_plain("take_batch()")
        first = self.limit(batch_size)
        return first._run(lambda dataset: dataset.take_batch(batch_size, batch_format=batch_format))

    def show(self, limit: int = 20) -> None:
        """Print the first ``limit`` rows; nothing is taken."""
        self._browse(lambda dataset: dataset.show(limit), self._first(limit) if not self._steps else self._limit)

    def count(self) -> int:
        """The number of rows; nothing is taken. ``query_destination`` tells the number of messages at once."""
        return int(self._browse(lambda dataset: dataset.count(), self._limit))

    def schema(self) -> Any:
        """The schema of the first rows, None where there are none; nothing is taken."""
        return self._browse(lambda dataset: dataset.schema(), self._first(self._options.batch))

    def columns(self) -> list[str] | None:
        """The names of the columns of the first rows; nothing is taken."""
        return self._browse(lambda dataset: dataset.columns(), self._first(self._options.batch))  # type: ignore[no-any-return]  # Ray Data

    def iter_rows(self) -> Iterator[dict[str, Any]]:
        """The rows, one by one."""
        if self._steps:
            yield from self._iterate("iter_rows", {})
            return
        for batch in self.iter_batches(batch_format="pyarrow"):
            yield from batch.to_pylist()

    def iter_batches(self, *, batch_format: str | None = "default", **options: Any) -> Iterator[Any]:
        """The rows in batches; the arguments are those of ``ray.data.Dataset.iter_batches``."""
        if self._steps or batch_format is None:
            yield from self._iterate("iter_batches", {"batch_format": batch_format, **options})
            return
        # Where the iteration is left early, what was handed over before the last batch is acknowledged all the same.
        with self._settled(numbered=True) as execution:
            for batch in execution.dataset.iter_batches(batch_format=batch_format, **options):
                numbers, rows = _without_numbers(batch)
                yield rows
                execution.handed(numbers)

    def iter_torch_batches(self, **options: Any) -> Iterator[Any]:
        """The rows in batches of tensors; acknowledged when the iteration has come to its end, all or none."""
        yield from self._iterate("iter_torch_batches", options)

    def _with(self, step: DatasetStep) -> QueueDataset:
        return QueueDataset(self._options, self._tasks, self._limit, (*self._steps, step))

    def _first(self, limit: int) -> int:
        require_count("limit", limit)
        return limit if self._limit is None else min(limit, self._limit)

    def _require_plain(self, what: str) -> None:
        if self._steps:
            raise IllegalStateError(
                f"{what} of a transformed queue: nobody can tell which messages its rows are made of; say"
                " read_queue(…, limit=…) and take_all(), look with show(), or call materialize() first"
            )

    def _execution(self, limit: int | None, numbered: bool = False, looks: bool = False) -> Execution:
        tasks = 1 if looks else self._tasks
        limits: list[int | None] = [None] * tasks if limit is None else _shares(limit, min(tasks, limit))
        execution = Execution(self._options, limits, numbered, looks)
        try:
            for name, args, options in self._steps:
                execution.dataset = getattr(execution.dataset, name)(*args, **options)
        except BaseException:
            execution.kill()
            raise
        return execution

    def _run(self, action: Callable[[Any], Any]) -> Any:
        """The result of an action that hands over all; the messages are acknowledged."""
        with self._settled() as execution:
            return action(execution.dataset)

    def _iterate(self, method: str, options: dict[str, Any]) -> Iterator[Any]:
        """What a method of the dataset gives one by one; the messages are acknowledged at its end, all or none."""
        if options.get("drop_last"):
            raise IllegalStateError(
                f"{method}(drop_last=True) would acknowledge rows that it does not hand over; call materialize() first"
            )
        with self._settled() as execution:
            yield from getattr(execution.dataset, method)(**options)

    @contextmanager
    def _settled(self, *, numbered: bool = False) -> Iterator[Execution]:
        """An execution whose messages are acknowledged at the end of the block, and given back when that fails or an
        iteration is left in it."""
        execution = self._execution(self._limit, numbered=numbered)
        try:
            yield execution
        except BaseException:
            execution.give_up()
            raise
        execution.finish(acknowledge=True)

    def _browse(self, action: Callable[[Any], Any], limit: int | None) -> Any:
        execution = self._execution(limit, looks=True)
        try:
            return action(execution.dataset)
        finally:
            execution.give_up()


for _name in STEPS:
    setattr(QueueDataset, _name, _step(_name))
for _name in WHOLE:
    setattr(QueueDataset, _name, _whole(_name))


def require_count(name: str, value: object) -> None:
    """Raise ConfigError unless ``value`` is a whole number from 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{name}={value!r}; it is a whole number from 1")


def _shares(total: int, parts: int) -> list[int | None]:
    return [total // parts + (index < total % parts) for index in range(parts)]


def _without_numbers(batch: Any) -> tuple[list[int], Any]:
    """The numbers of the rows of a batch, and the batch without them."""
    if isinstance(batch, dict):
        return batch.pop(ROW).tolist(), batch
    if hasattr(batch, "drop_columns"):
        return batch.column(ROW).to_pylist(), batch.drop_columns([ROW])
    return batch.pop(ROW).tolist(), batch
