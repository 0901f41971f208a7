"""Agents between two clusters of one Ray, whose processes are killed under way (W-121, W-122)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import ConfigError, InvalidDestinationError
from tests.cluster.rays import small_store
from tests.contracts.handles import bodies, take, until

FAST = {"retryDelayBase": 100, "retryDelayMaximum": 500, "windowSize": 20}
KILL_WAIT_S = 60.0


@pytest.fixture(scope="module")
def pair(own_ray: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    """Two clusters of one broker each."""
    found = [rb.start(name, config=small_store(tmp_path_factory.mktemp(name))) for name in ("near", "far")]
    yield found[0], found[1]
    for cluster in found:
        cluster.stop()
    from raybroker.actors import runtime

    assert runtime.list_actors("near/agent/") == []


def pid_of(admin: Any, name: str, other_than: int = 0) -> int:
    """The process of an agent that runs, another one than before."""

    def pid() -> int:
        found = int(admin.query_forwarding(name).get("pid", 0))
        return 0 if found == other_than else found

    return int(until(pid, timeout_s=KILL_WAIT_S))


def test_an_agent_is_defined_runs_and_ends(pair: tuple[Any, Any]) -> None:  # W-121
    with rb.connect(cluster="near") as near, rb.connect(cluster="far") as far:
        admin = near.admin()
        near.session().producer("out").send_many(range(50))
        admin.create_forwarding("one", "out", "far/in", **FAST)
        assert bodies(take(far.session().consumer("in"), 50)) == list(range(50))
        row = until(lambda: [row for row in admin.list_forwardings() if row["state"] == "RUNNING"])[0]
        assert (row["name"], row["queue"], row["to"], row["windowSize"]) == ("one", "out", "far/in", 20)
        with pytest.raises(ConfigError, match="exists already"):
            admin.create_forwarding("one", "out", "far/in")
        with pytest.raises(ConfigError, match="windowSize"):
            admin.create_forwarding("two", "out", "far/in", windowsize=3)
        with pytest.raises(ConfigError, match="takes from"):
            admin.create_forwarding("two", "out", "near/out")
        admin.destroy_forwarding("one")
        with pytest.raises(InvalidDestinationError):
            admin.query_forwarding("one")
        from raybroker.actors import runtime

        until(lambda: not runtime.list_actors("near/agent/"), timeout_s=KILL_WAIT_S)
        near.session().producer("out").send("stays")
        assert near.admin().query_destination("queue", "out")["messages"] == 1
        near.admin().purge_destination("queue", "out")


def test_whatever_is_killed_every_message_comes_once(pair: tuple[Any, Any]) -> None:  # W-122
    near_cluster, far_cluster = pair
    count, sent = 6, 300
    with rb.connect(cluster="near") as near, rb.connect(cluster="far") as far:
        admin = near.admin()
        admin.create_destination("queue", "dying", hosting="shared")  # An auto-created one would go when it is empty.
        far.admin().create_destination("queue", "born", hosting="shared")
        admin.create_forwarding("killed", "dying", "far/born", **FAST)
        pid = pid_of(admin, "killed")
        consumer = far.session().consumer("born")
        ids: dict[int, set[str]] = {}
        """Body → ids of the messages there that have it; one message may be delivered again after a kill there."""

        def receive() -> None:
            message = consumer.receive(timeout=KILL_WAIT_S)
            assert message is not None, f"{len(ids)} of {count * sent} messages came"
            ids.setdefault(message.body, set()).add(message.id)

        for number in range(count):
            near.session().producer("dying").send_many(range(number * sent, (number + 1) * sent))
            while len(ids) < number * sent + 40:
                receive()
            kind = ("agent", "far", "near")[number % 3]
            if kind == "agent":
                os.kill(pid, signal.SIGKILL)
                pid = pid_of(admin, "killed", pid)
            else:
                pids = (far_cluster if kind == "far" else near_cluster).pids()
                os.kill(next(pid for name, pid in sorted(pids.items()) if name != "broker"), signal.SIGKILL)
        while len(ids) < count * sent:
            receive()
        until(lambda: near.admin().query_destination("queue", "dying")["messages"] == 0, timeout_s=KILL_WAIT_S)
        until(lambda: far.admin().list_transactions() == [], timeout_s=KILL_WAIT_S)
        while (message := consumer.receive(timeout=0.5)) is not None:
            ids.setdefault(message.body, set()).add(message.id)
        assert {body: some for body, some in ids.items() if len(some) > 1} == {}, "forwarded twice"
        assert sorted(ids) == list(range(count * sent))
        admin.destroy_forwarding("killed")
