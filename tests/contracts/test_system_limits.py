"""The broker's own limits, imq.system.max_count and imq.system.max_size, as an application sees them."""

from __future__ import annotations

import threading

import pytest

from raybroker.errors import QuotaExceededError
from tests.contracts.conftest import MakeBroker
from tests.contracts.handles import WAIT_S, create, until


@pytest.mark.parametrize("make_broker", ["memory", "aio"], indirect=True)
def test_all_destinations_together_hold_as_much_as_the_broker_may_and_no_more(make_broker: MakeBroker) -> None:
    broker = make_broker(imq__system__max_count=3)
    connection = broker.connect(SendTimeout=5)
    session = connection.session()
    first, second = (create(connection, broker.name()) for _ in range(2))
    one, other = session.producer(first), session.producer(second)
    one.send("a"), one.send("b"), other.send("c")
    with pytest.raises(QuotaExceededError, match=r"imq\.system\.max_count=3"):
        other.send("d")
    events: list[str] = []
    connection.on_event(lambda event: events.append(event.code))
    other.send("e", persistent=False)
    until(lambda: events == ["quota_exceeded"])
    taken = connection.session(ack="client").receive(second, timeout=WAIT_S)
    assert taken.body == "c"
    taken.acknowledge()
    one.send("f")
    connection.admin().update_broker({"imq.system.max_count": -1, "imq.system.max_size": 5})
    one.send("g"), one.send("h")
    with pytest.raises(QuotaExceededError, match=r"imq\.system\.max_size=5"):
        one.send("i")
    limits = connection.admin().query_broker()["limits"]
    assert (limits["imq.system.max_size"], limits["messages"], limits["bytes"]) == (5, 5, 5)
    assert limits["refused"] == 3


@pytest.mark.parametrize("make_broker", ["sockets"], indirect=True)
def test_a_send_waits_while_others_consume_administer_and_close(make_broker: MakeBroker) -> None:
    broker = make_broker(imq__system__max_count=1)
    connection, name = broker.connect(SendTimeout=60_000), broker.name()
    create(connection, name)
    session = connection.session()
    producer = session.producer(name)
    producer.send("a")
    failures: list[BaseException] = []

    def send() -> None:
        try:
            producer.send("b")
        except BaseException as error:  # noqa: BLE001 - the test asserts that there is none
            failures.append(error)

    waiting = threading.Thread(target=send)
    waiting.start()
    other = connection.session()
    other.producer(name).close()
    assert connection.admin().query_destination("queue", name)["messages"] == 1
    assert [other.receive(name, timeout=WAIT_S).body for _ in range(2)] == ["a", "b"]  # The second confirms the first.
    waiting.join(WAIT_S)
    assert failures == []
