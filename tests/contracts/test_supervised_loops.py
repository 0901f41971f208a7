"""A loop of a broker that ends is logged, shown by its checks, and runs again."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from raybroker.broker.observing.metrics_topics import Publishing
from raybroker.errors import ConfigError
from tests.contracts.conftest import ONE_FACE, MakeBroker
from tests.contracts.handles import until

T = TypeVar("T")


def those_made(monkeypatch: pytest.MonkeyPatch, kind: type[T]) -> list[T]:
    """The objects of a class that are made from now on: other brokers of this process are to have no fault."""
    made: list[T] = []
    begin: Any = kind.__init__

    def noted(self: T, *args: Any, **options: Any) -> None:
        made.append(self)
        begin(self, *args, **options)

    monkeypatch.setattr(kind, "__init__", noted)
    return made


@ONE_FACE
def test_metrics_go_on_after_their_publisher_has_failed(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    publish, failed = Publishing.publish, []
    made = those_made(monkeypatch, Publishing)

    async def once_broken(self: Publishing, *, demand: bool = False) -> int:
        if not failed and any(self is one for one in made):
            failed.append(True)
            raise KeyError(("topic", "mq.metrics.broker"))
        return await publish(self, demand=demand)

    monkeypatch.setattr(Publishing, "publish", once_broken)
    connection = make_broker(imq__metrics__topic__interval=1).connect()
    admin, session = connection.admin(), connection.session()
    consumer = session.consumer(session.topic("mq.metrics.broker"))
    connection.start()

    def loops() -> list[dict[str, object]]:
        return [row for row in admin.check_broker() if row["check"] == "loops"]

    assert [row["grade"] for row in loops()] == ["ok"]
    assert consumer.receive(10) is not None
    assert consumer.receive(10) is not None
    assert failed
    (row,) = loops()
    assert row["grade"] == "warning"
    assert "its loop 'metrics topics' ended" in str(row["text"])
    assert "KeyError" in str(row["text"])
    (line,) = [record for record in caplog.records if "[B3174]" in record.getMessage()]
    assert line.exc_info is not None


@ONE_FACE
def test_a_host_tells_its_broker_what_ended_there(make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    from raybroker.engine.host import Host

    tick, failed = Host.tick, []
    made = those_made(monkeypatch, Host)

    def once_broken(self: Host) -> None:
        if not failed and any(self is one for one in made):
            failed.append(True)
            raise ConfigError("a fault of the test")
        tick(self)

    broker = make_broker()
    admin = broker.connect().admin()
    monkeypatch.setattr(Host, "tick", once_broken)
    until(lambda: bool(failed))
    until(lambda: any("'ticks'" in row["text"] for row in admin.check_broker() if row["check"] == "loops"))
    admin.create_destination("queue", "q")  # The host goes on.
