"""A cluster under load of every kind, so that nothing that is measured stays at nothing."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from raybroker.errors import BrokerError

PAUSE_S = 0.02
"""Between two turns of a load: it shall be alive, not fast."""


class Load:
    """Runs what is given, each in a thread and with a connection of its own, until it is stopped."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._stages: dict[bool, tuple[threading.Event, list[threading.Thread]]] = {
            stays: (threading.Event(), []) for stays in (False, True)
        }
        self.failures: list[BaseException] = []

    def run(self, work: Callable[[Any], Iterator[None]], broker: str, *, stays: bool = False) -> None:
        """``stays``: it ends after the others, which may need it to end."""
        over, threads = self._stages[stays]

        def loop() -> None:
            import raybroker as rb

            try:
                with rb.connect(cluster=self._cluster, broker=broker, client_id=work.__name__) as connection:
                    for _ in work(connection):
                        if over.wait(PAUSE_S):
                            return
            except BaseException as error:  # noqa: BLE001 - the test shows it
                self.failures.append(error)

        thread = threading.Thread(target=loop, name=work.__name__, daemon=True)
        thread.start()
        threads.append(thread)

    def stop(self) -> None:
        for over, threads in self._stages.values():
            over.set()
            for thread in threads:
                thread.join(30)
                assert not thread.is_alive(), thread.name


def destinations(admin: Any) -> None:
    """What the works below use."""
    for name, attributes in {
        "orders": {"consumerFlowLimit": 50},
        "full": {"maxNumMsgs": 100, "limitBehavior": "FLOW_CONTROL"},
        "small": {"maxNumMsgs": 5},
        "short": {},
        "failing": {"redeliveryLimit": 1},
        "once": {"duplicateWindowMs": 60_000},
        "units": {"unitOfOrderRouting": "PathService"},
    }.items():
        admin.create_destination("queue", name, hosting="shared", **attributes)
    admin.create_destination("topic", "prices", hosting="shared")
    admin.create_quota("roomy", MessagesMaximum=10_000_000, BytesMaximum="1024m")
    admin.create_destination("queue", "still", hosting="shared", quota="roomy")
    admin.pause_destination("queue", "still")


def sender(connection: Any) -> Iterator[None]:
    session = connection.session()
    orders, prices = session.producer("orders"), session.producer(session.topic("prices"))
    later = session.producer("orders", delivery_delay_ms=1500)
    while True:
        orders.send_many([b"x" * 300] * 40)
        prices.send_many([b"y" * 50] * 10)
        later.send(b"later")
        yield


def taker(connection: Any) -> Iterator[None]:
    session = connection.session(ack="client")
    orders = session.consumer("orders")
    prices = session.durable_consumer(session.topic("prices"), "audit")
    while True:
        for consumer in (orders, prices):
            taken = consumer.receive_many(max=25, timeout=0.05)
            if taken:
                taken[-1].acknowledge()
        yield


def slow(connection: Any) -> Iterator[None]:
    """Takes from a destination only while that is full: it fills up again and again however slow its producer is, which
    has one message under way at a time there."""
    session, admin = connection.session(ack="client"), connection.admin()
    consumer = session.consumer("full", prefetch=20)
    while True:
        if admin.query_destination("queue", "full")["throttled"]:
            taken = consumer.receive_many(max=5, timeout=0.2)
            if taken:
                taken[-1].acknowledge()
        yield


SETTINGS = {
    "imq.message.expiration.interval": 1,
    "raybroker.metrics.cache_ms": 200,
    "imq.system.max_count": 10_000_000,
    "imq.system.max_size": "10240m",
}
"""Of the broker, for this load: expired messages are looked for soon, scrapes a second apart are not the same, and
limits of the broker, which nothing comes near, have figures."""


def filler(connection: Any) -> Iterator[None]:
    producer = connection.session().producer("full")
    while True:
        producer.send_many([b"z" * 100] * 150)
        yield


def trouble(connection: Any) -> Iterator[None]:
    """Refused, expired, failed, twice."""
    session = connection.session()
    small, short, failing, once = (session.producer(name) for name in ("small", "short", "failing", "once"))
    taker_of_failing = connection.session(ack="client").consumer("failing")
    turn = 0
    while True:
        turn += 1
        with contextlib.suppress(BrokerError):
            small.send(b"refused when five are there")
        short.send(b"gone soon", ttl_ms=1)
        failing.send(b"poison")
        once.send(b"the same", dedup_id="the same")
        for message in taker_of_failing.receive_many(max=10, timeout=0.05):
            message.fail(delay_ms=0)
        yield


def transacted(connection: Any) -> Iterator[None]:
    session = connection.session(transacted=True)
    producer = session.producer("orders")
    while True:
        for end in (session.commit, session.rollback):
            producer.send(b"in a transaction")
            yield
            end()


def ordered(connection: Any) -> Iterator[None]:
    session = connection.session(ack="client")
    producers = [session.producer("units", unit_of_order=f"customer{n}") for n in range(12)]
    consumer = session.consumer("units")
    while True:
        for number, producer in enumerate(producers):
            for _ in range(1 + number % 3):
                producer.send(b"in order")
        taken = consumer.receive_many(max=30, timeout=0.05)
        if taken:
            taken[-1].acknowledge()
        yield


@contextlib.contextmanager
def loaded(cluster: str, brokers: list[str]) -> Iterator[Load]:
    """Everything at once, from the homes of two brokers."""
    import raybroker as rb

    with rb.connect(cluster=cluster) as connection:
        destinations(connection.admin())
    load = Load(cluster)
    first, last = brokers[0], brokers[-1]
    for work, broker in ((taker, last), (slow, first)):
        load.run(work, broker, stays=True)
    for work, broker in ((sender, first), (filler, first), (trouble, first), (transacted, last), (ordered, first)):
        load.run(work, broker)
    try:
        yield load
    finally:
        load.stop()
