"""``python -m benchmarks.amqp_ratios``: our service ``amqp`` divided by Artemis, both through Qpid JMS.

Both brokers run from the beginning to the end as processes, with one program of Qpid JMS each, and slices of a few
seconds take turns, as :mod:`benchmarks.slices` says. Both sync a persistent message before they confirm it. It needs
Java, and Maven, which fetches the client and Artemis.

Ours is a broker in a Ray of its own, whose queue is where ``--hosting`` says; ``loopback`` is a broker that is one
process, whose host is another thread of it.

    python -m benchmarks.amqp_ratios
    python -m benchmarks.amqp_ratios --hosting broker
    python -m benchmarks.amqp_ratios --slices 7 --seconds 3 --only blocking
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from benchmarks import machine
from benchmarks.goals import Goal
from benchmarks.peers.ours_over_amqp import OursOverAmqp
from benchmarks.ratios import SLICES_MIN, as_json, print_tables, show, take
from benchmarks.readings import OURS
from benchmarks.slices import Rates
from benchmarks.systems import Sliced
from raybroker.model.settings.setting_table import HOSTINGS

if TYPE_CHECKING:
    from tests.amqp_clients.server import Kind

ARTEMIS: Final = "artemis"
GOALS: Final = (
    Goal("AMQP: one confirmed send at a time ÷ Artemis", "blocking", 1.0, (ARTEMIS, "blocking")),
    Goal("AMQP: sends confirmed later, consumer beside ÷ Artemis", "through", 1.0, (ARTEMIS, "through")),
    Goal("AMQP: presettled, consumer beside ÷ Artemis", "presettled", 1.0, (ARTEMIS, "presettled")),
)
QUEUE: Final = "speed"
ATTRIBUTES: Final[dict[str, Any]] = {"limitBehavior": "FLOW_CONTROL", "maxNumMsgs": -1, "maxTotalMsgBytes": 64 << 20}
"""Where a queue is full its producers wait: nothing of what is presettled may be refused."""
LOOPBACK: Final = "loopback"
JAVA_FLAGS: Final = ("-Xmx1g",)
WARMUP: Final = {"blocking": 2000, "through": 20_000, "presettled": 20_000}
"""Messages before the first slice: Java compiles what it has run often."""


class Place(NamedTuple):
    """Where a program of Qpid JMS sends to."""

    url: str
    user: str
    password: str


def in_process(kind: Kind, folder: Path, stack: ExitStack) -> Place:
    """A broker that is one process."""
    from tests.amqp_clients.server import Server

    server = stack.enter_context(Server(kind, folder, java_flags=JAVA_FLAGS))
    server.create_queue(QUEUE, **ATTRIBUTES)
    return Place(server.url, "ann", "secret")


def in_ray(ours: OursOverAmqp, folder: Path, stack: ExitStack) -> Place:
    """A broker of ours in a Ray of its own."""
    stack.callback(ours.stop)
    address = ours.start(folder)
    ours.create_queue(address, QUEUE, **ATTRIBUTES)
    return Place(f"amqp://127.0.0.1:{address['port']}", address["user"], address["password"])


class ThroughQpid:
    """A program of Qpid JMS that sends to a broker and receives."""

    def __init__(self, place: Place, stack: ExitStack) -> None:
        from tests.amqp_clients import building

        command = building.java("javax", "speed.Speed", *place, QUEUE, flags=JAVA_FLAGS)
        self._program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        stack.callback(self._program.wait)
        stack.callback(self._program.kill)

    def rates(self, figure: str, messages: int) -> Rates:
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write(f"{figure} {messages}\n")
        self._program.stdin.flush()
        said = self._program.stdout.readline()
        if not said:
            raise RuntimeError("the program of Qpid JMS has ended; it says above why")
        return {figure: float(said)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tables; 1 when something is missing, or failed."""
    from tests.amqp_clients.building import MissingError

    parser = argparse.ArgumentParser(prog="python -m benchmarks.amqp_ratios")
    parser.add_argument("--only", nargs="+", choices=[goal.figure for goal in GOALS], help="some of the goals (all)")
    parser.add_argument("--hosting", choices=(*HOSTINGS, LOOPBACK), default=HOSTINGS[0], help="where our queue is")
    parser.add_argument("--slices", type=int, default=SLICES_MIN, help=f"slices of each system ({SLICES_MIN})")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a slice (2)")
    parser.add_argument("--dir", type=Path, default=None, help="folder on the disk to test (the temporary folder)")
    parser.add_argument("--json", type=Path, default=None, help="file for all slices")
    options = parser.parse_args(arguments)
    if options.slices < 1 or options.seconds <= 0:
        parser.error("--slices is at least 1, --seconds more than 0")
    goals = [goal for goal in GOALS if not options.only or goal.figure in options.only]
    if options.hosting != LOOPBACK and (reason := OursOverAmqp().missing()):
        print(f"{OURS}: {reason}", file=sys.stderr)
        return 1
    scratch = Path(tempfile.mkdtemp(prefix="rbr-", dir=options.dir))
    try:
        with ExitStack() as stack:
            facts = machine.describe(scratch)
            folder = scratch / "ours"
            if options.hosting == LOOPBACK:
                ours = in_process("raybroker", folder, stack)
            else:
                ours = in_ray(OursOverAmqp(options.hosting), folder, stack)
            places = {OURS: ours, ARTEMIS: in_process("artemis", scratch / "artemis", stack)}
            systems: dict[str, Sliced] = {name: ThroughQpid(place, stack) for name, place in places.items()}
            for system in systems.values():
                for goal in goals:
                    system.rates(goal.figure, WARMUP[goal.figure])
            taken = take(systems, goals, options.slices, options.seconds, show)
    except MissingError as missing:
        print(missing, file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print_tables(taken, goals, facts)
    if options.json is not None:
        options.json.write_text(json.dumps({"machine": facts, **as_json(taken, goals)}, indent=1))
    return 1 if taken.failed else 0


if __name__ == "__main__":
    sys.exit(main())
