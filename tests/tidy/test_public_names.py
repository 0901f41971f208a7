"""The public names, as users and other people's programs write them: none goes missing, none appears by accident."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

PUBLIC = frozenset(
    {
        "start",
        "connect",
        "connect_xa",
        "lookup",
        "loopback",
        "overrides",
        "ConnectionFactory",
        "Xid",
        "listener",
        "deploy",
        "aio",
        "errors",
        "Admin",
        "Batch",
        "Browser",
        "Cluster",
        "Connection",
        "ConnectionEvent",
        "Consumer",
        "ConsumerEvent",
        "Destination",
        "Listener",
        "Message",
        "NamedPool",
        "Pool",
        "Producer",
        "ProducerOptions",
        "Queue",
        "SendOptions",
        "Session",
        "TemporaryQueue",
        "TemporaryTopic",
        "Topic",
        "XaConnection",
        "pool",
        "pools",
        "ref",
    }
)
"""What ``import raybroker as rb`` promises in this version.  A name that is added is added here too."""

ERRORS = frozenset(
    {
        "BrokerError",
        "NoClusterError",
        "ConnectionLostError",
        "IllegalStateError",
        "InvalidClientIDError",
        "InvalidDestinationError",
        "InvalidSelectorError",
        "MessageFormatError",
        "SecurityError",
        "ResourceAllocationError",
        "QuotaExceededError",
        "MessageTooLargeError",
        "DestinationPausedError",
        "MasterUnavailableError",
        "TransactionRolledBackError",
        "TransactionInProgressError",
        "OrderError",
        "StoreError",
        "ConfigError",
        "ListenerError",
    }
)
AIO = frozenset({"ConnectionFactory", "connect", "connect_xa", "lookup", "loopback"})

CONNECTION = frozenset(
    {
        "session",
        "start",
        "stop",
        "close",
        "admin",
        "on_exception",
        "on_event",
        "on_consumer_event",
        "client_id",
        "__enter__",
        "__exit__",
    }
)
SESSION = frozenset(
    {
        "queue",
        "topic",
        "temporary_queue",
        "temporary_topic",
        "producer",
        "consumer",
        "durable_consumer",
        "shared_consumer",
        "shared_durable_consumer",
        "unsubscribe",
        "browser",
        "request",
        "receive",
        "recover",
        "commit",
        "rollback",
        "close",
        "__enter__",
        "__exit__",
    }
)
PRODUCER = frozenset(
    {
        "send",
        "send_async",
        "send_many",
        "close",
        "disable_message_id",
        "disable_message_timestamp",
    }
)
CONSUMER = frozenset({"receive", "receive_nowait", "receive_many", "on_message", "close", "__iter__"})
MESSAGE = frozenset(
    {
        "id",
        "body",
        "properties",
        "destination",
        "timestamp",
        "expiration",
        "priority",
        "persistent",
        "redelivered",
        "delivery_count",
        "correlation_id",
        "reply_to",
        "type",
        "unit_of_order",
        "acknowledge",
        "acknowledge_this",
        "acknowledge_up_to",
        "reject",
        "release",
        "fail",
        "extend",
        "body_type",
        "reply",
    }
)
ADMIN = frozenset(
    {
        "create_destination",
        "destroy_destination",
        "update_destination",
        "list_destinations",
        "query_destination",
        "purge_destination",
        "pause_destination",
        "resume_destination",
        "list_consumers",
        "query_consumer",
        "list_subscriptions",
        "destroy_subscription",
        "purge_subscription",
        "list_schedules",
        "query_schedule",
        "destroy_schedule",
        "list_transactions",
        "query_transaction",
        "commit_transaction",
        "rollback_transaction",
        "browse_messages",
        "delete_messages",
        "move_messages",
        "metrics",
        "retry_messages",
        "skip_messages",
        "export_messages",
        "import_messages",
        "create_template",
        "list_templates",
        "destroy_template",
        "list_brokers",
        "query_cluster",
        "reload_cluster",
        "change_master",
        "backup_record",
        "adopt_destination",
    }
)


def export_faults(module: ModuleType, promised: frozenset[str], *, exact: bool) -> list[str]:
    """What is wrong with the names that a module exports."""
    exported = frozenset(getattr(module, "__all__", ()))
    faults = [f"{module.__name__} does not export {name}" for name in sorted(promised - exported)]
    dangling = sorted(name for name in exported if not hasattr(module, name))
    faults += [f"{module.__name__} lacks the {name} it exports" for name in dangling]
    if exact:
        faults += [f"{module.__name__} exports {name}, which is in no list" for name in sorted(exported - promised)]
    return faults


def missing_members(thing: object, promised: frozenset[str]) -> list[str]:
    return [f"{type(thing).__name__} has no {name}" for name in sorted(promised) if not hasattr(type(thing), name)]


def test_the_package_exports_the_promised_names_and_no_others() -> None:
    assert export_faults(importlib.import_module("raybroker"), PUBLIC, exact=True) == []


def test_all_promised_errors_can_be_caught() -> None:
    assert export_faults(importlib.import_module("raybroker.errors"), ERRORS, exact=False) == []


def test_aio_has_the_same_entrances() -> None:
    assert export_faults(importlib.import_module("raybroker.aio"), AIO, exact=False) == []


def test_the_handles_have_the_promised_members() -> None:
    with importlib.import_module("raybroker").loopback() as connection:
        session = connection.session(ack="client")
        queue = session.queue("orders")
        producer = session.producer(queue)
        consumer = session.consumer(queue)
        producer.send("hello")
        message = consumer.receive(timeout=10)
        handles = (
            (connection, CONNECTION),
            (session, SESSION),
            (producer, PRODUCER),
            (consumer, CONSUMER),
            (message, MESSAGE),
            (connection.admin(), ADMIN),
        )
        assert [fault for thing, promised in handles for fault in missing_members(thing, promised)] == []


def test_a_missing_a_dangling_and_an_unlisted_name_are_found() -> None:
    module = ModuleType("sample")
    module.__dict__.update(__all__=["connect", "gone", "helper"], connect=1, helper=2)
    assert export_faults(module, frozenset({"connect", "start", "gone"}), exact=True) == [
        "sample does not export start",
        "sample lacks the gone it exports",
        "sample exports helper, which is in no list",
    ]


@pytest.mark.parametrize("name", ["connect", "start"])
def test_a_module_without_exports_is_found(name: str) -> None:
    assert export_faults(ModuleType("empty"), frozenset({name}), exact=False) == [f"empty does not export {name}"]


def test_a_handle_that_lost_a_member_is_found() -> None:
    assert missing_members("text", frozenset({"upper", "acknowledge"})) == ["str has no acknowledge"]
