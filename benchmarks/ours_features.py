"""What features cost, against the plain queue of the same run: selectors, priorities, expiry, transactions, topics.

Conditions are those of the plain queue in :mod:`benchmarks.ours`: persistent messages of the same size, a dedicated
host, sync on, producer and consumers in processes of their own, the clock from the first send to the last
acknowledgement.  A figure takes LONG times the messages of others, and the plain queue is measured so once more: in a
quarter of a second most of what is measured is how a path with several sessions begins.  Messages that differ from
each other (properties, priority, time to live) are sent with ``send_many`` and one value for each message; a second
plain queue, fed one by one with ``send_async``, shows what that call costs.  Transactions are those of TX_SESSIONS
sessions at a time, since a session waits for each of its commits.  The processor time of each process is in the note:
it depends less on what else the machine does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from time import monotonic_ns, process_time
from typing import Any, Final, Protocol

from benchmarks.ours_connection import PATIENCE_SECONDS, PREFETCH, TAKE, WARM_UP_BYTES, WARM_UPS, connect
from benchmarks.ours_scale import host_pids
from benchmarks.peers.base import Address, bodies_of, stream_of
from benchmarks.readings import Amounts, Reading, Skipped
from benchmarks.workers import Team, WorkerError

Span = dict[str, float]

SELECTOR: Final = "region = 'EU' AND quantity >= 1 AND price < 1000.5"
WINDOW: Final = 10_000
TRANSACTION: Final = 100
TX_SESSIONS: Final = 8
"""What is under way is what the sessions have sent and not committed: 800 messages. A plain producer has 2 MiB."""
LONG: Final = 4.0
EXPIRES_MS: Final = 3_600_000
"""Late enough that none expires while it is measured: what is measured is that each could."""
SUBSCRIBER_PROCESSES: Final = 2
UNITS: Final = 1000
"""Different units of order."""
UNIT_SESSIONS: Final = 8
"""Sessions that share the units of order."""
UNIT_WAIT_SECONDS: Final = 0.05
"""A session without messages looks so often whether all are done."""


OPTIONS: Final[dict[str, Callable[[int], Any]]] = {
    "properties": lambda number: {"region": "EU", "quantity": 1 + number % 100, "price": number % 1000 + 0.25},
    "priority": lambda number: number % 10,
    "ttl_ms": lambda number: EXPIRES_MS if number % 10 == 0 else 0,
    "unit_of_order": lambda number: f"unit-{number * 7919 % UNITS}",
}
"""Argument of send_many → its value for the n-th message."""


def _span(began: int, used: float) -> Span:
    """From ``began`` until now, with the processor time of this process since it had used ``used``."""
    return {"began_ns": began, "ended_ns": monotonic_ns(), "cpu_s": process_time() - used}


# ---- producers -------------------------------------------------------------------------------------------------------


def send_many(job: Any, address: Address, name: str, count: int, size: int, kind: str) -> Span:
    """One send_many to a queue or a topic."""
    with connect(address) as connection:
        session = connection.session()
        producer = session.producer(getattr(session, kind)(name), persistent=True)
        bodies = list(stream_of(size, count))
        job.ready()
        began, used = monotonic_ns(), process_time()
        producer.send_many(bodies)
        return _span(began, used)


def send_one_by_one(job: Any, address: Address, name: str, count: int, size: int) -> Span:
    """send_async for each message, with at most WINDOW of them unconfirmed."""
    with connect(address) as connection:
        session = connection.session()
        producer = session.producer(session.queue(name), persistent=True)
        bodies = bodies_of(size)
        job.ready()
        began, used = monotonic_ns(), process_time()
        flying: deque[Any] = deque()
        for number in range(count):
            flying.append(producer.send_async(bodies[number & 63]))
            if len(flying) > WINDOW:
                flying.popleft().result()
        while flying:
            flying.popleft().result()
        return _span(began, used)


def send_each(job: Any, address: Address, name: str, count: int, size: int, options: str) -> Span:
    """One send_many with a value for each message."""
    with connect(address) as connection:
        session = connection.session()
        producer = session.producer(session.queue(name), persistent=True)
        bodies = list(stream_of(size, count))
        values = [OPTIONS[options](number) for number in range(count)]
        job.ready()
        began, used = monotonic_ns(), process_time()
        producer.send_many(bodies, **{options: values})
        return _span(began, used)


def send_in_transactions(job: Any, address: Address, name: str, count: int, size: int) -> Span:
    """send_many of TRANSACTION bodies and commit, again and again, in TX_SESSIONS sessions."""
    with connect(address) as connection:
        bodies = list(stream_of(size, count))
        sessions = [connection.session(transacted=True) for _ in range(TX_SESSIONS)]
        producers = [session.producer(session.queue(name), persistent=True) for session in sessions]

        def run(number: int, first: int, end: int) -> None:
            for at in range(first, end, TRANSACTION):
                producers[number].send_many(bodies[at : min(at + TRANSACTION, end)])
                sessions[number].commit()

        job.ready()
        return _at_once(count, run)


def _at_once(count: int, run: Callable[[int, int, int], None]) -> Span:
    """``run(number, first, end)`` for TX_SESSIONS sessions at a time, each with its part of the numbers below
    ``count``."""
    edges = [count * index // TX_SESSIONS for index in range(TX_SESSIONS + 1)]
    with ThreadPoolExecutor(TX_SESSIONS) as pool:
        began, used = monotonic_ns(), process_time()
        for done in [pool.submit(run, *args) for args in zip(range(TX_SESSIONS), edges, edges[1:], strict=False)]:
            done.result()
        return _span(began, used)


# ---- consumers -------------------------------------------------------------------------------------------------------


def take(job: Any, address: Address, name: str, count: int, size: int, selector: str | None) -> Span:
    """receive_many and one client acknowledgement of it, as for the plain queue, with or without a selector."""
    with connect(address) as connection:
        session = connection.session(ack="client")
        queue = session.queue(name)
        job.ready()
        began, used, got = monotonic_ns(), process_time(), 0
        consumer = session.consumer(queue, selector, prefetch=PREFETCH)
        while got < count:
            got += len(messages := _receive(consumer, min(TAKE, count - got), size))
            messages[-1].acknowledge()
        return _span(began, used)


def take_in_transactions(job: Any, address: Address, name: str, count: int, size: int) -> Span:
    """TRANSACTION messages and commit, again and again, in TX_SESSIONS sessions."""
    with connect(address) as connection:
        todo = Lock()
        left = [count]

        def some() -> int:
            """How many messages the next transaction may wait for: all sessions together take ``count``."""
            with todo:
                taken = min(TRANSACTION, left[0])
                left[0] -= taken
                return taken

        sessions = [connection.session(transacted=True) for _ in range(TX_SESSIONS)]

        def run(number: int, first: int, end: int) -> None:
            session = sessions[number]
            with session.consumer(session.queue(name), prefetch=4 * TRANSACTION) as consumer:
                while wanted := some():
                    while wanted:
                        wanted -= len(_receive(consumer, wanted, size))
                    session.commit()

        job.ready()
        return _at_once(count, run)


def take_in_units(job: Any, address: Address, name: str, count: int, size: int) -> Span:
    """UNIT_SESSIONS sessions with client acknowledgement, one consumer each, until all messages are done."""
    with connect(address) as connection:
        sessions = [connection.session(ack="client") for _ in range(UNIT_SESSIONS)]
        consumers = [s.consumer(s.queue(name), prefetch=PREFETCH // UNIT_SESSIONS) for s in sessions]
        todo, left, deadline = Lock(), [count], monotonic_ns() + 10**9 * PATIENCE_SECONDS * 4
        ended = [0]

        def run(consumer: Any) -> None:
            while left[0] > 0:
                messages = consumer.receive_many(max=TAKE // UNIT_SESSIONS, timeout=UNIT_WAIT_SECONDS)
                if messages:
                    assert len(messages[0].body) == size
                    messages[-1].acknowledge()
                    with todo:
                        left[0] -= len(messages)
                        ended[0] = monotonic_ns()
                elif monotonic_ns() > deadline:
                    raise TimeoutError("messages did not come")

        job.ready()
        began, used = monotonic_ns(), process_time()
        with ThreadPoolExecutor(UNIT_SESSIONS) as pool:
            for done in [pool.submit(run, consumer) for consumer in consumers]:
                done.result()
        return _span(began, used) | {"ended_ns": ended[0]}  # A session without messages notices the end later.


def subscribe(job: Any, address: Address, name: str, count: int, size: int, subscribers: int) -> Span:
    """``subscribers`` plain subscribers in one session; each gets everything, and all that came is acknowledged."""
    with connect(address) as connection:
        session = connection.session(ack="client")
        topic = session.topic(name)
        waiting = {session.consumer(topic, prefetch=PREFETCH): count for _ in range(subscribers)}
        job.ready()
        began, used = monotonic_ns(), process_time()
        while waiting:
            messages = []
            for consumer, left in list(waiting.items()):
                messages = _receive(consumer, min(TAKE, left), size)
                waiting[consumer] = left - len(messages)
                if not waiting[consumer]:
                    del waiting[consumer]
            messages[-1].acknowledge()
        return _span(began, used)


def _receive(consumer: Any, most: int, size: int) -> list[Any]:
    messages: list[Any] = consumer.receive_many(max=most, timeout=PATIENCE_SECONDS)
    if not messages:
        raise TimeoutError("messages did not come")
    for message in messages:
        assert len(message.body) == size
    return messages


def create_topic(job: Any, address: Address, name: str) -> None:
    """A topic in a dedicated host, whose journal is warmed up through a subscription that ends again."""
    with connect(address) as connection:
        admin = connection.admin()
        admin.create_destination("topic", name, hosting="dedicated", consumerFlowLimit=-1)
        session = connection.session()
        session.shared_durable_consumer(session.topic(name), "warm-up").close()
        with session.producer(session.topic(name)) as producer:
            for _ in range(WARM_UPS):
                producer.send_many(stream_of(65536, WARM_UP_BYTES // 65536))
                admin.purge_subscription("warm-up", topic=name)
        session.unsubscribe("warm-up")
    job.ready()


# ---- the harness -----------------------------------------------------------------------------------------------------

Work = tuple[Callable[..., Span], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Plan:
    """One figure: what is prepared, who sends, who receives, and how many messages that are.

    share   how many messages are sent, of those of other figures; each of ``copies`` subscribers gets them
    """

    key: str
    producer: Callable[..., Span]
    sends: tuple[Any, ...]
    consumer: Callable[..., Span] = take
    takes: tuple[Any, ...] = (None,)
    copies: int = 0
    share: float = LONG

    def works(self, address: Address, name: str, count: int, size: int) -> list[Work]:
        """The worker functions with their arguments, the producer last."""
        producer = (self.producer, (address, name, count, size, *self.sends))
        if not self.copies:
            return [(self.consumer, (address, name, count, size, *self.takes)), producer]
        processes = min(SUBSCRIBER_PROCESSES, self.copies)
        each = [self.copies // processes + (number < self.copies % processes) for number in range(processes)]
        return [*((subscribe, (address, name, count, size, subscribers)) for subscribers in each), producer]


PLANS: Final = (
    Plan("plain", send_many, ("queue",)),
    Plan("each", send_one_by_one, (), share=1.0),
    Plan("selector", send_each, ("properties",), takes=(SELECTOR,)),
    Plan("priority", send_each, ("priority",)),
    Plan("expiry", send_each, ("ttl_ms",)),
    Plan("units", send_each, ("unit_of_order",), take_in_units, ()),
    Plan("tx_send", send_in_transactions, ()),
    Plan("tx_take", send_many, ("queue",), take_in_transactions, ()),
    Plan("topic_1", send_many, ("topic",), copies=1),
    Plan("topic_8", send_many, ("topic",), copies=8, share=1.0),
    Plan("topic_64", send_many, ("topic",), copies=64, share=0.25),
)


class System(Protocol):
    """The running broker, as :class:`benchmarks.ours.Raybroker` gives it."""

    name: str

    def run(self, work: Any, *args: Any) -> Any: ...

    def prepare(self, address: Address, queue: str) -> None: ...

    def environment(self) -> Any: ...


def figures(broker: System, address: Address, amounts: Amounts, round_no: int) -> Iterator[Reading | Skipped]:
    """One reading a plan; deliveries a second where there are several subscribers."""
    for plan in PLANS:
        try:
            yield measure(broker, plan, address, amounts, round_no)
        except WorkerError as error:
            yield Skipped(broker.name, str(error).strip().splitlines()[-1], plan.key)


def measure(broker: System, plan: Plan, address: Address, amounts: Amounts, round_no: int) -> Reading:
    """Prepare, let all workers go, and take the time from the first send to the last acknowledgement."""
    import psutil

    name = f"bench-{plan.key}"
    before = set(host_pids(address))
    if plan.copies:
        broker.run(create_topic, address, name)
    else:
        broker.prepare(address, name)
    hosts = [psutil.Process(pid) for pid in set(host_pids(address)) - before]
    count = max(1000, int(amounts.messages * plan.share))
    spans: list[Span] = []
    with Team(broker.environment()) as team:
        workers = [team.start(work, *args) for work, args in plan.works(address, name, count, amounts.size_bytes)]
        for worker in workers:
            worker.wait_ready()
        used = _used(hosts)
        for worker in workers:
            worker.go()
        spans = [worker.result() for worker in workers]
        used = _used(hosts) - used
    *consumers, producer = spans
    seconds = (max(span["ended_ns"] for span in consumers) - producer["began_ns"]) / 1e9
    deliveries = count * max(1, plan.copies)
    cpu = [producer["cpu_s"], sum(span["cpu_s"] for span in consumers), used]
    note = "CPU µs a delivery: producer {:.2f}, consumers {:.2f}, host {:.2f}".format(
        *(value * 1e6 / deliveries for value in cpu)
    )
    return Reading(broker.name, plan.key, deliveries / seconds, round_no, note)


def _used(processes: list[Any]) -> float:
    """Processor seconds of these processes so far."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)
