"""What a queue whose log has copies takes with it to its next leader, all in one; the rest of the contract tests run
over copies with ``-m long -k "copied or copies"``."""

from __future__ import annotations

from typing import Any

import pytest

import raybroker as rb
from raybroker.client.session.xa import TMSUCCESS, XA_OK
from raybroker.errors import MessageTooLargeError
from raybroker.model.bounds import MESSAGE_BYTES_MAX
from raybroker.model.sizes import MIB
from tests.contracts.conftest import OneStore
from tests.contracts.handles import bodies, create, nothing, state_of, take

COPIES = pytest.mark.parametrize("store", ["copies"], indirect=True)
XID = rb.Xid(1, b"global", b"branch")
LATER_MS = 400


def prepare(session: Any) -> None:
    """A branch that has taken one message and sent another one, and waits for its manager."""
    session.xa.start(XID)
    session.producer("given").send("out")
    take(session.consumer("taken"), 1)
    session.xa.end(XID, TMSUCCESS)
    assert session.xa.prepare(XID) == XA_OK


@COPIES
def test_what_a_queue_has_goes_on_at_the_next_leader(store: OneStore) -> None:
    broker = store.open()
    connection, sessions = broker.connect(), broker.connect(xa=True)
    connection.session().producer("taken").send("in")
    prepare(sessions.session())
    create(connection, "once", duplicateWindowMs=60_000)
    work = connection.session(ack="client")
    work.producer("once").send("42 EUR", dedup_id="order-7")
    for number in range(3):
        work.producer("units").send(number, unit_of_order="a")
    assert bodies(take(work.consumer("units"), 1)) == [0]
    work.producer("late").send("late", delivery_delay_ms=LATER_MS)
    work.producer("often").send("tick", schedule="@every 1s")
    half = connection.session(transacted=True)
    half.producer("once").send("never")

    broker = store.crash()
    connection, sessions = broker.connect(), broker.connect(xa=True)
    work = connection.session(ack="client")
    assert list(sessions.session().xa.recover()) == [XID]
    given = work.consumer("given")
    assert nothing(given)
    sessions.session().xa.commit(XID)
    assert bodies(take(given, 1)) == ["out"]
    assert state_of(connection, "taken")["messages"] == 0
    once = work.producer("once")
    once.send("42 EUR", dedup_id="order-7")
    assert once.duplicates == 1
    assert bodies(take(work.consumer("once"), 1)) == ["42 EUR"]
    first, *others = take(work.consumer("units"), 3)
    assert [first.body, *bodies(others)] == [0, 1, 2]
    assert first.redelivered
    assert bodies(take(work.consumer("late"), 1)) == ["late"]
    assert bodies(take(work.consumer("often"), 1)) == ["tick"]


@COPIES
def test_a_large_body_goes_whole_and_the_limit_is_named(store: OneStore) -> None:
    unlimited = dict.fromkeys(("maxBytesPerMsg", "maxTotalMsgBytes"), -1)
    connection = store.open().connect()
    create(connection, "large", **unlimited)
    producer = connection.session().producer("large")
    body = bytes(3 * MIB + 17)
    producer.send(body)
    with pytest.raises(MessageTooLargeError, match=str(MESSAGE_BYTES_MAX)):
        producer.send(bytes(MESSAGE_BYTES_MAX + 1))
    again = store.crash().connect().session()
    (message,) = take(again.consumer("large"), 1)
    assert message.body == body
