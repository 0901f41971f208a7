"""The table of properties: names and defaults of the seeds, bounds with helpful texts, attributes of destinations."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest

from raybroker.config import Config
from raybroker.model.errors import ConfigError
from raybroker.model.settings.setting_table import ALL, INSTEAD, LATER
from raybroker.model.settings.settings import (
    DestinationAttributes,
    PortRange,
    Scope,
    Setting,
    auto_created,
    check_attribute_names,
    dead_message_queue,
    destination_attributes,
    lookup,
    settings_of,
    updated_attributes,
)

SEEDS_DEFAULTS: dict[Scope, dict[str, str]] = {
    "broker": {
        "imq.message.max_size": "70m",
        "imq.persist.store": "file",
        "imq.autocreate.queue": "true",
        "imq.autocreate.destination.maxNumMsgs": "100000",
        "imq.autocreate.destination.maxTotalMsgBytes": "10m",
        "imq.autocreate.destination.maxBytesPerMsg": "10k",
        "imq.autocreate.destination.maxNumProducers": "100",
        "imq.autocreate.destination.limitBehavior": "REJECT_NEWEST",
        "imq.autocreate.destination.isLocalOnly": "false",
        "imq.autocreate.queue.maxNumBackupConsumers": "0",
        "imq.autocreate.queue.consumerFlowLimit": "1000",
        "imq.autocreate.queue.localDeliveryPreferred": "false",
        "imq.autocreate.reaptime": "120",
        "imq.autocreate.topic": "true",
        "imq.autocreate.topic.consumerFlowLimit": "1000",
        "imq.autocreate.topic.sharedConsumerFlowLimit": "5",
        "imq.admincreate.topic.sharedConsumerFlowLimit": "5",
        "imq.autocreate.destination.useDMQ": "true",
        "imq.message.expiration.interval": "60",
        "imq.destination.DMQ.truncateBody": "false",
        "imq.destination.logDeadMsgs": "false",
        "imq.transaction.autorollback": "false",
        "imq.transaction.producer.maxNumMsgs": "1000",
        "imq.transaction.consumer.maxNumMsgs": "100",
        "imq.transaction.message.maxConsecutiveRollbacks": "0",
        "imq.txn.reapLimit": "500",
    },
    "destination": {
        "maxNumMsgs": "-1",
        "maxTotalMsgBytes": "-1",
        "maxBytesPerMsg": "-1",
        "limitBehavior": "REJECT_NEWEST",
        "maxNumProducers": "100",
        "maxNumActiveConsumers": "-1",
        "maxNumBackupConsumers": "0",
        "consumerFlowLimit": "1000",
        "isLocalOnly": "false",
        "localDeliveryPreferred": "false",
        "sharedConsumerFlowLimit": "5",
        "useDMQ": "true",
        "errorDestination": "",
        "expirationLoggingPolicy": "",
        "redeliveryDelayOverride": "-1",
        "timeToLiveOverride": "-1",
        "timeToDeliverOverride": "-1",
        "priorityOverride": "-1",
        "deliveryModeOverride": "No-Delivery",
        "productionPausedAtStartup": "false",
        "insertionPausedAtStartup": "false",
        "consumptionPausedAtStartup": "false",
    },
    "factory": {
        "imqConsumerFlowLimit": "1000",
        "imqConsumerFlowThreshold": "50",
        "imqConsumerFlowLimitPrefetch": "true",
        "imqConnectionFlowLimit": "1000",
        "imqConnectionFlowLimitEnabled": "false",
        "imqAckTimeout": "0",
        "imqReconnectInterval": "1000",
        "imqPingInterval": "30",
        "imqQueueBrowserMaxMessagesPerRetrieve": "1000",
        "imqQueueBrowserRetrieveTimeout": "60000",
        "defaultTimeToLive": "0",
        "defaultTimeToDeliver": "0",
        "defaultRedeliveryDelay": "0",
        "defaultPriority": "4",
        "defaultDeliveryMode": "Persistent",
        "acknowledgePolicy": "All",
        "maxMessagesInTransaction": "1",
    },
}
DIFFERENT_ON_PURPOSE = {
    "imq.persist.file.sync.enabled": "true",
    "imq.autocreate.queue.maxNumActiveConsumers": "-1",
    "redeliveryLimit": "20",
    "expirationPolicy": "Default",
    "imq.ping.interval": "15",
    "imqConnectionFlowCount": "0",
    "imqReconnectEnabled": "true",
    "imqReconnectAttempts": "-1",
}


def by_name(name: str) -> Setting:
    return next(setting for setting in ALL if setting.name == name)


@pytest.mark.parametrize(
    ("scope", "name", "text"),
    [(scope, name, text) for scope, rows in SEEDS_DEFAULTS.items() for name, text in rows.items()],
)
def test_defaults_are_those_of_the_seeds(scope: Scope, name: str, text: str) -> None:
    setting = lookup(name, scope)
    assert setting.format(setting.default) == text


@pytest.mark.parametrize(("name", "text"), DIFFERENT_ON_PURPOSE.items())
def test_a_default_that_differs_from_the_seeds_says_why(name: str, text: str) -> None:
    setting = by_name(name)
    assert setting.format(setting.default) == text
    assert "MQ" in setting.help or "WebLogic" in setting.help


def test_a_name_stands_once_in_each_scope_and_once_in_a_configuration() -> None:
    assert len({(setting.scope, setting.name) for setting in ALL}) == len(ALL)
    configurable = [setting.name.upper() for setting in ALL if setting.scope != "destination"]
    assert len(set(configurable)) == len(configurable)
    assert not {setting.name for setting in ALL} & {*LATER, *INSTEAD}


@pytest.mark.parametrize("setting", ALL, ids=lambda setting: setting.name)
def test_every_row_is_whole(setting: Setting) -> None:
    assert setting.help
    assert setting.parse(setting.default) == setting.default
    assert setting.parse(setting.format(setting.default)) == setting.default
    assert bool(setting.choices) == (setting.kind == "enum")
    numeric = setting.kind in ("int", "size", "percent", "seconds", "millis")
    assert bool(setting.unit) == numeric
    assert (setting.low is not None and setting.high is not None) == (numeric or setting.kind == "levels")
    assert bool(setting.example) == (setting.kind == "levels")
    if numeric:
        low, high = setting.low or 0, setting.high or 0
        assert (setting.parse(low), setting.parse(high)) == (low, high)
        for outside in (high + 1, low - 1 if low != 0 or not setting.unlimited else -2):
            with pytest.raises(ConfigError, match=setting.name):
                setting.parse(outside)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("consumerFlowLimit", "2147483648", "allowed: 0 to 2147483647 messages, or -1 for no limit"),
        ("consumerFlowLimit", "-2", "too small"),
        ("consumerFlowLimit", "many", "not an integer"),
        ("consumerFlowLimit", 1.5, "not an integer"),
        ("consumerFlowLimit", True, "not an integer"),
        ("maxNumActiveConsumers", 0, "allowed: 1 to 2147483647 consumers, or -1"),
        ("imqConsumerFlowThreshold", 101, "allowed: 0 to 100 %"),
        ("imqConsumerFlowThreshold", -1, "allowed: 0 to 100 %"),
        ("imq.message.max_size", "71m", "allowed: 0 to 70m, or -1"),
        ("maxBytesPerMsg", "10kb", "not a size"),
        ("limitBehavior", "DROP", "allowed: one of REJECT_NEWEST, FLOW_CONTROL, REMOVE_OLDEST, REMOVE_LOW_PRIORITY"),
        ("priorityOverride", 10, "allowed: 0 to 9 priority, or -1 for no override"),
        ("timeToLiveOverride", -2, "or -1 for no override"),
        ("redeliveryBackoffPercent", 99, "allowed: 100 to 10000 %"),
        ("imq.transaction.message.maxConsecutiveRollbacks", -2, "or -1 for off"),
        ("expirationPolicy", "Keep", "one of Default, Discard, Log, Redirect"),
        ("deliveryModeOverride", "persist", "one of No-Delivery, Persistent, Non-Persistent"),
        ("imq.persist.store", "tape", "one of file, memory, sql, jdbc"),
        ("isLocalOnly", "maybe", "true or false"),
        ("isLocalOnly", 1, "true or false"),
        ("raybroker.store.dir", 7, "not a text"),
        ("raybroker.data.ports", "20999-20000", "range"),
        ("raybroker.data.ports", "70000", "range"),
        ("raybroker.data.ports", "0-5", "range"),
        ("raybroker.data.ports", True, "range"),
    ],
)
def test_a_bad_value_is_refused_with_the_property_and_what_is_allowed(name: str, value: Any, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        by_name(name).parse(value)
    assert name in str(caught.value)
    assert text in str(caught.value)


def test_values_may_be_written_as_text_or_typed() -> None:
    assert by_name("consumerFlowLimit").parse(" 20 ") == by_name("consumerFlowLimit").parse(20) == 20
    assert by_name("isLocalOnly").parse("False") is by_name("isLocalOnly").parse(False) is False
    assert by_name("limitBehavior").parse("reject_newest") == "REJECT_NEWEST"
    assert by_name("raybroker.data.ports").parse("20000-20999") == PortRange(20000, 20999)
    assert by_name("raybroker.data.ports").parse(0) == PortRange(0, 0)
    assert by_name("raybroker.data.ports").parse(PortRange(1, 2)) == PortRange(1, 2)


@pytest.mark.parametrize(
    ("name", "scope", "text"),
    [
        ("consumerFlowLimt", "destination", "the nearest is 'consumerFlowLimit'"),
        ("maxnummsgs", "destination", "the nearest is 'maxNumMsgs'"),
        ("imq.message.maxsize", "broker", "the nearest is 'imq.message.max_size'"),
        ("maxNumMsgs", "broker", "it is a destination attribute"),
        ("imq.persist.file.newTxnLog.enabled", "broker", "transactions are in the journal, which is a log of all"),
        ("imq.persist.file.txnLog.groupCommit", "broker", "which always commits in groups"),
        ("MaximumMessageSize", "destination", "of this broker: it is the destination attribute maximumMessageSize"),
        ("imq.txn.reapInterval", "broker", "of this version: what it belongs to is not built yet"),
        ("imq.cluster.hostname", "broker", "of this broker: brokers reach each other through Ray"),
        ("imq.shared.connectionMonitor_limit", "broker", "served by event loops"),
        ("zzz", "factory", "the nearest is"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(name: str, scope: Scope, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        lookup(name, scope)
    assert text in str(caught.value)


def test_the_attributes_are_the_rows_of_the_table() -> None:
    rows = {setting.name: setting.default for setting in settings_of("destination")}
    assert DestinationAttributes().as_dict() == rows
    assert list(rows) == [field.name for field in dataclasses.fields(DestinationAttributes)]


@pytest.mark.parametrize(
    ("type_", "name"),
    [
        ("topic", "maxNumActiveConsumers"),
        ("topic", "maxNumBackupConsumers"),
        ("topic", "localDeliveryPreferred"),
        ("queue", "sharedConsumerFlowLimit"),
    ],
)
def test_an_attribute_of_the_other_type_is_refused_by_name(type_: Any, name: str) -> None:
    other: Any = "queue" if type_ == "topic" else "topic"
    default = lookup(name, "destination").default
    value: object = True if default is False else 7
    with pytest.raises(ConfigError, match=f"{name} is an attribute of {other}s"):
        destination_attributes({name: value}, type=type_)
    with pytest.raises(ConfigError, match=f"{name} is an attribute of {other}s"):
        updated_attributes(DestinationAttributes(), {name: value}, type_)
    with pytest.raises(ConfigError, match=f"{name} is an attribute of {other}s"):
        check_attribute_names(["maxNumMsgs", name], type_)
    check_attribute_names(["maxNumMsgs", name], other)
    assert getattr(destination_attributes({name: value}, type=other), name) == value
    assert name not in DestinationAttributes().as_dict(type_)
    assert name in DestinationAttributes().as_dict(other)
    stored = DestinationAttributes().as_dict()
    assert destination_attributes(stored, type=type_) == DestinationAttributes()


def test_attributes_go_in_and_come_out_under_the_names_of_the_seeds() -> None:
    attributes = destination_attributes({"consumerFlowLimit": "20", "maxTotalMsgBytes": "10k", "isLocalOnly": "true"})
    assert (attributes.consumerFlowLimit, attributes.maxTotalMsgBytes, attributes.isLocalOnly) == (20, 10240, True)
    assert destination_attributes(attributes.as_dict()) == attributes
    assert pickle.loads(pickle.dumps(attributes)) == attributes
    with pytest.raises(ConfigError, match="nearest is 'maxNumMsgs'"):
        destination_attributes({"maxNumMsg": 1})


@pytest.mark.parametrize(("value", "limit"), [(-1, None), (0, None), (1, 1), (2147483647, 2147483647)])
def test_a_flow_limit_of_minus_one_or_zero_is_no_limit(value: int, limit: int | None) -> None:
    assert destination_attributes({"consumerFlowLimit": value}).consumer_flow_limit == limit


def test_an_update_changes_everything_but_what_is_fixed_at_creation() -> None:
    before = destination_attributes({"maxNumMsgs": 5})
    assert updated_attributes(before, {"maxNumMsgs": -1, "isLocalOnly": False}) == DestinationAttributes()
    for fixed in ({"isLocalOnly": True}, {"hosting": "shared"}, {"template": "fast"}):
        with pytest.raises(ConfigError, match="fixed when a destination is created"):
            updated_attributes(before, fixed)


def test_auto_created_queues_are_tighter_than_those_of_an_administrator() -> None:
    attributes = auto_created(Config.from_values())
    assert attributes == destination_attributes(
        {"maxNumMsgs": 100000, "maxTotalMsgBytes": "10m", "maxBytesPerMsg": "10k", "hosting": "shared"}
    )


def test_auto_created_destinations_follow_their_properties() -> None:
    config = Config.from_values(
        {
            "imq.autocreate.queue.consumerFlowLimit": 3,
            "imq.autocreate.queue.maxNumActiveConsumers": 1,
            "imq.autocreate.queue.localDeliveryPreferred": True,
        }
    )
    queue = auto_created(config)
    assert (queue.consumerFlowLimit, queue.maxNumActiveConsumers, queue.localDeliveryPreferred) == (3, 1, True)


def test_auto_created_topics_have_properties_of_their_own() -> None:  # D-21, D-27
    config = Config.from_values(
        {
            "imq.autocreate.topic.consumerFlowLimit": 3,
            "imq.autocreate.topic.sharedConsumerFlowLimit": 4,
            "imq.autocreate.queue.maxNumActiveConsumers": 1,
            "imq.autocreate.destination.useDMQ": False,
        }
    )
    topic = auto_created(config, "topic")
    assert (topic.consumerFlowLimit, topic.sharedConsumerFlowLimit, topic.useDMQ) == (3, 4, False)
    assert destination_attributes(topic.as_dict("topic"), type="topic") == topic
    plain = auto_created(Config.from_values(), "topic")
    assert (plain.consumerFlowLimit, plain.sharedConsumerFlowLimit, plain.maxNumActiveConsumers) == (1000, 5, -1)


def test_topics_of_an_administrator_share_as_configured() -> None:  # D-27
    config = Config.from_values({"imq.admincreate.topic.sharedConsumerFlowLimit": 9})
    assert destination_attributes({}, config, "topic").shared_consumer_flow_limit == 9
    assert destination_attributes({"sharedConsumerFlowLimit": 0}, config, "topic").shared_consumer_flow_limit is None
    assert destination_attributes({}, config, "queue").sharedConsumerFlowLimit == 5


def test_the_dead_message_queue_is_made_as_the_row_says_and_stays_one() -> None:  # D-24
    made = dead_message_queue()
    assert (made.maxNumMsgs, made.maxTotalMsgBytes, made.limitBehavior) == (1000, 10 * 1024 * 1024, "REMOVE_OLDEST")
    assert (made.useDMQ, made.maxNumProducers, made.redeliveryLimit, made.hosting) == (False, -1, -1, "shared")
    assert destination_attributes(made.as_dict(), name="mq.sys.dmq") == made
    changed = updated_attributes(made, {"maxNumMsgs": 5, "limitBehavior": "REJECT_NEWEST"}, name="mq.sys.dmq")
    assert (changed.maxNumMsgs, changed.limitBehavior) == (5, "REJECT_NEWEST")
    refused: list[dict[str, object]] = [
        {"limitBehavior": "FLOW_CONTROL"},
        {"maxNumProducers": 5},
        {"useDMQ": True},
        {"unitOfOrder": True},
        {"errorDestination": "orders"},
    ]
    for change in refused:
        with pytest.raises(ConfigError, match=r"not possible for mq\.sys\.dmq; it can be"):
            updated_attributes(made, change, name="mq.sys.dmq")
        assert updated_attributes(made, change, name="orders") != made


def test_an_error_destination_has_the_name_of_a_queue_there_could_be() -> None:  # W-70
    for good in ("", "errors", "mq.sys.dmq"):
        assert destination_attributes({"errorDestination": good}).errorDestination == good
    for bad in ("two words", "mq.temp.q.a", "a*"):
        with pytest.raises(ConfigError, match="errorDestination"):
            destination_attributes({"errorDestination": bad})


def test_destinations_of_an_administrator_are_hosted_as_configured() -> None:
    config = Config.from_values({"raybroker.hosting.default": "shared"})
    assert destination_attributes({}, config).hosting == "shared"
    assert destination_attributes({"hosting": "dedicated"}, config).hosting == "dedicated"
    assert destination_attributes().hosting == "dedicated"


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ({"messagesHigh": 5}, "messagesHigh = 5 needs messagesLow below it"),
        ({"messagesHigh": 5, "messagesLow": 5}, "needs messagesLow below it"),
        ({"bytesLow": "1k"}, "nothing without bytesHigh"),
        ({"bytesHigh": "4k", "bytesLow": 0, "maxTotalMsgBytes": "2k"}, "never be reached: maxTotalMsgBytes is 2048"),
        ({"maxBytesPerMsg": "4k", "maximumMessageSize": 4095}, "maxBytesPerMsg = 4096 would never be reached"),
    ],
)
def test_thresholds_that_cannot_be_are_refused(attributes: dict[str, object], why: str) -> None:  # W-19
    with pytest.raises(ConfigError, match=why):
        destination_attributes(attributes)


def test_a_threshold_may_be_as_high_as_the_limit() -> None:
    found = destination_attributes({"messagesHigh": 10, "messagesLow": 0, "maxNumMsgs": 10})
    with pytest.raises(ConfigError, match="maxNumMsgs is 9"):
        updated_attributes(found, {"maxNumMsgs": 9})
    assert updated_attributes(found, {"maxNumMsgs": 9, "messagesHigh": -1, "messagesLow": -1}).messagesHigh == -1


def test_a_host_in_the_brokers_process_is_not_for_a_store_in_sql() -> None:
    stored = Config.from_values({"imq.persist.store": "sql"})
    with pytest.raises(ConfigError, match=r"hosting=broker is not for imq\.persist\.store=sql"):
        destination_attributes({"hosting": "broker"}, stored)
    with pytest.raises(ConfigError, match="choose hosting=shared or dedicated"):
        auto_created(Config.from_values({"imq.persist.store": "jdbc", "raybroker.hosting.autocreated": "broker"}))
    assert destination_attributes({"hosting": "broker"}, Config.from_values()).hosting == "broker"
    assert destination_attributes({}, Config.from_values({"raybroker.hosting.default": "broker"})).hosting == "broker"
