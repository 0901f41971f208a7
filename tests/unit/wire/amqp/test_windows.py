"""The arithmetic of session windows."""

from __future__ import annotations

import pytest

from raybroker.model.errors import IllegalStateError
from raybroker.wire.amqp.conditions import INVALID_FIELD, WINDOW_VIOLATION, SessionViolation
from raybroker.wire.amqp.performatives import U32
from raybroker.wire.amqp.windows import SessionWindow


@pytest.mark.parametrize("most", [1, 2, 3, 10])
def test_a_new_window_is_told_before_the_old_one_is_used_up(most: int) -> None:
    window = SessionWindow(most)
    window.begun(U32, 5)
    told = [window.received() for _ in range(most)]
    assert told[-1]
    assert told == sorted(told)
    assert told.count(False) == (most - 1) // 2
    assert window.next_incoming_id == (most - 1) & U32
    with pytest.raises(SessionViolation) as raised:
        window.received()
    assert raised.value.condition == WINDOW_VIOLATION


def test_what_may_be_sent_is_what_the_peer_takes_from_where_it_is() -> None:
    window = SessionWindow(1)
    window.next_outgoing_id = U32
    window.begun(0, 3)
    for left in (2, 1, 0):
        window.sent()
        assert window.outgoing == left
    with pytest.raises(IllegalStateError):
        window.sent()
    assert window.next_outgoing_id == 2
    window.flowed(0, 10)  # It has received one of the three.
    assert window.outgoing == 8
    window.flowed(2, U32)
    assert window.outgoing == U32
    window.flowed(0, 1)
    assert window.outgoing == 0


def test_a_peer_that_has_received_nothing_names_no_number() -> None:
    window = SessionWindow(1)
    window.begun(0, 3)
    window.sent()
    window.flowed(None, 5)
    assert window.outgoing == 4


def test_a_peer_cannot_have_received_what_was_not_sent() -> None:
    window = SessionWindow(1)
    window.begun(0, 3)
    with pytest.raises(SessionViolation) as raised:
        window.flowed(1, 5)
    assert raised.value.condition == INVALID_FIELD
