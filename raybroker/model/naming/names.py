"""Names: which texts may name a destination, a cluster, a broker and a client.

Names of destinations have letters and digits, no blanks, starting with a letter, ``_`` or ``$``, and nothing that
starts with ``mq.``, which is the system's own (the dead message queue, the metrics topics).  What MQ's manual leaves
open is decided here:

* ``.`` is allowed inside: wildcard topics split names at it and the system's own names have it.  The reserved
  prefix is therefore ``mq.`` with its dot, as in MQ's first manual, not every name starting with ``mq`` as in the later
  one: ``mqtt_in`` is an honest name.
* ``-`` is allowed inside, though MQ's manual does not list it: ``orders-eu`` is how people name queues today, it is no
  wildcard and is safe in a file name, a URL and a metric label.  It may not come first, where it reads as an option.
* ASCII only.  The manual says 英数字, the ASCII letters and digits; and two spellings of one text (composed and
  decomposed accents, Latin and Cyrillic ``a``) would be two queues that look like one.
* Names are case sensitive, and at most 255 bytes, the longest file name that file systems take.

Cluster and broker names become Ray actor names, directories and metric labels, so they are one path-safe word.
A client id is the user's own text and only has to be printable.
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeGuard

from raybroker.model.errors import ConfigError, InvalidClientIDError, InvalidDestinationError, SecurityError
from raybroker.model.naming.wildcard import check_pattern, is_pattern

DestinationType = Literal["queue", "topic"]
DESTINATION_TYPES: Final[tuple[DestinationType, ...]] = ("queue", "topic")
DESTINATION_TYPE_SHORT: Final[dict[str, DestinationType]] = {"q": "queue", "t": "topic"}
"""The command line's ``-t q`` and ``-t t``."""

RESERVED_PREFIX: Final = "mq."
METRICS_PREFIX: Final = "mq.metrics."
DEAD_MESSAGE_QUEUE: Final = "mq.sys.dmq"
DEAD_REASON: Final = "JMS_SUN_DMQ_UNDELIVERED_REASON"
"""A property of dead messages; so are the next ones."""
DEAD_COMMENT: Final = "JMS_SUN_DMQ_UNDELIVERED_COMMENT"
DEAD_TIMESTAMP: Final = "JMS_SUN_DMQ_UNDELIVERED_TIMESTAMP"
DEAD_DELIVERIES: Final = "JMS_SUN_DMQ_DELIVERY_COUNT"
DEAD_BROKER: Final = "JMS_SUN_DMQ_DEAD_BROKER"
DEAD_ORIGIN: Final = "RAYBROKER_ORIGIN"
DEAD_ORIGINAL_ID: Final = "RAYBROKER_ORIGINAL_ID"
DEAD_SUBSCRIPTION: Final = "RAYBROKER_SUBSCRIPTION"
DEAD_CAUSE: Final = "RAYBROKER_CAUSE"
DEAD_EXCEPTION: Final = "JMS_SUN_DMQ_UNDELIVERED_EXCEPTION"
"""Type and text of the exception with which its consumer failed last, or the reason with which it was rejected."""
DEAD_TRACEBACK: Final = "RAYBROKER_TRACEBACK"
"""The traceback of that exception; the beginning of a long one is left out."""
"""The queue of dead messages, there from the start and for good."""
TEMPORARY_PREFIX: Final = "mq.temp."
"""Temporary destinations are ``mq.temp.q.<broker>.…`` and ``mq.temp.t.<broker>.…``: the letter keeps one name to one
type, and the broker tells where it lives."""
DESTINATION_NAME_BYTES_MAX: Final = 255
INSTANCE_NAME_BYTES_MAX: Final = 63
"""Cluster and broker names: two of them and a destination's name still make one readable Ray actor name."""
CLIENT_ID_BYTES_MAX: Final = 255

_DESTINATION = re.compile(r"[A-Za-z_$][A-Za-z0-9_$.\-]*", re.ASCII)
_DESTINATION_OTHER = re.compile(r"[^A-Za-z0-9_$.\-]", re.ASCII)
_INSTANCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*", re.ASCII)
_SHOWN_CHARS_MAX = 80


def _shown(name: str) -> str:
    return repr(name if len(name) <= _SHOWN_CHARS_MAX else name[:_SHOWN_CHARS_MAX] + "…")


def check_destination_name(name: object, *, allow_reserved: bool = False, allow_wildcards: bool = False) -> str:
    """The name, unchanged, if it may name a destination.

    ``allow_reserved`` lets the system's own ``mq.…`` names through, ``allow_wildcards`` patterns of topics.
    Raises InvalidDestinationError naming the name, the rule it breaks and what to do.
    """
    if not isinstance(name, str):
        raise InvalidDestinationError(f"a destination name is a text, not {type(name).__name__}: {name!r}")
    if not name:
        raise InvalidDestinationError("a destination name may not be empty; give it at least one letter, '_' or '$'")
    if len(name.encode("utf-8", "surrogatepass")) > DESTINATION_NAME_BYTES_MAX:
        raise InvalidDestinationError(
            f"destination name {_shown(name)} has {len(name)} characters; "
            f"at most {DESTINATION_NAME_BYTES_MAX} bytes are allowed: shorten it"
        )
    if allow_wildcards and is_pattern(name):
        return check_topic_pattern(name)
    if not _DESTINATION.fullmatch(name):
        raise InvalidDestinationError(f"destination name {_shown(name)} {_destination_fault(name)}")
    if name.startswith(RESERVED_PREFIX) and not allow_reserved:
        raise InvalidDestinationError(
            f"destination name {_shown(name)} starts with {RESERVED_PREFIX!r}, "
            "which is reserved for the broker's own destinations: choose another prefix"
        )
    return name


def check_topic_pattern(pattern: str) -> str:
    """A pattern to subscribe or publish to, unchanged; raises InvalidDestinationError, also for one of the broker's own
    topics, of which none would match."""
    if pattern.startswith(METRICS_PREFIX):
        raise InvalidDestinationError(
            f"topic pattern {_shown(pattern)}: metrics topics have no patterns; subscribe to each by its name, as to"
            f" {METRICS_PREFIX}broker, {METRICS_PREFIX}jvm or {METRICS_PREFIX}destination.queue.NAME"
        )
    if pattern.startswith(RESERVED_PREFIX):
        raise InvalidDestinationError(
            f"topic pattern {_shown(pattern)}: the broker's own topics, {RESERVED_PREFIX}…, have no patterns"
        )
    return check_pattern(pattern)


def _destination_fault(name: str) -> str:
    other = _DESTINATION_OTHER.search(name)
    if is_pattern(name):
        return "is a pattern of topics, which can stand only where a topic is published to or subscribed"
    if other is not None and other.group().isspace():
        return "contains a blank; use '_', '-' or '.' to separate words"
    if other is not None:
        return (
            f"contains {other.group()!r}; only ASCII letters, digits, '_', '$', '.' and '-' are allowed: "
            "leave it out or replace it"
        )
    return f"starts with {name[0]!r}; the first character must be a letter, '_' or '$': put one in front"


def is_reserved_name(name: str) -> bool:
    """True for the broker's own names, ``mq.…``."""
    return name.startswith(RESERVED_PREFIX)


def is_metrics_topic(name: str) -> bool:
    """True for names of topics that brokers publish metrics to, ``mq.metrics.…``."""
    return name.startswith(METRICS_PREFIX)


def require_no_metrics_topic(type: str, name: str) -> None:
    """Raises SecurityError for a metrics topic: what comes under it is believed to be a broker's."""
    if type == "topic" and is_metrics_topic(name):
        raise SecurityError(f"topic {name!r} is for subscribers: only brokers send to it; choose another topic")


def temporary_name(type: DestinationType, broker: str, unique: str) -> str:
    """The name of a new temporary destination of a broker; ``unique`` is random letters and digits."""
    assert unique.isalnum(), unique
    assert unique.isascii(), unique
    return f"{TEMPORARY_PREFIX}{type[0]}.{broker}.{unique}"


def home_of_temporary(name: str) -> str:
    """The broker that a temporary destination lives on; "" when the name is none of ours."""
    return name.removeprefix(TEMPORARY_PREFIX)[2:].rpartition(".")[0] if is_temporary_name(name) else ""


def is_temporary_name(name: str) -> bool:
    """True for the names of temporary destinations."""
    return name.startswith(TEMPORARY_PREFIX)


def is_destination_type(value: object) -> TypeGuard[DestinationType]:
    return value in DESTINATION_TYPES


def check_destination_type(value: object) -> DestinationType:
    """'queue' or 'topic'; the command line's short 'q' and 't' are understood.

    Raises InvalidDestinationError for anything else.
    """
    if isinstance(value, str):
        value = DESTINATION_TYPE_SHORT.get(value, value)
    if is_destination_type(value):
        return value
    raise InvalidDestinationError(f"destination type {value!r} does not exist; use 'queue' or 'topic' (short: q, t)")


def check_cluster_name(name: object) -> str:
    """The name, unchanged, if it may name a cluster.  Raises ConfigError saying what is wrong."""
    return _check_instance_name(name, "cluster")


def check_broker_name(name: object) -> str:
    """The name, unchanged, if it may name a broker instance.  Raises ConfigError saying what is wrong."""
    return _check_instance_name(name, "broker")


def check_pool_name(name: object) -> str:
    """The name, unchanged, if it may name a pool of listeners.  Raises ConfigError saying what is wrong."""
    return _check_instance_name(name, "pool")


def check_template_name(name: object) -> str:
    """The name, unchanged, if it may name a template.  Raises ConfigError saying what is wrong."""
    return _check_instance_name(name, "template")


def check_quota_name(name: object) -> str:
    """The name, unchanged, if it may name a quota.  Raises ConfigError saying what is wrong."""
    return _check_instance_name(name, "quota")


def check_policy_name(name: object) -> str:
    """The name, unchanged, if it may name a policy.  Raises ConfigError saying what is wrong."""
    return _check_instance_name(name, "policy")


def _check_instance_name(name: object, what: str) -> str:
    if not isinstance(name, str) or not _INSTANCE.fullmatch(name):
        raise ConfigError(
            f"{what} name {name!r} is not allowed: it is one word of ASCII letters, digits, '_', '.' and '-' "
            "that starts with a letter or digit"
        )
    if len(name) > INSTANCE_NAME_BYTES_MAX:
        raise ConfigError(
            f"{what} name {_shown(name)} has {len(name)} characters; at most {INSTANCE_NAME_BYTES_MAX} are allowed"
        )
    return name


def check_client_id(client_id: object) -> str:
    """The client id, unchanged, if it is 1 to 255 bytes of printable text without blanks at its ends.

    Raises InvalidClientIDError saying what is wrong.
    """
    if not isinstance(client_id, str):
        raise InvalidClientIDError(f"a client id is a text, not {type(client_id).__name__}: {client_id!r}")
    if not client_id or client_id != client_id.strip():
        raise InvalidClientIDError(f"client id {_shown(client_id)} is empty or has blanks at an end: take them off")
    if not client_id.isprintable():
        raise InvalidClientIDError(f"client id {_shown(client_id)} contains a character that cannot be printed")
    if len(client_id.encode("utf-8")) > CLIENT_ID_BYTES_MAX:
        raise InvalidClientIDError(
            f"client id {_shown(client_id)} is longer than {CLIENT_ID_BYTES_MAX} bytes in UTF-8: shorten it"
        )
    return client_id
