"""Handlers of signals wait while they are held back, and run afterwards."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from raybroker.client.io import held_signals
from raybroker.client.io.held_signals import HeldSignals

pytestmark = pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="handlers of signals are set in the main thread"
)


class StoppedError(Exception):
    pass


def stop(number: int, frame: object) -> None:
    raise StoppedError(number)


@pytest.fixture
def handle() -> Iterator[Callable[[int, Any], None]]:
    before: dict[int, Any] = {}

    def set_handler(number: int, handler: Any) -> None:
        before.setdefault(number, signal.getsignal(number))
        signal.signal(number, handler)

    yield set_handler
    for number, handler in before.items():
        signal.signal(number, handler)


def arrive(number: int) -> None:
    signal.raise_signal(number)


def test_a_signal_that_arrives_meanwhile_is_handled_at_the_end(handle: Callable[[int, Any], None]) -> None:
    handle(signal.SIGUSR1, stop)
    held = HeldSignals(lambda: None)
    held.hold()
    arrive(signal.SIGUSR1)
    arrive(signal.SIGUSR1)
    with pytest.raises(StoppedError):
        held.release()
    assert signal.getsignal(signal.SIGUSR1) is stop
    with pytest.raises(StoppedError):
        arrive(signal.SIGUSR1)


def test_while_it_is_interruptible_a_handler_runs_at_once_and_is_announced(handle: Callable[[int, Any], None]) -> None:
    handle(signal.SIGUSR1, stop)
    announced: list[bool] = []
    held = HeldSignals(lambda: announced.append(True))
    held.hold()
    held.interruptible = True
    with pytest.raises(StoppedError):
        arrive(signal.SIGUSR1)
    held.interruptible = False
    held.release()
    assert announced == [True]
    assert signal.getsignal(signal.SIGUSR1) is stop


def test_a_handler_that_sets_another_one_has_its_way(handle: Callable[[int, Any], None]) -> None:
    def once(number: int, frame: object) -> None:
        signal.signal(number, stop)

    handle(signal.SIGUSR1, once)
    held = HeldSignals(lambda: None)
    held.hold()
    held.interruptible = True
    arrive(signal.SIGUSR1)
    held.interruptible = False
    held.release()
    assert signal.getsignal(signal.SIGUSR1) is stop


def test_all_that_arrived_are_handled_and_the_first_error_is_raised(handle: Callable[[int, Any], None]) -> None:
    seen: list[int] = []
    handle(signal.SIGUSR1, stop)
    handle(signal.SIGUSR2, lambda number, frame: seen.append(number))
    held = HeldSignals(lambda: None)
    held.hold()
    arrive(signal.SIGUSR1)
    arrive(signal.SIGUSR2)
    with pytest.raises(StoppedError):
        held.release()
    assert seen == [signal.SIGUSR2]
    held.hold()
    held.release()
    assert seen == [signal.SIGUSR2]


def test_what_is_ignored_or_the_systems_is_left_alone(handle: Callable[[int, Any], None]) -> None:
    handle(signal.SIGUSR1, signal.SIG_IGN)
    handle(signal.SIGUSR2, signal.SIG_DFL)
    held = HeldSignals(lambda: None)
    held.hold()
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
    held.release()


def test_the_functions_of_signals_without_enumerations_are_there(handle: Callable[[int, Any], None]) -> None:
    handle(signal.SIGUSR1, stop)
    assert held_signals._handler_of(signal.SIGUSR1) is stop
    assert held_signals._set_handler(signal.SIGUSR1, arrive) is stop
    assert signal.getsignal(signal.SIGUSR1) is arrive
