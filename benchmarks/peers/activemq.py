"""ActiveMQ (Classic) through stomp.py: persistent messages in KahaDB, synced before the receipt.

The pipelined producer sends in transactions, each commit with a receipt, because a receipt for every send was four
times slower; the producer of one message at a time asks for a receipt each time.  The consumer acknowledges
cumulatively (``ack: client``), the last time with a receipt.
"""

from __future__ import annotations

import importlib.util
import socket
import threading
from importlib.metadata import version
from pathlib import Path
from time import monotonic_ns
from typing import Any

from benchmarks.peers.base import Address, Peer, Span, stream_of
from benchmarks.servers import Server, find_program, free_port, package_version

BATCH = 500
IN_FLIGHT = 4
RECEIPTS = 100
PREFETCH = 1000
ACK_EVERY = 200
HOME = Path("/usr/share/activemq")
HEAP = "1g"

CONFIG = """<beans xmlns="http://www.springframework.org/schema/beans"
  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans
    http://www.springframework.org/schema/beans/spring-beans-2.0.xsd
    http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="bench" useJmx="false" persistent="true"
      advisorySupport="{advisories}" schedulerSupport="{advisories}" dataDirectory="{folder}/data"
      schedulePeriodForDestinationPurge="0">
    {plugins}
    <persistenceAdapter>
      <kahaDB directory="{folder}/kahadb" journalDiskSyncStrategy="always" preallocationStrategy="zeros"/>
    </persistenceAdapter>
    <transportConnectors>
      <transportConnector name="stomp" uri="stomp+nio://127.0.0.1:{port}?transport.hbGracePeriodMultiplier=1.5"/>
    </transportConnectors>
  </broker>
</beans>
"""
OPENS = (
    "java.base/java.lang",
    "java.base/java.net",
    "java.base/java.util",
    "java.base/java.security",
    "java.base/java.util.concurrent",
)


class _Counter:
    """A stomp listener that counts receipts and wakes who waits for room or for the end."""

    def __init__(self) -> None:
        self.receipts = 0
        self.error = ""
        self._news = threading.Condition()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda *_: None
        raise AttributeError(name)

    def on_receipt(self, _frame: Any) -> None:
        with self._news:
            self.receipts += 1
            self._news.notify()

    def on_error(self, frame: Any) -> None:
        with self._news:
            self.error = f"{frame.headers} {frame.body}"
            self._news.notify()

    def on_disconnected(self) -> None:
        with self._news:
            self.error = self.error or "disconnected"
            self._news.notify()

    def wait_for(self, receipts: int) -> None:
        with self._news:
            if not self._news.wait_for(lambda: self.error or self.receipts >= receipts, 60):
                raise TimeoutError(f"{self.receipts} receipts of {receipts}")
        if self.error:
            raise ConnectionError(self.error)


def _connect(address: Address, listener: Any) -> Any:
    """A client of a server at ``address["port"]``, which logs in when it names ``user`` and ``password``."""
    import stomp

    connection = stomp.Connection11([("127.0.0.1", address["port"])], reconnect_attempts_max=1, auto_decode=False)
    connection.set_listener("bench", listener)
    connection.connect(address.get("user"), address.get("password"), wait=True)
    return connection


def produce(job: Any, address: Address, queue: str, count: int, size: int) -> Span:
    """Transactions of BATCH sends, IN_FLIGHT commits without their receipt."""
    counter = _Counter()
    connection = _connect(address, counter)
    bodies, destination, commits = list(stream_of(size, 64)), f"/queue/{queue}", 0
    job.ready()
    began = monotonic_ns()
    for first in range(0, count, BATCH):
        name = f"t{first}"
        connection.begin(name)
        for number in range(first, min(first + BATCH, count)):
            connection.send(destination, bodies[number & 63], persistent="true", transaction=name)
        connection.commit(name, receipt=name)
        commits += 1
        counter.wait_for(commits - IN_FLIGHT)
    counter.wait_for(commits)
    ended = monotonic_ns()
    connection.disconnect()
    return {"began_ns": began, "ended_ns": ended}


def blocking(job: Any, address: Address, queue: str, count: int, size: int) -> Span:
    """One send, one receipt, the next send."""
    return _sends(job, address, queue, count, size, 1)


def receipts(job: Any, address: Address, queue: str, count: int, size: int) -> Span:
    """Each send with a receipt, RECEIPTS of them on their way."""
    return _sends(job, address, queue, count, size, RECEIPTS)


def _sends(job: Any, address: Address, queue: str, count: int, size: int, window: int) -> Span:
    """Each send with a receipt; the first without one when ``window`` are awaited."""
    counter = _Counter()
    connection = _connect(address, counter)
    bodies = list(stream_of(size, 64))
    job.ready()
    began = monotonic_ns()
    for number in range(count):
        connection.send(f"/queue/{queue}", bodies[number & 63], persistent="true", receipt=str(number))
        counter.wait_for(number + 2 - window)
    counter.wait_for(count)
    ended = monotonic_ns()
    connection.disconnect()
    return {"began_ns": began, "ended_ns": ended}


class _Taker(_Counter):
    """Acknowledges every ACK_EVERY messages from the receiver thread."""

    def __init__(self, count: int, size: int) -> None:
        super().__init__()
        self._count, self._size, self._got = count, size, 0
        self.connection: Any = None

    def on_message(self, frame: Any) -> None:
        self._got += 1
        assert len(frame.body) == self._size
        if self._got == self._count:
            self.connection.ack(frame.headers["message-id"], "bench", receipt="last")
        elif self._got % ACK_EVERY == 0:
            self.connection.ack(frame.headers["message-id"], "bench")


def consume(job: Any, address: Address, queue: str, count: int, size: int) -> Span:
    """Pushed messages, cumulative acknowledgement."""
    taker = _Taker(count, size)
    taker.connection = _connect(address, taker)
    taker.connection.set_listener("bench", taker)
    job.ready()
    began = monotonic_ns()
    headers = {"activemq.prefetchSize": str(PREFETCH)}
    taker.connection.subscribe(f"/queue/{queue}", "bench", ack="client", headers=headers)
    taker.wait_for(1)
    ended = monotonic_ns()
    taker.connection.disconnect()
    return {"began_ns": began, "ended_ns": ended}


def launched(folder: Path, *, plugins: str = "", advisories: bool = False) -> tuple[Server, int]:
    """A broker with its data in ``folder`` that accepts connections, and its port.

    ``plugins``: an element of its configuration; ``advisories``: it tells clients of destinations and schedules
    messages, which costs a little.
    """
    port = free_port()
    (folder / "conf").mkdir(parents=True, exist_ok=True)
    (folder / "tmp").mkdir(exist_ok=True)
    config = folder / "conf" / "activemq.xml"
    said = {"plugins": plugins, "advisories": str(advisories).lower()}
    config.write_text(CONFIG.format(folder=folder, port=port, **said))
    command = [find_program("java") or "", f"-Xms{HEAP}", f"-Xmx{HEAP}", "-Djava.awt.headless=true"]
    command += [f"--add-opens={name}=ALL-UNNAMED" for name in OPENS]
    command += [f"-Dactivemq.home={HOME}", f"-Dactivemq.base={folder}", f"-Dactivemq.conf={folder}/conf"]
    command += [f"-Dactivemq.data={folder}/data", f"-Djava.io.tmpdir={folder}/tmp"]
    command += ["-jar", str(HOME / "bin" / "activemq.jar"), "start", f"xbean:file:{config}"]
    server = Server(command, folder)
    server.wait_ready(lambda: socket.create_connection(("127.0.0.1", port)).close())
    return server, port


class ActiveMQ(Peer):
    """One ActiveMQ broker in a Java process with 1 GiB of heap."""

    name = "activemq"
    produce, consume, blocking, receipts = produce, consume, blocking, receipts
    share = 0.5
    warmup = 5000

    def __init__(self) -> None:
        self._server: Server | None = None

    def missing(self) -> str | None:
        if not (HOME / "bin" / "activemq.jar").exists() or not find_program("java"):
            return "activemq is not installed (apt-get install activemq)"
        return None if importlib.util.find_spec("stomp") else "stomp.py is not installed (pip install stomp.py)"

    def versions(self) -> list[str]:
        return [f"ActiveMQ {package_version('activemq')}", f"stomp.py {version('stomp.py')}"]

    def settings(self) -> list[str]:
        return [
            "persistent:true, KahaDB journalDiskSyncStrategy=always, 1 GiB heap, STOMP 1.1 (nio)",
            f"transactions of {BATCH} sends with a receipt, {IN_FLIGHT} in flight (one at a time: a receipt each)",
            f"prefetch {PREFETCH}, cumulative ack every {ACK_EVERY}",
        ]

    def start(self, folder: Path) -> Address:
        self._server, port = launched(folder)
        return {"port": port}

    def stop(self) -> None:
        if self._server:
            self._server.stop()
