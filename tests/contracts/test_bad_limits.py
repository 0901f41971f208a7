"""What cannot be of limits, quotas, thresholds and stores is refused, with its name, the reason and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import BrokerError, ConfigError, IllegalStateError, StoreDamagedError, StoreError
from tests.contracts.conftest import FILES, MakeBroker, OneStore
from tests.contracts.handles import create

ATTRIBUTES: list[tuple[dict[str, Any], str]] = [
    ({"maxNumMsgs": -2}, "maxNumMsgs = -2 is too small"),
    ({"maxTotalMsgBytes": "10kb"}, "maxTotalMsgBytes: '10kb' is not a size"),
    ({"maximumMessageSize": -2}, "maximumMessageSize: -2 is not a size: the only negative one is -1"),
    ({"MaximumMessageSize": 5}, "it is the destination attribute maximumMessageSize"),
    ({"maxBytesPerMsg": 10, "maximumMessageSize": 9}, "would never be reached: maximumMessageSize"),
    ({"limitBehavior": "DROP"}, "one of REJECT_NEWEST, FLOW_CONTROL, REMOVE_OLDEST, REMOVE_LOW_PRIORITY"),
    ({"messagesLow": 3}, "messagesLow = 3 is nothing without messagesHigh"),
    ({"messagesHigh": 3}, "messagesHigh = 3 needs messagesLow below it"),
    ({"messagesHigh": 3, "messagesLow": 3}, "needs messagesLow below it"),
    ({"messagesHigh": 9, "messagesLow": 1, "maxNumMsgs": 8}, "would never be reached: maxNumMsgs is 8"),
    ({"bytesHigh": 9, "bytesLow": 1, "maxTotalMsgBytes": 8}, "would never be reached: maxTotalMsgBytes is 8"),
    ({"quota": "none"}, "there is no quota 'none'"),
    ({"quota": "a b"}, "quota name 'a b'"),
]
PROPERTIES: list[tuple[dict[str, Any], str]] = [
    ({"imq.system.max_count": -2}, "imq.system.max_count = -2 is too small"),
    ({"imq.system.max_size": "10kb"}, "imq.system.max_size: '10kb' is not a size"),
    ({"raybroker.system.blockingSendPolicy": "LIFO"}, "one of FIFO, Preemptive"),
    (
        {"raybroker.system.messagesThresholdHigh": 5, "raybroker.system.messagesThresholdLow": 6},
        "messagesThresholdLow = 6 is more than raybroker.system.messagesThresholdHigh = 5",
    ),
    (
        {"raybroker.system.messagesThresholdHigh": 10, "imq.system.max_count": 9},
        "messagesThresholdHigh = 10 would never be reached: imq.system.max_count is 9",
    ),
    (
        {"raybroker.system.bytesThresholdHigh": "2k", "imq.system.max_size": "1k"},
        "bytesThresholdHigh = 2048 would never be reached: imq.system.max_size is 1024",
    ),
    ({"imq.yellow.threshold": 95}, "imq.yellow.threshold = 95 is more than imq.orange.threshold = 90"),
    ({"imq.green.threshold": 81}, "imq.green.threshold = 81 is more than imq.yellow.threshold = 80"),
    ({"imq.resource_state.threshold": "0/90/80/98"}, "yellow.threshold = 90 is more than imq.orange.threshold = 80"),
    ({"imq.red.threshold": 101}, "imq.red.threshold = 101 is too large; allowed: 0 to 100 %"),
    ({"imq.resource_state.threshold": "0/80/90"}, "is not one number for each of 4 levels"),
    ({"imq.green.count": 0}, "imq.green.count = 0 is too small"),
    ({"imq.persist.file.txnLog.groupCommit": True}, "there is no choice: transactions are in the journal"),
    ({"StoreMessageCompressionEnabled": True}, "it is raybroker.store.message_compression_enabled"),
    ({"PagingMessageCompressionEnabled": True}, "it is raybroker.paging.message_compression_enabled"),
    ({"raybroker.store.message_compression_enabled": "maybe"}, "allowed: true or false"),
]


@pytest.mark.parametrize(("attributes", "told"), ATTRIBUTES)
@pytest.mark.parametrize("make_broker", ["memory"], indirect=True)
def test_an_attribute_that_cannot_be_is_refused_at_a_creation_and_a_change_and_changes_nothing(
    make_broker: MakeBroker, attributes: dict[str, Any], told: str
) -> None:
    broker = make_broker()
    connection, name = broker.connect(), broker.name()
    admin = connection.admin()
    with pytest.raises(ConfigError) as caught:
        create(connection, name, **attributes)
    assert told in str(caught.value)
    assert name not in {row["name"] for row in admin.list_destinations()}
    create(connection, name)
    before = admin.query_destination("queue", name)["attributes"]
    with pytest.raises(ConfigError) as caught:
        admin.update_destination("queue", name, **attributes)
    assert told in str(caught.value)
    assert admin.query_destination("queue", name)["attributes"] == before


@pytest.mark.parametrize(("properties", "told"), PROPERTIES)
def test_a_property_that_cannot_be_is_refused_at_the_start_and_while_it_runs(
    properties: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        rb.loopback(properties=properties)
    assert told in str(caught.value)
    with rb.loopback() as connection:
        with pytest.raises(ConfigError) as caught:
            connection.admin().update_broker(properties)
        assert told in str(caught.value)
        connection.session().producer("q").send("as before")


@pytest.mark.parametrize("make_broker", ["memory"], indirect=True)
def test_a_quota_is_not_destroyed_under_its_users_and_has_no_policy_that_nobody_knows(make_broker: MakeBroker) -> None:
    broker = make_broker()
    connection = broker.connect()
    admin = connection.admin()
    admin.create_quota("q", MessagesMaximum=1)
    name = create(connection, broker.name(), quota="q")
    for call, error, told in (
        (lambda: admin.destroy_quota("q"), IllegalStateError, f"quota 'q' is in use by queue {name}"),
        (lambda: admin.update_quota("q", Policy="LIFO"), ConfigError, "FIFO"),
        (lambda: admin.update_quota("q", BytesMaximum="1kb"), ConfigError, "BytesMaximum"),
        (lambda: admin.update_quota("q", Shared=False), ConfigError, "Shared is fixed"),
    ):
        with pytest.raises(error) as caught:
            call()
        assert told in str(caught.value)
    assert admin.query_quota("q")["attributes"]["MessagesMaximum"] == 1
    connection.session().producer(name).send("it holds on")


@FILES
def test_a_store_of_a_newer_release_or_that_others_may_read_is_not_opened(store: OneStore, tmp_path: Path) -> None:
    connection = store.open().connect()
    connection.session().producer("q").send("kept")
    connection.close()
    store.close()
    (manifest,) = tmp_path.rglob("manifest.0")
    directory = manifest.parent
    kept = {name: (directory / name).read_bytes() for name in ("manifest.0", "manifest.1")}

    def refused(error: type[BrokerError], told: str) -> None:
        with pytest.raises(error) as caught:
            rb.loopback(directory)
        assert told in str(caught.value)

    for name in kept:
        with (directory / name).open("r+b") as file:
            file.write(b"RBmanif9")
    refused(StoreDamagedError, "format '9', of a newer release")
    for name, data in kept.items():
        (directory / name).write_bytes(data)
    directory.chmod(0o755)
    refused(StoreError, str(directory))
    directory.chmod(0o700)
    with rb.loopback(directory) as again:
        message = again.session().receive("q", timeout=60)
        assert message is not None
        assert message.body == "kept"
