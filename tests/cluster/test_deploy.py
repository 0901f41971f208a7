"""Deployed listeners as actors, and queues as sources and sinks of Ray Data."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import BrokerError, ConfigError, InvalidSelectorError, NoClusterError
from tests.contracts.handles import state_of, take, until

ACTOR = {"num_cpus": 0}


def test_a_pool_of_coroutines_survives_its_queue_and_its_actors(cluster: Any, tmp_path: Path) -> None:
    notes = tmp_path / "handled"

    def note(body: int) -> None:
        with open(notes, "a") as file:
            file.write(f"{body}\n")

    @rb.listener(queue="jobs", concurrency=3, prefetch=1)
    async def handle(message: Any) -> None:
        await asyncio.sleep(0)
        note(message.body)

    def handled() -> set[int]:
        return set(map(int, notes.read_text().split())) if notes.exists() else set()

    with rb.connect() as connection:
        admin = connection.admin()
        admin.create_destination("queue", "jobs", hosting="shared")
        with rb.deploy(handle, 1, ACTOR) as pool:
            assert pool.scale(2) == 1
            connection.session().producer("jobs").send_many(range(20))
            until(lambda: handled() == set(range(20)))
            admin.destroy_destination("queue", "jobs")
            until(lambda: {row.get("state") for row in pool.stats()} == {"attaching"})
            admin.create_destination("queue", "jobs", hosting="shared")
            until(lambda: {row.get("state") for row in pool.stats()} == {"running"})
            assert pool.totals()["reattached"] == 6
            os.kill(pool.stats()[0]["pid"], signal.SIGKILL)
            connection.session().producer("jobs").send_many(range(20, 40))
            until(lambda: handled() == set(range(40)) and state_of(connection, "jobs")["messages"] == 0)
            until(lambda: pool.totals()["running"] == 2)
            assert pool.scale(1) == 2


PRINTING = """
import time
import raybroker as rb

@rb.listener(queue="printed")
def handle(message):
    print("handled", message.body, flush=True)

with rb.connect() as connection:
    pool = rb.deploy(handle, 1, {"num_cpus": 0})
    connection.session().producer("printed").send_many(range(3))
    while pool.totals()["messages"] < 3:
        time.sleep(0.1)
    time.sleep(3)  # Ray looks into the files of its actors now and then.
    pool.stop()
"""


def test_a_program_that_connects_shows_what_its_handlers_print_and_nothing_of_brokers(cluster: Any) -> None:
    environment = {**os.environ, "RAY_ADDRESS": cluster.address}
    done = subprocess.run(
        [sys.executable, "-c", PRINTING], capture_output=True, text=True, timeout=90, env=environment, check=True
    )
    lines = (done.stdout + done.stderr).splitlines()
    assert sorted(line[line.index("handled") :] for line in lines) == ["handled 0", "handled 1", "handled 2"]


@pytest.mark.parametrize("option", [{"lifetime": "detached"}, {"name": "mine"}])
def test_a_pool_that_nobody_could_stop_is_refused(cluster: Any, option: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="which end with their pool; a pool that outlives this process has a name"):
        rb.deploy(rb.listener(queue="jobs")(print), 1, {**ACTOR, **option})


DEPLOYING = """
import os, sys
import raybroker as rb

notes = sys.argv[1]

@rb.listener(queue="named", prefetch=1)
def handle(message):
    with open(notes, "a") as file:
        file.write(f"{message.body} {os.getpid()}\\n")

pool = rb.deploy(handle, 2, {"num_cpus": 0}, name="night")
print(pool.totals()["running"], repr(pool))
"""


def test_a_pool_with_a_name_outlives_its_program_and_is_found_scaled_and_stopped_by_others(
    cluster: Any, tmp_path: Path
) -> None:
    notes = tmp_path / "handled"
    environment = {**os.environ, "RAY_ADDRESS": cluster.address}

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, timeout=90, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def handled() -> dict[int, int]:
        lines = notes.read_text().splitlines() if notes.exists() else []
        return {int(body): int(pid) for body, pid in map(str.split, lines)}

    assert run("-c", DEPLOYING, str(notes)) == "2 <NamedPool 'night' of cluster 'default'>\n"
    with rb.connect() as connection:
        producer = connection.session().producer("named")
        producer.send_many(range(20))
        until(lambda: set(handled()) == set(range(20)))
        pool = rb.pool("night")
        (row,) = rb.pools()
        assert (row["pool"], row["name"], row["function"], row["instances"]) == ("night", "named", "handle", 2)
        with pytest.raises(ConfigError, match="there is a pool 'night' in cluster 'default'"):
            rb.deploy(rb.listener(queue="named")(print), 1, ACTOR, name="night")
        assert pool.scale(3) == 2
        until(lambda: pool.totals()["running"] == 3)
        assert len(connection.admin().list_consumers()) == 3

        (actor,) = [row for row in _actors() if row["class_name"] == "PoolActor"]
        os.kill(actor["pid"], signal.SIGKILL)  # Its instances end with it, and Ray starts it again.
        until(lambda: _running(pool) == 3)
        producer.send_many(range(20, 40))
        until(lambda: set(handled()) == set(range(40)))

        assert "night" in run("-m", "raybroker", "list", "pool")
        assert run("-m", "raybroker", "destroy", "pool", "-n", "night", "-f") == "stopped pool night, 3 instances\n"
        assert rb.pools() == []
        until(lambda: connection.admin().list_consumers() == [])
        with pytest.raises(ConfigError, match="there is no pool 'night'"):
            rb.pool("night")
        with pytest.raises(BrokerError):
            pool.totals()
        again = rb.deploy(rb.listener(queue="named")(print), 1, ACTOR, name="night", max=2)
        assert rb.pools()[0]["scaling"] == "1 to 2"
        again.stop()


def _running(pool: rb.NamedPool) -> int:
    try:
        return pool.totals()["running"]
    except BrokerError:
        return 0


def _actors() -> list[dict[str, Any]]:
    """Those of this Ray that live."""
    from ray._private.state import actors

    return [
        {"class_name": row["ActorClassName"], "pid": row["Pid"]} for row in actors().values() if row["State"] == "ALIVE"
    ]


def test_a_pool_with_a_name_that_cannot_be_leaves_nothing(cluster: Any) -> None:
    with pytest.raises(InvalidSelectorError):
        rb.deploy(rb.listener(queue="jobs", selector="n >")(print), 2, ACTOR, name="bad")
    with pytest.raises(ConfigError, match="no/slash"):
        rb.deploy(rb.listener(queue="jobs")(print), 1, ACTOR, name="no/slash")
    with pytest.raises(ConfigError, match="a loopback ends with it"):
        rb.deploy(rb.listener(queue="jobs")(print), 1, loopback="test", name="x")  # type: ignore[call-overload]
    assert rb.pools() == []
    with rb.connect() as connection:
        until(lambda: connection.admin().list_consumers() == [])


def test_what_cannot_be_deployed_says_why_and_leaves_no_actor(cluster: Any) -> None:
    with pytest.raises(NoClusterError, match="no cluster named 'nope'"):
        rb.deploy(rb.listener(queue="jobs")(print), cluster="nope")
    with pytest.raises(InvalidSelectorError):
        rb.deploy(rb.listener(queue="jobs", selector="n >")(print), 2, ACTOR)


def test_ray_data_writes_a_queue_and_reads_it(cluster: Any) -> None:
    import ray.data

    rows = [{"n": n, "text": f"row {n}"} for n in range(250)]
    with rb.connect() as connection:
        connection.admin().create_destination("queue", "table", hosting="shared", duplicateWindowMs=60_000)
        for _ in range(2):  # With ids a second time adds nothing.
            rb.data.write_queue(ray.data.from_items(rows, override_num_blocks=3), "table", dedup_column="n")
        assert state_of(connection, "table")["messages"] == 250
        (message,) = take(connection.session(ack="client").consumer("table", "JMSPriority = 4", prefetch=1), 1)
        assert message.body == {"n": message.body["n"], "text": f"row {message.body['n']}"}
    with rb.connect() as connection:
        found = rb.data.read_queue("table", tasks=2, batch=40, idle_s=1.0, limit=200).take_all()
        until(lambda: state_of(connection, "table")["messages"] == 50)
        found += rb.data.read_queue("table", batch=40, idle_s=1.0).take_all()
        until(lambda: state_of(connection, "table")["messages"] == 0)
    assert sorted(row["n"] for row in found) == list(range(250))
    assert {row["text"] for row in found} == {row["text"] for row in rows}
    assert set(found[0]) == {"id", "timestamp", "priority", "redelivered", "correlation_id", "type", "n", "text"}
