"""Kafka (KRaft, one node) through confluent-kafka, with the calls that its users write.

A producer calls ``produce`` with a callback, serves callbacks with ``poll(0)`` and ends with ``flush``; a consumer
takes ``consume(num_messages)`` and commits the offsets of what came.  As delivered, Kafka answers before the disk has
the message (it relies on replicas, of which one node has none); with ``flush.messages=1`` each append is synced first.
Both are measured, under names of their own.  Everything else is as delivered: ``linger.ms`` 5, idempotence off,
``acks=all``.
"""

from __future__ import annotations

import base64
import importlib.util
import subprocess
import uuid
from importlib.metadata import version
from pathlib import Path
from time import monotonic_ns
from typing import Any, ClassVar

from benchmarks import tools
from benchmarks.pace import Pace, Receiver, Sender
from benchmarks.peers.base import Address, Peer, Span, bodies_of
from benchmarks.servers import Server, ServerError, find_program, free_port, output_of
from benchmarks.workers import RESULT_SECONDS

TAKE = 1000
POLL_SECONDS = 1.0
FORMAT_SECONDS = 120.0
HEAP = "-Xmx1g"

CONFIG = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{control}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/data
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
{sync}"""


def server_config(folder: Path, port: int, control: int, flush: bool) -> str:
    """The properties of a node that is broker and controller, each on a loopback port."""
    return CONFIG.format(folder=folder, port=port, control=control, sync="log.flush.interval.messages=1\n" * flush)


def _servers(address: Address) -> dict[str, Any]:
    return {"bootstrap.servers": f"127.0.0.1:{address['port']}"}


def open_producer(address: Address) -> Any:
    """A producer with acknowledgement by all replicas, of which there is one."""
    from confluent_kafka import Producer

    producer = Producer({**_servers(address), "acks": "all"})
    producer.list_topics(timeout=30)
    return producer


def open_consumer(address: Address, topic: str) -> Any:
    """A consumer of a group of its own name that has got its partition and stands at the group's offset."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            **_servers(address),
            "group.id": f"bench-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    assigned: list[Any] = []
    consumer.subscribe([topic], on_assign=lambda _, partitions: assigned.extend(partitions))
    deadline = monotonic_ns() + 30 * 10**9
    while not assigned:
        if monotonic_ns() > deadline:
            raise TimeoutError("the group's coordinator assigned no partition")
        if (early := consumer.poll(0.05)) is not None:
            # The partition came with this message: stand before it again.
            from confluent_kafka import TopicPartition

            consumer.seek(TopicPartition(topic, early.partition(), early.offset()))
    return consumer


class Confirmations:
    """The delivery callback: counts, and keeps the first fault."""

    def __init__(self) -> None:
        self.count = 0
        self.fault = ""

    def __call__(self, error: Any, _message: Any) -> None:
        self.count += 1
        if error is not None:
            self.fault = self.fault or str(error)

    def check(self, expected: int) -> None:
        """Raises when a message was refused or has no answer."""
        if self.fault or self.count != expected:
            raise RuntimeError(f"{self.count} of {expected} messages answered {self.fault}")


def publish(producer: Any, topic: str, body: bytes, confirmed: Any) -> None:
    """``produce``; when the client's buffer is full, serve callbacks until it is not, as its documentation says."""
    while True:
        try:
            producer.produce(topic, body, on_delivery=confirmed)
        except BufferError:
            producer.poll(0.1)
            continue
        producer.poll(0)
        return


def produce(job: Any, address: Address, queue: str, count: int, size: int) -> Span:
    """produce() for each message with a callback, then flush()."""
    producer, confirmed, bodies = open_producer(address), Confirmations(), bodies_of(size)
    job.ready()
    began = monotonic_ns()
    for number in range(count):
        publish(producer, queue, bodies[number & 63], confirmed)
    producer.flush(RESULT_SECONDS)
    ended = monotonic_ns()
    confirmed.check(count)
    return {"began_ns": began, "ended_ns": ended}


def consume(job: Any, address: Address, queue: str, count: int, size: int) -> Span:
    """consume() of up to TAKE messages and a commit of their offsets; the last commit waits for its answer."""
    consumer = open_consumer(address, queue)
    job.ready()
    began, got, last = monotonic_ns(), 0, monotonic_ns()
    while got < count:
        messages = consumer.consume(min(TAKE, count - got), POLL_SECONDS)
        for message in messages:
            if message.error() is not None:
                raise RuntimeError(str(message.error()))
            assert len(message.value()) == size
        if messages:
            got, last = got + len(messages), monotonic_ns()
            consumer.commit(asynchronous=got < count)
        elif monotonic_ns() - last > 30 * 10**9:
            raise TimeoutError(f"{got} of {count} messages came")
    ended = monotonic_ns()
    consumer.close()
    return {"began_ns": began, "ended_ns": ended}


def blocking(job: Any, address: Address, queue: str, count: int, size: int) -> Span:
    """produce() and flush(), then the next; without lingering, as who waits for each message sets it."""
    from confluent_kafka import Producer

    producer = Producer({**_servers(address), "acks": "all", "linger.ms": 0})
    confirmed, bodies = Confirmations(), bodies_of(size)
    producer.list_topics(timeout=30)
    job.ready()
    began = monotonic_ns()
    for number in range(count):
        producer.produce(queue, bodies[number & 63], on_delivery=confirmed)
        producer.flush(30)
    ended = monotonic_ns()
    confirmed.check(count)
    return {"began_ns": began, "ended_ns": ended}


def paced_produce(job: Any, address: Address, queue: str, pace: Pace) -> None:
    """produce() of what is due, without lingering; poll() serves the callbacks while nothing is."""
    from confluent_kafka import Producer

    producer = Producer({**_servers(address), "acks": "all", "linger.ms": 0})
    producer.list_topics(timeout=30)
    confirmed = Confirmations()
    sender = Sender(pace, job.ready())
    while not sender.over:
        if bodies := sender.due():
            for body in bodies:
                publish(producer, queue, body, confirmed)
        else:
            producer.poll(sender.wait_seconds())
    producer.flush(30)
    confirmed.check(pace.messages)


def paced_consume(job: Any, address: Address, queue: str, pace: Pace) -> Any:
    """poll() for the first message, consume() for what else is there, a commit that is not waited for."""
    consumer = open_consumer(address, queue)
    receiver = Receiver(pace, job.ready())
    while not receiver.over:
        first = consumer.poll(0.5)
        if first is None:
            continue
        messages = [first, *consumer.consume(TAKE, 0)]
        now = monotonic_ns()
        for message in messages:
            if message.error() is not None:
                raise RuntimeError(str(message.error()))
            receiver.take(message.value(), now)
        consumer.commit(asynchronous=True)
    consumer.close()
    return receiver.found()


class Kafka(Peer):
    """One node, broker and controller in one process, as delivered."""

    name = "kafka"
    produce, consume, blocking = produce, consume, blocking
    paced = (paced_produce, paced_consume)
    warmup = 20_000
    flush: ClassVar[bool] = False

    def __init__(self) -> None:
        self._server: Server | None = None

    def missing(self) -> str | None:
        if not find_program("java"):
            return "Java 17 is not installed (apt-get install openjdk-17-jre-headless)"
        if tools.kafka_jars() is None:
            return "Kafka's jars are not here (python -m benchmarks.tools kafka)"
        if not importlib.util.find_spec("confluent_kafka"):
            return "the client confluent-kafka is not installed (pip install confluent-kafka)"
        return None

    def versions(self) -> list[str]:
        jars = tools.kafka_jars()
        jar = next(iter(sorted(jars.glob("kafka_2.13-*.jar"))), None) if jars else None
        kafka = jar.stem.removeprefix("kafka_2.13-") if jar else "-"
        java = output_of(find_program("java") or "java", "-version").splitlines()[0]
        return [f"Kafka {kafka} (KRaft), {java}", f"confluent-kafka {version('confluent-kafka')}"]

    @property
    def mark(self) -> str:
        return "" if self.flush else "no fsync"

    def settings(self) -> list[str]:
        sync = (
            "flush.messages=1: each append is synced before its answer"
            if self.flush
            else "as delivered: it answers before the disk has the message, so its figures are without fsync"
        )
        return [
            f"one node, one partition, acks=all, heap {HEAP[4:]}; {sync}",
            "produce with callbacks, linger.ms as delivered, one flush; one at a time: linger.ms 0, flush of each",
            f"consume({TAKE}), commit of each batch",
        ]

    def start(self, folder: Path) -> Address:
        folder.mkdir(parents=True, exist_ok=True)
        port, config = free_port(), folder / "server.properties"
        config.write_text(server_config(folder, port, free_port(), self.flush))
        java = [
            find_program("java") or "java",
            HEAP,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            f"{tools.kafka_jars()}/*",
        ]
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        done = subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(config)],
            capture_output=True,
            text=True,
            check=False,
            timeout=FORMAT_SECONDS,
            cwd=folder,
        )
        if done.returncode:
            raise ServerError(f"Kafka's folder was not formatted:\n{(done.stdout + done.stderr)[-2000:]}")
        self._server = Server([*java, "kafka.Kafka", str(config)], folder)
        self._server.wait_ready(lambda: self.prepare({"port": port}, "bench-probe"))
        return {"port": port}

    def stop(self) -> None:
        if self._server:
            self._server.stop()

    def prepare(self, address: Address, queue: str) -> None:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({**_servers(address), "log_level": 0})
        config = {"flush.messages": "1"} if self.flush else {}
        for made in admin.create_topics([NewTopic(queue, 1, 1, config=config)], operation_timeout=10).values():
            try:
                made.result(10)
            except KafkaException as error:
                # A slow server may have made it for a request whose answer came too late.
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise


class KafkaFlush(Kafka):
    """The same with a sync of each append."""

    name = "kafka-flush"
    flush = True
