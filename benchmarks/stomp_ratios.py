"""``python -m benchmarks.stomp_ratios``: our service ``stomp`` divided by ActiveMQ's, both through stomp.py.

Both servers run from the beginning to the end, the same client functions are given to both, and slices of a few seconds
take turns, as :mod:`benchmarks.slices` says.  Both promise the same: a receipt of a persistent message, or of a commit,
follows the sync to the disk.

    python -m benchmarks.stomp_ratios
    python -m benchmarks.stomp_ratios --hosting broker --only blocking
    python -m benchmarks.stomp_ratios --slices 7 --seconds 3 --only blocking
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks import machine
from benchmarks.goals import Goal
from benchmarks.peers.activemq import ActiveMQ
from benchmarks.peers.base import Peer
from benchmarks.peers.ours_over_stomp import OursOverStomp
from benchmarks.ratios import SLICES_MIN, as_json, print_tables, show, take
from benchmarks.systems import RunningPeer, Sliced
from raybroker.model.settings.setting_table import HOSTINGS

PEER: Final = ActiveMQ.name
GOALS: Final = (
    Goal("STOMP: one send with its receipt at a time ÷ ActiveMQ", "blocking", 1.0, (PEER, "blocking")),
    Goal("STOMP: sends with a receipt each, 100 on their way ÷ ActiveMQ", "receipts", 1.0, (PEER, "receipts")),
    Goal("STOMP: sends in transactions ÷ ActiveMQ", "produce", 1.0, (PEER, "produce")),
    Goal("STOMP: consume ÷ ActiveMQ", "consume", 1.0, (PEER, "consume")),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tables; 1 when a server is missing, or something failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stomp_ratios")
    parser.add_argument("--only", nargs="+", choices=[goal.figure for goal in GOALS], help="some of the goals (all)")
    parser.add_argument("--hosting", choices=HOSTINGS, default=HOSTINGS[0], help="where our queues are (dedicated)")
    parser.add_argument("--slices", type=int, default=SLICES_MIN, help=f"slices of each system ({SLICES_MIN})")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a slice (2)")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--dir", type=Path, default=None, help="folder on the disk to test (the temporary folder)")
    parser.add_argument("--json", type=Path, default=None, help="file for all slices")
    options = parser.parse_args(arguments)
    if options.slices < 1 or options.seconds <= 0:
        parser.error("--slices is at least 1, --seconds more than 0")
    goals = [goal for goal in GOALS if not options.only or goal.figure in options.only]
    peers: list[Peer] = [OursOverStomp(options.hosting), ActiveMQ()]
    for peer in peers:
        if reason := peer.missing():
            print(f"{peer.name}: skipped, {reason}", file=sys.stderr)
            return 1
    scratch = Path(tempfile.mkdtemp(prefix="rbr-", dir=options.dir))
    try:
        with ExitStack() as stack:
            facts = machine.describe(scratch)
            systems: dict[str, Sliced] = {}
            for peer in peers:
                print(f"{peer.name}: {'; '.join([*peer.versions(), *peer.settings()])}", flush=True)
                systems[peer.name] = RunningPeer(peer, scratch / peer.name, options.size, stack)
            taken = take(systems, goals, options.slices, options.seconds, show)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print_tables(taken, goals, facts)
    if options.json is not None:
        options.json.write_text(json.dumps({"machine": facts, **as_json(taken, goals)}, indent=1))
    return 1 if taken.failed else 0


if __name__ == "__main__":
    sys.exit(main())
