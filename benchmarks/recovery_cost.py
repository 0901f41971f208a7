"""How long a host needs to come back with messages that were sent one by one: ``python -m benchmarks.recovery_cost``.

A store is filled with blocks of one message, as the host of a queue writes them: so many a commit, and a checkpoint
when the journal asks for one; then it is left as a killed process leaves it.  A fresh process opens the store and
receives the first message.  Its time, from before the store is opened to that message in the application, and its
greatest memory are the figures; starting Python and importing are not among them.

    python -m benchmarks.recovery_cost --messages 10000000
    python -m benchmarks.recovery_cost --messages 1000000 --priorities --settled 3 --profile

``--settled N``: every N-th message is acknowledged, so that the blocks that are left have gaps.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from array import array
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

from benchmarks.peers.base import bodies_of

if TYPE_CHECKING:
    from raybroker.engine.ports import Store

QUEUE: Final = "bench"
NUMBER: Final = 1
"""Of the destination."""
PRODUCER: Final = 7
SEQ: Final = 0x5EA5_0F_5E_00_00_00_01
"""A sequence number that is found in an encoded block, to be replaced."""
PATIENCE_SECONDS: Final = 600.0

FIRST_MESSAGE: Final = """
import json, sys
from pathlib import Path
from time import perf_counter, process_time
import raybroker as rb
import raybroker.client.loopback
path, profile = sys.argv[1:]
def peak_kb():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
before = peak_kb()
if profile:
    import cProfile, pstats
    from raybroker.engine.host import Host
    start, seen = Host.start, cProfile.Profile()
    Host.start = lambda *given: seen.runcall(start, *given)
cpu, began = process_time(), perf_counter()
with rb.loopback(path) as connection:
    connection.start()
    message = connection.session(ack="client").receive("bench", timeout=600)
    took, cpu = perf_counter() - began, process_time() - cpu
    assert message is not None
    peak = peak_kb()
    messages = connection.admin().query_destination("queue", "bench")["messages"]
if profile:
    pstats.Stats(seen, stream=sys.stderr).sort_stats("tottime").print_stats(25)
print(json.dumps({"seconds": took, "cpu": cpu, "before_mb": before / 1024, "peak_mb": peak / 1024,
                  "messages": messages}))
"""


def fill(path: Path, messages: int, size: int, per_commit: int, settled: int, *, priorities: bool) -> None:
    """Write a store with ``messages`` blocks of one message of ``size`` bytes."""
    from raybroker.store.journal import Journal
    from raybroker.system.clock import SystemClock
    from raybroker.system.entropy import token

    journal = Journal(path, monotonic_ns=SystemClock().monotonic_ns, entropy=token, sync=False)
    list(journal.recover())
    fill_store(cast("Store", journal), messages, size, per_commit, settled, priorities=priorities)
    journal._log.dead = "the process died"
    journal.close()


def fill_store(store: Store, messages: int, size: int, per_commit: int, settled: int, *, priorities: bool) -> None:
    """Write ``messages`` blocks of one message of ``size`` bytes to an open store, as the host of a queue does."""
    from raybroker.core.durable import records
    from raybroker.core.queue import Queue
    from raybroker.engine.checkpoint import Definition, encode_checkpoint
    from raybroker.engine.schedules.schedule_log import ScheduleLog
    from raybroker.engine.transactions.transaction_log import TxLog
    from raybroker.model.blocks.block import encode_block
    from raybroker.model.blocks.record import BLOCK, NOTE, LogEntry
    from raybroker.model.settings.settings import DestinationAttributes

    definition = Definition(QUEUE, False, DestinationAttributes(maxNumMsgs=-1, maxTotalMsgBytes=-1))
    destination = Queue(NUMBER, QUEUE, definition.attributes, reap_ms=None)
    held = destination.block_index

    fresh: list[tuple[int, array[int], bytes]] = []

    def checkpoint() -> LogEntry:
        held.accept_alone(fresh)
        for first, sizes, _ in fresh if settled else ():
            for ordinal in range(first, first + len(sizes)):
                if not ordinal % settled:
                    held.settle_messages(ordinal, 1)
        fresh.clear()
        return encode_checkpoint(NUMBER + 1, TxLog(), ScheduleLog(), [(definition, destination)])

    store.commit([checkpoint()])
    blocks = [
        [
            encode_block(
                [body],
                producer=PRODUCER,
                first_seq=SEQ,
                timestamp_ms=1_700_000_000_000,
                persistent=True,
                kinds=0,
                priority=level,
            ).partition(SEQ.to_bytes(8, "little"))
            for body in bodies_of(size)
        ]
        for level in range(10)
    ]
    for first in range(1, messages + 1, per_commit):
        ordinals = range(first, min(first + per_commit, messages + 1))
        levels = bytes([ordinal % 10 if priorities else 4 for ordinal in ordinals])
        entries = []
        for ordinal, level in zip(ordinals, levels, strict=True):
            before, _, after = blocks[level][ordinal & 63]
            meta = records.encode_block_meta(records.BlockMeta(1, PRODUCER, ordinal, size, level))
            entries.append(LogEntry(BLOCK, NUMBER, ordinal, meta, (before + ordinal.to_bytes(8, "little") + after,)))
        store.commit(entries)
        fresh.append((first, array("I", [size]) * len(ordinals), levels))
        held.next_ordinal = ordinals.stop
        destination.producers.taken[PRODUCER] = [(1, ordinals.stop)]
        if settled:
            gone = [ordinal for ordinal in ordinals if not ordinal % settled]
            spans = [records.Span(ordinal, ordinal) for ordinal in gone]
            store.commit([LogEntry(NOTE, NUMBER, 0, records.encode(records.ACKED, 0, spans))])
            store.free(NUMBER, gone)
        if store.checkpoint_due():
            store.commit([checkpoint()])
            while store.maintain(64 << 20):
                pass


def first_message(path: Path, *, profile: bool = False) -> dict[str, Any]:
    """The figures of a fresh process that opens the store."""
    root = str(Path(__file__).resolve().parent.parent)
    paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", FIRST_MESSAGE, str(path), "1" if profile else ""],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": paths},
        timeout=PATIENCE_SECONDS,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a body")
    parser.add_argument("--per-commit", type=int, default=20, help="messages, of as many senders, of one commit")
    parser.add_argument("--priorities", action="store_true", help="0 to 9 in turn, instead of 4")
    parser.add_argument("--settled", type=int, default=0, metavar="N", help="acknowledge every N-th message")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--profile", action="store_true", help="print what the time of the recovery goes to")
    parser.add_argument("--keep", type=Path, help="a folder for the store, which is used again if it is there")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="recovery-cost-"))
    try:
        path = arguments.keep or folder / "store"
        if not path.exists():
            began = perf_counter()
            fill(
                path,
                arguments.messages,
                arguments.size,
                arguments.per_commit,
                arguments.settled,
                priorities=arguments.priorities,
            )
            print(f"filled in {perf_counter() - began:.0f} s", flush=True)
        for _ in range(arguments.runs):
            found = first_message(path, profile=arguments.profile)
            print(
                f"{found['messages']:,} messages: first delivery after {found['seconds']:.2f} s"
                f" ({found['cpu']:.2f} s of processor time), at most {found['peak_mb']:.0f} MB resident,"
                f" {found['before_mb']:.0f} MB of them before",
                flush=True,
            )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
