"""What an administrator finds in the log of a broker and of its hosts."""

from __future__ import annotations

import pytest

from raybroker.errors import QuotaExceededError
from tests.contracts.conftest import ONE_FACE, MakeBroker
from tests.contracts.handles import until


def told(caplog: pytest.LogCaptureFixture, code: str, name: str) -> list[str]:
    found = (record.getMessage() for record in caplog.records)
    return [text for text in found if text.startswith(f"[{code}]") and name in text]


@ONE_FACE
def test_destinations_come_change_and_go(make_broker: MakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="raybroker"):
        connection = make_broker().connect()
        admin = connection.admin()
        admin.create_destination("queue", "orders", maxNumMsgs=7)
        connection.session().producer("made.by.use").send("x")
        connection.session().temporary_queue()
        admin.update_destination("queue", "orders", maxNumMsgs=8)
        admin.destroy_destination("queue", "orders")
        assert len(told(caplog, "B1131", "queue orders was created by an administrator, on host ")) == 1
        assert len(told(caplog, "B1131", "queue made.by.use was created automatically, on host ")) == 1
        assert told(caplog, "B1133", "orders") == ["[B1133] queue orders was changed: maxNumMsgs=8"]
        assert told(caplog, "B1132", "") == ["[B1132] queue orders was destroyed, with its messages"]
        assert told(caplog, "B1131", "temporary") == []


@ONE_FACE
def test_a_quota_that_is_reached_is_one_line(make_broker: MakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    connection = make_broker().connect()
    connection.admin().create_destination("queue", "small", maxNumMsgs=1, limitBehavior="REJECT_NEWEST")
    producer = connection.session().producer("small")
    producer.send("a")
    for _ in range(50):
        with pytest.raises(QuotaExceededError):
            producer.send("b")
    until(lambda: bool(told(caplog, "B2147", "small")))
    (line,) = told(caplog, "B2147", "small")
    assert "messages (quota_exceeded): destination small holds its maxNumMsgs=1" in line


@ONE_FACE
def test_who_connects_and_who_goes(make_broker: MakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="raybroker"):
        connection = make_broker().connect(client_id="billing")
        connection.session().producer("q").send("x")
        assert told(caplog, "B1065", "client 'billing'")
        connection.close()
        until(lambda: len(told(caplog, "B1066", "client 'billing'")) == len(told(caplog, "B1065", "client 'billing'")))
