"""Who is called after a command of a destination."""

from __future__ import annotations

from raybroker.core.destination import Destination
from raybroker.core.queue import Queue
from raybroker.engine.path.observers import Observers
from raybroker.model.settings.settings import DestinationAttributes


def test_those_of_a_destination_are_called_in_the_order_in_which_they_came() -> None:
    observers, destination, other = Observers(), *(Queue(n, f"q{n}", DestinationAttributes()) for n in (1, 2))
    heard: list[tuple[str, int]] = []

    def first(destination: Destination) -> None:
        heard.append(("first", destination.number))

    def second(destination: Destination) -> None:
        heard.append(("second", destination.number))

    observers.add(destination.number, first)
    observers.add(destination.number, second)
    observers.add(other.number, second)
    for look in observers.by_destination[1]:
        look(destination)
    assert heard == [("first", 1), ("second", 1)]
    observers.remove(destination.number, first)
    observers.remove(destination.number, first)
    assert observers.by_destination == {1: (second,), 2: (second,)}
    observers.remove(destination.number, second)
    assert 1 not in observers.by_destination
