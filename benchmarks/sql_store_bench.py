"""How fast a store in a database takes messages of 1 KiB, and how fast a whole broker moves them over it.

    python -m benchmarks.sql_store_bench    # a file of SQLite
    python -m benchmarks.sql_store_bench --url postgresql://user@host/database
    python -m benchmarks.sql_store_bench --postgres    # a server of its own

``store``: blocks of ``--block`` messages, ``--commit`` blocks a commit, freed ``--live`` commits later, with
checkpoints and deletions as in a host.  ``alone``: one message a commit.  ``broker``: a loopback whose producer sends
``send_many`` batches that are confirmed, and whose consumer takes and acknowledges them.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import raybroker as rb
from raybroker.config import Config
from raybroker.model.blocks.record import BLOCK, CHECKPOINT, NOTE, LogEntry
from raybroker.store.sql.address import address_of
from raybroker.store.sql.administration import StoreTables
from raybroker.store.sql.database import Database
from raybroker.store.sql.registration import StoreOwner
from raybroker.store.sql.store import SqlStore
from raybroker.system.clock import SystemClock
from raybroker.system.entropy import token

MESSAGE_BYTES = 1024
META = bytes(40)
ID = "bench"


def opened(config: Config, folder: Path) -> SqlStore:
    return SqlStore(
        Database(address_of(config, folder)),
        f"{ID}_loopback",
        "bench",
        owner=StoreOwner("loopback", "loopback", "", ""),
        monotonic_ns=SystemClock().monotonic_ns,
    )


def store(config: Config, folder: Path, *, messages: int, block: int, commit: int, live: int) -> tuple[float, float]:
    """(messages a second, microseconds of processor time a message in this process)."""
    found = opened(config, folder)
    for entry in found.recover():
        if entry.kind == BLOCK:
            found.free(entry.destination, [entry.ordinal])
    payload = token(block * MESSAGE_BYTES)
    number, commits = time.time_ns(), max(messages // block // commit, 1)
    first = number
    cpu, began = time.process_time(), time.perf_counter()
    for done in range(commits):
        entries = [LogEntry(BLOCK, 1, number + n, META, (payload,)) for n in range(commit)]
        number += commit
        found.commit([*entries, LogEntry(NOTE, 1, 0, b"acknowledged %20d" % number)])
        if done >= live:
            found.free(1, range(first, first + commit))
            first += commit
        if found.checkpoint_due():
            found.commit([LogEntry(CHECKPOINT, 0, 0, bytes(1000))])
        found.maintain(4 << 20)
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    found.free(1, range(first, number))
    found.commit([LogEntry(CHECKPOINT, 0, 0, bytes(1000))])
    while found.maintain(4 << 20):
        pass
    found.close()
    total = commits * commit * block
    return total / wall, cpu / total * 1e6


def broker(properties: dict[str, object], folder: Path, *, messages: int) -> float:
    """Messages a second, sent, confirmed, received and acknowledged."""
    body, batch = bytes(MESSAGE_BYTES), 2000
    with rb.loopback(folder, properties=properties) as connection:
        connection.admin().create_destination("queue", "bench", maxNumMsgs=-1, maxTotalMsgBytes=-1, maxBytesPerMsg=-1)
        session = connection.session(ack="client")
        producer, consumer = session.producer("bench"), session.consumer("bench")
        began, sent, taken = time.perf_counter(), 0, 0
        while taken < messages:
            if sent < messages:
                sent += producer.send_many([body] * batch)
            found = consumer.receive_many(batch, timeout=5)
            taken += len(found)
            if found:
                found[-1].acknowledge()
        wall = time.perf_counter() - began
        connection.admin().destroy_destination("queue", "bench")
    return messages / wall


@contextlib.contextmanager
def database(arguments: argparse.Namespace) -> Iterator[dict[str, object]]:
    """The properties of a store whose tables are there, and empty."""
    properties: dict[str, object] = {"imq.persist.store": "sql", "imq.brokerid": ID}
    with contextlib.ExitStack() as running:
        url = arguments.url
        if arguments.postgres:
            from tests.contracts import postgres

            url = running.enter_context(postgres.server()).url
        if url is None:
            yield properties
            return
        properties |= {"imq.persist.jdbc.dbVendor": "postgresql", "imq.persist.jdbc.postgresql.opendburl": url}
        tables = StoreTables(
            Database(address_of(Config.from_values(properties), Path())), f"{ID}_loopback", "loopback", "loopback"
        )
        tables.create()
        try:
            yield properties
        finally:
            tables.drop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--url", help="of a PostgreSQL database, in which tables are made and removed")
    where.add_argument("--postgres", action="store_true", help="start a server of PostgreSQL for the time of the run")
    parser.add_argument("--directory", help="where the file of SQLite goes (default: the temporary directory)")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--alone", type=int, default=500, help="messages that have a commit each")
    parser.add_argument("--block", type=int, default=100, help="messages of a block")
    parser.add_argument("--commit", type=int, default=10, help="blocks of a commit")
    parser.add_argument("--live", type=int, default=20, help="commits whose blocks are kept")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as parent, database(arguments) as properties:
        folder, config = Path(parent), Config.from_values(properties)
        for _ in range(arguments.rounds):
            rate, cpu = store(
                config,
                folder,
                messages=arguments.messages,
                block=arguments.block,
                commit=arguments.commit,
                live=arguments.live,
            )
            alone, cpu_alone = store(config, folder, messages=arguments.alone, block=1, commit=1, live=arguments.live)
            moved = broker(properties, folder, messages=arguments.messages)
            print(f"store  {rate:10,.0f} messages/s, {cpu:7.1f} us of processor time each")
            print(f"alone  {alone:10,.0f} messages/s, {cpu_alone:7.1f} us of processor time each")
            print(f"broker {moved:10,.0f} messages/s")


if __name__ == "__main__":
    main()
