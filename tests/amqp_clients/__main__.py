"""Runs programs of clients against a broker: see the package."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.amqp_clients.building import MissingError
from tests.amqp_clients.programs import KNOWN, PROGRAMS, run
from tests.amqp_clients.server import Server


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.amqp_clients", description=__doc__)
    parser.add_argument("programs", nargs="*", choices=[*PROGRAMS, []], help="which of them; all without")
    parser.add_argument("--against", choices=("raybroker", "artemis"), default="raybroker")
    parser.add_argument("--case", action="append", default=[], help="a part of the names of cases of the list")
    parser.add_argument("--keep", type=Path, help="folder for the broker's store and log; a temporary one without")
    given = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as temporary, Server(given.against, given.keep or Path(temporary)) as server:
        for program in given.programs or PROGRAMS:
            found = run(program, server, *given.case)
            print(f"{program}: {found.text} ({found.seconds:.1f} s)", flush=True)
            for case in found.failed.keys() & KNOWN.keys() if given.against == "artemis" else ():
                print(f"    {case} is known: {KNOWN[case]}")
            bad += len(found.without_known() if given.against == "artemis" else found.failed)
    return 1 if bad else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except MissingError as missing:
        sys.exit(str(missing))
