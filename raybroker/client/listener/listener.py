"""Message-driven consumers: a function and where its messages come from (WebLogic's message-driven beans)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Unpack

from raybroker.client.arguments import check_names
from raybroker.client.consumer.subscriptions import subscription as checked_subscription
from raybroker.client.destinations import Destination, Queue, destination_of
from raybroker.client.listener.handler import Retries, check_function, name_of
from raybroker.client.options import LISTENER, ListenerOptions, with_options
from raybroker.client.session.opening import topic_of
from raybroker.model.affinity import check_labels
from raybroker.model.batch import Batch
from raybroker.model.errors import ConfigError

BATCH_MAX: Final = 10_000
CONCURRENCY_MAX: Final = 1_000


class DeliveryTerms(NamedTuple):
    """What its consumers ask for, of each delivery: a fencing number, and that their labels count."""

    fenced: bool = False
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Listener:
    """What ``rb.deploy`` needs: still callable as the plain function it was."""

    function: Callable[[Any], object]
    destination: Destination
    subscription: str | None = None
    durable: bool = False
    shared: bool = False
    client_id: str | None = None
    selector: str | None = None
    prefetch: int | str | None = None
    batch: int | Batch = 1
    transacted: bool = False
    concurrency: int = 1
    serializer: str | None = None
    retries: Retries = field(default_factory=Retries)
    deliveries: DeliveryTerms = DeliveryTerms()  # noqa: RUF009 - a value that nobody changes
    prefetch_cost: int | None = None

    def __call__(self, message: Any) -> object:
        return self.function(message)

    @property
    def name(self) -> str:
        """The name of the function, for logs."""
        return name_of(self.function)

    @property
    def calls_max(self) -> int:
        """Calls in one transaction, or messages of one call; 1 where the broker says which go together."""
        return 1 if isinstance(self.batch, Batch) else self.batch

    @property
    def sharing(self) -> bool:
        """Several consumers share the messages, rather than getting a copy each."""
        return self.destination.kind == "queue" or self.shared


@with_options(ListenerOptions)
def listener(
    *,
    queue: Destination | str | None = None,
    topic: Destination | str | None = None,
    **options: Unpack[ListenerOptions],
) -> Callable[[Callable[[Any], object]], Listener]:
    """Make a function, plain or ``async def``, a message-driven consumer for :func:`raybroker.deploy`.

    queue, topic  where its messages come from: one of them; a topic may be a pattern
    subscription  name of the topic's subscription; None: what is published while it runs, and each instance gets all
    shared        instances share the subscription's messages; without, a subscription has one instance alone
    durable       the subscription is kept while nobody runs, unless False; one that is not shared needs ``client_id``
    selector, prefetch, prefetch_cost, serializer   as for ``session.consumer``; without ``prefetch`` instances share
                  what is there
    batch         1: called with one message; more: with a list of up to so many that are there; an ``rb.Batch``: with
                  a list that the broker has formed. What it does not settle itself is acknowledged when it returns;
                  when it raises, that comes again message by message. Not with ``prefetch`` or ``transacted``
    transacted    called with one message at a time; up to ``batch`` calls are one transaction, which ends earlier when
                  no next message is at hand
    concurrency   calls that run at the same time in one instance, each with a session of its own: on threads, or for
                  coroutines on one event loop. 1 to 1000
    retry_on, reject_on, backoff   as for ``consumer.on_message``
    labels        what its instances have at hand, as for ``session.consumer``
    fenced        messages have fencing numbers, ``Message.fence``

    A message is acknowledged when the function returns, or the coroutine it returned has ended. When it raises, that is
    logged and its messages come again, flagged. Those of a batch or transaction that failed are tried again one by one.
    Raises ConfigError for what cannot be, InvalidDestinationError for a bad name.
    """
    check_names(options, LISTENER, "listener")
    where = _where(queue, topic)
    batch, concurrency = options.get("batch", 1), options.get("concurrency", 1)
    transacted, subscription = options.get("transacted", False), options.get("subscription")
    shared, durable = options.get("shared", False), options.get("durable", True)
    fenced = options.get("fenced", False)
    if isinstance(batch, Batch) and (transacted or options.get("prefetch") is not None):
        other = "transacted=True" if transacted else "prefetch="
        raise ConfigError(f"batch=rb.Batch(…) and {other} do not go together: a batch is asked for as one, and leased")
    sizes = {} if isinstance(batch, Batch) else {"batch": (batch, BATCH_MAX)}
    for name, (value, most) in {**sizes, "concurrency": (concurrency, CONCURRENCY_MAX)}.items():
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise ConfigError(f"{name}={value!r}; it is a whole number from 1 to {most}")
    for name, truth in (("transacted", transacted), ("shared", shared), ("durable", durable), ("fenced", fenced)):
        if not isinstance(truth, bool):
            raise ConfigError(f"{name}={truth!r}; it is True or False")
    if subscription is None:
        if shared:
            raise ConfigError("shared=True needs subscription=, the name that its consumers share")
        durable = False
    else:
        checked_subscription(where, subscription, durable=durable, shared=shared)
        if not shared and not durable:
            raise ConfigError("subscription= names one that is durable or shared; leave it out, or add shared=True")
        if durable and not shared and options.get("client_id") is None:
            raise ConfigError(
                f"the durable subscription {subscription!r} that is not shared needs client_id=…; or share it:"
                " shared=True"
            )
    labels = check_labels(options.get("labels") or ())
    if labels and isinstance(batch, Batch):
        raise ConfigError("batch=rb.Batch(…) and labels= do not go together: a batch is formed for whoever asks")
    retries = Retries.checked(options.get("retry_on", ()), options.get("reject_on", ()), options.get("backoff"))
    if concurrency > 1 and where.kind == "topic" and not shared:
        raise ConfigError(
            f"concurrency={concurrency}: each session of {where.text} would get every message; share them with"
            " subscription=… and shared=True"
        )

    def mark(function: Callable[[Any], object]) -> Listener:
        return Listener(
            check_function(function),
            where,
            subscription,
            durable,
            shared,
            options.get("client_id"),
            options.get("selector"),
            options.get("prefetch"),
            batch,
            transacted,
            concurrency,
            options.get("serializer"),
            retries,
            DeliveryTerms(fenced, labels),
            options.get("prefetch_cost"),
        )

    return mark


def _where(queue: Destination | str | None, topic: Destination | str | None) -> Destination:
    if (queue is None) == (topic is None):
        raise ConfigError("rb.listener takes queue=… or topic=…, one of them")
    if topic is not None:
        found = topic_of(topic)
    else:
        found = Queue.checked(queue) if isinstance(queue, str) else destination_of(queue)
    if found.kind != ("queue" if topic is None else "topic"):
        raise ConfigError(f"{found.text} is a {found.kind}; name it with {found.kind}=…")
    return found
