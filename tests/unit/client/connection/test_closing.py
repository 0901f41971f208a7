"""What those who wait for a message are told when its producer ends, and how several things are closed."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from raybroker.client.io.closing import collected, noted_on, raise_first
from raybroker.client.producer.settlement import unknown_outcome
from raybroker.model.errors import (
    BrokerError,
    ConnectionLostError,
    IllegalStateError,
    InvalidDestinationError,
    RequestTimeoutError,
)
from tests.unit.client.fakes import PERSISTENT, Scripted, run, send, turns


@pytest.mark.parametrize("ends", ["close", "connection", "refused"])
def test_a_message_on_its_way_is_in_doubt_and_one_that_never_left_is_not(ends: str) -> None:
    async def work() -> None:
        scripted = Scripted()
        scripted.host.confirms = False
        producer = await scripted.producer(scripted.session())
        written = send(producer, b"1", b"2")
        await turns()
        producer._room.gate("slow")
        (waiting,) = send(producer, b"3")
        lingering: Future[str] = Future()
        producer.put(b"4", b"", PERSISTENT, lingering, urgent=False)
        await turns()
        if ends == "close":
            await producer.close()
        elif ends == "connection":
            await scripted.core.close()
        else:
            producer.fail(IllegalStateError("refused"))
        for future in written:
            error = future.exception(0)
            assert isinstance(error, BrokerError)
            assert not error.definite, "it may be stored"
        for future in (waiting, lingering):
            error = future.exception(0)
            assert isinstance(error, IllegalStateError)
            assert error.definite, "it never left"

    run(work)


def test_an_outcome_is_unknown_unless_the_destination_is_gone() -> None:
    assert isinstance(unknown_outcome(IllegalStateError("closed")), ConnectionLostError)
    for error in (ConnectionLostError("x"), RequestTimeoutError("x"), InvalidDestinationError("destroyed")):
        assert unknown_outcome(error) is error


def test_everything_is_closed_before_the_first_error_is_raised() -> None:
    faults: list[BrokerError] = []
    closed = []
    for number in range(4):
        with collected(faults):
            closed.append(number)
            if number % 2:
                raise IllegalStateError(f"no {number}")
    assert closed == [0, 1, 2, 3]
    with pytest.raises(IllegalStateError, match="no 1") as raised:
        raise_first(faults)
    assert raised.value.__notes__ == ["and: no 3"]
    raise_first([])


def test_an_error_of_closing_is_a_note_of_the_one_that_ended_the_block() -> None:
    error = ValueError("the application's")
    with noted_on(error):
        raise IllegalStateError("full")
    assert error.__notes__ == ["while closing: full"]
    with pytest.raises(IllegalStateError), noted_on(None):
        raise IllegalStateError("full")
