"""A queue as a dataset, whose actions acknowledge what they have handed over and no more: ``read_queue`` returns it.

Ray Data runs ahead of whoever asks for rows, and throws away what nobody asks for: a read task cannot know what becomes
of its blocks.  The action that the application calls knows, so each action runs an execution of its own, with readers
that hold the messages (``tabular/queue_reader.py``), and settles them when it has handed over its result:

    all of it       take_all, materialize, to_pandas …, write_…, iter_… to its end: acknowledged when the action returns
    the first rows  limit(n), take(n), take_batch(n), without transformations: n messages are taken, and no more
    iter_rows, iter_batches without transformations: what was handed over is acknowledged when the next is asked for
    a look          show, count, schema, columns: the queue is browsed, and nothing is taken

A read with ``until`` goes on.  Without transformations iter_rows and iter_batches hand over what comes, and acknowledge
as above.  With transformations, and for write_…, it is a row of rounds, each an execution whose messages are
acknowledged when all of it was handed over or written, before the next one begins.

A task that is lost, with its process or its node, is run again by Ray, and its reader gives it the same messages
again: the application does not notice it.  What was not acknowledged comes again, flagged ``redelivered``: all of an
execution that fails, as it does when the driver's node with the readers is lost, or the reader keeps no more what a
second run needs (``KEPT_BYTES``); and what an iteration that is left early has not handed over, and the rows that it
handed over last, which nobody may have worked on.  With transformations nobody can tell which messages are in a row, so
an iteration that is left early gives back all of its round, and the first rows are refused.  ``materialize()`` takes
the messages and returns a dataset of Ray, with everything that has; it lives in Ray's memory, and is lost with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final, NamedTuple

import ray
import ray.data
from ray.data import Datasource, ReadTask
from ray.data.block import BlockAccessor, BlockMetadata
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raybroker.model.errors import ConfigError, IllegalStateError
from raybroker.system.clock import SystemClock
from raybroker.tabular.arrow_table import expanded
from raybroker.tabular.batching import TableBatch, TableBatches, shares
from raybroker.tabular.queue_reader import QueueReader, ReaderPart, ReadingOptions, RoundBegin
from raybroker.tabular.until import Until

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
BATCH_SIZE: Final = 256
"""Rows of a batch where nothing is said, as in Ray Data."""
DIRECT: Final = frozenset({"batch_size", "drop_last", "prefetch_batches"})
"""Options of ``iter_batches`` that need no execution of Ray Data: tables of readers are handed over as they come."""
UNDER_WAY: Final = 64
"""Calls that tell readers what was handed over, and whose answers were not awaited, at most."""
WAIT_S: Final = 0.5
"""How long readers are asked at a time whether there are messages for another round."""


class DatasetStep(NamedTuple):
    """One transformation: a method of the dataset with its arguments."""

    name: str
    args: tuple[Any, ...]
    options: dict[str, Any]


class QueuePlan(NamedTuple):
    """What a dataset of a queue takes; the meaning is that of the arguments of ``read_queue``."""

    options: ReadingOptions
    tasks: int
    limit: int | None
    limit_bytes: int | None
    until: Until
    round_messages: int
    round_s: float


class QueueSource(Datasource):
    """One read task a reader, which passes on one round."""

    def __init__(self, queue: str, readers: list[Any], round_number: int) -> None:
        self._queue = queue
        self._readers = readers
        self._round = round_number

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
        number = self._round
        return [
            ReadTask(lambda reader=reader: passed_on(reader, number), metadata)  # type: ignore[misc]  # mypy infers no type of a lambda with a default
            for reader in self._readers
        ]


def passed_on(reader: Any, round_number: int) -> Iterator[Any]:
    """The tables of a reader; one is asked for while the one before is passed on."""
    index = 0
    ahead = reader.table.remote(round_number, index)
    while (table := ray.get(ahead)) is not None:
        index += 1
        ahead = reader.table.remote(round_number, index)
        yield expanded(table)


class Execution:
    """The readers of one action, and the datasets that read from them: one, or one a round."""

    def __init__(self, plan: QueuePlan, parts: list[ReaderPart], looks: bool) -> None:
        # Beside the driver, and nowhere else: whoever dies with another node is a task, which Ray runs again, and no
        # reader.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        actor: Any = ray.remote(QueueReader).options(num_cpus=0, max_concurrency=4, scheduling_strategy=here)
        self._plan = plan
        self._readers: list[Any] = [actor.remote(plan.options, part, looks) for part in parts]
        self._pending: list[Any] = []
        self._round = 0

    def dataset(self, steps: Sequence[DatasetStep]) -> Any:
        """The dataset of this round."""
        source = QueueSource(self._plan.options.queue, self._readers, self._round)
        made: Any = ray.data.read_datasource(source, override_num_blocks=max(1, len(self._readers)))
        for name, args, options in steps:
            made = getattr(made, name)(*args, **options)
        return made

    def begin_round(self) -> bool:
        """Wait until there are messages; False: the readers are at their end."""
        share = -(-self._plan.round_messages // len(self._readers))
        while True:
            self._round += 1
            begun = ray.get(
                [reader.begin_round.remote(self._round, share, self._plan.round_s, WAIT_S) for reader in self._readers]
            )
            if any(found is RoundBegin.SOME for found in begun):
                return True
            if all(found is RoundBegin.OVER for found in begun):
                return False

    def end_round(self) -> None:
        """All of the round was handed over."""
        ray.get([reader.end_round.remote() for reader in self._readers])

    def batches(self, size: int | None, drop_last: bool) -> Iterator[Any]:
        """The tables of the readers in batches of a size, straight from them: what was handed over is acknowledged when
        the next one is asked for. ``drop_last``: not what is less than a batch."""
        batching = TableBatches(size)
        handed = [0] * len(self._readers)
        index = dict.fromkeys(range(len(self._readers)), 0)
        ahead = {reader.table.remote(0, 0): number for number, reader in enumerate(self._readers)}
        while ahead:
            (ready,), _ = ray.wait(list(ahead), num_returns=1)
            number = ahead.pop(ready)
            table = ray.get(ready)
            if table is None:
                continue
            index[number] += 1
            ahead[self._readers[number].table.remote(0, index[number])] = number
            batching.add(number, expanded(table))
            for batch in batching.whole():
                yield batch.table
                self._tell(batch, handed)
        last = None if drop_last and size is not None else batching.rest()
        if last is not None:
            yield last.table
            self._tell(last, handed)

    def _tell(self, batch: TableBatch, handed: list[int]) -> None:
        """Tell the readers what was handed over with a batch."""
        for number, count in batch.taken.items():
            handed[number] += count
            self._pending.append(self._readers[number].handed.remote(handed[number]))
        if len(self._pending) > UNDER_WAY:
            ray.get(self._pending)
            self._pending.clear()

    def receive_no_more(self) -> None:
        """The readers pass on what they have received, and that is all."""
        for reader in self._readers:
            reader.receive_no_more.remote()

    def finish(self, acknowledge: bool) -> None:
        """Settle what the readers hold and end them; raises what an acknowledgement raised."""
        try:
            ray.get(self._pending)
            ray.get([reader.finish.remote(acknowledge) for reader in self._readers])
        finally:
            for reader in self._readers:
                ray.kill(reader)

    def give_up(self) -> None:
        """The action failed: whatever can still be told to the readers is, and its own error is the one to raise."""
        try:
            self.finish(acknowledge=False)
        except Exception:  # noqa: BLE001 - the error that made the action fail is raised; what is held comes again
            pass


class RunningActions:
    """The executions of a dataset and of those made of it, which ``stop_reading`` ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._executions: set[Execution] = set()

    @contextmanager
    def noted(self, execution: Execution) -> Iterator[None]:
        with self._lock:
            self._executions.add(execution)
        try:
            yield
        finally:
            with self._lock:
                self._executions.discard(execution)

    def receive_no_more(self) -> None:
        with self._lock:
            for execution in self._executions:
                execution.receive_no_more()

    def __reduce__(self) -> Any:
        return RunningActions, ()


def _step(name: str) -> Callable[..., QueueDataset]:
    def transformation(self: QueueDataset, *args: Any, **options: Any) -> QueueDataset:
        return self._with(DatasetStep(name, args, options))

    transformation.__name__ = name
    transformation.__doc__ = f"As ``ray.data.Dataset.{name}``."
    return transformation


def _whole(name: str) -> Callable[..., Any]:
    def action(self: QueueDataset, *args: Any, **options: Any) -> Any:
        return self._run(lambda dataset: getattr(dataset, name)(*args, **options), name)

    action.__name__ = name
    action.__doc__ = f"As ``ray.data.Dataset.{name}``; the messages are acknowledged before it returns."
    return action


class QueueDataset:
    """Messages of a queue as a dataset: transformations and actions of ``ray.data.Dataset``; see the module.

    Made by :func:`raybroker.data.read_queue`. Each action takes messages of its own from the queue.
    """

    def __init__(
        self, plan: QueuePlan, steps: tuple[DatasetStep, ...] = (), running: RunningActions | None = None
    ) -> None:
        self._plan = plan
        self._steps = steps
        self._running = running or RunningActions()

    def __repr__(self) -> str:
        steps = "".join(f".{step.name}(…)" for step in self._steps)
        limit = "" if self._plan.limit is None else f", limit={self._plan.limit}"
        return f"<QueueDataset of {self._plan.options.queue}{limit}>{steps}"

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
        return QueueDataset(self._plan._replace(limit=self._first(limit)), running=self._running)

    def stop_reading(self) -> None:
        """End the actions of this dataset, and of those made of it, that run now: nothing more is received, what was is
        handed over, and they return. May be called by another thread, or within an iteration."""
        self._running.receive_no_more()

    def take(self, limit: int = 20) -> list[dict[str, Any]]:
        """Take ``limit`` messages and no more; raises IllegalStateError after a transformation."""
        self._require_plain("take()")
        rows: list[dict[str, Any]] = self.limit(limit).take_all()
        return rows

    def take_batch(self, batch_size: int = 20, *, batch_format: str | None = "default") -> Any:
        """Take ``batch_size`` messages and no more, as one batch; raises IllegalStateError after a transformation."""
        self._require_plain("take_batch()")
        first = self.limit(batch_size)
        return first._run(lambda dataset: dataset.take_batch(batch_size, batch_format=batch_format), "take_batch")

    def show(self, limit: int = 20) -> None:
        """Print the first ``limit`` rows; nothing is taken."""
        self._browse(lambda dataset: dataset.show(limit), self._first(limit) if not self._steps else self._plan.limit)

    def count(self) -> int:
        """The number of rows; nothing is taken. ``query_destination`` tells the number of messages at once."""
        return int(self._browse(lambda dataset: dataset.count(), self._plan.limit))

    def schema(self) -> Any:
        """The schema of the first rows, None where there are none; nothing is taken."""
        return self._browse(lambda dataset: dataset.schema(), self._first(self._plan.options.batch))

    def columns(self) -> list[str] | None:
        """The names of the columns of the first rows; nothing is taken."""
        return self._browse(lambda dataset: dataset.columns(), self._first(self._plan.options.batch))  # type: ignore[no-any-return]  # Ray Data

    def iter_rows(self) -> Iterator[dict[str, Any]]:
        """The rows, one by one."""
        if self._steps:
            yield from self._iterate("iter_rows", {})
            return
        for batch in self.iter_batches(batch_size=None, batch_format="pyarrow"):
            yield from batch.to_pylist()

    def iter_batches(self, *, batch_format: str | None = "default", **options: Any) -> Iterator[Any]:
        """The rows in batches; the arguments are those of ``ray.data.Dataset.iter_batches``."""
        if self._steps or batch_format is None or set(options) - DIRECT:
            yield from self._iterate("iter_batches", {"batch_format": batch_format, **options})
            return
        size = options.get("batch_size", BATCH_SIZE)
        if size is not None:
            require_count("batch_size", size)
        with self._settled(stepwise=True) as execution:
            for table in execution.batches(size, bool(options.get("drop_last"))):
                yield BlockAccessor.for_block(table).to_batch_format(batch_format)

    def iter_torch_batches(self, **options: Any) -> Iterator[Any]:
        """The rows in batches of tensors; acknowledged when the iteration has come to its end, all or none."""
        yield from self._iterate("iter_torch_batches", options)

    def _with(self, step: DatasetStep) -> QueueDataset:
        return QueueDataset(self._plan, (*self._steps, step), self._running)

    def _first(self, limit: int) -> int:
        require_count("limit", limit)
        return limit if self._plan.limit is None else min(limit, self._plan.limit)

    def _require_plain(self, what: str) -> None:
        if self._steps:
            raise IllegalStateError(
                f"{what} of a transformed queue: nobody can tell which messages its rows are made of; say"
                " read_queue(…, limit=…) and take_all(), look with show(), or call materialize() first"
            )

    def _run(self, action: Callable[[Any], Any], name: str) -> Any:
        """The result of an action that hands over all; the messages are acknowledged."""
        plan = self._plan
        if name.startswith("write_") and not plan.until.empty:
            with closing(self._rounds()) as rounds:
                for dataset in rounds:
                    action(dataset)
            return None
        if plan.until.endless and plan.limit is None and plan.limit_bytes is None:
            raise IllegalStateError(
                f'{name}() of a read with until="stopped" would never return: bound it with limit=…, limit_bytes=… or'
                " until=<seconds>, or iterate"
            )
        with self._settled() as execution:
            return action(execution.dataset(self._steps))

    def _iterate(self, method: str, options: dict[str, Any]) -> Iterator[Any]:
        """What a method of the dataset gives one by one; the messages are acknowledged at its end, all or none, or
        where the read goes on, round by round."""
        if options.get("drop_last"):
            raise IllegalStateError(
                f"{method}(drop_last=True) would acknowledge rows that it does not hand over; call materialize() first"
            )
        if not self._plan.until.empty:
            with closing(self._rounds()) as rounds:
                for dataset in rounds:
                    yield from getattr(dataset, method)(**options)
            return
        with self._settled() as execution:
            yield from getattr(execution.dataset(self._steps), method)(**options)

    def _rounds(self) -> Generator[Any]:
        """The datasets of the rounds; the messages of one are acknowledged when the next is asked for, or it is the
        last one."""
        with self._settled() as execution:
            while execution.begin_round():
                yield execution.dataset(self._steps)
                execution.end_round()

    def _execution(self, limit: int | None, *, stepwise: bool = False, looks: bool = False) -> Execution:
        plan = self._plan
        tasks = 1 if looks else plan.tasks if limit is None else min(plan.tasks, limit)
        limits = [None] * tasks if limit is None else shares(limit, tasks)
        sizes = [None] * tasks if plan.limit_bytes is None else shares(plan.limit_bytes, tasks)
        left_s = plan.until.left_s(SystemClock().now_ms())
        parts = [ReaderPart(limit, size, left_s, stepwise) for limit, size in zip(limits, sizes, strict=True)]
        return Execution(plan, parts, looks)

    @contextmanager
    def _settled(self, *, stepwise: bool = False) -> Iterator[Execution]:
        """An execution whose messages are acknowledged at the end of the block, and given back when that fails or an
        iteration is left in it."""
        execution = self._execution(self._plan.limit, stepwise=stepwise)
        with self._running.noted(execution):
            try:
                yield execution
            except BaseException:
                execution.give_up()
                raise
            execution.finish(acknowledge=True)

    def _browse(self, action: Callable[[Any], Any], limit: int | None) -> Any:
        execution = self._execution(limit, looks=True)
        try:
            return action(execution.dataset(self._steps))
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
