"""Which brokers are tried as the home of a connection, in which order and how often (R-13)."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from raybroker.client.cluster.addresses import (
    Addresses,
    ReconnectTime,
    address_list,
    reconnect_attempts,
    reconnect_time,
)
from raybroker.client.connection import factory
from raybroker.client.io.io_thread import IoThread
from raybroker.config import Config
from raybroker.errors import ConfigError, NoClusterError


def attributes(**more: object) -> Config:
    return Config.from_values({f"imq{name}": value for name, value in more.items()})


def test_a_list_is_names_with_commas_between_each_once() -> None:
    assert address_list("") == ()
    assert address_list(" b1, b2 ,,b1,b3,") == ("b1", "b2", "b3")


@pytest.mark.parametrize("text", ["mq://localhost:7676/jms", "b1,host:7676", "mqssl://b1", "b1/jms"])
def test_addresses_of_services_are_no_names_of_brokers(text: str) -> None:
    with pytest.raises(ConfigError, match="nor mq://host:port"):
        address_list(text)


def test_what_is_no_name_is_refused_with_the_name_of_the_attribute() -> None:
    with pytest.raises(ConfigError, match="imqAddressList"):
        address_list("b1,-b2")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, [("a", False), ("b", False)]),
        ({"AddressListIterations": 2}, [("a", False), ("b", False), ("a", True), ("b", False)]),
        ({"ReconnectAttempts": 2}, [("a", False), ("a", True), ("b", False), ("b", True)]),
        ({"ReconnectAttempts": 0}, [("a", False), ("b", False)]),
    ],
)
def test_each_broker_has_its_attempts_and_then_the_next_one(more: Any, expected: list[tuple[str, bool]]) -> None:
    assert list(Addresses(attributes(AddressList="a,b", **more)).tries()) == expected


def test_without_an_end_the_list_is_gone_through_again_and_again() -> None:
    tries = Addresses(attributes(AddressList="a,b", AddressListIterations=-1)).tries()
    assert list(islice(tries, 1001))[-1] == ("a", True)


def test_a_random_order_has_all_brokers_and_is_another_one_each_time() -> None:
    drawn = iter([b"3", b"1", b"2", b"1", b"2", b"3"])
    random = attributes(AddressList="a,b,c", AddressListBehavior="RANDOM")
    assert Addresses(random, lambda _: next(drawn)).names == ("b", "c", "a")
    assert Addresses(random, lambda _: next(drawn)).names == ("a", "b", "c")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, -1),
        ({"ReconnectAttempts": 3}, 3),
        ({"ReconnectAttempts": 3, "ReconnectEnabled": False}, 0),
        ({"AddressList": "a,b"}, -1),
        ({"AddressList": "a,b", "ReconnectAttempts": 0}, 0),
        ({"AddressList": "a,b", "ReconnectAttempts": 3, "AddressListIterations": 2}, 12),
        ({"AddressList": "a,b", "ReconnectAttempts": 3, "AddressListIterations": -1}, -1),
    ],
)
def test_attempts_to_come_back_are_those_at_each_broker_of_the_list(more: Any, expected: int) -> None:
    assert reconnect_attempts(attributes(**more)) == expected


class Seam:
    """Stands in for Ray: the brokers that run, after so many looks for one of them."""

    def __init__(self, *running: str, after: int = 0) -> None:
        self.running, self.after = running, after
        self.asked: list[str | None] = []

    def find(self, cluster: str, broker: str | None, addresses: Any = ()) -> Any:
        self.asked.append(broker)
        if broker is not None and (broker not in self.running or len(self.asked) <= self.after):
            raise NoClusterError(f"no {broker}")
        return broker, tuple(addresses)


def look(monkeypatch: pytest.MonkeyPatch, seam: Seam, broker: str | None = None, **more: object) -> Any:
    monkeypatch.setattr(factory, "ray_seam", seam)
    return factory._directory("c", broker, attributes(ReconnectInterval=1, **more), IoThread.shared())


def test_the_first_broker_of_the_list_that_runs_is_the_home_and_only_the_listed_may_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert look(monkeypatch, Seam("b2", "b3", "b9"), AddressList="b1,b2,b3") == ("b2", ("b1", "b2", "b3"))


def test_a_broker_that_was_named_wins_and_without_a_list_any_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    assert look(monkeypatch, Seam("b1", "b2"), "b2", AddressList="b1") == ("b2", ())
    assert look(monkeypatch, Seam("b1")) == (None, ())


def test_the_list_is_gone_through_as_often_as_it_says_before_giving_up(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = Seam()
    with pytest.raises(NoClusterError, match=r"'b1,b2' runs, after 6 tries in 3 passes .*no b2"):
        look(monkeypatch, nowhere, AddressList="b1,b2", AddressListIterations=3)
    assert nowhere.asked == ["b1", "b2"] * 3
    late = Seam("b2", after=5)
    assert look(monkeypatch, late, AddressList="b1,b2", AddressListIterations=3)[0] == "b2"
    assert len(late.asked) == 6


def test_no_list_is_gone_through_longer_than_the_reconnect_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seam = Seam()
    monkeypatch.setattr(factory, "ray_seam", seam)
    config = Config.from_values(
        {
            "imqAddressList": "b1",
            "imqAddressListIterations": -1,
            "imqReconnectInterval": 1,
            "raybroker.reconnect.timeout_ms": 30,
        }
    )
    with pytest.raises(NoClusterError):
        factory._directory("c", None, config, IoThread.shared())
    assert len(seam.asked) > 1


# ---- coming back -----------------------------------------------------------------------------------------------------

TIME = "raybroker.reconnect.timeout_ms"


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        ({}, (30, None)),
        ({"imqReconnectAttempts": -1}, (None, None)),
        ({"imqReconnectAttempts": -1, TIME: 30_000}, (30, None)),
        ({"imqReconnectAttempts": 5}, (30, 5)),
        ({"imqReconnectAttempts": 5, TIME: 1_000}, (1, 5)),
        ({"imqReconnectAttempts": -1, "imqReconnectEnabled": False}, (30, 0)),
        ({"imqReconnectAttempts": -1, "imqAddressList": "b1,b2"}, (None, None)),
        ({"imqReconnectAttempts": 2, "imqAddressList": "b1,b2", "imqAddressListIterations": 3}, (30, 12)),
        ({"imqReconnectAttempts": 2, "imqAddressList": "b1,b2", "imqAddressListIterations": -1}, (30, None)),
    ],
)
def test_how_long_and_how_often_a_handle_tries_to_come_back(given: dict[str, Any], limits: tuple[Any, Any]) -> None:
    assert reconnect_time(Config.from_values(given)) == limits


def test_giving_up_says_which_limit_was_reached() -> None:
    assert ReconnectTime(None, None).over(1e9, 1_000_000) == ""
    both = ReconnectTime(30, 5)
    assert both.over(30, 4) == ""
    assert both.over(30.1, 4) == "gave up after 30 s (raybroker.reconnect.timeout_ms)"
    assert both.over(1, 5) == "gave up after 5 attempts (imqReconnectAttempts)"
    assert "imqReconnectEnabled=false" in ReconnectTime(30, 0).over(0, 0)
