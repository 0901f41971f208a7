"""What somebody meets who begins: names, context managers, creating what is there, warnings for what does nothing."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import BrokerError, ConfigError, InvalidDestinationError
from raybroker.model.settings.settings import lookup
from tests.contracts.handles import WAIT_S, LoopbackBroker, state_of

MEMORY = pytest.mark.parametrize("make_broker", ["memory"], indirect=True)


def test_the_package_lists_its_lazy_names_and_has_a_version_without_importing_ray() -> None:
    assert {"start", "deploy", "connect", "__version__"} <= set(dir(rb))
    assert rb.__version__[0].isdigit()
    program = "import sys, raybroker as rb; dir(rb), rb.__version__; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_destination_that_exists_is_refused_kept_or_updated(broker: LoopbackBroker) -> None:
    admin, name = broker.connect().admin(), broker.name()

    def limit() -> Any:
        return admin.query_destination("queue", name)["attributes"]["maxNumMsgs"]

    assert admin.create_destination("queue", name, maxNumMsgs=5) == "created"
    with pytest.raises(InvalidDestinationError, match="exists already"):
        admin.create_destination("queue", name, maxNumMsgs=6)
    assert (admin.create_destination("queue", name, if_exists="keep", maxNumMsgs=7), limit()) == ("kept", 5)
    assert (admin.create_destination("queue", name, if_exists="update", maxNumMsgs=8), limit()) == ("updated", 8)
    assert (admin.create_destination("queue", name, if_exists="update"), limit()) == ("updated", 8)
    with pytest.raises(ConfigError, match="if_exists='replace'"):
        admin.create_destination("queue", name, if_exists="replace")
    for if_exists in ("keep", "update"):
        with pytest.raises(InvalidDestinationError, match="blank"):
            admin.create_destination("queue", "a b", if_exists=if_exists)
        with pytest.raises(ConfigError, match="maxNumMsg"):
            admin.create_destination("queue", broker.name(), if_exists=if_exists, maxNumMsg=1)


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("redeliveryDelay", "redeliveryDelayOverride"),
        ("redeliveryDelay", "redeliveryDelayMax"),
        ("maxNumMsg", "maxNumMsgs"),
        ("consumerflowlimit", "consumerFlowLimit"),
        ("limitBehaviour", "limitBehavior"),
    ],
)
def test_an_unknown_attribute_is_answered_with_the_nearest_ones(wrong: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"'{near}'"):
        lookup(wrong, "destination")


class BoomError(Exception):
    """A failure of the application."""


@MEMORY
@pytest.mark.parametrize("ack", ["auto", "dups_ok"])
@pytest.mark.parametrize("of", ["connection", "session"])
def test_leaving_by_an_exception_does_not_acknowledge_the_message_in_hand(
    broker: LoopbackBroker, ack: str, of: str
) -> None:
    name = broker.name()
    broker.connect().session().producer(name).send_many(["first", "second"])

    def fail(connection: Any) -> None:
        session = connection.session(ack)
        with connection if of == "connection" else session:
            assert session.consumer(name).receive(WAIT_S).body == "first"
            raise BoomError

    with pytest.raises(BoomError):
        fail(broker.connect())
    again = broker.connect().session()
    message = again.consumer(name).receive(WAIT_S)
    assert (message.body, message.redelivered) == ("first", True)


@MEMORY
def test_leaving_a_session_acknowledges_and_closes_it(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    with connection.session() as session:
        session.producer(name).send("x")
        assert session.consumer(name).receive(WAIT_S).body == "x"
    assert session.closed
    assert state_of(connection, name)["messages"] == 0
    with connection.session(transacted=True) as session:
        session.producer(name).send("not committed")
    assert state_of(connection, name)["messages"] == 0


def warnings_of(caplog: pytest.LogCaptureFixture, word: str) -> list[str]:
    """Warnings of the client with this word in them; a producer of an earlier test may say something, too."""
    warnings = [r for r in caplog.records if r.name == "raybroker.client" and r.levelno == logging.WARNING]
    return [text for record in warnings if word in (text := record.getMessage())]


@MEMORY
def test_a_prefetch_above_the_limit_says_what_it_gets_once(
    broker: LoopbackBroker, caplog: pytest.LogCaptureFixture
) -> None:
    session, name = broker.connect().session(), broker.name()
    session.consumer(name)
    session.consumer(name, prefetch=1000)
    assert warnings_of(caplog, "consumerFlowLimit") == []
    session.consumer(name, prefetch=2147483647)
    (text,) = warnings_of(caplog, "consumerFlowLimit")
    assert "gets 1000" in text
    assert "consumerFlowLimit" in text


def test_a_deduplication_id_that_nothing_looks_at_says_so_once(
    broker: LoopbackBroker, caplog: pytest.LogCaptureFixture
) -> None:
    connection, name, checked = broker.connect(), broker.name(), broker.name()
    connection.admin().create_destination("queue", checked, duplicateWindowMs=60_000)
    session = connection.session()
    session.producer(checked).send("x", dedup_id="1")
    session.producer(name).send("x")
    assert warnings_of(caplog, "duplicateWindowMs") == []
    producer = session.producer(name)
    for number in range(3):
        producer.send("x", dedup_id=str(number))
        producer.send_async("x", dedup_id=str(number)).result(WAIT_S)
    (text,) = warnings_of(caplog, "duplicateWindowMs")
    assert f"-n {name} -o duplicateWindowMs=" in text


@MEMORY
def test_errors_name_no_rows_of_a_specification(broker: LoopbackBroker) -> None:
    connection = broker.connect()
    session = connection.session()
    session.consumer("orders").on_message(print)
    for call in (
        lambda: session.consumer("orders").receive_nowait(),
        lambda: session.browser("topic:t"),
        lambda: session.xa,
        lambda: setattr(connection, "client_id", "late"),
        lambda: session.durable_consumer("queue:orders", "n"),
    ):
        with pytest.raises(BrokerError) as caught:
            call()
        assert not any(f"({letter}" in str(caught.value) for letter in "ABCDFKPRTW"), caught.value
