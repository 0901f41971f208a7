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
from tests.api_fuzz.beside import BusyPlayer, subscribed
from tests.api_fuzz.drain import drain
from tests.api_fuzz.oracle import judge
from tests.api_fuzz.plan import FORWARDED, TARGET, THREADS, TOPIC, UNIQUE, plan_of
from tests.api_fuzz.player import Notes, read

OUTAGE_S = 20.0
"""How much longer a call may take while a broker's process is gone, in quarters."""


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
    clients = Clients()
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
                    seed, number, Notes(tmp_path / f"notes.0.{number}"), clients.connect, lambda: OUTAGE_S / 4
                ).play
            )
            for number in range(THREADS)
        ]
        for one in threads:
            one.start()
        time.sleep(1.0)
        os.kill(cluster.pids()["broker"], signal.SIGKILL)
        Notes(tmp_path / "notes.0.killed").write("killed")
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
