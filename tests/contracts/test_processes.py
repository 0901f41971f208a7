"""Connections of a process that forks, and of one that ends without closing them; each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from typing import Any

import pytest

from raybroker.client.connection.io_thread import IoThread
from raybroker.errors import IllegalStateError


def output_of(program: str, *switches: str) -> tuple[str, str]:
    """(standard output, standard error) of a program, which has to end by itself."""
    done = subprocess.run(
        [sys.executable, *switches, "-c", textwrap.dedent(program)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


FORK = """
import os, signal, sys, threading
import raybroker as rb
from raybroker.errors import IllegalStateError

connection = rb.loopback()
connection.start()
session, client, work = connection.session(), connection.session(ack="client"), connection.session(transacted=True)
producer, consumer = session.producer("a"), client.consumer("a")
unit, pattern = work.producer("b"), session.consumer("topic:a.*")
browser = session.browser("a")
producer.send_many(range(3))
message = consumer.receive(timeout=10)
unit.send("x")

sys.stdout.flush()
pid = os.fork()
if pid == 0:
    signal.alarm(30)  # It hangs where it should raise.
    calls = {
        "send": lambda: producer.send(1), "send_async": lambda: producer.send_async(1),
        "send_many": lambda: producer.send_many([1]), "receive": lambda: consumer.receive(),
        "receive_nowait": consumer.receive_nowait, "receive_many": consumer.receive_many,
        "iterate": lambda: next(iter(consumer)), "pattern": lambda: pattern.receive(),
        "on_message": lambda: consumer.on_message(print), "browse": lambda: list(browser),
        "acknowledge": message.acknowledge, "reject": message.reject, "commit": work.commit,
        "rollback": work.rollback, "recover": client.recover, "session": connection.session,
        "producer": lambda: session.producer("a"), "consumer": lambda: session.consumer("a"),
        "request": lambda: session.request("a", 1, timeout=1), "admin": lambda: connection.admin().list_destinations(),
        "start": connection.start, "stop": connection.stop, "close producer": producer.close,
        "close consumer": consumer.close, "close browser": browser.close, "close session": session.close,
        "close": connection.close, "temporary": session.temporary_queue,
    }
    faults = []
    for name, call in calls.items():
        try:
            faults.append(f"{name} returned {call()!r}")
        except IllegalStateError as error:
            if "does not survive a fork" not in str(error):
                faults.append(f"{name}: {error}")
    print(faults, message.body)
    with rb.loopback() as own:
        own.session().producer("own").send("mine")
        print(own.session().consumer("own").receive(timeout=10).body)
    sys.stdout.flush()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
message.acknowledge()
work.commit()
print([m.body for m in (consumer.receive(timeout=10), consumer.receive(timeout=10))])
connection.close()
"""


def test_a_forked_child_is_told_that_the_connection_is_not_its_own() -> None:
    out, err = output_of(FORK)
    assert out.splitlines() == ["[] 0", "mine", "[1, 2]"]
    assert err == ""


LEFT_OPEN = """
import raybroker as rb
connection = rb.loopback()
connection.start()
session = connection.session()
producer = session.producer("a")
producer.send("x")
print(session.consumer("a").receive(timeout=10).body)
waiting, pattern = session.consumer("a"), session.consumer("topic:a.*")
connection.on_consumer_event("b", lambda event: None)
producer.send_async("on its way")
"""
LEFT_OPEN_ASYNC = """
import asyncio
from raybroker import aio

async def main():
    connection = await aio.loopback()
    await connection.start()
    session = await connection.session()
    producer, consumer = await session.producer("a"), await session.consumer("a")
    await producer.send("x")
    print((await consumer.receive(10)).body)
    waiting = asyncio.ensure_future(consumer.receive())
    await asyncio.sleep(0)

asyncio.run(main())
"""
SLOW_TASKS = """
import asyncio, atexit, threading
from raybroker.client.connection.io_thread import IoThread
from raybroker.errors import ConnectionLostError, IllegalStateError

io, begun = IoThread.shared(), threading.Event()

async def stubborn():
    asyncio.ensure_future(failing())
    begun.set()
    while True:
        try:
            await asyncio.to_thread(int)
            await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            raise ConnectionLostError("it ends while its host is gone")

async def failing():
    raise ConnectionLostError("nobody waits for it")

def late():
    try:
        io.run(stubborn())
    except IllegalStateError as error:
        print(error)

atexit.unregister(io._end)
atexit.register(late)
io.ends_first()
io.submit(stubborn())
begun.wait(10)
print("x")
"""


@pytest.mark.parametrize("program", [LEFT_OPEN, LEFT_OPEN_ASYNC, SLOW_TASKS])
def test_a_program_that_ends_with_open_connections_prints_nothing_of_its_own(program: str) -> None:
    out, err = output_of(program)
    late = ["the process is ending: its connections are closed"] if program is SLOW_TASKS else []
    assert out.splitlines() == ["x", *late]
    assert err == ""


def test_a_blocking_call_on_the_io_thread_is_refused() -> None:
    io = IoThread.shared()

    async def nothing() -> None:
        """Never begun."""

    async def blocking() -> Any:
        assert threading.current_thread().name == "raybroker-io"
        with pytest.raises(IllegalStateError, match="wait for itself"):
            io.run(nothing())
        return "refused"

    assert io.run(blocking()) == "refused"
