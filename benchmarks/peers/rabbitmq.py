"""RabbitMQ through pika: durable classic queue, persistent messages, publisher confirms.

The pipelined publisher uses pika's SelectConnection, because BlockingConnection waits for each confirm; the publisher
of one message at a time is BlockingConnection, as its users write it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from time import monotonic_ns
from typing import Any

from benchmarks.pace import Pace, Receiver, Sender
from benchmarks.peers.base import Address, Peer, Span, stream_of
from benchmarks.servers import Server, find_program, free_port, package_version

WINDOW = 2000
PREFETCH = 2000
ACK_EVERY = 200


def _parameters(address: Address) -> Any:
    import pika

    return pika.ConnectionParameters("127.0.0.1", address["port"], heartbeat=0)


def _persistent() -> Any:
    import pika

    return pika.BasicProperties(delivery_mode=2)


def _loop(address: Address, on_channel: Callable[[Any], None]) -> Any:
    """A SelectConnection that calls ``on_channel`` once its channel is open; run its ioloop."""
    import pika

    def failed(_connection: Any, error: Any) -> None:
        raise ConnectionError(str(error))

    return pika.SelectConnection(
        _parameters(address),
        on_open_callback=lambda connection: connection.channel(on_open_callback=on_channel),
        on_open_error_callback=failed,
    )


class _Publisher:
    """Keeps WINDOW unconfirmed messages in flight on one channel."""

    def __init__(self, job: Any, queue: str, bodies: list[bytes], count: int) -> None:
        self._job, self._queue, self._bodies, self._count = job, queue, bodies, count
        self._sent = self._confirmed = 0
        self._early: set[int] = set()
        self._properties = _persistent()
        self.span: Span = {}

    def on_channel(self, channel: Any) -> None:
        self._channel = channel
        channel.confirm_delivery(self._on_confirm, callback=self._on_confirming)

    def _on_confirming(self, _frame: Any) -> None:
        self._job.ready()
        self.span["began_ns"] = monotonic_ns()
        self._fill()

    def _fill(self) -> None:
        upto = min(self._count, self._confirmed + WINDOW)
        bodies, publish, wrap = self._bodies, self._channel.basic_publish, len(self._bodies)
        for number in range(self._sent, upto):
            publish("", self._queue, bodies[number % wrap], self._properties)
        self._sent = upto

    def _note(self, tag: int, multiple: bool) -> None:
        """Confirms may come out of order: ``_confirmed`` is the tag below which none is missing."""
        if not multiple and tag != self._confirmed + 1:
            self._early.add(tag)
            return
        self._confirmed = max(self._confirmed, tag)
        while self._confirmed + 1 in self._early:
            self._confirmed += 1
        if self._early:
            self._early = {early for early in self._early if early > self._confirmed}

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        if method.NAME == "Basic.Nack":
            raise RuntimeError("a publish was refused")
        self._note(method.delivery_tag, method.multiple)
        if self._confirmed >= self._count:
            self.span["ended_ns"] = monotonic_ns()
            self._channel.connection.ioloop.stop()
        elif self._sent - self._confirmed <= WINDOW // 2:
            self._fill()


def produce(job: Any, address: Address, queue: str, count: int, size: int) -> Span:
    """Asynchronous publisher confirms, WINDOW messages in flight."""
    publisher = _Publisher(job, queue, list(stream_of(size, 64)), count)
    _loop(address, publisher.on_channel).ioloop.start()
    return publisher.span


def consume(job: Any, address: Address, queue: str, count: int, size: int) -> Span:
    """Pushed deliveries with prefetch, one multiple acknowledgement every ACK_EVERY messages."""
    span: Span = {}
    got = 0

    def on_message(channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        nonlocal got
        got += 1
        assert len(body) == size
        if got % ACK_EVERY == 0 or got == count:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if got == count:
            channel.close()

    def on_channel(channel: Any) -> None:
        def ended(*_: Any) -> None:
            span["ended_ns"] = monotonic_ns()  # the close is answered after the acknowledgement was taken
            channel.connection.ioloop.stop()

        def go(_frame: Any) -> None:
            job.ready()
            span["began_ns"] = monotonic_ns()
            channel.basic_consume(queue, on_message)

        channel.add_on_close_callback(ended)
        channel.basic_qos(prefetch_count=PREFETCH, callback=go)

    _loop(address, on_channel).ioloop.start()
    assert got == count, f"{got} of {count} messages came"
    return span


def blocking(job: Any, address: Address, queue: str, count: int, size: int) -> Span:
    """BlockingConnection with confirms: each basic_publish returns after its confirmation."""
    import pika

    connection = pika.BlockingConnection(_parameters(address))
    channel = connection.channel()
    channel.confirm_delivery()
    bodies, properties = list(stream_of(size, count)), _persistent()
    job.ready()
    began = monotonic_ns()
    for body in bodies:
        channel.basic_publish("", queue, body, properties)
    ended = monotonic_ns()
    connection.close()
    return {"began_ns": began, "ended_ns": ended}


def paced_produce(job: Any, address: Address, queue: str, pace: Pace) -> None:
    """basic_publish of what is due, with confirms, by a timer of the connection's loop."""
    properties, confirmed = _persistent(), 0

    def on_channel(channel: Any) -> None:
        def on_confirm(frame: Any) -> None:
            nonlocal confirmed
            if frame.method.NAME == "Basic.Nack":
                raise RuntimeError("a publish was refused")
            confirmed = max(confirmed, frame.method.delivery_tag)

        def on_confirming(_frame: Any) -> None:
            sender, loop = Sender(pace, job.ready()), channel.connection.ioloop

            def tick() -> None:
                for body in sender.due():
                    channel.basic_publish("", queue, body, properties)
                if not sender.over:
                    loop.call_later(sender.wait_seconds(), tick)
                elif confirmed < pace.messages:
                    loop.call_later(0.01, tick)
                else:
                    loop.stop()

            tick()

        channel.confirm_delivery(on_confirm, callback=on_confirming)

    _loop(address, on_channel).ioloop.start()


def paced_consume(job: Any, address: Address, queue: str, pace: Pace) -> Any:
    """Pushed deliveries with prefetch, multiple acknowledgements, the last messages one by one."""
    found: list[Any] = []

    def on_channel(channel: Any) -> None:
        def go(_frame: Any) -> None:
            receiver = Receiver(pace, job.ready())

            def on_message(channel: Any, method: Any, _properties: Any, body: bytes) -> None:
                receiver.take(body, monotonic_ns())
                if receiver.received % ACK_EVERY == 0 or receiver.received >= pace.messages:
                    channel.basic_ack(method.delivery_tag, multiple=True)

            def look() -> None:
                if receiver.over:
                    found.append(receiver.found())
                    channel.connection.ioloop.stop()
                else:
                    channel.connection.ioloop.call_later(0.1, look)

            channel.basic_consume(queue, on_message)
            look()

        channel.basic_qos(prefetch_count=PREFETCH, callback=go)

    _loop(address, on_channel).ioloop.start()
    return found[0]


class RabbitMQ(Peer):
    """One RabbitMQ node with its own Erlang port mapper."""

    name = "rabbitmq"
    produce, consume, blocking = produce, consume, blocking
    paced = (paced_produce, paced_consume)

    def __init__(self) -> None:
        self._servers: list[Server] = []

    def _script(self) -> str | None:
        found = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"))
        return str(found[-1]) if found else None

    def missing(self) -> str | None:
        if not self._script() or not find_program("epmd"):
            return "rabbitmq-server is not installed (apt-get install rabbitmq-server)"
        return None if importlib.util.find_spec("pika") else "the client pika is not installed (pip install pika)"

    def versions(self) -> list[str]:
        erlang = package_version("erlang-base")
        return [f"RabbitMQ {package_version('rabbitmq-server')}, Erlang {erlang}", f"pika {version('pika')}"]

    def settings(self) -> list[str]:
        return [
            "durable classic queue, delivery_mode 2, publisher confirms (when on disk or acknowledged)",
            f"{WINDOW} unconfirmed in flight, prefetch {PREFETCH}, multiple ack every {ACK_EVERY}; no plugins",
        ]

    def start(self, folder: Path) -> Address:
        folder.mkdir(parents=True, exist_ok=True)
        port, epmd_port = free_port(), free_port()
        mapper = [find_program("epmd") or "", "-port", str(epmd_port), "-address", "127.0.0.1"]
        epmd = Server(mapper, folder, {"HOME": str(folder)})
        self._servers = [epmd]
        (folder / "plugins").write_text("[].\n")
        config = "vm_memory_high_watermark.relative = 0.6\ndisk_free_limit.absolute = 50MB\n"
        (folder / "rabbit.conf").write_text(config)
        env = {
            "HOME": str(folder),
            "RABBITMQ_NODENAME": f"bench{port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbit.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "ERL_EPMD_PORT": str(epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_CRASH_DUMP_SECONDS": "0",
        }
        node = Server([self._script() or ""], folder, env)
        self._servers.append(node)
        node.wait_ready(lambda: self.prepare({"port": port}, "bench-probe"))
        return {"port": port}

    def stop(self) -> None:
        for server in reversed(self._servers):
            server.stop()

    def prepare(self, address: Address, queue: str) -> None:
        import pika

        connection = pika.BlockingConnection(_parameters(address))
        connection.channel().queue_declare(queue, durable=True)
        connection.close()
