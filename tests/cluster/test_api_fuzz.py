"""The API's fuzzer over brokers in Ray, one of which is killed meanwhile: no fault, wherever the queues are served."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import BrokerError
from tests.api_fuzz.beside import BusyPlayer, subscribed
from tests.api_fuzz.drain import drain
from tests.api_fuzz.oracle import judge
from tests.api_fuzz.plan import FORWARDED, TARGET, THREADS, TOPIC, UNIQUE, plan_of
from tests.api_fuzz.player import Notes, read

OUTAGE_S = 20.0
"""How much longer a call may take for each time that a broker's process is gone, beside how long it is."""


class Outage:
    """How long the broker has been gone: a busy machine may take a minute to start a process of Ray."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._took_s = 0.0

    def begin(self) -> None:
        self._since = time.monotonic()

    def wait(self, admin: Any) -> None:
        """Until the broker answers again."""
        while True:
            try:
                admin.query_destination("queue", UNIQUE)
                break
            except BrokerError:
                time.sleep(0.1)
        assert self._since is not None
        self._took_s, self._since = time.monotonic() - self._since, None

    def lag_s(self) -> float:
        """A call may be late by four times that."""
        gone_s = self._took_s if self._since is None else time.monotonic() - self._since
        return (OUTAGE_S + gone_s) / 4


class Clients:
    """Connections of this process to the cluster's broker."""

    def connect(self, *, xa: bool = False) -> Any:
        connection = rb.connect_xa() if xa else rb.connect()
        connection.start()
        return connection


@pytest.mark.long
@pytest.mark.timeout(420)
@pytest.mark.parametrize("hosting", ["broker", "shared", "dedicated"])
def test_no_seed_has_faults_while_a_broker_is_killed(cluster: Any, tmp_path: Path, hosting: str) -> None:
    clients, outage = Clients(), Outage()
    seed = random.randrange(1_000)
    plan = plan_of(seed, kills=True)
    names = {name: attributes | {"hosting": hosting} for name, attributes in plan.queues.items()}
    with clients.connect() as connection:
        admin = connection.admin()
        names[UNIQUE] = {"duplicateWindowMs": 600_000, "hosting": hosting}
        names |= {FORWARDED: {"hosting": hosting}, TARGET: {"hosting": hosting}}
        for name, attributes in names.items():
            admin.create_destination("queue", name, **attributes)
        subscribed(admin, hosting=hosting)
        threads = [
            threading.Thread(
                target=BusyPlayer(
                    seed, number, Notes(tmp_path / f"notes.0.{number}"), clients.connect, outage.lag_s
                ).play
            )
            for number in range(THREADS)
        ]
        for one in threads:
            one.start()
        time.sleep(1.0)
        pid = cluster.pids()["broker"]
        outage.begin()
        os.kill(pid, signal.SIGKILL)
        Notes(tmp_path / "notes.0.killed").write("killed")
        outage.wait(admin)
        for one in threads:
            one.join(300)
        assert not any(one.is_alive() for one in threads), f"seed {seed}: a call does not end"
        drain(tmp_path, clients)
        verdict = judge(note for path in sorted(tmp_path.glob("notes.*")) for note in read(path))
        for name in names:
            admin.destroy_destination("queue", name)
        admin.destroy_destination("topic", TOPIC)
    assert not verdict.faults, "\n".join([f"seed {seed}, hosting={hosting}", *verdict.faults])
    assert verdict.settled
