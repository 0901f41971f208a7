"""Reading of a lake without Spark: the parts of a lake become Parquet files in processes of this machine.

With a local master Spark would only pass the parts on to Python processes of its own, once it has started.  Reading
needs nothing of Spark, so it runs while Spark starts.  On a cluster the workers of Spark read: see
``tables.through_spark``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from tempfile import TemporaryFile
from typing import Final

from raybroker.analysis.lake import parquet
from raybroker.analysis.lake.plan import LakePart, PlanWindow

HERE_BYTES: Final = 2 << 20
"""A lake up to this size on disk is read in this process: it takes less time than another process needs to start."""
Wait = Callable[[], int]
"""Waits for the end and says how many rows were written; raises what a part raised."""
_CODE: Final = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.path[:] = {path!r}
from raybroker.analysis.lake.reading import serve
serve()
"""
"""A worker of ours.  Ctrl-C goes to all processes of a terminal; the process that started the worker ends it."""


def begun(works: Sequence[parquet.ParquetWork], lake_bytes: int, cores: int) -> AbstractContextManager[Wait]:
    """Begin to read: a small lake in a thread of this process, a larger one in a process for each core.

    When the block ends early, what has not been read is left out.
    """
    return _in_thread(works) if lake_bytes <= HERE_BYTES else _in_processes(works, min(cores, len(works)))


@contextmanager
def _in_thread(works: Sequence[parquet.ParquetWork]) -> Iterator[Wait]:
    pool = ThreadPoolExecutor(1, thread_name_prefix="reading")
    try:
        parts = [pool.submit(parquet.write, work) for work in works]
        yield lambda: sum(part.result() for part in parts)
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _in_processes(works: Sequence[parquet.ParquetWork], count: int) -> Iterator[Wait]:
    """Parts are of about equal size, so every process gets the same number of them beforehand."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes += [_started(works[number::count]) for number in range(count)]
        yield lambda: sum(map(_rows, processes))
    finally:
        for one in processes:
            with one:  # closes the pipe and waits for the end
                one.kill()


def _started(works: Sequence[parquet.ParquetWork]) -> subprocess.Popen[bytes]:
    with TemporaryFile() as given:
        given.write(json.dumps(works).encode())
        given.seek(0)
        code = _CODE.format(path=sys.path)
        return subprocess.Popen([sys.executable, "-c", code], stdin=given, stdout=subprocess.PIPE)


def _rows(process: subprocess.Popen[bytes]) -> int:
    said, _ = process.communicate()
    if process.returncode:
        raise OSError(f"a process that reads the lake ended with {process.returncode}")
    rows, error = json.loads(said)
    if error is not None:
        raise OSError(*error)
    return int(rows)


def serve() -> None:
    """Runs in a worker: writes the parts that standard input names, and says on standard output what came of it."""
    rows, error = 0, None
    try:
        rows = sum(parquet.write(_work(*given)) for given in json.load(sys.stdin))
    except OSError as found:
        error = (found.errno, found.strerror, found.filename)
    json.dump((rows, error), sys.stdout)


def _work(
    number: int,
    part: tuple[str, list[str], list[str], int, int],
    window: tuple[int, int, int],
    step_ms: int,
    out: str,
    kept: bool,
) -> parquet.ParquetWork:
    """A work of what JSON makes of it."""
    broker, files, before, *stretch = part
    return parquet.ParquetWork(
        number, LakePart(broker, tuple(files), tuple(before), *stretch), PlanWindow(*window), step_ms, out, kept
    )
