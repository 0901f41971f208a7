"""What an open console costs: processor time a message and throughput, with and without somebody who looks.

    python -m benchmarks.console_cost
    python -m benchmarks.console_cost --page destination --destinations 1000
    python -m benchmarks.console_cost --chromium --page overview

One broker, whose host is a thread of its own process, so that the console takes from the same processor as messages do.
A client from outside sends and receives in blocks, in slices with the console open (W) and closed (o), in the orders
oWWo and WooW in turn. Open: a program asks for what the page asks for, as often (POLLS), or a real Chromium shows it.
Of each four slices the difference is taken, and the median is told with its interval of 95 %: once of the processor
time of the broker a message, which depends less on who else uses the machine, and once of throughput. Before that the
same is measured while nothing is sent: what the page takes of one processor.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx

import raybroker as rb
from benchmarks.metrics_cost import ORDERS, median
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.wire.scram import Verifier

GOAL: Final = 0.01
BATCH: Final = 1000
BODY: Final = b"x" * 1024
OF_Q: Final = {"destination": "q", "type": "queue"}
POLLS: Final[dict[str, list[tuple[str, dict[str, Any], float]]]] = {
    "overview": [
        ("view/destinations", {"sort": "messages", "falling": "true", "max": 10}, 5),
        ("view/history", {}, 15),
        ("view/brokers", {}, 15),
        ("api/health/broker", {}, 30),
        ("api/health/services", {}, 30),
        ("api/health/cluster", {}, 30),
    ],
    "destinations": [("view/destinations", {"sort": "name", "falling": "false", "start": 0, "max": 50}, 5)],
    "destination": [
        ("view/destination", {"name": "q", "type": "queue"}, 5),
        ("api/consumers", OF_Q, 5),
        ("api/connections", OF_Q, 10),
        ("view/history", {"name": "q", "type": "queue"}, 15),
        ("api/schedules", OF_Q, 15),
    ],
}
"""Page → (path, query, seconds from an answer to the next request), as in the page's own script."""
PLACES: Final = {"overview": "", "destinations": "destinations", "destination": "destination/queue/q"}

BROKER: Final = """
import sys
import raybroker as rb
folder, store, count = sys.argv[1:]
properties = {"imq.service.activelist": "jms,httpadmin", "imq.hostname": "127.0.0.1", "imq.portmapper.port": 0,
              "raybroker.security.dir": folder}
with rb.loopback(store, properties=properties) as connection:
    admin = connection.admin()
    admin.create_destination("queue", "q", maxNumMsgs=-1, maxTotalMsgBytes=-1)
    for number in range(int(count)):
        admin.create_destination("queue", f"other.q{number:04}")
    ports = {row["service"]: row["port"] for row in admin.list_services()}
    print(ports["portmapper"], ports["httpadmin"], flush=True)
    sys.stdin.read()
"""


class Looking:
    """Somebody with the console open, or not."""

    def __init__(self, port: int, page: str) -> None:
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}/console", timeout=30)
        login = self._http.post("/session", json={"user": "root", "password": "secret"})
        login.raise_for_status()
        self._open = threading.Event()
        self._polls = POLLS[page]
        self.asked = 0
        threading.Thread(target=self._look, daemon=True).start()

    def look(self, whether: bool) -> None:
        if whether:
            self._open.set()
        else:
            self._open.clear()

    def _look(self) -> None:
        """Ask as the page does: all at once when it is opened, and each again when its time has come."""
        while True:
            self._open.wait()
            due = dict.fromkeys(range(len(self._polls)), 0.0)
            while self._open.is_set():
                for number, (path, query, seconds) in enumerate(self._polls):
                    if time.monotonic() >= due[number]:
                        answer = self._http.get(f"/{path}", params=query, headers={"x-console-renews": "1"})
                        if answer.status_code not in (200, 503):
                            raise RuntimeError(f"{path}: {answer.text}")
                        due[number] = time.monotonic() + seconds
                        self.asked += 1
                time.sleep(0.05)


class Showing:
    """A real Chromium that shows the page, or an empty one."""

    def __init__(self, port: int, page: str, browser: Any) -> None:
        self._url, self._page, self._browser = f"http://127.0.0.1:{port}", PLACES[page], browser
        browser.log_in(self._url)
        browser.one("nav.main")

    def look(self, whether: bool) -> None:
        if whether:
            self._browser.driver.get(f"{self._url}/console/#/{self._page}")
            self._browser.one("h1")
        else:
            self._browser.driver.get("about:blank")


class Slice(NamedTuple):
    """Messages, the broker's processor seconds, and seconds that passed."""

    messages: int
    processor_s: float
    passed_s: float


def measured(pid: int, seconds: float, producer: Any = None, consumer: Any = None) -> Slice:
    """A slice in which messages go through, or nothing is sent."""
    bodies = [BODY] * BATCH
    messages, began_s, used_s = 0, time.perf_counter(), _processor_s(pid)
    while (passed_s := time.perf_counter() - began_s) < seconds:
        if producer is None:
            time.sleep(0.2)
            continue
        producer.send_many(bodies)
        got = 0
        while got < BATCH:
            taken = consumer.receive_many(max=BATCH // 2, timeout=30)
            got += len(taken)
            taken[-1].acknowledge()
        messages += BATCH
    return Slice(messages, _processor_s(pid) - used_s, passed_s)


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def broker(folder: Path, destinations: int) -> Iterator[tuple[int, int, int]]:
    """(process, port of the port mapper, port of the console)."""
    users = UserFile(folder / "passwd")
    verifier = str(Verifier.from_password("secret", b"s" * 16, 4096))
    users.add("root", UserEntry(verifier, "admin"))
    users.add("ann", UserEntry(verifier, "user"))
    words = [sys.executable, "-c", BROKER, str(folder), str(folder / "store"), str(destinations)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            mapper, console = map(int, process.stdout.readline().split())
            yield process.pid, mapper, console
        finally:
            process.stdin.close()
            process.wait(60)


def fours(looker: Any, count: int, slice_of: Any) -> list[tuple[Slice, Slice]]:
    """(closed, open) of each four slices."""
    found = []
    for number in range(count):
        sums = {False: Slice(0, 0, 0), True: Slice(0, 0, 0)}
        for way in ORDERS[number % 2]:
            looker.look(way)
            one = slice_of()
            sums[way] = Slice(*(a + b for a, b in zip(sums[way], one, strict=True)))
        found.append((sums[False], sums[True]))
    looker.look(False)
    return found


def told(name: str, parts: list[float]) -> float:
    low, middle, high = median(sorted(parts))
    print(f"{name}: {middle:+.2%} [{low:+.2%} … {high:+.2%}], {len(parts)} times four slices", flush=True)
    return middle


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", choices=sorted(POLLS), default="overview")
    parser.add_argument("--destinations", type=int, default=0, help="more than the one that messages go through")
    parser.add_argument("--slices", type=int, default=44, help="a multiple of four")
    parser.add_argument("--seconds", type=float, default=10.0, help="of a slice; the page asks every 5 s")
    parser.add_argument("--idle", type=int, default=8, help="slices while nothing is sent")
    parser.add_argument("--chromium", action="store_true", help="a real browser instead of a program that asks")
    given = parser.parse_args()
    with contextlib.ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        pid, mapper, console = opened.enter_context(broker(folder, given.destinations))
        looker: Any
        if given.chromium:
            from tests.cluster.chromium import chromium

            looker = Showing(console, given.page, opened.enter_context(chromium(folder)))
        else:
            looker = Looking(console, given.page)
        client = opened.enter_context(rb.connect(f"mq://127.0.0.1:{mapper}/jms", username="ann", password="secret"))
        client.start()
        session = client.session(ack="client")
        producer, consumer = session.producer("q"), session.consumer("q")
        measured(pid, 5, producer, consumer)  # Warms up.
        idle = fours(looker, given.idle // 4, lambda: measured(pid, given.seconds))
        if idle:
            parts = [b.processor_s / b.passed_s - a.processor_s / a.passed_s for a, b in idle]
            told("of one processor, while nothing is sent", parts)
        found = fours(looker, given.slices // 4, lambda: measured(pid, given.seconds, producer, consumer))
        costs = [(a.processor_s / a.messages, b.processor_s / b.messages) for a, b in found]
        rates = [(a.messages / a.passed_s, b.messages / b.passed_s) for a, b in found]
        print(f"closed: {median(sorted(a for a, _ in rates))[1]:,.0f} messages a second,", end=" ")
        print(f"{median(sorted(a for a, _ in costs))[1] * 1e6:.2f} µs of the broker's processor time a message")
        cost = told("processor time a message", [b / a - 1 for a, b in costs])
        told("throughput", [b / a - 1 for a, b in rates])
        print(f"goal: at most {GOAL:.0%}: {'met' if cost <= GOAL else 'missed'}")


if __name__ == "__main__":
    main()
