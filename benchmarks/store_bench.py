"""How fast the journal takes blocks, and how fast it comes back.

    python benchmarks/store_bench.py write --mb 1200 --block-kib 100 --live 20
    python benchmarks/store_bench.py recover --blocks 10000 --messages 100
    python benchmarks/store_bench.py recover --blocks 1000000 --messages 1

``write`` syncs every block and frees it ``--live`` blocks later; a message is 1 KiB.  ``recover`` fills a store (in
batches, to get there sooner), reopens it and measures recovery and the memory of the index.
"""

from __future__ import annotations

import argparse
import gc
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raybroker.model.blocks.record import BLOCK, CHECKPOINT, NOTE, LogEntry
from raybroker.store.journal import Journal
from raybroker.system.clock import SystemClock
from raybroker.system.entropy import token

MESSAGE_BYTES = 1024
META = bytes(40)


def opened(directory: Path, *, sync: bool = True) -> Journal:
    return Journal(directory, monotonic_ns=SystemClock().monotonic_ns, entropy=token, sync=sync)


@contextmanager
def a_directory(parent: str | None) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="store-bench-", dir=parent))
    try:
        yield path / "store"
    finally:
        shutil.rmtree(path)


def write(arguments: argparse.Namespace, directory: Path) -> None:
    block = token(arguments.block_kib << 10)
    blocks = (arguments.mb << 20) // len(block)
    journal = opened(directory, sync=not arguments.no_sync)
    list(journal.recover())
    commits_ns = []
    syncs_ns = []
    cpu, began = time.process_time(), time.perf_counter()
    for ordinal in range(blocks):
        entries = [LogEntry(BLOCK, 1, ordinal, META, (block,))]
        dead = ordinal - arguments.live
        if dead >= 0:
            entries.append(LogEntry(NOTE, 1, 0, b"acknowledged %12d" % dead))
        at = time.perf_counter_ns()
        journal.commit(entries)
        commits_ns.append(time.perf_counter_ns() - at)
        syncs_ns.append(journal._log.syncs.last_ns)
        if dead >= 0:
            journal.free(1, (dead,))
        if journal.checkpoint_due():
            journal.commit([LogEntry(CHECKPOINT, 0, 0, bytes(1000))])
        journal.maintain(4 << 20)
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    stats = journal.stats()
    journal.close()
    messages = blocks * len(block) // MESSAGE_BYTES
    commits_ns.sort()
    syncs_ns.sort()
    print(f"{blocks} blocks of {len(block) >> 10} KiB in {wall:.2f} s, sync {'off' if arguments.no_sync else 'on'}")
    print(f"  messages/s of 1 KiB  {messages / wall:12,.0f}")
    print(f"  CPU per message, us  {cpu / messages * 1e6:12.2f}")
    for name, values in (("commit", commits_ns), ("fdatasync", syncs_ns)):
        p50, p99, most = (values[min(int(len(values) * q), len(values) - 1)] / 1e3 for q in (0.5, 0.99, 1))
        print(f"  {name} p50/p99/max, us  {p50:.0f} / {p99:.0f} / {most:.0f}")
    print(f"  reserved, MiB        {stats.reserved_bytes >> 20:12}")


def fill(directory: Path, blocks: int, payload: bytes, per_commit: int) -> None:
    journal = opened(directory, sync=False)
    list(journal.recover())
    for first in range(0, blocks, per_commit):
        last = min(first + per_commit, blocks)
        journal.commit([LogEntry(BLOCK, 1, ordinal, META, (payload,)) for ordinal in range(first, last)])
        if journal.checkpoint_due():
            journal.commit([LogEntry(CHECKPOINT, 0, 0, bytes(1000))])
    journal.close()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def recover(arguments: argparse.Namespace, directory: Path) -> None:
    payload = token(arguments.messages * MESSAGE_BYTES)
    fill(directory, arguments.blocks, payload, arguments.per_commit)
    gc.collect()
    before = resident_bytes()
    cpu, began = time.process_time(), time.perf_counter()
    journal = opened(directory)
    opened_after = time.perf_counter() - began
    found = sum(entry.kind == BLOCK for entry in journal.recover())
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    index = journal._index
    assert found == len(index[1]) == arguments.blocks, found
    print(f"{found} blocks of {arguments.messages} messages: open {opened_after:.3f} s, recovered {wall:.3f} s")
    print(f"  CPU, s               {cpu:12.3f}")
    print(f"  index bytes a block  {(resident_bytes() - before) / found:12.0f} (resident)")
    journal.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", help="where to put the store (default: the temporary directory)")
    commands = parser.add_subparsers(required=True)
    writing = commands.add_parser("write")
    writing.set_defaults(run=write)
    writing.add_argument("--mb", type=int, default=1200)
    writing.add_argument("--block-kib", type=int, default=100)
    writing.add_argument("--live", type=int, default=20)
    writing.add_argument("--no-sync", action="store_true")
    recovering = commands.add_parser("recover")
    recovering.set_defaults(run=recover)
    recovering.add_argument("--blocks", type=int, default=10_000)
    recovering.add_argument("--messages", type=int, default=100)
    recovering.add_argument("--per-commit", type=int, default=1)
    arguments = parser.parse_args()
    with a_directory(arguments.directory) as directory:
        arguments.run(arguments, directory)


if __name__ == "__main__":
    main()
