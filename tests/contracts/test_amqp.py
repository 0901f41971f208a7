"""AMQP 1.0 (F1): what a client sees that is the engine of wire/amqp behind a socket."""

from __future__ import annotations

import shutil
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from raybroker.security.user_file import UserEntry, UserFile
from raybroker.wire.amqp.conditions import (
    CONNECTION_REDIRECT,
    ILLEGAL_STATE,
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_FOUND,
    TRANSACTION_ROLLBACK,
    UNAUTHORIZED_ACCESS,
    UNKNOWN_ID,
)
from raybroker.wire.amqp.events import LinkDetached, SessionEnded
from raybroker.wire.amqp.limits import AmqpLimits
from raybroker.wire.amqp.performatives import (
    ACCEPTED,
    AmqpAccepted,
    AmqpModified,
    AmqpRejected,
    AmqpReleased,
    AmqpTarget,
    TransactionalState,
)
from raybroker.wire.amqp.sections import MessageSections
from raybroker.wire.amqp.types import Byte, Described, Symbol, Timestamp, Ulong
from tests.contracts.amqp_rig import AmqpPeer, AmqpRig, RefusedError, bodies, body, message, symbols
from tests.contracts.handles import dead, until
from tests.contracts.stomp_rig import VERIFIER, VERIFIERS
from tests.contracts.test_gateway_cluster import PASSWORD, Gateways
from tests.unit.security.certificates import Authority

SOLE = "sole-connection-for-container"
SELECTOR = 0x468C00000004
NO_LOCAL = 0x468C00000003
NAME = Symbol("jms-selector")


def selects(text: str) -> dict[str, Any]:
    return {"source": {"filter": {NAME: Described(SELECTOR, text)}}}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpRig]:
    with ExitStack() as opened:
        yield AmqpRig(tmp_path_factory.mktemp("amqp"), opened)


@pytest.fixture
def peer(rig: AmqpRig) -> AmqpPeer:
    return rig.peer(container=f"c{time.monotonic_ns()}")


def header(delivery: Any) -> Any:
    return MessageSections(delivery.payload).header


# ---- login and open --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_client_logs_in_by_each_mechanism_and_is_told_what_the_broker_offers(rig: AmqpRig, mechanism: str) -> None:
    peer = rig.peer(mechanism=mechanism, container=mechanism)
    assert peer.offered == ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "ANONYMOUS")
    told: Any = peer.engine.peer
    assert set(told.offered_capabilities) == {SOLE, "DELAYED_DELIVERY", "ANONYMOUS-RELAY", "SHARED-SUBS"}
    assert told.properties["product"] == "raybroker"
    rows = rig.admin.list_connections()
    assert [row["user"] for row in rows if row["client_id"] == mechanism] == ["ann"]
    peer.end()


@pytest.mark.parametrize(
    ("user", "mechanism"),
    [
        ("nobody", "PLAIN"),
        ("nobody", "SCRAM-SHA-256"),
        ("nobody", "SCRAM-SHA-512"),
        ("stranger", "PLAIN"),
        ("ann", "ANONYMOUS"),
    ],
)
def test_who_may_not_come_in_is_refused_at_the_login(rig: AmqpRig, user: str, mechanism: str) -> None:
    """There is no user guest."""
    with pytest.raises(RefusedError):
        rig.peer(user, mechanism=mechanism)


def test_a_container_that_wants_to_be_the_only_one_is(rig: AmqpRig) -> None:
    first = rig.peer(container="alone", desired_capabilities=symbols(SOLE))
    with pytest.raises(RefusedError) as caught:
        rig.peer(container="alone", desired_capabilities=symbols(SOLE))
    assert caught.value.error.condition == INVALID_FIELD
    assert caught.value.error.info == {"invalid-field": "container-id"}
    first.engine.send_close()
    first.until(lambda: first.engine.closed)
    first.end()
    until(lambda: _opens(rig, "alone"))


def _opens(rig: AmqpRig, container: str) -> bool:
    try:
        rig.peer(container=container, desired_capabilities=symbols(SOLE)).end()
    except RefusedError:
        return False
    return True


def test_others_may_have_several_connections_of_one_container(rig: AmqpRig) -> None:
    for _ in range(2):
        rig.peer(container="several")


def test_a_client_that_says_nothing_is_closed_after_the_time_of_the_handshake(rig: AmqpRig) -> None:
    silent = rig.peer(open=False)
    with pytest.raises(RefusedError):
        silent.until(lambda: False)


# ---- send, receive, settle -------------------------------------------------------------------------------------------


def test_the_bare_message_passes_as_it_came(rig: AmqpRig, peer: AmqpPeer) -> None:
    name = rig.name()
    sent = message({"k": [1, "ö"]}, annotations={"x-any": 1}, message_id="m", subject="s", named={"n": 2})
    assert peer.send(peer.sender(name), sent) == [ACCEPTED]
    peer.receiver(name)
    (got,) = peer.receive()
    before, after = MessageSections(sent), MessageSections(got.payload)
    assert got.payload[after.kept_from :] == sent[before.kept_from :]
    assert header(got)[:2] == (True, 4)
    peer.settle([got])
    until(lambda: rig.state(name)["messages"] == 0)


def test_a_message_of_many_frames_comes_whole_both_ways(rig: AmqpRig, peer: AmqpPeer) -> None:
    name = rig.name()
    rig.admin.create_destination("queue", name, maxBytesPerMsg=-1)
    large = "x" * 3_000_000
    assert peer.send(peer.sender(name), message(large, named={"n": 7})) == [ACCEPTED]
    peer.receiver(name, **selects("n = 7"))
    (got,) = peer.receive()
    assert body(got) == large


def test_a_message_over_the_limit_is_rejected_and_told_why(rig: AmqpRig, peer: AmqpPeer) -> None:
    (state,) = peer.send(peer.sender(rig.name()), message("x" * 20_000))
    assert type(state) is AmqpRejected
    assert state.error is not None
    assert state.error.condition == MESSAGE_SIZE_EXCEEDED
    assert "imq.autocreate.destination.maxBytesPerMsg" in str(state.error.description)


def test_presettled_messages_are_not_answered_and_arrive(rig: AmqpRig, peer: AmqpPeer) -> None:
    name = rig.name()
    peer.send(peer.sender(name), *(message(n) for n in range(3)), settled=True)
    peer.receiver(name, snd_settle_mode=1)
    got = peer.receive(3)
    assert bodies(got) == [0, 1, 2]
    assert all(one.settled for one in got)
    until(lambda: rig.state(name)["messages"] == 0)


def test_priority_expiry_delay_and_group_are_those_of_the_message(rig: AmqpRig, peer: AmqpPeer) -> None:
    name, session = rig.name(), rig.inside.session()
    sender, now_ms = peer.sender(name), int(time.time() * 1000)
    later = message("later", annotations={"x-opt-delivery-time": Timestamp(now_ms + 300)})
    peer.send(sender, later, message("now", priority=8, ttl=60_000, group_id="g"))
    first: Any = session.receive(name, timeout=10)
    assert (first.body, first.priority, first.unit_of_order) == ("now", 8, "g")
    assert 0 < first.expiration - now_ms <= 61_000
    second: Any = session.receive(name, timeout=10)
    assert second.body == "later"
    assert time.time() * 1000 >= now_ms + 300


@pytest.mark.parametrize(
    ("state", "count"),
    [
        (AmqpReleased(), 0),
        (AmqpModified(), 0),
        (AmqpModified(delivery_failed=True), 1),
    ],
)
def test_what_is_given_back_comes_again_and_counts_if_it_failed(
    rig: AmqpRig, peer: AmqpPeer, state: Any, count: int
) -> None:
    name = rig.name()
    peer.send(peer.sender(name), message("again"))
    peer.receiver(name)
    (first,) = peer.receive()
    assert (header(first).delivery_count, header(first).first_acquirer) == (0, True)
    peer.settle([first], state)
    (second,) = peer.receive()
    assert header(second).delivery_count == count
    peer.settle([second])


@pytest.mark.parametrize("state", [AmqpRejected(), AmqpModified(delivery_failed=True, undeliverable_here=True)])
def test_what_is_rejected_is_dead_at_once(rig: AmqpRig, peer: AmqpPeer, state: Any) -> None:
    name = rig.name()
    peer.send(peer.sender(name), message("dead", message_id=f"ID:{name}"))
    peer.receiver(name)
    peer.settle(peer.receive(), state)
    until(lambda: rig.state(name)["messages"] == 0)
    assert [row["body"] for row in dead(rig.inside, f"JMSMessageID = 'ID:{name}'")] == ["dead"]


def test_what_is_accepted_in_one_read_is_gone_in_whatever_order_and_the_rest_is_not(
    rig: AmqpRig, peer: AmqpPeer
) -> None:
    name = rig.name()
    peer.send(peer.sender(name), *map(message, range(12)))
    receiver = peer.receiver(name)
    got = peer.receive(12)
    for n in (11, 1, 2, 8, 7, 3, 1):
        got[n].link.settle_deliveries([got[n].delivery_id], ACCEPTED)
    peer.flush()
    until(lambda: rig.state(name)["messages"] == 6)
    peer.close(receiver)
    peer.receiver(name)
    assert bodies(peer.receive(6)) == [0, 4, 5, 6, 9, 10]
    assert peer.nothing()


def test_a_disposition_that_does_not_settle_is_settled_by_the_broker(rig: AmqpRig, peer: AmqpPeer) -> None:
    name = rig.name()
    peer.send(peer.sender(name), message("x"))
    peer.receiver(name)
    (got,) = peer.receive()
    peer.settle([got], ACCEPTED, settled=False)
    peer.until(lambda: not got.link.lane.received)
    assert rig.state(name)["messages"] == 0


def test_what_is_unsettled_when_a_link_ends_goes_back_uncounted_and_with_the_connection_counted(
    rig: AmqpRig, peer: AmqpPeer
) -> None:
    name = rig.name()
    peer.send(peer.sender(name), message("x"))
    link = peer.receiver(name)
    peer.receive()
    peer.close(link)
    other = rig.peer(container="other")
    other.receiver(name)
    (got,) = other.receive()
    assert header(got).delivery_count == 0
    other.end()
    peer.receiver(name)
    (got,) = peer.receive()
    assert header(got).delivery_count == 1
    peer.settle([got])


# ---- credit and drain ------------------------------------------------------------------------------------------------


def test_nothing_comes_without_credit_and_others_may_have_it(rig: AmqpRig, peer: AmqpPeer) -> None:
    name = rig.name()
    link = peer.receiver(name, credit=0)
    peer.send(peer.sender(name), message(1), message(2), message(3))
    assert peer.nothing()
    link.grant(1)
    assert bodies(peer.receive()) == [1]
    other = rig.peer(container="other")
    other.receiver(name)
    assert bodies(other.receive(2)) == [2, 3]
    assert peer.nothing()


def test_a_drain_brings_what_there_is_and_gives_the_rest_back(rig: AmqpRig, peer: AmqpPeer) -> None:
    name = rig.name()
    link, sender = peer.receiver(name, credit=0), peer.sender(name)
    assert peer.drain(link, 10) == []
    peer.send(sender, message(1), message(2))
    assert bodies(peer.drain(link, 10)) == [1, 2]
    assert link.credit == 0
    peer.send(sender, message(3))
    assert peer.nothing(), "the credit was given back"
    assert bodies(peer.drain(link, 1)) == [3]


def test_a_drain_finds_what_was_just_given_back(rig: AmqpRig, peer: AmqpPeer) -> None:
    name = rig.name()
    peer.send(peer.sender(name), *(message(n) for n in range(5)))
    link = peer.receiver(name)
    peer.settle(peer.receive(5), AmqpModified(delivery_failed=True))
    assert bodies(peer.receive(5)) == [*range(5)]
    assert peer.drain(link, 5) == []


def test_what_was_asked_for_credit_that_is_taken_back_is_for_others(rig: AmqpRig, peer: AmqpPeer) -> None:
    name, other = rig.name(), rig.peer(container=rig.name())
    link = peer.receiver(name, credit=5)
    link.grant(2)
    assert peer.nothing()
    producer = rig.inside.session().producer(name)
    for number in range(5):
        producer.send(str(number))
    first = peer.receive(2)
    assert bodies(first) == ["0", "1"]
    assert peer.nothing()
    other.receiver(name)
    assert bodies(other.receive(3)) == ["2", "3", "4"]
    peer.settle(first)


def test_a_rollback_with_messages_ahead_begins_with_the_oldest(rig: AmqpRig, peer: AmqpPeer) -> None:
    """As Qpid JMS does it: credit and drain in one read, a rollback, and what had come ahead is released."""
    name, coordinator = rig.name(), peer.coordinator()
    producer = rig.inside.session().producer(name)
    for number in range(12):
        producer.send(str(number))
    link = peer.receiver(name, credit=2)
    for _ in range(6):
        transaction = peer.declare(coordinator)
        first = peer.receive(2)
        assert bodies(first) == ["0", "1"]
        peer.settle(first, TransactionalState(transaction, ACCEPTED))
        link.grant(2)
        ahead = peer.drain(link, 2)
        assert bodies(ahead) == ["2", "3"]
        peer.discharge(coordinator, transaction, fail=True)
        peer.settle(ahead, AmqpReleased())
        link.grant(2)
        peer.flush()


def test_a_browser_finds_everything_and_takes_nothing(rig: AmqpRig, peer: AmqpPeer) -> None:
    name = rig.name()
    peer.send(peer.sender(name), *(message(n, named={"n": n}) for n in range(4)))
    copy: dict[str, Any] = {
        "source": {"distribution_mode": Symbol("copy"), "filter": {NAME: Described(SELECTOR, "n > 0")}}
    }
    link = peer.receiver(name, "queue", credit=0, snd_settle_mode=1, **copy)
    assert bodies(peer.drain(link, 2)) == [1, 2]
    assert bodies(peer.drain(link, 2)) == [3]
    peer.close(link)
    peer.receiver(name)
    assert bodies(peer.receive(4)) == [*range(4)]


def test_messages_of_one_read_are_answered_each_by_what_became_of_it(rig: AmqpRig, peer: AmqpPeer) -> None:
    name = rig.name()
    rig.admin.create_destination("queue", name, maxNumMsgs=4, limitBehavior="REJECT_NEWEST", maxBytesPerMsg=5000)
    sender = peer.sender(name)
    rows = [message(0), message("x" * 9000), message(2, priority=9), message(3), b"none", message(5), message(6)]
    for n, payload in enumerate(rows):
        sender.send([payload], n)
    peer.until(lambda: len(peer.states) == len(rows))
    accepted = [n for n, state in sorted(peer.states.items()) if state == ACCEPTED]
    assert accepted == [0, 2, 3, 5]
    assert [type(state) for n, state in sorted(peer.states.items()) if n not in accepted] == [AmqpRejected] * 3
    peer.receiver(name)
    assert bodies(peer.receive(4)) == [2, 0, 3, 5]


def test_messages_of_one_read_keep_the_order_of_their_link_whatever_they_say(rig: AmqpRig, peer: AmqpPeer) -> None:
    name = rig.name()
    sender, other = peer.sender(name), peer.sender(rig.name())
    rows: list[tuple[dict[str, Any], bool]] = [
        ({}, False),
        ({}, False),
        ({"ttl": 60_000}, False),
        ({}, True),
        ({"group_id": "g"}, False),
        ({"group_id": "h"}, True),
        ({"group_id": "h"}, False),
        ({}, False),
    ]
    for n, (more, settled) in enumerate(rows):
        sender.send([message(n, **more)], n, settled=settled)
        other.send([message(n)], n + 100)
    awaited = [*(n for n, (_, settled) in enumerate(rows) if not settled), *(n + 100 for n in range(len(rows)))]
    peer.until(lambda: all(n in peer.states for n in awaited))
    assert set(peer.states.values()) == {ACCEPTED}
    peer.receiver(name)
    assert bodies(peer.receive(len(rows))) == [*range(len(rows))]


def test_messages_of_the_relay_go_each_to_its_queue_and_keep_their_order(rig: AmqpRig, peer: AmqpPeer) -> None:
    names = [rig.name(), rig.name()]
    relay = peer.sender(None)
    for name in names:
        peer.send(relay, message("first", to=name))
    targets = [0, 0, 1, 1, 1, 0, 1, 0, 0]
    for n, target in enumerate(targets):
        relay.send([message(n, to=names[target])], n)
    relay.send([message("lost")], "lost")
    peer.until(lambda: len(peer.states) == len(targets) + 3)
    assert type(peer.states.pop("lost")) is AmqpRejected
    assert set(peer.states.values()) == {ACCEPTED}
    for target, name in enumerate(names):
        peer.receiver(name)
        expected = ["first", *(n for n, found in enumerate(targets) if found == target)]
        assert bodies(peer.receive(len(expected))) == expected


@pytest.mark.parametrize("limit", [1, 3])
def test_messages_of_one_read_wait_for_room_one_after_the_other(rig: AmqpRig, peer: AmqpPeer, limit: int) -> None:
    name = rig.name()
    rig.admin.create_destination("queue", name, maxNumMsgs=limit, limitBehavior="FLOW_CONTROL")
    sender, session = peer.sender(name), rig.inside.session()
    for n in range(10):
        sender.send([message(n)], n)
    peer.flush()
    found: list[Any] = [session.receive(name, timeout=10) for _ in range(10)]
    assert [one.body for one in found] == [*range(10)]
    peer.until(lambda: len(peer.states) == 10)
    assert set(peer.states.values()) == {ACCEPTED}


def test_what_comes_before_the_end_of_its_link_is_stored(rig: AmqpRig, peer: AmqpPeer) -> None:
    name = rig.name()
    sender = peer.sender(name)
    for n in range(5):
        sender.send([message(n)], n)
    peer.close(sender)
    peer.receiver(name)
    assert bodies(peer.receive(5)) == [*range(5)]


def test_a_full_destination_holds_back_credit_until_there_is_room(rig: AmqpRig, peer: AmqpPeer) -> None:
    name = rig.name()
    rig.admin.create_destination("queue", name, maxNumMsgs=3, limitBehavior="FLOW_CONTROL")
    sender = peer.sender(name)
    for n in range(8):
        sender.send([message(n)], n)
    peer.flush()
    peer.until(lambda: len(peer.states) == 3)
    peer.receiver(name, credit=1)
    for n in range(8):
        (got,) = peer.receive()
        assert body(got) == n
        peer.settle([got])
        got.link.grant(1)
    peer.until(lambda: len(peer.states) == 8)
    assert set(peer.states.values()) == {ACCEPTED}


# ---- destinations ----------------------------------------------------------------------------------------------------


def test_a_topic_is_named_by_capability_or_by_prefix(rig: AmqpRig, peer: AmqpPeer) -> None:
    name = rig.name()
    peer.receiver(name, "topic")
    peer.receiver(f"topic://{name}")
    peer.send(peer.sender(f"/topic/{name}"), message("both"))
    assert bodies(peer.receive(2)) == ["both", "both"]


def test_selectors_and_no_local_are_obeyed_and_echoed_and_other_filters_are_not(rig: AmqpRig, peer: AmqpPeer) -> None:
    name = rig.name()
    filters = {
        NAME: Described(SELECTOR, "n > 1"),
        Symbol("no-local"): Described(NO_LOCAL, []),
        Symbol("other"): Described(Symbol("some:filter"), 1),
    }
    link: Any = peer.receiver(name, "topic", source={"filter": filters})
    assert set(link.peer.source.filter) == {"jms-selector", "no-local"}
    peer.send(peer.sender(name, "topic"), message("own", named={"n": 5}))
    other = rig.peer(container="other")
    other.send(other.sender(name, "topic"), message("low", named={"n": 1}), message("high", named={"n": 2}))
    assert bodies(peer.receive()) == ["high"]
    with pytest.raises(RefusedError) as caught:
        peer.receiver(name, **selects("n >"))
    assert caught.value.error.condition == INVALID_FIELD


def test_a_selector_finds_a_message_by_its_own_message_id(rig: AmqpRig, peer: AmqpPeer) -> None:
    name = rig.name()
    peer.send(peer.sender(name), message(1, message_id="ID:one"), message(2, message_id="ID:two"))
    peer.receiver(name, **selects("JMSMessageID = 'ID:two'"))
    assert bodies(peer.receive()) == [2]


def test_the_anonymous_relay_goes_where_each_message_says(rig: AmqpRig, peer: AmqpPeer) -> None:
    queue, topic = rig.name(), rig.name()
    relay = peer.sender(None)
    peer.receiver(topic, "topic")
    states = peer.send(
        relay,
        message("q", to=queue, annotations={"x-opt-jms-dest": Byte(0)}),
        message("t", to=topic, annotations={"x-opt-jms-dest": Byte(1)}),
        message("nowhere"),
    )
    assert list(map(type, states)) == [AmqpAccepted, AmqpAccepted, AmqpRejected]
    assert states[2].error.condition == NOT_FOUND
    assert bodies(peer.receive()) == ["t"]
    peer.receiver(queue)
    assert bodies(peer.receive()) == ["q"]


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_temporary_destination_lives_as_long_as_its_link(rig: AmqpRig, peer: AmqpPeer, kind: str) -> None:
    dynamic = {
        "dynamic": True,
        "dynamic_node_properties": {Symbol("lifetime-policy"): Described(Ulong(0x2B), [])},
        "expiry_policy": Symbol("link-detach"),
    }
    owner: Any = peer.sender(None, f"temporary-{kind}", target=dynamic)
    address = owner.peer.target.address
    consumer = peer.receiver(address, f"temporary-{kind}")
    other = rig.peer(container="other")
    other.send(other.sender(address, f"temporary-{kind}"), message("answer"))
    (got,) = peer.receive()
    assert body(got) == "answer"
    peer.settle([got])
    with pytest.raises(RefusedError) as caught:
        other.receiver(address, f"temporary-{kind}")
    assert caught.value.error.condition == NOT_FOUND
    assert "in use" in peer.close(owner).description
    peer.close(consumer)


def test_a_temporary_destination_is_gone_with_its_link(rig: AmqpRig, peer: AmqpPeer) -> None:
    owner: Any = peer.sender(None, "temporary-queue", target={"dynamic": True})
    address = owner.peer.target.address
    assert peer.close(owner) is None
    with pytest.raises(RefusedError):
        peer.sender(address, "temporary-queue")


def test_who_has_no_right_is_refused_the_link(rig: AmqpRig) -> None:
    mute = rig.peer("mute", container="mute")
    rig.admin.create_destination("queue", "there")
    for open_ in (mute.sender, mute.receiver):
        with pytest.raises(RefusedError) as caught:
            open_("there", "queue")
        assert caught.value.error.condition == UNAUTHORIZED_ACCESS


# ---- subscriptions ---------------------------------------------------------------------------------------------------


def test_a_durable_subscription_keeps_what_comes_until_it_is_ended_by_a_null_source(rig: AmqpRig) -> None:
    topic = rig.name()
    durable: dict[str, Any] = {"source": {"durable": 2, "expiry_policy": Symbol("never")}}
    first = rig.peer(container="lasting", desired_capabilities=symbols(SOLE))
    link = first.receiver(topic, "topic", name="audit", **durable)
    first.close(link, closed=False)
    first.send(first.sender(topic, "topic"), message("kept"))
    first.engine.send_close()
    first.until(lambda: first.engine.closed)
    again = rig.peer(container="lasting")
    link = again.receiver(topic, "topic", name="audit", **durable)
    (got,) = again.receive()
    assert body(got) == "kept"
    again.settle([got])
    with pytest.raises(RefusedError) as caught:
        _unsubscribe(again, "audit")
    assert "in use" in caught.value.error.description or "consumer" in caught.value.error.description
    again.close(link, closed=False)
    again.close(_unsubscribe(again, "audit"))
    with pytest.raises(RefusedError) as caught:
        _unsubscribe(again, "audit")
    assert caught.value.error.condition == NOT_FOUND


def _unsubscribe(peer: AmqpPeer, name: str) -> Any:
    link = peer.session.attach_receiver(name, None, AmqpTarget("here"))
    peer._attached(link)
    return link


@pytest.mark.parametrize(("suffix", "shared"), [("", ("shared",)), ("|global", ("shared", "global"))])
def test_members_of_a_shared_subscription_divide_it_and_a_global_one_has_no_client_id(
    rig: AmqpRig, suffix: str, shared: tuple[str, ...]
) -> None:
    topic = rig.name()
    durable: dict[str, Any] = {"source": {"durable": 2, "expiry_policy": Symbol("never")}}
    containers = ("one", "two") if suffix else ("one", "one")
    peers = [rig.peer(container=container) for container in containers]
    links = [
        peer.receiver(
            topic, "topic", *shared, name=f"pool{suffix}{'|' if not suffix else ''}{number or ''}", credit=1, **durable
        )
        for number, peer in enumerate(peers)
    ]
    peers[0].send(peers[0].sender(topic, "topic"), message(1), message(2))
    assert sorted(bodies(peers[0].receive() + peers[1].receive())) == [1, 2]
    rows = [row["client_id"] or "" for row in rig.admin.list_subscriptions(topic)]
    assert rows == ["" if suffix else "one"]
    for peer, link in zip(peers, links, strict=True):
        peer.close(link, closed=False)
    _unsubscribe(peers[1], f"pool{suffix}")
    assert not rig.admin.list_subscriptions(topic)


# ---- transactions ----------------------------------------------------------------------------------------------------


def test_a_transaction_happens_at_its_discharge(rig: AmqpRig, peer: AmqpPeer) -> None:
    source, sink = rig.name(), rig.name()
    peer.send(peer.sender(source), message("in"))
    peer.receiver(source)
    (got,) = peer.receive()
    coordinator = peer.coordinator()
    number = peer.declare(coordinator)
    (state,) = peer.send(peer.sender(sink), message("out"), state=TransactionalState(number))
    assert state == TransactionalState(number, ACCEPTED)
    peer.settle([got], TransactionalState(number, ACCEPTED))
    there = peer.receiver(sink, credit=0)
    assert peer.drain(there, 1) == []
    assert rig.state(source)["messages"] == 1
    assert peer.discharge(coordinator, number) == ACCEPTED
    until(lambda: rig.state(source)["messages"] == 0)
    assert bodies(peer.drain(there, 2)) == ["out"]


def test_what_a_transaction_settles_that_is_rolled_back_comes_again_counted(rig: AmqpRig, peer: AmqpPeer) -> None:
    source, sink = rig.name(), rig.name()
    peer.send(peer.sender(source), message("in"))
    peer.receiver(source)
    (got,) = peer.receive()
    coordinator = peer.coordinator()
    number = peer.declare(coordinator)
    peer.send(peer.sender(sink), message("out"), state=TransactionalState(number))
    peer.settle([got], TransactionalState(number, ACCEPTED))
    assert peer.discharge(coordinator, number, fail=True) == ACCEPTED
    (again,) = peer.receive()
    assert (body(again), header(again).delivery_count) == ("in", 1)
    assert rig.state(sink)["messages"] == 0
    peer.settle([again])


def test_a_consumer_may_be_closed_before_the_transaction_that_settles_its_messages(
    rig: AmqpRig, peer: AmqpPeer
) -> None:
    name = rig.name()
    peer.send(peer.sender(name), message(1), message(2))
    link = peer.receiver(name)
    first, _ = peer.receive(2)
    coordinator = peer.coordinator()
    number = peer.declare(coordinator)
    peer.settle([first], TransactionalState(number, ACCEPTED))
    peer.close(link)
    assert peer.discharge(coordinator, number) == ACCEPTED
    peer.receiver(name)
    assert bodies(peer.receive()) == [2]
    assert peer.nothing()


def test_an_unknown_transaction_and_a_failed_commit_are_told(rig: AmqpRig, peer: AmqpPeer) -> None:
    name, coordinator = rig.name(), peer.coordinator()
    rig.admin.create_destination("queue", name, maxNumMsgs=1, limitBehavior="REJECT_NEWEST")
    sender = peer.sender(name)
    (state,) = peer.send(sender, message("x"), state=TransactionalState(b"none"))
    assert state.error.condition == UNKNOWN_ID
    assert peer.discharge(coordinator, b"none").error.condition == UNKNOWN_ID
    number = peer.declare(coordinator)
    for _ in range(2):
        peer.send(sender, message("x"), state=TransactionalState(number))
    assert peer.discharge(coordinator, number).error.condition == TRANSACTION_ROLLBACK
    assert rig.state(name)["messages"] == 0


def test_open_transactions_are_rolled_back_with_their_coordinator(rig: AmqpRig, peer: AmqpPeer) -> None:
    name, coordinator = rig.name(), peer.coordinator()
    number = peer.declare(coordinator)
    peer.send(peer.sender(name), message("x"), state=TransactionalState(number))
    peer.close(coordinator)
    assert rig.state(name)["messages"] == 0
    assert peer.discharge(peer.coordinator(), number).error.condition == UNKNOWN_ID


# ---- sessions, limits, the end ---------------------------------------------------------------------------------------


def test_a_small_session_window_holds_deliveries_back_and_lets_them_go_on(rig: AmqpRig) -> None:
    narrow = rig.peer(container="narrow", limits=AmqpLimits(incoming_window=3))
    name = rig.name()
    narrow.send(narrow.sender(name), *(message(n) for n in range(50)))
    narrow.receiver(name)
    assert bodies(narrow.receive(50)) == [*range(50)]


def test_a_session_that_ends_gives_back_what_it_had(rig: AmqpRig, peer: AmqpPeer) -> None:
    name = rig.name()
    peer.send(peer.sender(name), message("x"))
    session = peer.begin()
    peer.receiver(name, session=session)
    peer.receive()
    session.send_end()
    peer.until(lambda: any(isinstance(event, SessionEnded) for event in peer.events))
    peer.receiver(name)
    (got,) = peer.receive()
    assert (body(got), header(got).delivery_count) == ("x", 0)


def test_a_consumer_whose_destination_is_destroyed_is_told_by_a_detach(rig: AmqpRig, peer: AmqpPeer) -> None:
    name = rig.name()
    link = peer.receiver(name)
    rig.admin.destroy_destination("queue", name)
    peer.until(lambda: peer.seen(LinkDetached, link))
    assert peer.seen(LinkDetached, link).error.condition == NOT_FOUND


def test_bounds_are_those_of_the_settings(tmp_path: Path) -> None:
    settings = {"raybroker.amqp.links_max": 2, "raybroker.amqp.unsettled_max": 3, "raybroker.amqp.idle_timeout_ms": 500}
    with ExitStack() as opened:
        rig = AmqpRig(tmp_path, opened, **settings)
        peer = rig.peer()
        assert peer.engine.peer is not None
        assert peer.engine.peer.idle_time_out == 500
        name = rig.name()
        peer.send(peer.sender(name), *(message(n) for n in range(5)))
        peer.receiver(name)
        got = peer.receive(3)
        assert peer.nothing(), "three are unsettled"
        peer.settle(got)
        assert bodies(peer.receive(2)) == [3, 4]
        assert peer.session.peer is not None
        assert peer.session.peer.handle_max == 1
        started = time.monotonic()
        with pytest.raises(RefusedError):  # It says nothing more.
            peer.until(lambda: False)
        assert time.monotonic() - started >= 0.5


def test_keep_alives_go_both_ways(rig: AmqpRig) -> None:
    peer = rig.peer(container="idle", idle_time_out=200)
    before = peer.engine.incomplete_bytes
    assert peer.pump(5), "an empty frame comes"
    assert peer.engine.incomplete_bytes == before


def test_a_broker_that_ends_tells_its_clients(tmp_path: Path) -> None:
    with ExitStack() as opened:
        rig = AmqpRig(tmp_path, opened)
        peer = rig.peer()
        rig.inside.close()
        with pytest.raises(RefusedError) as caught:
            peer.until(lambda: False)
    assert caught.value.error.condition == "amqp:connection:forced"


def test_a_password_that_was_set_before_keeps_sha_512_from_being_offered(tmp_path: Path) -> None:
    """Clients take the strongest mechanism that is offered, and try no other one."""
    with ExitStack() as opened:
        rig = AmqpRig(tmp_path, opened)
        assert "SCRAM-SHA-512" in rig.peer(container="before").offered
        users = UserFile(tmp_path / "passwd")
        users.add("old", UserEntry(VERIFIER))
        assert rig.peer("old", mechanism="SCRAM-SHA-256", container="old").offered[0] == "SCRAM-SHA-256"
        users.update("old", verifier=VERIFIERS)
        assert rig.peer("old", mechanism="SCRAM-SHA-512", container="new").offered[0] == "SCRAM-SHA-512"


def test_a_client_of_one_broker_has_the_messages_of_all_and_is_told_where_the_others_are(tmp_path: Path) -> None:
    """Each has logged in in another way, of which two say nothing that is good for another broker."""
    with ExitStack() as opened:
        (tmp_path / "security").mkdir()
        authority = Authority(tmp_path / "security")
        authority.issue("keystore")
        shutil.copyfile(authority.file, tmp_path / "security/truststore")
        settings = {"imq.service.activelist": "jms,amqp,amqps", "raybroker.tls.client_auth": "want"}
        gateways = Gateways(tmp_path, opened, **settings)
        tls = ssl.create_default_context(cafile=str(authority.file))
        tls.load_cert_chain(authority.issue("ann.pem", "ann"))
        ports = {name: broker.services.own()[2]["amqp"] for name, broker in gateways.rig.brokers.items()}
        peers = {
            "b1": AmqpPeer(gateways.port("b1", "amqps"), container="b1", mechanism="EXTERNAL", tls=tls),
            "b2": AmqpPeer(ports["b2"], container="b2", mechanism="SCRAM-SHA-512", password=PASSWORD),
            "b3": AmqpPeer(ports["b3"], container="b3", password=PASSWORD),
        }
        for peer in peers.values():
            opened.callback(peer.end)
        told: Any = peers["b2"].engine.peer
        servers = told.properties["failover-server-list"]
        assert sorted(one["port"] for one in servers) == sorted(port for name, port in ports.items() if name != "b2")
        assert {one["scheme"] for one in servers} == {"amqp"}
        for name, peer in peers.items():
            assert peer.send(peer.sender("wide"), message(name)) == [ACCEPTED]
        link = peers["b2"].receiver("wide", credit=0)
        assert sorted(bodies(peers["b2"].drain(link, 10))) == sorted(peers)
        peers["b1"].send(peers["b1"].sender("wide"), message("later"))
        link.grant(1)
        assert bodies(peers["b2"].receive()) == ["later"]
        for name, peer in peers.items():
            assert peer.send(peer.sender("wider"), message(name)) == [ACCEPTED]
        wider = peers["b1"].receiver("wider", credit=0)
        assert sorted(bodies(peers["b1"].drain(wider, 10))) == sorted(peers)


def refused_at(gateways: Gateways, broker: str, mechanism: str) -> Any:
    """What a client is told that a broker does not take."""
    with pytest.raises(RefusedError) as refused:
        AmqpPeer(gateways.port(broker, "amqp"), container="late", mechanism=mechanism, password=PASSWORD)
    return refused.value.error


def test_who_is_not_taken_is_sent_to_a_broker_that_takes_clients(tmp_path: Path) -> None:
    """Once it has proved who it is, however it does that; where there is no such broker, it is refused."""
    with ExitStack() as opened:
        gateways = Gateways(tmp_path, opened)
        early = AmqpPeer(gateways.port("b1", "amqp"), container="early", password=PASSWORD)
        opened.callback(early.end)
        for name in ("b1", "b2"):  # As before they are shut down.
            gateways.rig.brokers[name].local.services.take_nobody_new()
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            error = refused_at(gateways, "b1", mechanism)
            assert (error.condition, error.info["port"]) == (CONNECTION_REDIRECT, gateways.port("b3", "amqp"))
            assert error.info["scheme"] == "amqp"
            assert error.info["network-host"] == error.info["hostname"]
        with pytest.raises(RefusedError, match="login was refused"):
            AmqpPeer(gateways.port("b1", "amqp"), container="stranger", password="wrong")
        assert early.send(early.sender("going-on"), message("x")) == [ACCEPTED]
        admin = gateways.rig.connect("b3").admin()
        admin.pause_service("amqp")
        assert refused_at(gateways, "b1", "PLAIN").condition == ILLEGAL_STATE
        admin.resume_service("amqp")
        opened.callback(AmqpPeer(gateways.port("b1", "amqp"), container="late", password=PASSWORD).end)


def test_who_is_not_taken_is_refused_where_nobody_is_redirected(tmp_path: Path) -> None:
    with ExitStack() as opened:
        gateways = Gateways(tmp_path, opened, **{"raybroker.amqp.redirect": False})
        gateways.rig.brokers["b1"].local.services.take_nobody_new()
        assert "login was refused with 4" in str(refused_at(gateways, "b1", "PLAIN"))
