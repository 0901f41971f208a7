"""Options of messages, producers, consumers and listeners: each stands here once, with its type and what it means.

The methods of both faces take them as keywords, ``**options: Unpack[SendOptions]``; what they may be is checked by
:mod:`raybroker.client.arguments`.  An option that is left out, or None, is the default of the producer or of the
connection factory.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final, TypedDict, TypeVar

from raybroker.client.producer.bodies.body_encoding import Serializer
from raybroker.model.batch import Batch


class RequestOptions(TypedDict, total=False):
    """What ``Session.request`` may say of the message that it sends."""

    type: str | None
    """A word of the application for this kind of message; selectors know it as JMSType."""
    priority: int | None
    """0 to 9; messages of a higher one are delivered first. 4 unless the connection factory says otherwise."""
    ttl_ms: int | None
    """Milliseconds until it expires, 0: never."""
    delivery_delay_ms: int | None
    """Milliseconds before it is delivered."""
    persistent: bool | None
    """False: it may be lost with its broker, and a send waits as OneWaySendMode says."""


class MessageOptions(RequestOptions, total=False):
    """What ``Producer.send_async`` and ``Message.reply`` may say of a message."""

    correlation_id: str | None
    """What it belongs to, such as the id of the message that it answers."""
    reply_to: Any
    """The destination for answers, or its text."""
    unit_of_order: str | None
    """Messages of one unit are processed one after another, in the order in which they were sent."""
    dedup_id: str | None
    """A message with an id that the destination has seen lately is not taken again, and that is no error:
    ``duplicates`` of the producer counts it."""


class SendOptions(MessageOptions, total=False):
    """What ``Producer.send`` may say of a message."""

    schedule: str | None
    """Send it again and again, as a message of its own each time: five fields of cron in ``timezone``, such as
    "0 8 * * MON-FRI", @daily, or @every 10s. ``send`` returns the schedule's id."""
    timezone: str
    """Of the schedule, "UTC" unless it is given."""
    repeat: int | None
    """So many times; None: until the schedule is destroyed."""
    catch_up: bool
    """What was missed, because the broker was down or the destination full, is made up for by all of those messages,
    and not by one."""


class ProducerOptions(TypedDict, total=False):
    """What ``Session.producer`` may say of all messages of a producer, unless a send says otherwise."""

    persistent: bool | None
    """As of a message, and so are the next four."""
    priority: int | None
    ttl_ms: int | None
    delivery_delay_ms: int | None
    unit_of_order: str | None
    serializer: Serializer | None
    """"pickle": bodies may be any objects."""
    compression_threshold: int | None
    """Bytes above which a body is compressed, see DefaultCompressionThreshold."""
    reference_threshold: int | None
    """Bytes of arrays and tables above which a body goes by reference, see raybroker.producer.reference_bytes; -1:
    none does that is not asked for."""
    disable_message_id: bool
    """The property of the producer: who receives a message sees no id."""
    disable_message_timestamp: bool
    """The property of the producer: messages have no timestamp."""


class SubscriberOptions(TypedDict, total=False):
    """What the durable and shared consumers of a topic may ask for, as of ``Session.consumer``."""

    prefetch: int | str | None
    prefetch_bytes: int | None
    """Bodies that come ahead have at most so many bytes, whatever raybroker.client.buffer_bytes is."""
    prefetch_cost: int | None
    """Messages that come ahead of it cost at most so much together, by their property ``cost``, or 1 each."""
    threshold: int | None
    serializer: Serializer | None
    ack_timeout_ms: int | None
    fenced: bool
    """Each delivery has a fencing number, ``Message.fence``."""
    batch: Batch | None
    """What ``Consumer.receive_batch`` gets; None: it takes messages."""
    labels: Sequence[str]
    """What is at hand here, for destinations with affinityKey."""


class ReceiverOptions(SubscriberOptions, total=False):
    """What any consumer may ask for, as of ``Session.consumer``."""

    selector: str | None
    no_local: bool


class ListenerOptions(TypedDict, total=False):
    """What ``rb.listener`` may say of a function, beside where its messages come from."""

    subscription: str | None
    shared: bool
    durable: bool
    client_id: str | None
    selector: str | None
    prefetch: int | str | None
    prefetch_cost: int | None
    batch: int | Batch
    transacted: bool
    concurrency: int
    serializer: Serializer | None
    retry_on: tuple[type[BaseException], ...] | type[BaseException]
    reject_on: tuple[type[BaseException], ...] | type[BaseException]
    backoff: float | tuple[float, float] | None
    fenced: bool
    labels: Sequence[str]


REQUEST: Final = tuple(RequestOptions.__annotations__)
MESSAGE: Final = tuple(MessageOptions.__annotations__)
PRODUCER: Final = tuple(ProducerOptions.__annotations__)
SUBSCRIBER: Final = tuple(SubscriberOptions.__annotations__)
LISTENER: Final = tuple(ListenerOptions.__annotations__)

F = TypeVar("F", bound=Callable[..., Any])


def with_options(declared: type) -> Callable[[F], F]:
    """Let ``help`` and ``inspect.signature`` of a function name each option that its ``**options`` takes."""

    def named(function: F) -> F:
        found = inspect.signature(function)
        parameters = [one for one in found.parameters.values() if one.kind is not one.VAR_KEYWORD]
        for name, kind in declared.__annotations__.items():
            text = kind.__forward_arg__
            default = None if text == "Any" or "None" in text else ...
            parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=text))
        vars(function)["__signature__"] = found.replace(parameters=parameters)
        return function

    return named
