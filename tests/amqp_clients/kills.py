"""Kills a broker (kill -9) and starts it again, while Qpid JMS sends and receives with ``failover:``; then counts.

    python -m tests.amqp_clients.kills --kills 10 --seed 3 [--against artemis]

The checker is that of a total queue: what was confirmed is received, and what is received was sent. A message may be
received twice only with JMSRedelivered, or where its producer had to send it again: one for each producer and kill.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.amqp_clients import building
from tests.amqp_clients.server import Kind, Server

QUEUE: Final = "killed"
PRODUCERS: Final = 3
"""Threads of java/kills that send, each one message or one transaction at a time."""
AT_ONCE: Final = 5
"""Messages of a transaction."""
URL: Final = "failover:({})?failover.reconnectDelay=50&failover.initialReconnectDelay=0&failover.maxReconnectDelay=500"
FIRST_S: Final = 2.0
BETWEEN_S: Final = (0.5, 2.0)
END_S: Final = 120
RECEIVED_AGAIN: Final = "!"
"""Ends what was received with JMSRedelivered."""


@dataclass(frozen=True)
class History:
    """What producers tried and saw confirmed, what consumers got, in no order between them, and what went wrong.

    ``doubtful``: received in transactions whose commit has failed, which may have been carried out all the same.
    """

    tried: list[str]
    confirmed: list[str]
    received: list[str]
    faults: list[str]
    doubtful: list[str] = field(default_factory=list)


def wrong(history: History, kills: int) -> list[str]:
    """What a history has that may not be; nothing where all is well."""
    got = Counter(text.removesuffix(RECEIVED_AGAIN) for text in history.received)
    fresh = Counter(text for text in history.received if not text.endswith(RECEIVED_AGAIN))
    found = [*history.faults]
    excused = {text.removesuffix(RECEIVED_AGAIN) for text in history.doubtful}
    lost = [one for one in dict.fromkeys(history.confirmed) if one not in got and one not in excused]
    if lost:
        found.append(f"confirmed and never received: {len(lost)}, such as {lost[:5]}")
    unexpected = got.keys() - set(history.tried)
    if unexpected:
        found.append(f"received and never sent: {len(unexpected)}, such as {sorted(unexpected)[:5]}")
    again = {one: count - 1 for one, count in fresh.items() if count > 1}
    if sum(again.values()) > kills * PRODUCERS * AT_ONCE:
        found.append(f"received again without JMSRedelivered: {sum(again.values())}, such as {sorted(again)[:5]}")
    if len(excused) > kills * AT_ONCE:
        found.append(f"{len(excused)} messages in transactions that have failed: more than {kills} kills account for")
    if not history.confirmed or not history.received:
        found.append(f"confirmed {len(history.confirmed)}, received {len(history.received)}: nothing was shown")
    return found


def killed(server: Server, kills: int, draw: random.Random) -> History:
    """Load on a broker that runs, and is killed so many times."""

    def kill() -> None:
        for _ in range(kills):
            server.kill()
            server.start()
            time.sleep(draw.uniform(*BETWEEN_S))

    return loaded(server.url, kill, END_S + kills * (BETWEEN_S[1] + END_S / 4))


def loaded(urls: str, disturb: Callable[[], None], limit_s: float) -> History:
    """Load on brokers with these URLs, which ``disturb`` disturbs; it is ended after ``limit_s``."""
    command = building.java("javax", "kills.Load", URL.format(urls), QUEUE)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as load:
        guard = threading.Timer(limit_s, load.kill)
        guard.start()
        try:
            assert load.stdout is not None
            assert load.stdin is not None
            assert load.stdout.readline() == "running\n", "the load has not started"
            time.sleep(FIRST_S)
            disturb()
            load.stdin.write("\n")
            load.stdin.flush()
            said: dict[str, Any] = json.loads(load.stdout.readline() or "null") or {}
        finally:
            guard.cancel()
            load.kill()
    assert said, "the load has ended without a word"
    return History(**said)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.amqp_clients.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--against", choices=("raybroker", "artemis"), default="raybroker")
    given = parser.parse_args()
    against: Kind = given.against
    print(f"seed {given.seed}")
    with tempfile.TemporaryDirectory() as folder, Server(against, Path(folder)) as server:
        history = killed(server, given.kills, random.Random(given.seed))
    found = wrong(history, given.kills)
    print(f"{len(history.confirmed)} confirmed, {len(history.received)} received, {given.kills} kills")
    print("\n".join(found) or "nothing is wrong")
    return 1 if found else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except building.MissingError as missing:
        sys.exit(str(missing))
