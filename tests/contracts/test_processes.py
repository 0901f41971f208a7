"""Connections of a process that forks, and of one that ends without closing them; each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from typing import Any

import pytest

from raybroker.client.io.io_thread import IoThread
from raybroker.errors import IllegalStateError


def output_of(program: str, *switches: str) -> tuple[str, str]:
    """(standard output, standard error) of a program, which has to end by itself."""
    done = subprocess.run(
        [sys.executable, *switches, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


FORK = """
import os, signal, sys, threading
import raybroker as rb
from raybroker.errors import IllegalStateError

@rb.listener(queue="listened")
def listener(message):
    pass

connection = rb.loopback(broker="parent")
connection.start()
pool = rb.deploy(listener, loopback="parent")
sessions = [connection.session() for _ in range(8)]
session, receiving, heard, calling, asking, shut, made, kept = sessions
client, work = connection.session(ack="client"), connection.session(transacted=True)
producer, consumer = session.producer("a"), client.consumer("a")
several, every, late = session.producer(), session.producer("topic:a.b"), session.producer("a")
unit, pattern, received = work.producer("b"), session.consumer("topic:a.*"), receiving.receive("c", 0.01)
admin, temporary, browser = connection.admin(), session.temporary_queue(), session.browser("a")
heard.consumer("d").on_message(lambda message: None)
producer.send_many(range(4))
message, other = consumer.receive(timeout=10), consumer.receive(timeout=10)
unit.send("x")
done = producer.send_async("done", ttl_ms=1)
done.result(timeout=10)
admin.create_destination("queue", "full", maxNumMsgs=1, limitBehavior="FLOW_CONTROL")
filling = session.producer("full")
futures = [filling.send_async(n) for n in range(20)]
assert not futures[-1].done()

sys.stdout.flush()
pid = os.fork()
if pid == 0:
    def hangs(*_):
        raise TimeoutError("it hangs")
    signal.signal(signal.SIGALRM, hangs)
    pending = futures[-1]
    calls = {
        "send": lambda: producer.send(1), "send_async": lambda: producer.send_async(1),
        "send_many": lambda: producer.send_many([1]), "receive": lambda: consumer.receive(),
        "send unnamed": lambda: several.send(1, destination="a"), "send to a topic": lambda: every.send(1),
        "send in a transaction": lambda: unit.send(1), "scheduled send": lambda: producer.send(1, schedule="@daily"),
        "result": pending.result, "exception": pending.exception, "result in time": lambda: pending.result(60),
        "callback": lambda: pending.add_done_callback(print), "receive in time": lambda: consumer.receive(60),
        "receive_nowait": consumer.receive_nowait, "receive_many": consumer.receive_many,
        "session.receive": lambda: receiving.receive("c"), "iterate": lambda: next(iter(consumer)),
        "pattern": lambda: pattern.receive(), "on_message": lambda: consumer.on_message(print),
        "browse": lambda: list(browser), "browser": lambda: session.browser("a"), "acknowledge": message.acknowledge,
        "acknowledge_this": message.acknowledge_this, "acknowledge_up_to": message.acknowledge_up_to,
        "reject": message.reject, "release": message.release, "fail": message.fail, "extend": message.extend,
        "commit": work.commit, "rollback": work.rollback, "recover": client.recover, "session": connection.session,
        "producer": lambda: session.producer("a"), "consumer": lambda: session.consumer("a"),
        "durable": lambda: session.durable_consumer("t", "n"), "unsubscribe": lambda: session.unsubscribe("n"),
        "request": lambda: session.request("a", 1, timeout=1), "temporary": session.temporary_queue,
        "delete temporary": temporary.delete, "on_consumer_event": lambda: connection.on_consumer_event("a", print),
        "list": lambda: connection.admin().list_destinations(),
        "create": lambda: admin.create_destination("queue", "e"),
        "update": lambda: admin.update_destination("queue", "a", maxNumMsgs=5),
        "destroy": lambda: admin.destroy_destination("queue", "a"), "query": lambda: admin.query_broker(),
        "pool stats": pool.stats, "pool totals": pool.totals, "pool scale": lambda: pool.scale(2),
        "pool stop": pool.stop,
        "start": connection.start, "stop": connection.stop, "close producer": producer.close,
        "close full producer": filling.close, "close consumer": consumer.close, "close browser": browser.close,
        "close session": session.close, "close listening session": heard.close, "close transacted session": work.close,
        "close": connection.close,
    }
    faults = []
    for name, call in calls.items():
        signal.setitimer(signal.ITIMER_REAL, 5)
        try:
            faults.append(f"{name} returned {call()!r}")
        except IllegalStateError as error:
            if "does not survive a fork" not in str(error):
                faults.append(f"{name}: {error}")
        except Exception as error:
            faults.append(f"{name}: {error!r}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    print(faults, message.body, done.result() == done.result(1), done.exception())
    with rb.loopback(broker="parent") as own:
        assert "a" not in [row["name"] for row in own.admin().list_destinations()]
        own.session().producer("own").send("mine")
        print(own.session().consumer("own").receive(timeout=10).body)
    sys.stdout.flush()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
message.acknowledge()
work.commit()
print([m.body for m in (consumer.receive(timeout=10), consumer.receive(timeout=10))])
admin.purge_destination("queue", "full")
print(type(futures[0].result(10)))
admin.update_destination("queue", "full", maxNumMsgs=100)
print(futures[-1].result(10) != "", pool.totals()["running"])
pool.stop()
connection.close()
"""


def test_a_forked_child_is_told_that_what_was_made_before_is_not_its_own() -> None:
    out, err = output_of(FORK)
    assert out.splitlines() == ["[] 0 True None", "mine", "[2, 3]", "<class 'str'>", "True 1"]
    assert [line for line in err.splitlines() if "[B2150] queue full is full" not in line] == []


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
from raybroker.client.io.io_thread import IoThread
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

class User:
    closed = True

def late():
    try:
        io.run(stubborn())
    except IllegalStateError as error:
        print(error)

atexit.unregister(io._end_at_exit)
atexit.register(late)
io.join(User())
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
