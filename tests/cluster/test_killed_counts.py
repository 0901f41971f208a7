"""Counts of a destination and prepared transactions after kill -9 of a host, and of a broker with all its hosts."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import raybroker as rb
from raybroker.errors import BrokerError
from tests.cluster.rays import small_store

NAME = "killed"
LATE_S = 60
MANY = 500
XID = rb.Xid(1, b"killed", b"branch")


def prepare() -> None:
    """A branch that waits for its manager."""
    with rb.connect_xa(cluster=NAME) as connection:
        session = connection.session()
        session.xa.start(XID)
        session.producer("branch").send("prepared")
        session.xa.end(XID)
        session.xa.prepare(XID)


def counts(admin: Any) -> tuple[int, int, int]:
    row = admin.query_destination("queue", "q")
    return row["messages_in"], row["messages_out"], row["counted_since_ms"]


def in_time(admin: Any) -> tuple[int, int, int]:
    """The counts once the host answers again."""
    end = time.monotonic() + LATE_S
    while True:
        try:
            return counts(admin)
        except BrokerError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def transactions(admin: Any) -> list[str]:
    """States of transactions in the first list that is whole."""
    end = time.monotonic() + LATE_S
    while time.monotonic() < end:
        try:
            rows = admin.list_transactions()
        except BrokerError:
            continue
        if not rows.missing:
            return [row["state"] for row in rows if row["kind"] == "xa"]
    raise AssertionError("no list is whole")


def test_counts_and_prepared_transactions_are_there_after_kills(own_ray: str, tmp_path: Path) -> None:
    with rb.start(NAME, config=small_store(tmp_path)) as cluster, rb.connect(cluster=NAME) as connection:
        connection.start()
        admin = connection.admin()
        prepare()
        admin.create_destination("queue", "q")
        since_ms = counts(admin)[2]
        sent = had = 0
        for victims in (["host"], ["host"], ["broker"], ["host", "broker"]):
            connection.session().producer("q").send_many([b"x"] * MANY)
            with connection.session(ack="client") as taking:
                for _ in range(3):
                    taking.receive("q", timeout=LATE_S).acknowledge()
            sent, had = sent + MANY, had + 3
            pids = cluster.pids()
            for name, pid in pids.items():
                if ("broker" if name == "broker" else "host") in victims:
                    os.kill(pid, signal.SIGKILL)
            assert transactions(admin) == ["PREPARED"], f"after the end of {victims}"
            assert in_time(admin) == (sent, had, since_ms), f"after the end of {victims}"
