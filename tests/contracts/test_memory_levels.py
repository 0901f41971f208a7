"""Memory levels as applications see them: the limit is changed while they run, and red comes and goes; and what
administrators see of a disk."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

import raybroker as rb
from raybroker.errors import MemoryLowError
from tests.contracts.conftest import ONE_FACE, MakeBroker
from tests.contracts.handles import until

LIMIT = "raybroker.memory.limit_bytes"


@ONE_FACE
def test_at_red_nothing_comes_in_and_what_is_there_goes_out(
    make_broker: MakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    connection = make_broker().connect()
    admin, session = connection.admin(), connection.session(ack="client")
    producer, consumer = session.producer("q"), session.consumer("q")
    producer.send("before")
    assert admin.query_broker()["memory_level"] == "GREEN"
    with caplog.at_level("INFO", logger="raybroker"):
        admin.update_broker({LIMIT: 1 << 20})
        row = admin.query_broker()
        assert (row["memory_level"], row["memory_limit_bytes"]) == ("RED", 1 << 20)
        assert row["memory_used_bytes"] > 1 << 20
        with pytest.raises(MemoryLowError, match="no producer for queue q can be opened: memory is out"):
            session.producer("q")
        with pytest.raises(MemoryLowError, match="queue 'other' cannot be created: memory is out"):
            session.producer("other")
        with pytest.raises(MemoryLowError, match="queue 'third' cannot be created"):
            admin.create_destination("queue", "third")
        with ThreadPoolExecutor(1) as pool:
            waiting: Future[object] = pool.submit(producer.send, "after")
            message = consumer.receive(timeout=5)
            assert message is not None
            assert message.body == "before"
            message.acknowledge()
            assert session.consumer("q").close() is None
            admin.pause_destination("queue", "q", "consumers")
            admin.resume_destination("queue", "q", "consumers")
            assert not waiting.done(), "it waits for memory"
            admin.update_broker({LIMIT: -1})
            waiting.result(5)
    message = consumer.receive(timeout=5)
    assert message is not None
    assert message.body == "after"
    session.producer("other").send("x")
    told = [record.getMessage() for record in caplog.records if "B1089" in record.getMessage()]
    assert ["is RED" in told[0], "is GREEN" in told[1], len(told)] == [True, True, 2]


def test_administrators_see_a_disk_that_is_nearly_full(tmp_path: Path) -> None:
    with rb.loopback(tmp_path / "store", properties={"raybroker.store.low_free_percent": 100}) as connection:
        admin = connection.admin()
        until(lambda: admin.query_broker()["hosts"][0]["disk_low"])
        (host,) = admin.query_broker()["hosts"]
        assert 0 < host["disk_free_bytes"] < host["disk_total_bytes"]
        assert host["disk_slow"] is False
        own = admin.metrics()[0]["own"]
        assert (own["disk_low"], own["store_slow"], own["memory_level"]) == (1, 0, {"host": 0})
        connection.session().producer("q").send("it is an alarm and refuses nothing")


FILLING = """
import time
import raybroker as rb
from raybroker.errors import MemoryLowError, RequestTimeoutError
from raybroker.system.process_memory import resident_bytes

LIMIT = "raybroker.memory.limit_bytes"
BODY = b"x" * 100_000
with rb.loopback(properties={"imqAckTimeout": 1000}) as connection:
    admin = connection.admin()
    admin.create_destination("queue", "q", maxTotalMsgBytes=-1)
    sender, taker = connection.session(), connection.session()
    producer, consumer = sender.producer("q"), taker.consumer("q", prefetch=10)
    producer.send(BODY)
    limit = resident_bytes() + (60 << 20)
    admin.update_broker({LIMIT: limit})
    levels, sent = [], 0
    while sent < 5_000:
        level = admin.query_broker()["memory_level"]
        if level not in levels:
            levels.append(level)
        try:
            producer.send(BODY, persistent=False)
        except RequestTimeoutError as error:
            print("waited:", error)
            break
        sent += 1
    levels.append(admin.query_broker()["memory_level"])
    assert levels[0] == "GREEN" and levels[-1] == "RED", levels
    assert resident_bytes() < limit + (40 << 20), "the producer of this process holds some, too"
    try:
        sender.producer("q")
    except MemoryLowError as error:
        print("refused:", error)
    deadline = time.monotonic() + 60
    while admin.query_broker()["memory_level"] != "GREEN":
        assert time.monotonic() < deadline, admin.query_broker()
        while consumer.receive(timeout=0.2) is not None:
            pass
    sender.producer("q").send("again")
    print("levels:", *levels, "then GREEN")
"""


def test_a_process_that_fills_its_memory_lives_and_takes_messages_again_when_they_are_consumed() -> None:
    """Real memory: messages that are not stored fill it up to a limit of 60 MiB above what an idle broker needs."""
    found = subprocess.run([sys.executable, "-c", FILLING], capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr
    assert "refused: no producer for queue q can be opened: memory is out" in found.stdout
    assert "made no room within imqAckTimeout=1 s: the memory of its broker is out" in found.stdout
    assert "RED then GREEN" in found.stdout
