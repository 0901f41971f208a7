"""Properties by name: looking one up, and the attributes of a destination as one value.

The rows themselves are in ``setting_table.py``; what a row can do is ``setting.py``.  Where the values of a running
broker come from (files, environment, flags) is left to ``raybroker.config``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Protocol

from raybroker.model import causes
from raybroker.model.affinity import check_affinity_key
from raybroker.model.copies import check_copies, check_replicas
from raybroker.model.errors import ConfigError, InvalidDestinationError
from raybroker.model.naming.names import DEAD_MESSAGE_QUEUE, DestinationType, check_destination_name, check_quota_name
from raybroker.model.naming.nearest import nearest
from raybroker.model.settings.setting import INT_MAX, Kind, PortRange, Reload, Scope, Setting, Value
from raybroker.model.settings.setting_store import SQL_STORES
from raybroker.model.settings.setting_table import ALL, IN_BROKER, INSTEAD, LATER
from raybroker.model.sizes import MIB, UNLIMITED
from raybroker.model.sort_keys import parse_sort_keys

__all__ = [
    "INT_MAX",
    "Kind",
    "PortRange",
    "Reload",
    "Scope",
    "Setting",
    "Value",
    "SETTINGS",
    "ConfigView",
    "DestinationAttributes",
    "lookup",
    "settings_of",
    "destination_attributes",
    "updated_attributes",
    "auto_created",
    "check_attribute_names",
    "dead_message_queue",
]

SETTINGS: Final[Mapping[tuple[Scope, str], Setting]] = {(setting.scope, setting.name): setting for setting in ALL}
NEAREST_MAX: Final = 3
"""Names that an error about an unknown one suggests."""
PREFIX_CHARS_MIN: Final = 4
"""A name of so many characters is taken for the beginning of others."""
_SCOPE_WORDS: Final[dict[Scope, str]] = {
    "broker": "a broker property",
    "destination": "a destination attribute",
    "factory": "a connection factory attribute",
}
_DMQ_RULES: Final[Mapping[str, tuple[Value, ...]]] = {
    "limitBehavior": ("REJECT_NEWEST", "REMOVE_OLDEST", "REMOVE_LOW_PRIORITY"),
    "maxNumProducers": (UNLIMITED,),
    "useDMQ": (False,),
    "isLocalOnly": (False,),
    "unitOfOrder": (False,),
    "errorDestination": ("",),
    "errorDestinationByCause": ("",),
    "quota": ("",),
}
"""The attributes of these that mq.sys.dmq may have: it takes what others reject, from everywhere, as it comes, and
passes nothing on."""

_EXCLUSIVE: Final[tuple[tuple[tuple[str, Value], tuple[str, Value]], ...]] = (
    (("distributed", True), ("isLocalOnly", True)),
    (("unitOfOrder", True), ("unitOfWorkHandlingPolicy", "SingleMessageDelivery")),
)
"""A destination on one broker has nothing to be distributed over; no message is in both kinds of units."""


def settings_of(scope: Scope) -> tuple[Setting, ...]:
    """All settings of one scope, in the order of the table."""
    return tuple(setting for setting in ALL if setting.scope == scope)


def changeable(name: str) -> bool:
    """Whether an attribute of a destination can be changed after it was made."""
    setting = SETTINGS.get(("destination", name))
    return setting is not None and setting.reload != "fixed"


def lookup(name: str, scope: Scope) -> Setting:
    """The setting of that name; names are case sensitive, as in MQ.

    Raises ConfigError that names the nearest valid name of the scope, or the scope where the name does exist.
    """
    found = SETTINGS.get((scope, name))
    if found is not None:
        return found
    raise ConfigError(f"{name!r} is not {_SCOPE_WORDS[scope]}{_unknown_hint(name, scope)}")


def _unknown_hint(name: str, scope: Scope) -> str:
    for other, words in _SCOPE_WORDS.items():
        if (other, name) in SETTINGS:
            return f": it is {words}"
    if name in INSTEAD:
        return f" of this broker: {INSTEAD[name]}"
    if name in LATER:
        return " of this version: what it belongs to is not built yet"
    valid = {setting.name.lower(): setting.name for setting in settings_of(scope)}
    wanted = name.lower()
    near = [other for other in valid if len(wanted) >= PREFIX_CHARS_MIN and other.startswith(wanted)]
    near = sorted(near, key=len)[:NEAREST_MAX] or [nearest(wanted, valid, least=0.0)]
    shown = " or ".join(repr(valid[other]) for other in near)
    return f"; the nearest {'is' if len(near) == 1 else 'are'} {shown}"


class ConfigView(Protocol):
    """A configuration as this module needs it: a typed value by property name."""

    def __getitem__(self, name: str, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class DestinationAttributes:
    """The attributes of one destination under MQ's and WebLogic's names; -1 means no limit.

    Built by :func:`destination_attributes` and :func:`auto_created`, which check names and bounds.
    """

    maxNumMsgs: int = UNLIMITED
    maxTotalMsgBytes: int = UNLIMITED
    maxBytesPerMsg: int = UNLIMITED
    maximumMessageSize: int = UNLIMITED
    affinityWait: int = 1000
    maxCheckpointBytes: int = 65536
    messagesHigh: int = UNLIMITED
    messagesLow: int = UNLIMITED
    bytesHigh: int = UNLIMITED
    bytesLow: int = UNLIMITED
    limitBehavior: str = "REJECT_NEWEST"
    maxNumProducers: int = 100
    maxNumActiveConsumers: int = UNLIMITED
    maxNumBackupConsumers: int = 0
    consumerFlowLimit: int = 1000
    sharedConsumerFlowLimit: int = 5
    prefetchRecall: str = "Default"
    isLocalOnly: bool = False
    localDeliveryPreferred: bool = False
    hosting: str = "dedicated"
    replicas: int = 1
    minInSync: int = 0
    useDMQ: bool = True
    expirationPolicy: str = "Default"
    expirationLoggingPolicy: str = ""
    errorDestination: str = ""
    redeliveryLimit: int = 20
    redeliveryLimitByCause: str = ""
    errorDestinationByCause: str = ""
    redeliveryDelayOverride: int = UNLIMITED
    redeliveryBackoffPercent: int = 100
    redeliveryDelayMax: int = 60000
    timeToLiveOverride: int = UNLIMITED
    timeToDeliverOverride: int = UNLIMITED
    priorityOverride: int = UNLIMITED
    deliveryModeOverride: str = "No-Delivery"
    productionPausedAtStartup: bool = False
    insertionPausedAtStartup: bool = False
    consumptionPausedAtStartup: bool = False
    duplicateWindowMs: int = 0
    duplicateIdsMax: int = 20000
    unitOfOrder: bool = False
    unitOfOrderRouting: str = "Hash"
    distributed: bool = False
    loadBalancingPolicy: str = "Round-Robin"
    forwardDelay: int = UNLIMITED
    resetDeliveryCountOnForward: bool = True
    forwardingPolicy: str = "Replicated"
    destinationKeys: str = ""
    affinityKey: str = ""
    versionKey: str = ""
    maxStaleness: int = 0
    stalenessPolicy: str = "Default"
    starvationTime: int = UNLIMITED
    unitOfWorkHandlingPolicy: str = "PassThrough"
    incompleteWorkExpirationTime: int = UNLIMITED
    maxNumSchedules: int = 100
    messagingPerformancePreference: int = 25
    consumersBeforeDispatch: int = 0
    delayBeforeDispatch: int = UNLIMITED
    validateXMLSchemaEnabled: bool = False
    XMLSchemaURIList: str = ""
    reloadXMLSchemaOnFailure: bool = False
    messageLoggingEnabled: bool = False
    messageLoggingFormat: str = ""
    quota: str = ""
    template: str = ""

    def as_dict(self, type: DestinationType | None = None) -> dict[str, Value]:
        """Name → typed value, in the order of the table; :func:`destination_attributes` takes it back.

        ``type`` leaves out what destinations of that type do not have.
        """
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if type is None or SETTINGS["destination", field.name].only in ("", type)
        }

    @property
    def consumer_flow_limit(self) -> int | None:
        """Messages a consumer may be sent in one batch; None: no limit, written -1 or 0."""
        if not self.messagingPerformancePreference:
            return 1
        return self.consumerFlowLimit if self.consumerFlowLimit > 0 else None

    @property
    def shared_consumer_flow_limit(self) -> int | None:
        """Return the consumer flow limit for each consumer of a shared subscription."""
        if not self.messagingPerformancePreference:
            return 1
        return self.sharedConsumerFlowLimit if self.sharedConsumerFlowLimit > 0 else None


def check_attribute_names(names: Iterable[str], type: DestinationType) -> None:
    """Check that a destination of that type has these attributes; raises ConfigError for the first that it has not."""
    for name in names:
        only = lookup(name, "destination").only
        if only not in ("", type):
            raise ConfigError(f"{name} is an attribute of {only}s; a {type} does not have it")


def destination_attributes(
    overrides: Mapping[str, object] | None = None,
    config: ConfigView | None = None,
    type: DestinationType = "queue",
    *,
    name: str = "",
) -> DestinationAttributes:
    """Attributes of a destination that an administrator creates: the defaults with ``overrides``.

    ``config`` supplies ``raybroker.hosting.default`` and ``imq.admincreate.topic.sharedConsumerFlowLimit``; ``name``
    is the destination's, for what mq.sys.dmq cannot be.
    Raises ConfigError for an unknown attribute, a value out of bounds, and an attribute of the other type; that one
    passes with its default value, so that :meth:`DestinationAttributes.as_dict` comes back.
    """
    base = DestinationAttributes()
    if config is not None:
        base = replace(base, hosting=config["raybroker.hosting.default"])
        if type == "topic":
            base = replace(base, sharedConsumerFlowLimit=config["imq.admincreate.topic.sharedConsumerFlowLimit"])
    found = _overridden(base, overrides or {}, type, name)
    if config is not None:
        _require_process(found.hosting, config)
    return found


def _require_process(hosting: str, config: ConfigView) -> None:
    """A store in SQL ends its process while there is no database, which is not to be the broker's."""
    if hosting == IN_BROKER and config["imq.persist.store"] in SQL_STORES:
        raise ConfigError(
            f"hosting=broker is not for imq.persist.store={config['imq.persist.store']}: the broker's process would end"
            " whenever its database cannot be reached; choose hosting=shared or dedicated"
        )


def updated_attributes(
    current: DestinationAttributes,
    changes: Mapping[str, object],
    type: DestinationType = "queue",
    *,
    name: str = "",
) -> DestinationAttributes:
    """``current`` with ``changes``, all of them or none.

    Raises ConfigError for an unknown attribute, a value out of bounds, one of the other type, an attribute that is
    fixed at creation, and what mq.sys.dmq cannot be.
    """
    changed = _overridden(current, changes, type, name)
    for attribute in changes:
        fixed = lookup(attribute, "destination").reload == "fixed"
        if fixed and getattr(changed, attribute) != getattr(current, attribute):
            raise ConfigError(f"{attribute} is fixed when a destination is created: destroy and create it to change it")
    return changed


def auto_created(config: ConfigView, type: DestinationType = "queue") -> DestinationAttributes:
    """Attributes of a destination that is created because somebody opened it; raises ConfigError for a
    raybroker.hosting.autocreated that is not for the store."""
    _require_process(config["raybroker.hosting.autocreated"], config)
    shared = "imq.autocreate.destination."
    own = f"imq.autocreate.{type}."
    base = DestinationAttributes(
        maxNumMsgs=config[shared + "maxNumMsgs"],
        maxTotalMsgBytes=config[shared + "maxTotalMsgBytes"],
        maxBytesPerMsg=config[shared + "maxBytesPerMsg"],
        limitBehavior=config[shared + "limitBehavior"],
        maxNumProducers=config[shared + "maxNumProducers"],
        isLocalOnly=config[shared + "isLocalOnly"],
        useDMQ=config[shared + "useDMQ"],
        consumerFlowLimit=config[own + "consumerFlowLimit"],
        hosting=config["raybroker.hosting.autocreated"],
    )
    if type == "topic":
        return replace(base, sharedConsumerFlowLimit=config[own + "sharedConsumerFlowLimit"])
    return replace(
        base,
        maxNumActiveConsumers=config[own + "maxNumActiveConsumers"],
        maxNumBackupConsumers=config[own + "maxNumBackupConsumers"],
        localDeliveryPreferred=config[own + "localDeliveryPreferred"],
    )


def dead_message_queue() -> DestinationAttributes:
    """Attributes with which mq.sys.dmq is made.

    It has no redeliveryLimit either: what fails there as well has nowhere to go and would be lost.
    """
    return DestinationAttributes(
        maxNumMsgs=1000,
        maxTotalMsgBytes=10 * MIB,
        limitBehavior="REMOVE_OLDEST",
        maxNumProducers=UNLIMITED,
        hosting="shared",
        useDMQ=False,
        redeliveryLimit=UNLIMITED,
    )


def parsed_attributes(given: Mapping[str, object]) -> dict[str, Any]:
    """Attributes of destinations as values, each by itself, as a template has them; raises ConfigError."""
    parsed: dict[str, Any] = {key: lookup(key, "destination").parse(value) for key, value in given.items()}
    if "replicas" in parsed:
        check_replicas(parsed["replicas"])
    return parsed


def _overridden(
    base: DestinationAttributes,
    overrides: Mapping[str, object],
    type: DestinationType,
    name: str,
) -> DestinationAttributes:
    parsed = parsed_attributes(overrides)
    for key, value in parsed.items():
        if value != SETTINGS["destination", key].default:
            check_attribute_names((key,), type)
    if parsed.get("errorDestination"):
        _check_error_destination(parsed["errorDestination"])
    if name == DEAD_MESSAGE_QUEUE:
        for key, allowed in _DMQ_RULES.items():
            if parsed.get(key, allowed[0]) not in allowed:
                shown = " or ".join(lookup(key, "destination").format(value) or "empty" for value in allowed)
                raise ConfigError(f"{key} = {parsed[key]} is not possible for {name}; it can be {shown}")
    found = replace(base, **parsed)
    for one, other in _EXCLUSIVE:
        if all(getattr(found, key) == value for key, value in (one, other)):
            raise ConfigError(f"{one[0]}={one[1]} and {other[0]}={other[1]} exclude each other; choose one")
    check_copies(found.replicas, found.minInSync, in_broker=found.hosting == IN_BROKER)
    if found.quota:
        check_quota_name(found.quota)
    causes.parse_limits(found.redeliveryLimitByCause)
    for queue in causes.parse_destinations(found.errorDestinationByCause).values():
        _check_error_destination(queue, "errorDestinationByCause")
    if found.destinationKeys:
        parse_sort_keys(found.destinationKeys)
    if found.affinityKey:
        check_affinity_key(found.affinityKey)
        if found.destinationKeys:
            raise ConfigError(
                "affinityKey and destinationKeys exclude each other: a sorted destination has one order; choose one"
            )
    if found.versionKey:
        from raybroker.model.staleness import check_version_key  # Few programs have such a queue.

        check_version_key(found.versionKey)
        for name in ("destinationKeys", "affinityKey", "unitOfOrder"):
            if getattr(found, name):
                raise ConfigError(f"versionKey and {name} exclude each other: both say what goes first; choose one")
    if found.duplicateWindowMs and found.unitOfOrderRouting == "PathService":
        raise ConfigError(
            "duplicateWindowMs and unitOfOrderRouting=PathService exclude each other: a unit that is used again may go"
            " to another broker, which does not know the ids of before; choose Hash"
        )
    if (preference := found.messagingPerformancePreference) % 25:
        raise ConfigError(f"messagingPerformancePreference = {preference} is not one of 0, 25, 50, 75 and 100")
    if 0 <= found.maximumMessageSize < found.maxBytesPerMsg:
        raise ConfigError(
            f"maxBytesPerMsg = {found.maxBytesPerMsg} would never be reached: maximumMessageSize, which counts headers"
            f" too, is {found.maximumMessageSize}; lower one or raise the other"
        )
    for of, limit in (("messages", "maxNumMsgs"), ("bytes", "maxTotalMsgBytes")):
        _check_threshold(of, getattr(found, f"{of}High"), getattr(found, f"{of}Low"), limit, getattr(found, limit))
    return found


def _check_threshold(of: str, high: int, low: int, limit: str, most: int) -> None:
    """Low < High <= the limit."""
    if high < 0 <= low:
        raise ConfigError(f"{of}Low = {low} is nothing without {of}High; set both, or neither")
    if high >= 0 and not 0 <= low < high:
        raise ConfigError(f"{of}High = {high} needs {of}Low below it, where the destination is not over any more")
    if 0 <= most < high:
        raise ConfigError(f"{of}High = {high} would never be reached: {limit} is {most}; lower one or raise the other")


def _check_error_destination(queue: str, attribute: str = "errorDestination") -> None:
    try:
        check_destination_name(queue, allow_reserved=queue == DEAD_MESSAGE_QUEUE)
    except InvalidDestinationError as error:
        raise ConfigError(f"{attribute}: {error}") from None


def go_on(way: list[str], queue: str) -> None:
    """Put the next queue of the way at its end; raises ConfigError when it is there already.

    way  a queue, its error destination, the error destination of that, and so on
    """
    back = queue in way
    way.append(queue)
    if back:
        raise ConfigError(
            f"errorDestination of queue {way[0]!r}: dead messages would go round in a circle, {' to '.join(way)}; name"
            " a queue that does not lead back"
        )


def merged_attributes(
    attributes: Mapping[str, object], changes: Mapping[str, object], type: DestinationType, name: str
) -> dict[str, Value]:
    """The attributes of a destination after an update, checked; raises ConfigError."""
    before = destination_attributes(attributes, type=type, name=name)
    return updated_attributes(before, changes, type, name=name).as_dict(type)
