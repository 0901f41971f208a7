"""``python -m benchmarks.amqp_service_cost``: the processor time of the service ``amqp`` a message of 1 KiB.

A broker whose host is another thread of this process, and keeps its messages in memory; a client in a process of its
own sends persistent messages, each confirmed, and then receives them, each settled by a frame of its own as Qpid JMS
does it.  What is taken is the processor time of the thread in which the gateways work, by the system's clock of that
thread: the engine, the client of the broker behind it, and the system's part of reading and writing.  ``alone``: one
message at a time, each waited for, and ``both`` with a receiver that has credit for many.  The least of some rounds, so
that other programs matter little.

    python -m benchmarks.amqp_service_cost
    python -m benchmarks.amqp_service_cost --rounds 20 --profile FILE
"""

from __future__ import annotations

import argparse
import cProfile
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, TypeVar

import raybroker as rb
from benchmarks.amqp_wire_cost import message
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.wire.amqp.connection import ConnectionEndpoint
from raybroker.wire.amqp.events import (
    AmqpEvent,
    ConnectionOpened,
    DeliveryReceived,
    DispositionReceived,
    HeaderReceived,
    LinkAttached,
)
from raybroker.wire.amqp.limits import AmqpLimits
from raybroker.wire.amqp.performatives import ACCEPTED, AmqpSource, AmqpTarget, SaslMechanisms, SaslOutcome
from raybroker.wire.scram import Verifier

USER: Final = "bench"
PASSWORD: Final = "secret"
QUEUE: Final = "q"
GATEWAYS: Final = "raybroker-gateways"
"""The thread of the service."""
MESSAGES: Final = 5000
ALONE: Final = 300
CREDIT: Final = 1000
WRITE_MAX: Final = 32
"""Messages that the client writes at once."""
WAYS: Final = ("in", "out", "in, alone", "both, alone")
GOAL_US: Final = 15.0
"""Of *in* and *out* together."""

E = TypeVar("E")


class Client:
    """A client with the engine of ``wire/amqp`` and a blocking socket."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._engine = ConnectionEndpoint.connecting(AmqpLimits())
        self._events: list[AmqpEvent] = []
        self._await(SaslMechanisms)
        self._engine.begin_login("PLAIN", f"\0{USER}\0{PASSWORD}".encode())
        self._await(SaslOutcome)
        self._await(HeaderReceived)
        self._engine.send_open("bench")
        self._await(ConnectionOpened)
        session = self._engine.begin_session()
        self._sender = session.attach_sender("in", AmqpSource(), AmqpTarget(QUEUE))
        self._await(LinkAttached)
        self._receiver = session.attach_receiver("out", AmqpSource(QUEUE), AmqpTarget())
        self._await(LinkAttached)

    def _more(self) -> None:
        """Write what there is, and read until something has come."""
        self._socket.sendall(self._engine.data_to_send())
        data = self._socket.recv(1 << 18)
        if not data:
            raise RuntimeError("the service has closed the connection")
        self._events += self._engine.receive_data(data)

    def _await(self, kind: type[E]) -> E:
        while True:
            for index, event in enumerate(self._events):
                if isinstance(event, kind):
                    del self._events[index]
                    return event
            self._more()

    def _taken(self, kind: type[E]) -> list[E]:
        """The events of a kind that are here; the others are not looked at any more."""
        found = [event for event in self._events if isinstance(event, kind)]
        self._events.clear()
        return found

    def send(self, count: int, window: int) -> None:
        """Send messages, with so many on their way that are not confirmed."""
        body, sent, confirmed, link = message(), 0, 0, self._sender
        while confirmed < count:
            now = min(window - (sent - confirmed), count - sent, link.credit, WRITE_MAX)
            for _ in range(now):
                link.send((body,))
            sent += now
            if now == WRITE_MAX:
                self._socket.sendall(self._engine.data_to_send())
            else:
                self._more()
                confirmed += sum(len(event.deliveries) for event in self._taken(DispositionReceived))

    def receive(self, count: int) -> None:
        """Receive messages, and settle each of them."""
        link, received = self._receiver, 0
        while received < count:
            if link.credit <= min(CREDIT, count - received) // 2:
                link.grant(min(CREDIT, count - received))
            self._more()
            received += self._settle()
        self._socket.sendall(self._engine.data_to_send())

    def _settle(self) -> int:
        """Settle what has come, each by a frame; how many."""
        taken = self._taken(DeliveryReceived)
        for event in taken:
            self._receiver.settle_deliveries((event.delivery_id,), ACCEPTED)
        return len(taken)

    def exchange(self, count: int) -> None:
        """Send messages one at a time, and receive each when it comes."""
        body, link, received = message(), self._receiver, 0
        link.grant(count)
        for _ in range(count):
            self._sender.send((body,))
            while not any(isinstance(event, DispositionReceived) for event in self._events):
                self._more()
            received += self._settle()
        while received < count:
            self._more()
            received += self._settle()
        self._socket.sendall(self._engine.data_to_send())

    def run(self, way: str, count: int) -> None:
        """One of WAYS."""
        if way == "out":
            self.receive(count)
        elif way == "both, alone":
            self.exchange(count)
        else:
            self.send(count, 1 if way == "in, alone" else CREDIT // 2)


def client(port: int) -> None:
    """Carry out what is asked line by line, "COUNT WAY"."""
    made = Client(port)
    for line in sys.stdin:
        count, _, way = line.strip().partition(" ")
        made.run(way, int(count))
        print("done", flush=True)


class Service:
    """A broker of this process with the service, and a client that does what it is told."""

    def __init__(self, stack: ExitStack, properties: dict[str, object] | None = None) -> None:
        others = set(threading.enumerate())  # Another broker of this process has such a thread, too.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rbr-")))
        UserFile(folder / "passwd").add(USER, UserEntry(str(Verifier.from_password(PASSWORD, b"s" * 16, 4096)), "user"))
        broker = stack.enter_context(
            rb.loopback(
                properties={
                    "imq.service.activelist": "amqp",
                    "imq.hostname": "127.0.0.1",
                    "imq.portmapper.port": 0,
                    "raybroker.security.dir": str(folder),
                    **(properties or {}),
                }
            )
        )
        admin = broker.admin()
        admin.create_destination("queue", QUEUE, maxNumMsgs=-1, maxTotalMsgBytes=-1)
        port = next(row["port"] for row in admin.list_services() if row["service"] == "amqp")
        self._program = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.amqp_service_cost", "--client", str(port)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        stack.callback(self._program.kill)
        self._run("in", 1)
        self._run("out", 1)
        thread = next(one for one in threading.enumerate() if one.name == GATEWAYS and one not in others)
        assert thread.ident is not None
        self._clock = time.pthread_getcpuclockid(thread.ident)

    def _run(self, way: str, count: int) -> None:
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write(f"{count} {way}\n")
        self._program.stdin.flush()
        if not self._program.stdout.readline():
            raise RuntimeError("the client has ended; it says above why")

    def spent_us(self, way: str, count: int) -> float:
        """Processor time of the thread a message."""
        before = time.clock_gettime(self._clock)
        self._run(way, count)
        return (time.clock_gettime(self._clock) - before) / count * 1e6


def costs(rounds: int, messages: int = MESSAGES, alone: int = ALONE) -> dict[str, float]:
    """Way → microseconds of processor time a message, the least of some rounds."""
    found: dict[str, float] = {}
    with ExitStack() as stack:
        service = Service(stack)
        for _ in range(rounds):
            for way in WAYS:
                us = service.spent_us(way, alone if "alone" in way else messages)
                found[way] = min(us, found.get(way, us))
                if way == "in, alone":
                    service.spent_us("out", alone)
    return found


def profiled(file: Path, rounds: int) -> None:
    """Write where the thread's time goes, of each way: FILE.0, FILE.1 and so on."""
    from raybroker.client.io.io_thread import _all

    with ExitStack() as stack:
        service = Service(stack)
        io = next(one for one in _all if one._thread.name == GATEWAYS)
        for index, way in enumerate(WAYS):
            profile: Any = cProfile.Profile()
            count = (ALONE if "alone" in way else MESSAGES) * rounds
            io.loop.call_soon_threadsafe(profile.enable)
            service.spent_us(way, count)
            done = threading.Event()
            io.loop.call_soon_threadsafe(lambda profile=profile, done=done: (profile.disable(), done.set()))
            done.wait(10)
            profile.dump_stats(f"{file}.{index}")
            if way == "in, alone":
                service.spent_us("out", count)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.amqp_service_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--profile", type=Path, default=None, help="write where the time goes instead")
    parser.add_argument("--client", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        client(options.client)
    elif options.profile is not None:
        profiled(options.profile, options.rounds)
    else:
        found = costs(options.rounds)
        for way, us in found.items():
            print(f"{way:12}{us:7.1f} µs")
        both = found["in"] + found["out"]
        print(f"{'in and out':12}{both:7.1f} µs, goal ≤ {GOAL_US:g}: {'reached' if both <= GOAL_US else 'missed'}")


if __name__ == "__main__":
    main()
