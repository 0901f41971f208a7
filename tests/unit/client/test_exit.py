"""A program that ends while its listeners are at work, and with its connections open, says nothing."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

AT_ONCE = 4
"""Programs of one kind: whether a call is under way at the end is a matter of chance."""
BEFORE = f"""
    import os
    import sys
    import time
    import raybroker as rb
    import raybroker.client.loopback  # Once for all: there is no thread yet.
    programs = []
    while len(programs) < {AT_ONCE} and (program := os.fork()):
        programs.append(program)
    if program:
        print([os.waitstatus_to_exitcode(os.waitpid(program, 0)[1]) for program in programs])
        sys.exit()
"""
LISTENING = """
    def handle(message):
        time.sleep(0.001)
        {call}
    connection = rb.loopback()
    connection.start()
    session = connection.session({session})
    session.consumer("q").on_message(handle, backoff=0)
    connection.session().producer("q").send_many(range(3000), persistent=False)
    time.sleep(0.2)
"""
DEPLOYED = """
    @rb.listener(queue="q", concurrency=4, transacted={transacted})
    def handle(message):
        time.sleep(0.001)
    connection = rb.loopback(broker="b")
    connection.start()
    pool = rb.deploy(handle, instances=3, loopback="b")
    connection.session().producer("q").send_many(range(3000), persistent=False)
    time.sleep(0.2)
"""
PROGRAMS = {
    "auto": LISTENING.format(call="pass", session=""),
    "window": LISTENING.format(call="pass", session="ack_window=10"),
    "dups_ok": LISTENING.format(call="pass", session='ack="dups_ok"'),
    "client": LISTENING.format(call="message.acknowledge()", session='ack="client"'),
    "transacted": LISTENING.format(call="pass", session="transacted=True"),
    "sends": LISTENING.format(call="session.producer('r').send(1)", session=""),
    "deployed": DEPLOYED.format(transacted=False),
    "deployed, transacted": DEPLOYED.format(transacted=True),
}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_program_that_ends_with_a_busy_listener_prints_nothing(kind: str) -> None:
    command = [sys.executable, "-c", textwrap.dedent(BEFORE + PROGRAMS[kind])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert (done.stderr, done.stdout.strip()) == ("", str([0] * AT_ONCE))
