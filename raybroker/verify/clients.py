"""The actors that send, receive and move messages, each with a connection and a thread of its own."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import raybroker as rb
from raybroker.model.errors import BrokerError
from raybroker.system.clock import SystemClock
from raybroker.verify.notes import (
    NUMBER_BITS,
    Acknowledged,
    BodyContent,
    Delivered,
    ErrorTold,
    Foreign,
    Note,
    NotedDelivery,
    RolledBack,
    SendsBegun,
    SendsConfirmed,
    VerifyLane,
    content_of,
    packed,
)
from raybroker.verify.telling import RecorderLine

TAKE: Final = 50
"""Messages a consumer takes at once."""
MOVE: Final = 20
"""Messages of a transaction."""
POLL_S: Final = 0.1
SOON_S: Final = 0.2
"""After an error, before the next attempt."""
ROLL_BACK_EVERY: Final = 10
"""Every so many transactions one is rolled back in place of its commit."""
CONNECT: Final[dict[str, Any]] = {"raybroker.reconnect.timeout_ms": 60_000, "imqReconnectInterval": 200}
"""A broker of a machine that has to come back is waited for."""


@dataclass(frozen=True, slots=True)
class ClientTask:
    """What a client does.

    rate   messages a second of one producer; 0 for as fast as confirmations come
    most   how many it sends
    units  units of order of each producer
    home   the broker whose client it is; "" for any
    """

    cluster: str
    run: int
    lane: VerifyLane
    queue: str
    number: int
    size_bytes: int = 64
    batch: int = 20
    rate: float = 0.0
    most: int = 0
    units: int = 1
    home: str = ""


class _Client(ABC):
    """A thread that works until it is told to stop. ``stats`` says whether it still runs, and what has ended it."""

    role = ""

    def __init__(self, task: ClientTask, recorder: Any) -> None:
        self.task = task
        self.tell = RecorderLine(recorder, f"{self.role} {task.number}")
        self.clock = SystemClock()
        self.stopping = threading.Event()
        self._error: str | None = None
        self._thread = threading.Thread(target=self._run, name=self.role, daemon=True)

    def begin_work(self) -> int:
        """Begin; the process id."""
        self._thread.start()
        return os.getpid()

    def end_work(self) -> None:
        """End after what is under way."""
        self.stopping.set()

    def stats(self) -> dict[str, Any]:
        return {"who": self.tell.who, "running": self._thread.is_alive(), "error": self._error}

    def _run(self) -> None:
        try:
            with rb.connect(cluster=self.task.cluster, broker=self.task.home or None, **CONNECT) as connection:
                self.work(connection)
        except Exception as error:  # noqa: BLE001 - whoever asks for stats is told
            self._error = repr(error)

    @abstractmethod
    def work(self, connection: Any) -> None:
        """Do what the task says until ``stopping`` is set."""

    def told(self, error: BrokerError) -> ErrorTold:
        """Note an error, and wait a moment."""
        self.stopping.wait(SOON_S)
        return ErrorTold(self.role, f"{type(error).__name__}: {' '.join(str(error).split())[:120]}")

    def deliveries(self, messages: Sequence[Any]) -> list[NotedDelivery]:
        found = []
        for message in messages:
            content = content_of(message.body, self.task.run)
            if content is not None:
                found.append(
                    NotedDelivery(
                        content.producer,
                        content.number,
                        message.delivery_count,
                        bool(message.redelivered),
                        content.transaction,
                    )
                )
        return found


class ProducerClient(_Client):
    """Sends numbered messages in batches, in turn as a block, without waiting, and one by one."""

    role = "producer"

    def work(self, connection: Any) -> None:
        task = self.task
        producer = connection.session().producer(task.queue, persistent=True)
        ways: tuple[Callable[[Any, int, int], list[Note]], ...] = (self._block, self._async, self._singly)
        interval_ns = int(task.batch / task.rate * 1e9) if task.rate else 0
        due_ns = self.clock.monotonic_ns()
        number, turn, notes = 0, 0, list[Note]()
        while not self.stopping.is_set() and (not task.most or number < task.most):
            count = min(task.batch, task.most - number) if task.most else task.batch
            self.tell(*notes, SendsBegun(task.lane, task.number, number, count))
            notes = ways[turn % len(ways)](producer, number, count)
            number, turn = number + count, turn + 1
            due_ns = max(due_ns + interval_ns, self.clock.monotonic_ns() - interval_ns)
            left_ns = due_ns - self.clock.monotonic_ns()
            if left_ns > 0:
                self.tell(*notes)
                notes = []
                self.stopping.wait(left_ns / 1e9)
        self.tell(*notes)

    def _body(self, number: int) -> bytes:
        return packed(BodyContent(self.task.run, self.task.number, number, 0), self.task.size_bytes)

    def _unit(self, number: int) -> str | None:
        """The unit of order of a message, which is its producer's own."""
        task = self.task
        return f"{task.number}.{number % task.units}" if task.lane is VerifyLane.UNITS else None

    def _confirmed(self, first: int, count: int) -> Note:
        return SendsConfirmed(self.task.lane, self.task.number, first, count)

    def _block(self, producer: Any, first: int, count: int) -> list[Note]:
        numbers = range(first, first + count)
        try:
            producer.send_many(map(self._body, numbers), unit_of_order=[self._unit(number) for number in numbers])
        except BrokerError as error:
            return [self.told(error)]
        return [self._confirmed(first, count)]

    def _async(self, producer: Any, first: int, count: int) -> list[Note]:
        futures, notes = [], list[Note]()
        try:
            for number in range(first, first + count):
                unit = self._unit(number)
                options = {} if unit is None else {"unit_of_order": unit}
                futures.append((number, producer.send_async(self._body(number), **options)))
        except BrokerError as error:
            notes.append(self.told(error))
        for number, future in futures:
            try:
                future.result()
            except BrokerError as error:
                notes.append(self.told(error))
            else:
                notes.append(self._confirmed(number, 1))
        return notes

    def _singly(self, producer: Any, first: int, count: int) -> list[Note]:
        notes = list[Note]()
        for number in range(first, first + count):
            unit = self._unit(number)
            options = {} if unit is None else {"unit_of_order": unit}
            try:
                producer.send(self._body(number), **options)
            except BrokerError as error:
                notes.append(self.told(error))
            else:
                notes.append(self._confirmed(number, 1))
        return notes


class ConsumerClient(_Client):
    """Notes what comes, then acknowledges it."""

    role = "consumer"

    def work(self, connection: Any) -> None:
        task = self.task
        consumer = connection.session(ack="client").consumer(task.queue, prefetch=4 * TAKE)
        notes: list[Note] = []
        while not self.stopping.is_set():
            try:
                messages = consumer.receive_many(TAKE, timeout=POLL_S)
            except BrokerError as error:
                notes.append(self.told(error))
                continue
            if not messages:
                self.tell(*notes)
                notes = []
                continue
            found = self.deliveries(messages)
            if len(found) < len(messages):
                notes.append(Foreign(task.lane, len(messages) - len(found)))
            self.tell(*notes, Delivered(task.lane, task.number, found))
            try:
                messages[-1].acknowledge()
                notes = [Acknowledged(task.lane, task.number, found)]
            except BrokerError as error:
                notes = [self.told(error)]
        self.tell(*notes)


class MoverClient(_Client):
    """Takes from the one queue and sends to the other in transactions, of which it rolls some back on purpose."""

    role = "mover"

    def work(self, connection: Any) -> None:
        task = self.task
        session = connection.session(transacted=True)
        consumer = session.consumer(entrance_of(task.queue), prefetch=4 * MOVE)
        producer = session.producer(task.queue, persistent=True)
        count = 0
        while not self.stopping.is_set():
            try:
                messages = consumer.receive_many(MOVE, timeout=POLL_S)
                if not messages:
                    continue
                count += 1
                transaction = (task.number << NUMBER_BITS) + count
                for delivery in self.deliveries(messages):
                    content = BodyContent(task.run, delivery.producer, delivery.number, transaction)
                    producer.send(packed(content, task.size_bytes))
                if count % ROLL_BACK_EVERY:
                    session.commit()
                else:
                    self.tell(RolledBack(transaction))
                    session.rollback()
            except BrokerError as error:
                self.tell(self.told(error))
                _roll_back(session)


def _roll_back(session: Any) -> None:
    """Give back what was received; one that cannot be is given back by the broker."""
    try:
        session.rollback()
    except BrokerError:
        return


def entrance_of(queue: str) -> str:
    """The queue from which messages are moved to this one."""
    return f"{queue}.in"
