"""The dispatch gate of a queue: when messages are handed out, by how many consumers there are and since when."""

from __future__ import annotations

from raybroker.core.delivery.dispatch_gate import DispatchGate
from raybroker.model.settings.settings import DestinationAttributes


def wants(consumers: int, delay_ms: int = -1) -> DestinationAttributes:
    return DestinationAttributes(consumersBeforeDispatch=consumers, delayBeforeDispatch=delay_ms)


def test_it_opens_with_the_last_consumer_wanted_and_stays_open_while_one_is_left() -> None:
    gate, attributes = DispatchGate(), wants(3)
    assert [gate.is_open_for(consumers, attributes, 0) for consumers in (0, 1, 2, 3, 2, 1)] == [False] * 3 + [True] * 3
    assert gate.is_open_for(0, attributes, 0) is False
    assert gate.is_open_for(2, attributes, 0) is False, "a queue that nobody was left at waits anew"


def test_the_delay_counts_from_the_first_consumer() -> None:
    gate, attributes = DispatchGate(), wants(5, 100)
    assert gate.until_ms(attributes) is None
    assert not gate.is_open_for(1, attributes, 1_000)
    assert not gate.is_open_for(2, attributes, 1_060)
    assert gate.until_ms(attributes) == 1_100
    assert not gate.is_open_for(2, attributes, 1_099)
    assert gate.is_open_for(2, attributes, 1_100)
    assert gate.until_ms(attributes) is None, "nothing is waited for any more"


def test_the_delay_begins_anew_with_the_first_one_after_all_have_left() -> None:
    gate, attributes = DispatchGate(), wants(5, 100)
    gate.is_open_for(1, attributes, 1_000)
    gate.is_open_for(0, attributes, 1_050)
    assert not gate.is_open_for(1, attributes, 1_120)
    assert gate.until_ms(attributes) == 1_220


def test_a_delay_of_zero_waits_for_nobody_and_none_waits_for_ever() -> None:
    assert DispatchGate().is_open_for(1, wants(5, 0), 7)
    gate = DispatchGate()
    assert not gate.is_open_for(1, wants(5), 0)
    assert not gate.is_open_for(4, wants(5), 10**12)
    assert gate.until_ms(wants(5)) is None


def test_a_lower_number_opens_it_and_a_higher_one_does_not_close_it() -> None:
    gate = DispatchGate()
    assert not gate.is_open_for(1, wants(3), 0)
    assert gate.is_open_for(1, wants(1), 0)
    assert gate.is_open_for(1, wants(9), 0)
