"""Client ids that several connections have, subscriptions that these share, and the default user of a factory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.config import Config
from raybroker.errors import ConfigError, IllegalStateError, InvalidClientIDError, SecurityError
from tests.contracts.test_services import RULES, Outside

FREE = {"ClientIdPolicy": "Unrestricted"}
SHARED = {**FREE, "SubscriptionSharingPolicy": "Sharable"}


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    with ExitStack() as opened:
        yield Outside(tmp_path, opened)


def bodies(consumer: Any, most: int = 100, timeout: float = 0.3) -> list[Any]:
    found = []
    while len(found) < most and (message := consumer.receive(timeout)) is not None:
        found.append(message.body)
    return found


def both(one: Any, other: Any, count: int) -> tuple[list[Any], list[Any]]:
    """What the two consumers get of so many messages; as soon as all are there."""
    found: tuple[list[Any], list[Any]] = ([], [])
    for _ in range(100):
        for consumer, got in zip((one, other), found, strict=True):
            got.extend(bodies(consumer))
        if len(found[0]) + len(found[1]) >= count:
            break
    return found


def test_an_unrestricted_client_id_is_of_several_and_a_restricted_one_of_one(outside: Outside) -> None:
    def used(**more: Any) -> Any:
        connection = outside.connect("ann", client_id="me", **more)
        connection.session().producer("q").send("x")
        return connection

    used(**FREE)
    used(**FREE)
    first = used()
    used(**FREE)
    with pytest.raises(InvalidClientIDError, match=r"'me' is in use .* ClientIdPolicy=Unrestricted"):
        used()
    first.close()
    used()
    with pytest.raises(ConfigError, match=r"Restricted, Unrestricted"):
        outside.connect("ann", ClientIdPolicy="free")


def test_a_sharable_durable_subscription_is_drained_by_connections_together(outside: Outside) -> None:
    def opened(**more: Any) -> Any:
        session = outside.connect("ann", client_id="me", **more).session()
        return session.durable_consumer(session.topic("news"), "all", prefetch=1)

    one, other = opened(**SHARED), opened(**SHARED)
    for wrong in (FREE, {}):
        with pytest.raises(IllegalStateError):
            opened(**wrong)
    sender = outside.connect("ann").session()
    sender.producer(sender.topic("news")).send_many(range(40))
    got = both(one, other, 40)
    assert sorted(got[0] + got[1]) == list(range(40))
    assert all(got), "each of them had some"
    one.close()
    other.close()
    sender.producer(sender.topic("news")).send("kept")
    assert bodies(opened(**SHARED), 1, 30) == ["kept"]
    (row,) = outside.admin.list_subscriptions("news")
    assert (row["name"], row["client_id"], row["shared"]) == ("all", "me", True)


def test_plain_subscribers_share_by_client_id_topic_and_selector(outside: Outside) -> None:
    def opened(client_id: str | None, selector: str | None = None, **more: Any) -> Any:
        session = outside.connect("ann", client_id=client_id, **{**SHARED, **more}).session()
        return session.consumer(session.topic("news"), selector, prefetch=1)

    mine, too, other = opened("me"), opened("me"), opened("other")
    nobody, nobody_else = opened(None), opened(None)
    chosen, alone = opened("me", "n > 5"), opened("me", SubscriptionSharingPolicy="Exclusive")
    sender = outside.connect("ann").session()
    producer = sender.producer(sender.topic("news"))
    for number in range(10):
        producer.send(number, {"n": number})
    got = both(mine, too, 10)
    assert sorted(got[0] + got[1]) == list(range(10))
    for consumer in (other, nobody, nobody_else, alone):
        assert bodies(consumer, 10, 30) == list(range(10))
    assert bodies(chosen, 4, 30) == [6, 7, 8, 9]
    session = outside.connect("ann", client_id="me", **SHARED).session()
    with pytest.raises(ConfigError, match="SubscriptionSharingPolicy=Sharable several share"):
        session.consumer(session.topic("news"), no_local=True)
    assert session.consumer(session.queue("q")) is not None
    assert session.consumer(session.topic("news.*")) is not None


def test_who_may_not_consume_shares_nothing(outside: Outside) -> None:
    outside.rules.write_text(RULES + "topic.news.consume.deny.user=bob\n")
    outside.connect("ann", client_id="me", **SHARED).session().durable_consumer("topic:news", "all")
    thief = outside.connect("bob", client_id="me", **SHARED).session()
    for attempt in (lambda: thief.durable_consumer("topic:news", "all"), lambda: thief.consumer("topic:news")):
        with pytest.raises(SecurityError, match="may not consume"):
            attempt()


# ---- the default user of a factory -----------------------------------------------------------------------------------


def test_the_default_user_is_for_programs_that_name_none(outside: Outside) -> None:
    factory = rb.ConnectionFactory(imqDefaultUsername="ann", imqDefaultPassword="secret", imqAddressList=outside.url())
    with factory.connect() as one, factory.connect(username="bob", password="secret") as other:
        one.session().producer("q").send("x")
        other.session().producer("q").send("y")
        assert sorted(row["user"] for row in outside.admin.list_connections()) == ["ann", "bob"]
    named = rb.ConnectionFactory(
        imqDefaultUsername="ann", imqDefaultPassword="secret", imqConfiguredClientID="${u}-reader"
    )
    with named.connect(outside.url()) as third:
        assert third.client_id == "${u:ann}-reader"
    assert "secret" not in repr(factory)


def test_a_default_user_that_cannot_be_right_is_refused(outside: Outside) -> None:
    wrong = rb.ConnectionFactory(imqDefaultUsername="ann", imqDefaultPassword="guessed")
    with pytest.raises(SecurityError):
        wrong.connect(outside.url())
    for half in ({"imqDefaultUsername": "ann"}, {"imqDefaultPassword": "secret"}):
        with pytest.raises(ConfigError, match="together, or neither"):
            rb.connect(outside.url(), **half)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="a username and a password"):
        rb.connect(outside.url())
    with pytest.raises(ConfigError, match="give no username and password beside it") as caught:
        rb.connect(outside.url(), token="t", username="ann", imqDefaultUsername="ann", imqDefaultPassword="secret")
    assert "secret" not in str(caught.value)


def test_a_password_is_no_property_of_a_broker(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('imqDefaultPassword = "geheim"\n')
    with pytest.raises(ConfigError, match="line 1: imqDefaultPassword is for a ConnectionFactory alone") as caught:
        Config.load(cluster_file=path, environ={})
    assert "geheim" not in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        rb.ConnectionFactory(imqDefaultPassword="geheim" * 1000)
    assert "geheim" not in str(caught.value)
    assert "imqDefaultPassword" not in dict.fromkeys(name for name, _, _ in Config.from_values({}).explain())


# ---- closing in a listener -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize("what", ["close connection", "stop connection", "close session"])
def test_a_listener_may_end_its_own_session_unless_it_is_forbidden(outside: Outside, what: str, allowed: bool) -> None:
    import threading

    connection = outside.connect("ann", AllowCloseInOnMessage=allowed)
    session, other = connection.session(), connection.session()
    told: list[BaseException | None] = []
    done = threading.Event()

    def listen(message: Any) -> None:
        try:
            {"close connection": connection.close, "stop connection": connection.stop, "close session": session.close}[
                what
            ]()
            told.append(None)
        except IllegalStateError as error:
            told.append(error)
        if not allowed:
            other.close()
        done.set()

    session.consumer("q").on_message(listen)
    outside.inside.session().producer("q").send("go")
    assert done.wait(60)
    if allowed:
        assert told == [None]
        return
    assert "AllowCloseInOnMessage=false forbids" in str(told[0])
    outside.inside.session().producer("q").send("still called")
    for _ in range(600):
        if len(told) == 2:
            break
        threading.Event().wait(0.1)
    assert len(told) == 2
    session.close()
    connection.close()
