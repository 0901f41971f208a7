"""The settlement of a block: the results that those who wait for its messages get."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Final

from raybroker.client.io.io_thread import fulfil, log_failure, refuse
from raybroker.client.producer.producer_state import Refusal, SendBatch, SentRun
from raybroker.client.producer.send_future import fulfil_all
from raybroker.content.headers import id_prefix
from raybroker.model.errors import BrokerError, ConnectionLostError, InvalidDestinationError, from_code

NOTHING_TO_WAIT_FOR: Final[Future[str]] = Future()
NOTHING_TO_WAIT_FOR.set_result("")
DUPLICATE: Final = "duplicate"
"""Code of a refusal that is none: the message was taken before."""
Row = tuple[int, int, str, str]
"""Of a refusal: start, end, code, text."""


def complete(batch: SendBatch, producer: int, rows: Sequence[Row]) -> None:
    """Give everybody who waits for a message of a settled block its id, or why it was refused."""
    refusals = [(a, b, from_code(code, text)) for a, b, code, text in rows if code != DUPLICATE] if rows else ()
    for run in batch.runs:
        _tell(run, refusals)
    prefix = id_prefix(producer)
    if not refusals:
        fulfil_all(batch.waiters, batch.indexes, prefix, batch.first_seq)
        return
    for index, waiter in zip(batch.indexes, batch.waiters, strict=True):
        hit = next((e for a, b, e in refusals if a <= index < b or index < 0), None)
        if hit is not None:
            refuse(waiter, hit)
        else:
            fulfil(waiter, f"{prefix}{batch.first_seq + max(index, 0)}")


def unheard(batch: SendBatch, rows: Sequence[Row]) -> list[Row]:
    """The refusals of a block's messages that nobody waits for."""
    if not batch.unawaited:
        return []
    awaited = set(batch.indexes).union(*(range(run.at, run.at + run.count) for run in batch.runs))
    return [
        (index, index + 1, code, text)
        for start, end, code, text in rows
        if code != DUPLICATE
        for index in range(start, end)
        if index not in awaited
    ]


def duplicates_in(rows: Sequence[Row]) -> int:
    """Messages that were not taken because they had been taken before."""
    return sum(end - start for start, end, code, _ in rows if code == DUPLICATE)


def first_fault(rows: Sequence[Row]) -> BrokerError | None:
    """The first real refusal."""
    return next((from_code(code, text) for _, _, code, text in rows if code != DUPLICATE), None)


def unknown_outcome(error: BrokerError) -> BrokerError:
    """What those are told whose messages were on their way when a producer ended because of ``error``.

    A destination that was destroyed has lost them for certain.
    """
    if not error.definite or isinstance(error, InvalidDestinationError):
        return error
    return ConnectionLostError(f"whether the message was stored is not known: {error} before the broker confirmed it")


def refuse_all(batches: Iterable[SendBatch], error: BrokerError) -> None:
    for batch in batches:
        for waiter in batch.waiters:
            refuse(waiter, error)
        for run in batch.runs:
            _tell(run, [(run.at, run.at + run.count, error)])


def _tell(run: SentRun, refusals: Sequence[Refusal]) -> None:
    try:
        run.tell_outcome(refusals)
    except Exception as fault:  # noqa: BLE001 - the others are told all the same
        log_failure("a confirmation could not be passed on", fault)
