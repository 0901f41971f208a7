"""``python -m tests.contracts.stomp_parity``: the scenarios of stomp.py against raybroker and ActiveMQ, and a table.

    python -m tests.contracts.stomp_parity                     # what differs
    python -m tests.contracts.stomp_parity --all --only nack   # everything seen in scenarios whose name has this word

ActiveMQ is that of the Debian package ``activemq``; without it the table has our side alone.  The exit code is 1 when a
server does something else than ``stomp_scenarios.py`` says.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.peers.activemq import ActiveMQ, launched
from tests.contracts.stomp_rig import StompRig
from tests.contracts.stomp_scenarios import SCENARIOS, Scenario, play
from tests.contracts.stomp_sides import PASSWORD, USER

PLUGINS = f"""<plugins><simpleAuthenticationPlugin><users>
  <authenticationUser username="{USER}" password="{PASSWORD}" groups="users"/>
</users></simpleAuthenticationPlugin></plugins>"""


def activemq(folder: Path, opened: ExitStack) -> int:
    """The port of an ActiveMQ of our own, with the user of the scenarios."""
    server, port = launched(folder, plugins=PLUGINS, advisories=True)
    opened.callback(server.stop)
    return port


def missing() -> str | None:
    """Why ActiveMQ cannot run here."""
    return ActiveMQ().missing()


def cases(only: Sequence[str] = ()) -> Iterator[tuple[Scenario, str]]:
    """Each scenario with each of its versions."""
    for one in SCENARIOS:
        if not only or any(word in one.name for word in only):
            for version in one.versions:
                yield one, version


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.contracts.stomp_parity")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="scenarios with one of these in the name")
    parser.add_argument("--all", action="store_true", help="rows without a difference, too")
    options = parser.parse_args(arguments)
    unexpected = 0
    with tempfile.TemporaryDirectory() as name, ExitStack() as opened:
        folder = Path(name)
        (folder / "ours").mkdir()
        ports = {"raybroker": StompRig(folder / "ours", opened).port}
        if why := missing():
            print(f"ActiveMQ: skipped, {why}", file=sys.stderr)
        else:
            ports["ActiveMQ"] = activemq(folder / "activemq", opened)
        print(f"| scenario | STOMP | {' | '.join(ports)} | |\n|{'---|' * (len(ports) + 3)}")
        for one, version in cases(options.only):
            seen = {server: play(one, version, port) for server, port in ports.items()}
            wrong = [server for server, text in seen.items() if text != one.expected(server == "ActiveMQ")]
            unexpected += len(wrong)
            if options.all or wrong or len(set(seen.values())) > 1:
                note = f"not expected of {' and '.join(wrong)}" if wrong else ""
                title = one.name.replace("_", " ")
                print(f"| {title} | {version} | {' | '.join(seen.values())} | {note} |", flush=True)
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
