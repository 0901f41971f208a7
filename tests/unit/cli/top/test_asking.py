"""Looks in a thread of their own: who does not answer holds up nothing but figures, and another connection is made."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from raybroker.cli.top.asking import Asker, Looking
from raybroker.cli.top.figures import Sight
from raybroker.errors import BrokerError, ConfigError, ConnectionLostError, NoClusterError, SecurityError
from raybroker.model.listing import Listing

WAIT_S = 60.0


class Admin:
    """Answers as told, and notes what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.opened = self.closed = 0
        self.errors: dict[str, BrokerError] = {}
        self.held = threading.Event()
        self.held.set()

    @contextmanager
    def open(self) -> Iterator[Any]:
        self.opened += 1
        if "open" in self.errors:
            raise self.errors["open"]
        yield self
        self.closed += 1

    def __getattr__(self, verb: str) -> Callable[[], Listing]:
        def call() -> Listing:
            self.asked.append(verb)
            self.held.wait(WAIT_S)
            if verb in self.errors:
                raise self.errors[verb]
            return Listing([{"name": "a", "type": "queue", "state": "RUNNING"}] if verb == "list_destinations" else [])

        return call


def test_the_first_look_raises_and_the_others_tell() -> None:
    admin = Admin()
    admin.errors["open"] = NoClusterError("no cluster")
    with pytest.raises(NoClusterError):
        Looking(admin.open).first("destinations")
    sight = Looking(admin.open).sample("destinations")
    assert sight.failure is not None
    assert sight.failure.why == "no cluster"


def test_what_alarms_alone_are_of_is_asked_for_less_often() -> None:
    admin, now = Admin(), [0]

    class Clock:
        def monotonic_ns(self) -> int:
            return now[0]

        def now_ms(self) -> int:
            return 0

    looking = Looking(admin.open, Clock())  # type: ignore[arg-type]
    for second in range(0, 11, 2):
        now[0] = second * 1_000_000_000
        looking.sample("consumers", alarms_s=5)
    counts = {verb: admin.asked.count(verb) for verb in set(admin.asked)}
    assert counts == {
        "list_destinations": 6,
        "list_brokers": 6,
        "list_consumers": 6,
        **dict.fromkeys(("check_broker", "check_cluster", "check_services", "list_transactions"), 2),
    }


def test_a_lost_connection_is_made_again_and_what_was_told_stays() -> None:
    admin = Admin()
    looking = Looking(admin.open)
    looking.first("destinations")
    admin.errors["list_destinations"] = ConnectionLostError("the broker is gone")
    sight = looking.sample("destinations")
    assert sight.failure is not None
    assert (len(sight.rows["destinations"]), admin.opened, admin.closed) == (1, 1, 1)
    admin.errors.clear()
    assert looking.sample("destinations").failure is None
    assert admin.opened == 2
    looking.close()
    assert admin.closed == 2


def test_a_verb_that_is_refused_leaves_the_others() -> None:
    admin = Admin()
    admin.errors |= {"list_connections": SecurityError("ann may not"), "check_services": ConfigError("no services")}
    sight = Looking(admin.open).sample("connections")
    assert sight.failure is None
    assert [absence.why for absence in sight.absent.values()] == ["ann may not"]
    assert len(sight.rows["destinations"]) == 1


def test_an_answer_that_does_not_come_holds_nobody_up() -> None:
    admin = Admin()
    looking, sights, told = Looking(admin.open), list[Sight](), threading.Event()
    looking.first("destinations")

    def tell(sight: Sight) -> None:
        sights.append(sight)
        told.set()

    asker = Asker(looking, 0.001, tell, "destinations")
    asker.start()
    assert told.wait(WAIT_S)
    admin.held.clear()
    asker.show("consumers", paused=False)
    asker.stop()
    looking.close()  # It waits for a moment, and leaves the connection to the end of the program.
    admin.held.set()


def test_nothing_is_asked_while_it_is_paused_and_another_view_at_once() -> None:
    admin = Admin()
    looking, views = Looking(admin.open), list[bool]()
    told = threading.Event()

    def tell(sight: Sight) -> None:
        views.append("consumers" in sight.told_ns)
        told.set()

    asker = Asker(looking, 1000, tell, "destinations")
    asker.show("destinations", paused=True)
    asker.start()
    asker.show("consumers", paused=False)
    assert told.wait(WAIT_S)
    assert views == [True]
    asker.stop()
    looking.close()
