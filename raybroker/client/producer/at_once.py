"""Sends at once: a message that has to wait for nothing but its confirmation is handed over by a plain call.

For those who work on the IO loop itself, as gateways do: no task is made, no future that other threads could wait for,
and whoever waits is called as soon as the confirmation is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from functools import lru_cache
from typing import Any, Final, Protocol

from raybroker.client.destinations import Destination, destination_of
from raybroker.client.io.io_thread import log_failure
from raybroker.client.producer.members.unnamed import OwnProducer
from raybroker.client.producer.send_options import CommonOptions
from raybroker.client.session.opening import check_window, own_or_named

NAMES_KNOWN_MAX: Final = 1024
"""Names of destinations that are known to be right; others are checked."""
Told = Callable[[str, BaseException | None], object]
"""Gets the id of a message that is stored, or why it is not."""


class Waiter(Future[str]):
    """Waits for one message on the IO loop: ``told`` is called once, there and then. It cannot be waited for."""

    def __init__(self, told: Told) -> None:
        self._told: Told | None = told

    def done(self) -> bool:
        return self._told is None

    def cancelled(self) -> bool:
        return False

    def cancel(self) -> bool:
        return False

    def set_result(self, result: str) -> None:
        self._tell(result, None)

    def set_exception(self, exception: BaseException | None) -> None:
        self._tell("", exception)

    def _tell(self, result: str, error: BaseException | None) -> None:
        told, self._told = self._told, None
        if told is None:
            raise InvalidStateError
        try:
            told(result, error)
        except Exception as fault:  # noqa: BLE001 - the others are told all the same
            log_failure("a confirmation could not be passed on", fault)


_named: Final = lru_cache(NAMES_KNOWN_MAX)(destination_of)


class Handle(Protocol):
    """A producer of the asyncio face."""

    _core: OwnProducer
    _common: CommonOptions
    _timeout_s: float | None


def send_at_once(
    producer: Handle,
    body: Any,
    destination: str,
    told: Told,
    *,
    properties: Mapping[str, Any] | None = None,
    correlation_id: str | None = None,
    reply_to: Any = None,
    type: str | None = None,
    priority: int | None = None,
    ttl_ms: int | None = None,
    delivery_delay_ms: int | None = None,
    unit_of_order: str | None = None,
    persistent: bool | None = None,
    dedup_id: str | None = None,
) -> bool:
    """Hand over one message, as ``send`` does; ``told`` hears what becomes of it. On the IO loop.

    False: nothing has happened, and ``send`` has to wait for something: a producer that is to be opened, room in its
    buffer, a time that is limited, or a decision, as for messages that are not persistent. Raises what ``send`` raises.
    """
    core = producer._core
    target = own_or_named(core, _named(destination))
    if isinstance(target, Destination):
        return False
    header, shared = producer._common.find(
        core.shared,
        properties,
        correlation_id,
        reply_to,
        type,
        priority,
        ttl_ms,
        delivery_delay_ms,
        unit_of_order,
        persistent,
        dedup_id,
    )
    if not shared.persistent or core.transacted or producer._timeout_s is not None:
        return False
    if dedup_id is not None:
        check_window(target)
    return target.put(body, header, shared, Waiter(told), urgent=True, block=False) is not None
