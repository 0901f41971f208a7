"""Every type of effect has one handler."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.core.outcome import DeadLetter, Idle, Retire
from raybroker.engine.path.effect_dispatcher import EffectDispatcher


def handler(destination: Any, effect: Any) -> None:
    raise AssertionError("it is registered and not called")


def test_handlers_of_several_parts_stand_in_one_table() -> None:
    dispatcher = EffectDispatcher()
    table = dispatcher.handlers
    dispatcher.register({Idle: handler})
    dispatcher.register({Retire: handler, DeadLetter: handler})
    assert table == {Idle: handler, Retire: handler, DeadLetter: handler}, "whoever has the table sees all of them"


def test_a_second_handler_is_refused_and_nothing_of_it_is_taken() -> None:
    dispatcher = EffectDispatcher()
    dispatcher.register({Idle: handler})
    with pytest.raises(ValueError, match=r"two handlers for Idle$"):
        dispatcher.register({Retire: handler, Idle: handler})
    assert set(dispatcher.handlers) == {Idle}
