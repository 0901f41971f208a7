"""AMQP clients as administrators see them, and the limits that hold for them by user and by address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from raybroker.wire.amqp.conditions import MESSAGE_SIZE_EXCEEDED, RESOURCE_LIMIT_EXCEEDED, UNAUTHORIZED_ACCESS
from raybroker.wire.amqp.performatives import AmqpRejected
from tests.contracts.amqp_rig import AmqpPeer, AmqpRig, RefusedError, message
from tests.contracts.handles import until

MOST = 3
SERVICE = "raybroker.service."


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpRig]:
    """Its users may have MOST of everything."""
    of_each = {f"{SERVICE}user_{what}_max": MOST for what in ("connections", "destinations", "temporary", "consumers")}
    with ExitStack() as opened:
        yield AmqpRig(tmp_path_factory.mktemp("amqp"), opened, **of_each, **{"raybroker.metrics.cache_ms": 0})


def figures(rig: AmqpRig) -> dict[str, Any]:
    (row,) = rig.admin.metrics()
    return {key: value for key, value in row["own"].items() if key.startswith("amqp_")}


def refused(work: Any) -> Any:
    with pytest.raises(RefusedError) as caught:
        work()
    return caught.value.error


def gone(rig: AmqpRig, peers: list[AmqpPeer]) -> None:
    for peer in peers:
        peer.end()
    until(lambda: figures(rig)["amqp_connections"] == 0, "they are gone")


def test_a_user_has_so_many_connections_and_is_told_of_the_limit(rig: AmqpRig) -> None:
    peers = [rig.peer(container=f"c{number}") for number in range(MOST)]
    error = refused(lambda: rig.peer(container="one more"))
    assert error.condition == RESOURCE_LIMIT_EXCEEDED
    assert f"user 'ann' has {MOST} clients of service amqp and may have {MOST}" in error.description
    assert "raybroker.service.user_connections_max" in error.description
    with pytest.raises(RefusedError, match="refused with 4"):  # SCRAM has no text for it.
        rig.peer(container="one more", mechanism="SCRAM-SHA-256")
    peers.append(rig.peer("bob", container="bob's"))
    gone(rig, peers)
    gone(rig, [rig.peer(container="again")])


def test_an_address_has_so_many_connections_and_is_told_of_the_limit(tmp_path: Path) -> None:
    with ExitStack() as opened:
        rig = AmqpRig(tmp_path, opened, **{f"{SERVICE}address_connections_max": 2})
        rig.peer(container="one"), rig.peer("bob", container="two")
        error = refused(lambda: rig.peer(container="three"))
    assert error.condition == RESOURCE_LIMIT_EXCEEDED
    assert "127.0.0.1 has 2 clients of service amqp; at most 2 are taken" in error.description
    assert "raybroker.service.address_connections_max" in error.description


def test_what_a_user_makes_over_amqp_is_bounded_and_the_link_is_told_of_the_limit(rig: AmqpRig) -> None:
    peer = rig.peer(container="maker")
    for number in range(MOST):
        peer.sender(f"made{number}")
    error = refused(lambda: peer.sender("one.more"))
    assert (error.condition, "user_destinations_max" in error.description) == (RESOURCE_LIMIT_EXCEEDED, True)
    dynamic: dict[str, Any] = {"target": {"dynamic": True}}
    for _ in range(MOST):
        peer.sender(None, "temporary-queue", **dynamic)
    error = refused(lambda: peer.sender(None, "temporary-queue", **dynamic))
    assert (error.condition, "user_temporary_max" in error.description) == (RESOURCE_LIMIT_EXCEEDED, True)
    links = [peer.receiver("made0") for _ in range(MOST)]
    error = refused(lambda: peer.receiver("made0"))
    assert (error.condition, "user_consumers_max" in error.description) == (RESOURCE_LIMIT_EXCEEDED, True)
    peer.close(links[0])
    peer.receiver("made0")
    gone(rig, [peer])


def test_figures_are_those_of_the_clients_that_are_there(rig: AmqpRig) -> None:
    before = figures(rig)
    assert before["amqp_links"] == before["amqp_unsettled_messages"] == {"in": 0, "out": 0}
    peer, name = rig.peer("bob", container="counted"), rig.name()
    rig.admin.create_destination("queue", name, maxBytesPerMsg=2000, maxNumMsgs=4)
    sender = peer.sender(name)
    full, dry = peer.receiver(name), peer.receiver(name, credit=0)
    peer.send(sender, *(message(number) for number in range(3)))
    (state,) = peer.send(sender, message("x" * 3000))
    assert isinstance(state, AmqpRejected)
    assert refused(lambda: rig.peer("mute", container="mute").sender(name)).condition == UNAUTHORIZED_ACCESS
    got = peer.receive(3)
    found = figures(rig)
    assert found["amqp_connections"] == 2
    assert found["amqp_links"] == {"in": 1, "out": 2}
    assert found["amqp_links_without_credit"] == {"in": 0, "out": 1}
    assert found["amqp_unsettled_messages"] == {"in": 0, "out": 3}
    moved = {way: found["amqp_transfers_total"][way] - before["amqp_transfers_total"][way] for way in ("in", "out")}
    assert moved == {"in": 4, "out": 3}
    rejected = {
        condition: count - before["amqp_rejected_total"][condition]
        for condition, count in found["amqp_rejected_total"].items()
    }
    assert {condition for condition, count in rejected.items() if count} == {MESSAGE_SIZE_EXCEEDED, UNAUTHORIZED_ACCESS}
    peer.settle(got)
    peer.close(full)
    peer.close(dry)
    until(lambda: figures(rig)["amqp_unsettled_messages"] == {"in": 0, "out": 0}, "all is settled")
    assert figures(rig)["amqp_links"] == {"in": 1, "out": 0}


def test_why_says_of_a_consumer_without_credit_that_it_wants_none(rig: AmqpRig) -> None:
    peer, name = rig.peer("bob", container="dry"), rig.name()
    rig.admin.create_destination("queue", name)
    link = peer.receiver(name, credit=0)
    peer.send(peer.sender(name), message("waits"))
    (found,) = rig.admin.why("destination", name)
    codes = {reason["code"]: reason["text"] for reason in found["reasons"]}
    assert "wants none now" in codes["not_asking"], codes
    link.grant(1)
    assert len(peer.receive()) == 1
