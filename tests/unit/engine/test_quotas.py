"""Quotas that destinations name: through a whole host, which is alone with their pools."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from raybroker.core.admission.pool_share import WAITING_MAX
from raybroker.model.definitions.quota import quota_of
from raybroker.model.errors import StoreDamagedError
from tests.unit.engine.rig import DMQ, Client, Rig

TIMEOUT_MS = 10
"""SendTimeout of the producers here."""


def rig_of(quotas: dict[str, dict[str, Any]], **config: Any) -> Rig:
    return Rig(quotas=quotas, **config)


def define(rig: Rig, **quotas: dict[str, Any]) -> None:
    rig.host.pools.define({name: quota_of(given) for name, given in quotas.items()})


def update(rig: Rig, name: str, **changes: Any) -> None:
    rig.host.administration.update(name, changes, lambda: None)
    rig.sync()


def row_of(rig: Rig, quota: str) -> dict[str, Any]:
    (row,) = [row for row in rig.host.pools.pool_rows() if row["quota"] == quota]
    return row


def full(count: int = 2, **quota: Any) -> tuple[Rig, Client, int]:
    """A queue that holds all that its quota has, and a producer."""
    rig = rig_of({"small": {"MessagesMaximum": count, **quota}})
    rig.create(quota="small")
    client = Client(rig)
    producer = client.producer()
    client.send(producer, *(str(n) for n in range(count)))
    assert client.refused() == []
    return rig, client, producer


def test_equality_fits_in_both_limits_and_one_more_does_not() -> None:  # W-05
    rig = rig_of({"small": {"MessagesMaximum": 3, "BytesMaximum": 4}})
    rig.create(quota="small")
    client = Client(rig)
    producer = client.producer()
    client.send(producer, "aa", "bb")
    assert client.refused() == []
    client.send(producer, "c")
    rig.tick(TIMEOUT_MS)
    client.send(producer, "")
    client.send(producer, "")
    rig.tick(TIMEOUT_MS)
    rig.sync()
    told = [row for _, _, _, _, rows in client.peer.take("sent") for row in rows]
    assert [row.code for row in told] == ["quota_exceeded", "quota_exceeded"]
    assert "quota 'small' has no room for the message within its BytesMaximum=4 bytes" in told[0].text
    assert "quota 'small' holds its MessagesMaximum=3 messages" in told[1].text


@pytest.mark.parametrize("limit", ["MessagesMaximum", "BytesMaximum"])
def test_zero_stores_nothing_and_minus_one_anything(limit: str) -> None:  # W-04
    rig = rig_of({"none": {limit: 0}, "any": {}})
    rig.create("q", quota="none")
    rig.create("other", quota="any")
    client = Client(rig)
    client.send(client.producer("q"), "a")
    client.send(client.producer("other", number=8), "b" * 1000)
    rig.tick(TIMEOUT_MS)
    assert client.refused() == ["quota_exceeded"]
    assert (rig.held("q"), rig.held("other")) == (0, 1)


def test_one_with_a_quota_is_not_charged_to_the_broker_as_well() -> None:  # W-07
    rig = rig_of({"small": {"MessagesMaximum": 2}}, imq__system__max_count=1)
    rig.create("q", quota="small")
    rig.create("other")
    client = Client(rig)
    one, other = client.producer("q"), client.producer("other", number=8)
    client.send(one, "a", "b")
    client.send(other, "c")
    assert client.refused() == []
    client.send(one, "d")
    client.send(other, "e")
    rig.tick(TIMEOUT_MS)
    assert client.refused() == ["quota_exceeded"] * 2
    assert rig.host.pools.system_row()["messages"] == 1
    assert row_of(rig, "small")["messages"] == 2


def test_what_share_a_quota_compete_and_what_do_not_have_all_of_it_each() -> None:  # W-08
    for shared, held in ((True, [2, 1]), (False, [3, 3])):
        rig = rig_of({"small": {"MessagesMaximum": 3, "Shared": shared}})
        client = Client(rig)
        for number, kind in enumerate(("queue", "topic")):
            rig.create("q", kind, quota="small")
            if kind == "topic":
                client.consumer("q", "topic", limit=1)
            producer = client.producer("q", kind, number=7 + number)
            client.send(producer, "a", "b")
            if shared and kind == "topic":
                client.send(producer, "c")
                rig.tick(TIMEOUT_MS)
                assert client.refused() == ["quota_exceeded"] * 2  # Of its first block only one message fitted.
            else:
                client.send(producer, "c", "d") if not shared else None
                rig.tick(TIMEOUT_MS)
                assert client.refused() == ([] if shared else ["quota_exceeded"])
        assert [rig.held("q"), rig.held("q", "topic")] == held
        assert sum(row["messages"] for row in rig.host.pools.pool_rows()) == sum(held)


def test_all_that_is_stored_is_charged_until_it_is_acknowledged_or_its_destination_goes() -> None:  # W-06
    rig, client, producer = full(3)
    consumer = client.consumer()
    assert client.got(consumer) == ["0", "1", "2"]
    assert row_of(rig, "small")["messages"] == 3  # In flight.
    client.send(producer, "late")
    assert row_of(rig, "small") == {
        "quota": "small",
        "messages": 3,
        "bytes": 3,
        "waiting": 1,
        "refused": 0,
        "destinations": ["queue q"],
    }
    client.ack(consumer, "0")
    assert client.got(consumer) == ["late"]
    client.ack(consumer, "1", "2", "late")
    rig.sync()
    assert row_of(rig, "small")["messages"] == 0
    client.send(producer, "uncommitted", txn=1)
    rig.sync()
    assert row_of(rig, "small")["messages"] == 1
    client.ok("txn_rollback", txn=1)
    assert row_of(rig, "small")["messages"] == 0
    client.send(producer, "left")
    assert row_of(rig, "small")["messages"] == 1
    rig.host.removal.destroy("q", lambda: None)
    assert rig.host.pools.pool_rows() == []


def test_first_come_first_served_although_a_later_one_fits() -> None:  # W-09
    rig = rig_of({"small": {"BytesMaximum": 4}})
    rig.create(quota="small")
    client = Client(rig)
    first, second = client.producer(), client.producer(number=8)
    client.send(first, "aaa")
    client.send(first, "bbb")  # Does not fit.
    client.send(second, "c")  # Would fit.
    rig.sync()
    assert rig.bodies("q") == ["aaa"]
    assert row_of(rig, "small")["waiting"] == 2


def test_the_end_of_the_head_lets_the_next_in() -> None:  # W-09
    rig = rig_of({"small": {"BytesMaximum": 4}})
    rig.create(quota="small")
    client = Client(rig)
    first, second = client.producer(), client.producer(number=8)
    client.send(first, "aaa")
    client.send(first, "bbb")
    rig.tick(TIMEOUT_MS // 2)
    client.send(second, "c")
    rig.tick(TIMEOUT_MS // 2)
    assert client.refused() == ["quota_exceeded"]
    assert rig.bodies("q") == ["aaa", "c"]


def test_preemptive_lets_in_whoever_fits() -> None:  # W-10
    rig = rig_of({"small": {"BytesMaximum": 4, "Policy": "Preemptive"}})
    rig.create(quota="small")
    client = Client(rig)
    first, second = client.producer(), client.producer(number=8)
    client.send(first, "aaa")
    client.send(first, "bbb")
    client.send(second, "c")
    assert client.refused() == []
    assert rig.bodies("q") == ["aaa", "c"]
    rig.tick(TIMEOUT_MS)
    assert client.refused() == ["quota_exceeded"]


def test_the_policy_of_the_broker_is_not_that_of_a_quota() -> None:  # W-10
    rig = rig_of({"small": {"BytesMaximum": 4}}, raybroker__system__blockingSendPolicy="Preemptive")
    rig.create(quota="small")
    client = Client(rig)
    first, second = client.producer(), client.producer(number=8)
    client.send(first, "aaa")
    client.send(first, "bbb")
    client.send(second, "c")
    rig.sync()
    assert rig.bodies("q") == ["aaa"]


def test_raising_a_limit_serves_who_waits_and_lowering_it_refuses_only_what_is_new() -> None:  # W-13
    rig, client, producer = full(2)
    client.send(producer, "waits")
    define(rig, small={"MessagesMaximum": 3})
    assert client.refused() == []
    assert rig.bodies("q") == ["0", "1", "waits"]
    define(rig, small={"MessagesMaximum": 1})
    assert rig.held() == 3
    consumer = client.consumer()
    client.got(consumer)
    client.ack(consumer, "0", "1")
    client.send(producer, "still too many")
    rig.tick(TIMEOUT_MS)
    assert client.refused() == ["quota_exceeded"]
    client.ack(consumer, "waits")
    client.send(producer, "now")
    assert client.refused() == []
    assert client.got(consumer) == ["now"]


def test_editing_limits_does_not_refuse_who_waits() -> None:  # W-12
    rig, client, producer = full(2)
    client.send(producer, "waits")
    define(rig, small={"MessagesMaximum": 1, "Policy": "Preemptive"})
    assert client.refused() == []
    assert row_of(rig, "small")["waiting"] == 1
    rig.tick(TIMEOUT_MS)
    assert client.refused() == ["quota_exceeded"]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("to", ["other", ""])
def test_another_quota_refuses_who_waits_and_charges_the_new_one(shared: bool, to: str) -> None:  # W-12
    rig, client, producer = full(2, Shared=shared)
    define(rig, small={"MessagesMaximum": 2, "Shared": shared}, other={"MessagesMaximum": 3})
    client.send(producer, "waits")
    update(rig, "q", quota=to)
    assert client.refused() == ["quota_exceeded"]
    assert rig.held() == 2
    client.send(producer, "goes in")
    assert client.refused() == []
    assert rig.held() == 3
    assert [row["quota"] for row in rig.host.pools.pool_rows()] == ([to] if to else [])


@pytest.mark.parametrize("policy", ["FIFO", "Preemptive"])
def test_a_halted_destination_keeps_nobody_waiting_and_nobody_behind_them(policy: str) -> None:
    rig, client, producer = full(2, Policy=policy)
    rig.create("other", quota="small")
    client.send(producer, "waits", txn=1)
    assert client.unanswered("txn_commit", txn=1, key=b"k")
    other = client.producer("other", number=8)
    client.send(other, "waits behind it")
    destination = rig.host.registry.destinations["queue", "q"]
    rig.host.blocks.halt(destination, StoreDamagedError("block 1 of destination q is damaged"))
    rig.sync()
    (answer,) = client.peer.take("failed")
    assert (answer[2], "block 1 of destination q is damaged" in answer[3]) == ("quota_exceeded", True)
    (row,) = rig.host.pools.pool_rows()
    assert (row["waiting"], row["messages"]) == (1, 2), "what is held counts on"
    rig.host.pools.define({"small": quota_of({"MessagesMaximum": 3, "Policy": policy})})
    rig.sync()
    assert row_of(rig, "small")["messages"] == 3


def test_a_commit_fails_when_another_quota_refuses_several_sends_of_it() -> None:  # W-12
    rig, client, producer = full(2)
    define(rig, small={"MessagesMaximum": 2}, other={"MessagesMaximum": 9})
    other = client.producer(number=8)
    client.send(other, "first")
    client.send(producer, "a", txn=1)
    client.send(producer, "b", txn=1)
    assert client.unanswered("txn_commit", txn=1, key=b"k")
    update(rig, "q", quota="other")
    (answer,) = client.peer.take("failed")
    assert answer[2] == "quota_exceeded"
    assert rig.held() == 2


def test_from_the_broker_s_limits_to_a_quota_and_back() -> None:  # W-12
    rig = rig_of({"any": {}}, imq__system__max_count=1)
    rig.create()
    client = Client(rig)
    producer = client.producer()
    client.send(producer, "a")
    client.send(producer, "waits")
    update(rig, "q", quota="any")
    assert client.refused() == ["quota_exceeded"]
    client.send(producer, "b")
    assert rig.host.pools.system_row()["messages"] == 0
    update(rig, "q", quota="")
    client.refused()
    assert rig.host.pools.system_row()["messages"] == 2
    client.send(producer, "c")
    rig.tick(TIMEOUT_MS)
    assert client.refused() == ["quota_exceeded"]


def test_a_quota_that_there_is_not_takes_nothing_and_says_so() -> None:
    rig = rig_of({})
    rig.create(quota="gone")
    client = Client(rig)
    producer = client.producer()
    client.send(producer, "a")
    rig.tick(TIMEOUT_MS)
    rig.sync()
    (told,) = [row for _, _, _, _, rows in client.peer.take("sent") for row in rows]
    assert "quota 'gone', which there is not on this broker" in told.text
    define(rig, gone={"MessagesMaximum": 1})
    client.send(producer, "b")
    assert client.refused() == []
    assert rig.bodies("q") == ["b"]


def test_after_a_restart_all_is_charged_before_anything_is_taken() -> None:
    rig, _, _ = full(2)
    after = rig.restart()
    client = Client(after)
    client.send(client.producer(number=8), "one more")
    after.tick(TIMEOUT_MS)
    assert client.refused() == ["quota_exceeded"]
    assert row_of(after, "small")["messages"] == 2


def test_a_destroyed_destination_gives_its_room_to_those_that_wait_elsewhere() -> None:
    rig, client, _ = full(2)
    rig.create("other", quota="small")
    client.send(client.producer("other", number=8), "x")
    assert row_of(rig, "small")["waiting"] == 1
    rig.host.removal.destroy("q", lambda: None)
    rig.sync()
    assert client.refused() == []
    assert rig.bodies("other") == ["x"]
    assert row_of(rig, "small")["destinations"] == ["queue other"]


def test_a_destroyed_destination_ends_the_waiting_at_itself() -> None:
    for shared in (True, False):
        rig, client, producer = full(2, Shared=shared)
        client.send(producer, "x")
        rig.host.removal.destroy("q", lambda: None)
        rig.tick(TIMEOUT_MS)
        rig.sync()
        told = [row.text for _, _, _, _, rows in client.peer.take("sent") for row in rows]
        assert told == ["the destination was destroyed while the message waited for room"], shared
        assert rig.host.pools.pool_rows() == []


def test_the_dead_message_queue_has_no_quota() -> None:
    rig, client, _ = full(2)
    rig.create(DMQ)
    client.send(client.producer(DMQ, number=9), "dead")
    assert client.refused() == []
    assert row_of(rig, "small")["destinations"] == ["queue q"]


def test_no_more_than_a_bounded_number_waits() -> None:
    rig, client, producer = full(1)
    for number in range(WAITING_MAX + 1):
        client.send(producer, str(number))
    assert client.refused() == ["quota_exceeded"]
    assert row_of(rig, "small")["waiting"] == WAITING_MAX


def test_figures_of_a_quota_go_on_when_nothing_refers_to_it() -> None:
    rig, client, producer = full(2)
    client.send(producer, "x")
    rig.tick(TIMEOUT_MS)
    metrics = rig.host.pools.metrics()
    assert metrics == {
        "quota_messages": {"small": 2},
        "quota_message_bytes": {"small": 2},
        "quota_blocked_sends": {"small": 0},
        "quota_refused_messages_total": {"small": 1},
        "quota_limit_messages": {"small": 2},
    }
    rig.host.pools.ask_for_room()
    assert any("[B2011] quota 'small' holds its MessagesMaximum=2 messages" in line for line in rig.reports)
    update(rig, "q", quota="")
    assert rig.host.pools.metrics() == {"quota_refused_messages_total": {"small": 1}}
    define(rig)
    assert rig.host.pools.metrics() == {}


@pytest.mark.parametrize("policy", ["FIFO", "Preemptive"])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_what_is_charged_is_what_is_held_whatever_happens(policy: str, shared: bool, seed: int) -> None:
    """Tiny limits; sends, acknowledgements, changes of limits and of quotas, producers and connections that die."""
    rng, names = Random(seed), ("a", "b", "c")
    limits = {"one": 3, "two": 2}
    rig = rig_of({key: {"MessagesMaximum": most, "Policy": policy, "Shared": shared} for key, most in limits.items()})
    for name in names:
        rig.create(name, quota=rng.choice(("one", "two", "")))
    seen: Counter[str] = Counter()
    clients = [Client(rig) for _ in range(3)]
    number = 100
    for step in range(300):
        client = rng.choice(clients)
        match rng.randrange(9):
            case 0 | 1 | 2 | 3:
                number += 1
                producer = client.producer(rng.choice(names), number=number)
                client.send(producer, *"xy"[: rng.randint(1, 2)])
                if rng.random() < 0.3:
                    client.ok("close_producer", handle=producer)
                    seen["closed"] += 1
            case 4 | 5:
                consumer = client.consumer(rng.choice(names), limit=2)
                rig.sync()
                for _, handle, tag, _, block in client.peer.take("deliver"):
                    client.session.acknowledge(handle, client.epochs[handle], 1, [(tag, tag + block.count - 1)])
                client.ok("close_consumer", handle=consumer)
            case 6:
                name = rng.choice(("one", "two"))
                limits[name] = rng.randint(0, 4)
                define(
                    rig,
                    **{
                        key: {"MessagesMaximum": most, "Policy": policy, "Shared": shared}
                        for key, most in limits.items()
                    },
                )
            case 7:
                update(rig, rng.choice(names), quota=rng.choice(("one", "two", "")))
            case 8 if rng.random() < 0.2:
                client.session.close()
                clients[clients.index(client)] = Client(rig)
                seen["died"] += 1
            case _:
                rig.tick(rng.randint(1, TIMEOUT_MS))
        rig.sync()
        destinations = {destination.name: destination for destination in rig.host.registry.destinations.values()}
        for row in rig.host.pools.pool_rows():
            held = sum(destinations[label.split()[1]].block_index.messages for label in row["destinations"])
            assert row["messages"] == held, f"step {step}: {row}"
            seen["waiting"] += row["waiting"] > 0
            seen["full"] += held == limits[row["quota"]]
        for name, destination in destinations.items():
            assert (destination.policy.account is None) == (destination.attributes.quota == ""), name
    rig.tick(TIMEOUT_MS + 1)
    assert not any(row["waiting"] for row in rig.host.pools.pool_rows())
    assert not any(client.session.client.blocked for client in clients)
    assert all(seen[what] for what in ("waiting", "full", "closed", "died"))
