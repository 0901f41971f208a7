"""Runs the programs of clients against a broker; each prints a line of JSON for each of its cases."""

from __future__ import annotations

import json
import re
import subprocess
import time
from dataclasses import dataclass
from typing import Any, Final

from tests.amqp_clients import building
from tests.amqp_clients.server import Server

PROGRAMS: Final = ("joram", "cases-javax", "cases-jakarta", "proton", "rhea", "go")
JORAM_TESTS: Final = 196
LEAST: Final = {"proton": 16, "rhea": 15, "go": 15}
"""Client → how many cases it has at the least."""
LIMIT_S: Final = 240
"""A program that takes longer is ended: it hangs."""
KNOWN: Final = {
    "Browsers.moreThanTheirCredit": "on a busy machine a browser ends in the middle: its drain is answered before all"
    " has been sent; JMS: the enumeration scans the messages of the queue",
    "Failover.unacknowledgedComesAgain": "a message that comes again after a broken connection has no JMSRedelivered"
    " now and then; JMS: a provider must set it",
    "Identity.mechanismsThatSendNoPassword": "as it is embedded here it knows passwords alone, and offers no SCRAM",
    "TemporaryDestinations.deletedOnlyWithoutConsumers": "a consumer of a temporary queue that was deleted is taken,"
    " and makes a queue of that name; JMS: it is no valid destination any more",
}
"""Case → what the reference does differently, and what the specification says: it may pass there or not."""


@dataclass(frozen=True)
class Results:
    """``failed``: case → why; ``said``: what the program wrote beside its results."""

    passed: list[str]
    failed: dict[str, str]
    seconds: float
    said: str

    @property
    def text(self) -> str:
        """What is wrong, line by line."""
        lines = [f"{case}: {why}" for case, why in self.failed.items()]
        return "\n".join([*lines, f"{len(self.passed)} passed, {len(self.failed)} failed"])

    def without_known(self) -> dict[str, str]:
        """What has failed, but what is known of the reference."""
        return {case: why for case, why in self.failed.items() if case not in KNOWN}


def cases_of_source() -> list[str]:
    """The names of the list's cases, as its source has them."""
    found = []
    for path in sorted((building.JAVA / "cases").glob("*.java")):
        found += [f"{path.stem}.{name}" for name in re.findall(r"@Case\s+static void (\w+)\(", path.read_text())]
    return found


def command(program: str, server: Server, *wanted: str) -> list[str]:
    """How one of PROGRAMS is started; ``wanted``: parts of the names of cases, of the list alone."""
    if program == "joram":
        return building.java(
            "javax",
            "joram.Joram",
            joram_jms_test_file="provider.properties",
            broker_url=server.url,
            broker_admin=server.admin,
            broker_user="ann",
            broker_password="secret",
        )
    if program.startswith("cases-"):
        profile = program.removeprefix("cases-")
        return building.java(profile, "cases.Cases", *wanted, broker_url=server.url, broker_admin=server.admin)
    plain = f"plain_{program}_{time.time_ns()}"
    server.create_queue(plain)
    client = {
        "proton": building.proton_client,
        "rhea": building.node_client,
        "go": lambda: [building.go_client()],
    }[program]()
    return [*client, "127.0.0.1", str(server.port), "ann", "secret", plain]


def run(program: str, server: Server, *wanted: str, limit_s: float = LIMIT_S) -> Results:
    """Run one of PROGRAMS; one that is ended by its limit, or ends early, has failed."""
    given = command(program, server, *wanted)
    began = time.monotonic()
    try:
        done = subprocess.run(
            given, capture_output=True, text=True, timeout=limit_s, check=False, cwd=building.HERE.parents[1]
        )
        out, said, status = done.stdout, done.stderr, str(done.returncode)
    except subprocess.TimeoutExpired as late:
        out, said, status = _text(late.stdout), _text(late.stderr), f"ended after {limit_s} s"
    rows: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    failed = {row["case"]: str(row["why"]) for row in rows if row["result"] != "passed"}
    if status not in ("0", "1") or not rows or (status == "1") != bool(failed):
        failed[program] = f"its end: {status}\n{said[-2000:]}"
    passed = [row["case"] for row in rows if row["result"] == "passed"]
    return Results(passed, failed, time.monotonic() - began, said)


def _text(written: bytes | str | None) -> str:
    return written.decode(errors="replace") if isinstance(written, bytes) else written or ""
