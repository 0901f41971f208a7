"""``python -m benchmarks.cpu_budget``: where the processor's time goes, a message, thread by thread.

Two cores give 2 µs of processor time for each µs that passes, so the sum of this table says how fast the path can be at
best, whatever else is done; and the share of the system's time in it says what no program in user space can save.  The
host runs as it does in its actor, without Ray around it, so that every thread can be told apart.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import multiprocessing as mp
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from raybroker.client.blocking.handles import Connection
from raybroker.client.cluster.directory import DestinationPlace
from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.io.io_thread import IoThread
from raybroker.config import Config
from raybroker.hosting.host_service import HostService, HostStorage
from raybroker.model.settings.setting import PortRange
from raybroker.store.journal import Journal
from raybroker.system import entropy
from raybroker.system.clock import SystemClock
from raybroker.system.memory import collect_seldom, keep_freed_memory
from raybroker.transport.loops import new_event_loop

TOKEN = bytes(32)
TAKE = 4_000
WARM_UP = 300_000
SWITCH_S = 0.0005


@asynccontextmanager
async def serving(folder: str) -> AsyncIterator[int]:
    """A destination host over a journal, with a queue ``q``, on this loop; gives its port."""
    clock = SystemClock()
    journal = Journal(Path(folder) / "store", monotonic_ns=clock.monotonic_ns, entropy=entropy.token)
    service = HostService(HostStorage(journal, journal.incarnation), clock, Config.from_values(), token=TOKEN)
    await service.start(threaded=True)
    _, port = await service.listen("127.0.0.1", PortRange(0, 0))
    await service.destinations.create("queue", "q", {"consumerFlowLimit": -1}, False)
    collect_seldom()
    try:
        yield port
    finally:
        await service.close()


def host(pipe: Any, folder: str) -> None:
    """A destination host, listening; says its port and ends with its parent."""
    keep_freed_memory()
    sys.setswitchinterval(SWITCH_S)

    async def serve() -> None:
        async with serving(folder) as port:
            pipe.send(port)
            await asyncio.get_running_loop().run_in_executor(None, pipe.recv)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve())


class OneHost:
    """A directory with one place in it; what is not here is not asked for."""

    def __init__(self, port: int) -> None:
        self._port = port

    home = ""

    async def locate(self, kind: str, name: str, create: bool, broker: str | None = None) -> DestinationPlace:
        return DestinationPlace("host", TOKEN, self._dial)

    async def _dial(self, factory: Callable[[], Any]) -> object:
        return await asyncio.get_running_loop().create_connection(factory, "127.0.0.1", self._port)

    async def settings(self) -> dict[str, Any]:
        return {}

    async def admin(self, verb: str, args: dict[str, Any]) -> Any:
        raise AssertionError("nothing is administered here")

    async def close(self) -> None:
        """Nothing to give back."""


def connect_to(port: int) -> Connection:
    directory: Any = OneHost(port)
    connection = Connection(ConnectionCore(directory, Config.from_values(), client_id=None, io=IoThread.shared()))
    connection.start()
    return connection


def produce(pipe: Any, port: int, count: int, size: int) -> None:
    some = [os.urandom(size) for _ in range(1000)]
    with connect_to(port) as connection:
        producer = connection.session().producer("q")
        _measured(pipe, lambda amount: producer.send_many(some[n % 1000] for n in range(amount)), count)


def consume(pipe: Any, port: int, count: int, size: int) -> None:
    with connect_to(port) as connection:
        consumer = connection.session(ack="client").consumer("q", prefetch=20_000)

        def work(amount: int) -> None:
            while amount:
                messages = consumer.receive_many(min(TAKE, amount), timeout=60)
                assert messages, f"{amount} messages did not come"
                for message in messages:
                    assert len(message.body) == size
                amount -= len(messages)
                messages[-1].acknowledge()

        _measured(pipe, work, count)


def _measured(pipe: Any, work: Callable[[int], object], count: int) -> None:
    gc.collect()
    gc.freeze()
    for amount in (WARM_UP, count):
        pipe.send("ready")
        pipe.recv()
        before, began = os.times(), time.monotonic()
        work(amount)
        after = os.times()
        pipe.send((after[0] - before[0], after[1] - before[1], began, time.monotonic()))


def run(count: int, size: int, folder: str) -> tuple[list[tuple[str, float, float]], float]:
    """Rows (who, user µs, system µs) a message, and messages a second."""
    context = mp.get_context("spawn")
    ends = [context.Pipe() for _ in range(3)]
    mine = [end[0] for end in ends]
    processes = [context.Process(target=host, args=(ends[0][1], folder), daemon=True)]
    processes[0].start()
    port = mine[0].recv()
    for end, work in zip(ends[1:], (produce, consume), strict=True):
        processes.append(context.Process(target=work, args=(end[1], port, count, size), daemon=True))
        processes[-1].start()
    watched = psutil.Process(processes[0].pid)
    found: list[Any] = []
    before: dict[int, Any] = {}
    for _ in range(2):
        for pipe in mine[1:]:
            assert pipe.recv() == "ready"
        before = {thread.id: thread for thread in watched.threads()}
        for pipe in mine[1:]:
            pipe.send("go")
        found = [pipe.recv() for pipe in mine[1:]]
    rows = [
        (who, user * 1e6 / count, system * 1e6 / count)
        for who, (user, system, _, _) in zip(("producer", "consumer"), found, strict=True)
    ]
    names = {watched.pid: "host, sockets and decisions"}
    for thread in watched.threads():
        old = before.get(thread.id)
        user = thread.user_time - (old.user_time if old else 0)
        system = thread.system_time - (old.system_time if old else 0)
        if user + system > 0.01:
            who = names.get(thread.id, "host, commits")
            rows.append((who, user * 1e6 / count, system * 1e6 / count))
    seconds = max(f[3] for f in found) - min(f[2] for f in found)
    mine[0].send("end")
    for process in processes:
        process.join(10)
    return rows, count / seconds


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu_budget", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_500_000)
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="rb-budget-")
    try:
        rows, rate = run(options.messages, options.size, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    table = Table("who", "user µs", "system µs", title=f"processor time a message of {options.size} bytes")
    for who, user, system in rows:
        table.add_row(who, f"{user:.2f}", f"{system:.2f}")
    user, system = sum(row[1] for row in rows), sum(row[2] for row in rows)
    table.add_row("all", f"{user:.2f}", f"{system:.2f}")
    console = Console()
    console.print(table)
    cores = os.cpu_count() or 1
    console.print(f"{rate:,.0f} messages/s; {cores} cores allow at best {cores / (user + system) * 1e6:,.0f}")


if __name__ == "__main__":
    main()
