"""Consumer options: what is asked of the broker, from the arguments and the attributes of the connection."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from raybroker.client.arguments import check_arguments
from raybroker.client.options import ReceiverOptions
from raybroker.client.producer.bodies.body_encoding import check_serializer
from raybroker.model.affinity import check_labels
from raybroker.model.batch import Batch
from raybroker.model.errors import ConfigError
from raybroker.model.settings.settings import ConfigView

LIMIT_DEFAULT: Final = 1000
"""The limit where nobody has set another one, imqConsumerFlowLimit."""
log = logging.getLogger("raybroker.client")


class BufferBound(NamedTuple):
    """Bodies in the buffer have at most so many bytes, or its messages cost at most so much; 0: any number.

    ``batch``: they are one batch at a time; ``labels``: at first those that ask for one of these.
    """

    nbytes: int = 0
    cost: int = 0
    batch: Batch | None = None
    labels: tuple[str, ...] = ()


ANY_BUFFER: Final = BufferBound()


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """What a consumer asks of the broker.

    style, limit, percent  see flow_control; with style "prefetch" the limit counts unacknowledged messages
    subscription           None, or name, durable and shared of a topic's subscription
    least                  the limit is chosen by the pace of the application, from so many messages up to ``limit``; 0:
                           it is ``limit``
    lease_ms               the ack deadline of each delivery, 0 for none
    explicit               the program has asked for this limit
    shares                 nobody has: the broker may take back for idle consumers what was not begun
    buffer                 how much the broker sends ahead, besides ``limit``
    fenced                 each delivery has a fencing number
    recalls                the broker may take back what was not begun where the oldest messages make room for others
    """

    style: str = "credit"
    limit: int = LIMIT_DEFAULT
    percent: int = 50
    unpickles: bool = False
    selector: str | None = None
    no_local: bool = False
    subscription: dict[str, Any] | None = None
    lease_ms: int = 0
    least: int = 0
    explicit: bool = False
    shares: bool = False
    recalls: bool = True
    buffer: BufferBound = ANY_BUFFER
    fenced: bool = False
    _warned: set[str] = field(default_factory=set, compare=False)
    """What was logged about it already."""

    @property
    def batch(self) -> Batch | None:
        """What batches it gets, which the broker forms; None: it gets messages."""
        return self.buffer.batch

    def warn_if_cut(self, destination: str, granted: int) -> None:
        """Log, once a consumer, that it has a lower limit than was asked for: the destination's own is lower."""
        if "limit" in self._warned or not self.explicit or granted <= 0 or 0 <= self.limit <= granted:
            return
        self._warned.add("limit")
        log.warning(
            "prefetch=%d of a consumer of %s is more than is allowed there: it gets %d; raise consumerFlowLimit of the"
            " destination for more",
            self.limit,
            destination,
            granted,
        )


def auto_bounds(prefetch: str, usual: int) -> tuple[int, int]:
    """The bounds of ``prefetch="auto"`` or ``"auto:MIN-MAX"``; without any, 1 and ``usual``."""
    least, _, most = prefetch.partition(":")[2].partition("-")
    return int(least or 1), int(most or usual)


def consumer_options(
    attributes: ConfigView,
    options: ReceiverOptions,
    subscription: dict[str, Any] | None = None,
    *,
    recalls: bool = True,
    buffer_bytes: int | None = None,
) -> ConsumerOptions:
    """Which rule of flow control, with which limit, and what the consumer selects."""
    selector, no_local = options.get("selector"), options.get("no_local", False)
    prefetch, threshold = options.get("prefetch"), options.get("threshold")
    ack_timeout_ms, fenced = options.get("ack_timeout_ms"), options.get("fenced", False)
    prefetch_bytes, prefetch_cost = options.get("prefetch_bytes"), options.get("prefetch_cost")
    batch = options.get("batch")
    check_arguments(
        batch=batch,
        prefetch_bytes=prefetch_bytes,
        prefetch_cost=prefetch_cost,
        selector=selector,
        prefetch=prefetch,
        threshold=threshold,
        no_local=no_local,
        ack_timeout_ms=ack_timeout_ms,
        fenced=fenced,
    )
    labels = check_labels(options.get("labels") or ())
    if labels and batch is not None:
        raise ConfigError(
            "batch= and labels=: a batch is formed of what waits, for whoever asks; leave one of them out"
        )
    for name in ("prefetch", "threshold", "prefetch_bytes", "prefetch_cost") if batch is not None else ():
        if options.get(name) is not None:
            raise ConfigError(
                f"batch= and {name}=: a consumer of batches asks for one after the other; leave {name}= out"
            )
    if prefetch_bytes is not None and prefetch_cost is not None:
        raise ConfigError("prefetch_bytes= and prefetch_cost= are two measures of one bound; give one of them")
    if buffer_bytes is None:
        buffer_bytes = attributes["raybroker.client.buffer_bytes"] if prefetch_bytes is None else prefetch_bytes
    style, least, usual = "credit", 0, attributes["imqConsumerFlowLimit"]
    if isinstance(prefetch, str):
        least, limit = auto_bounds(prefetch, usual if usual > 0 else LIMIT_DEFAULT)
    else:
        limit = usual if prefetch is None else prefetch
    if least:
        pass
    elif prefetch is not None and threshold is None:
        style = "prefetch"
    elif prefetch is None and not attributes["imqConsumerFlowLimitPrefetch"]:
        style, limit = "prefetch", 0
    if batch is not None:
        style, limit, recalls = "prefetch", 0, False
    return ConsumerOptions(
        style=style,
        limit=limit,
        percent=attributes["imqConsumerFlowThreshold"] if threshold is None else threshold,
        unpickles=check_serializer(options.get("serializer")),
        selector=selector or None,
        no_local=no_local,
        subscription=subscription,
        lease_ms=ack_timeout_ms or 0,
        least=least,
        explicit=prefetch is not None and not least,
        recalls=recalls,
        fenced=fenced,
        buffer=BufferBound(0 if prefetch_cost else buffer_bytes, prefetch_cost or 0, batch, labels),
        shares=recalls and style == "credit" and (bool(least) or (prefetch is None and limit == LIMIT_DEFAULT)),
    )
