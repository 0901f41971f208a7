"""Units of work on a host: any order, duplicates, gaps, transactions and crashes (W-94 … W-98)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raybroker.content.bodies import BYTES, WORK, work_rows
from raybroker.content.headers import BlockContent, encode_header
from raybroker.content.unit_of_work import WORK_END, WORK_NUMBER, WORK_UNIT, works_of
from raybroker.core import command as cmd
from raybroker.core import unit_of_work
from raybroker.core.invariants import check
from raybroker.model.blocks.block import Block, encode_block
from tests.unit.engine.rig import DMQ, Client, Rig

SINGLE = {"unitOfWorkHandlingPolicy": "SingleMessageDelivery"}
Part = tuple[str, int, bool]
"""Unit, number, end."""


def header(unit: str, number: Any, end: Any = None, **more: Any) -> bytes:
    properties = {WORK_UNIT: unit, WORK_NUMBER: number, **more}
    if end is not None:
        properties[WORK_END] = end
    return encode_header(properties, None, None, None)


def block_of(parts: Sequence[Part], producer: int, **more: Any) -> Block:
    return Block(
        encode_block(
            [f"{unit}{number}".encode() for unit, number, _ in parts],
            producer=producer,
            first_seq=1,
            timestamp_ms=5,
            persistent=True,
            kinds=BYTES,
            headers=[header(*part) for part in parts],
            **more,
        )
    )


class Senders:
    """Each block comes from a producer of its own, so that nothing is a retry."""

    def __init__(self, rig: Rig, name: str = "q", kind: str = "queue") -> None:
        self.rig = rig
        self.place = name, kind
        self._next = 1000

    def send(self, parts: Sequence[Part], txn: int = 0, client: Client | None = None) -> Client:
        self._next += 1
        client = client or Client(self.rig)
        client.session.send(client.producer(*self.place, number=self._next), 1, block_of(parts, self._next), txn)
        return client


def rig_of(kind: str = "queue", **attributes: Any) -> Rig:
    rig = Rig(imq__message__expiration__interval=1)
    rig.create(DMQ)
    rig.create("q", kind, **SINGLE, **attributes)
    return rig


def reader(rig: Rig, kind: str = "queue") -> Client:
    client = Client(rig, "reader", "reader")
    more = {"subscription": {"name": "s", "durable": True, "shared": False}} if kind == "topic" else {}
    client.consumer("q", kind, limit=10_000, **more)
    return client


def composed(units: dict[str, int]) -> list[str]:
    return sorted("[" + "+".join(f"{unit}{n}" for n in range(1, size + 1)) + "]" for unit, size in units.items())


# ---- any order, any duplicates, any gaps -----------------------------------------------------------------------------


@st.composite
def stories(draw: st.DrawFn) -> tuple[dict[str, int], list[list[Part]], list[int]]:
    """Sizes of units; blocks of their parts in any order, some of them twice, some never; when a crash comes."""
    sizes = {unit: draw(st.integers(1, 5)) for unit in draw(st.sets(st.sampled_from("ABCD"), min_size=1))}
    every = [(unit, n, n == size) for unit, size in sizes.items() for n in range(1, size + 1)]
    missing = draw(st.sets(st.sampled_from(every), max_size=2))
    twice = draw(st.lists(st.sampled_from(every), max_size=4))
    parts = draw(st.permutations([part for part in [*every, *twice] if part not in missing]))
    blocks, at = [], 0
    while at < len(parts):
        count = draw(st.integers(1, 4))
        blocks.append(list(parts[at : at + count]))
        at += count
    crashes = draw(st.lists(st.integers(0, max(len(blocks) - 1, 0)), max_size=2))
    return sizes, blocks, crashes


@settings(max_examples=150, deadline=None)
@given(stories(), st.sampled_from(["queue", "topic"]))
def test_every_complete_unit_comes_once_in_order_and_no_other_comes(
    story: tuple[dict[str, int], list[list[Part]], list[int]], kind: str
) -> None:
    sizes, blocks, crashes = story
    rig = rig_of(kind)
    if kind == "topic":
        reader(rig, kind).session.close()
    got: list[str] = []
    taken: Counter[Part] = Counter()
    done: set[str] = set()
    senders = Senders(rig, kind=kind)
    for number, block in enumerate(blocks):
        client = senders.send(block)
        if number in crashes:
            rig = rig.restart()  # What was not durable is lost, and its sender was not told: it sends it again.
            senders.rig = rig
            client = senders.send(block)
        refused = client.refused()
        accepted = _take(block, taken, done, sizes)
        assert len(block) - len(refused) == accepted
        assert set(refused) <= {"message_format"}
        check(rig.destination("q", kind))
    rig.tick(1)
    client = reader(rig, kind)
    got = client.got()
    counts = Counter(text.partition("(")[0] for text in got)
    wanted: Counter[str] = Counter()
    for unit in done:
        wanted[composed({unit: sizes[unit]})[0]] += _rounds(taken, unit, sizes[unit])
    assert counts == wanted
    left = sum(taken.values()) - sum(_rounds(taken, unit, sizes[unit]) * sizes[unit] for unit in done)
    works = rig.destination("q", kind).works
    assert works.count == left
    assert rig.held("q", kind) == left + sum(counts.values())


def _take(block: list[Part], taken: Counter[Part], done: set[str], sizes: dict[str, int]) -> int:
    """The model: a part is taken unless the round of its unit that is under way has it. When a unit is complete its
    name may begin anew, which no sender should do; then the next round takes it."""
    accepted = 0
    complete = []
    for part in block:
        unit, size = part[0], sizes[part[0]]
        rounds = _rounds(taken, unit, size)
        # Units are closed at the end of the step: within one block there is no second round.
        pending = complete.count(unit)
        if taken[part] > rounds - pending:
            continue
        taken[part] += 1
        accepted += 1
        if _rounds(taken, unit, size) > rounds:
            complete.append(unit)
            done.add(unit)
    return accepted


def _rounds(taken: Counter[Part], unit: str, size: int) -> int:
    return min(taken[unit, n, n == size] for n in range(1, size + 1))


def test_parts_of_one_block_may_be_in_any_order_beside_other_messages() -> None:
    rig = rig_of()
    client = Client(rig)
    headers = [header("U", 2, True), b"", header("U", 1), header("V", 1)]
    data = encode_block(
        [b"u2", b"plain", b"u1", b"v1"],
        producer=3,
        first_seq=1,
        timestamp_ms=0,
        persistent=True,
        kinds=BYTES,
        headers=headers,
    )
    client.session.send(client.producer(number=3), 1, Block(data))
    assert reader(rig).got() == ["plain", "[u1+u2]"]
    assert rig.restart().bodies("q") == ["plain", "[u1+u2]"]


# ---- what the message is ---------------------------------------------------------------------------------------------


def test_the_message_has_the_bodies_headers_and_ids_of_its_parts() -> None:
    rig = rig_of()
    client = Client(rig)
    headers = [
        encode_header(
            {WORK_UNIT: "U", WORK_NUMBER: n, WORK_END: n == 2, "same": 1, "other": n}, f"corr{n}", "queue:back", "T"
        )
        for n in (1, 2)
    ]
    data = encode_block(
        [b"one", b"two"],
        producer=3,
        first_seq=7,
        timestamp_ms=77,
        persistent=True,
        kinds=BYTES,
        headers=headers,
        priority=6,
    )
    client.session.send(client.producer(number=3), 1, Block(data))
    consumer = reader(rig)
    (block,) = consumer.blocks()
    assert (block.count, block.kind_of(0), block.priority_of(0), block.timestamp_ms) == (1, WORK, 6, 77)
    content = BlockContent(block)
    assert content.properties(0) == {"same": 1, WORK_UNIT: "U"}
    assert (content.header(0, "JMSCorrelationID"), content.header(0, "JMSType")) == ("corr1", "T")
    rows = work_rows(block.body(0))
    assert [(row.body, row.header) for row in rows] == [(b"one", headers[0]), (b"two", headers[1])]
    assert [row.id for row in rows] == ["ID:0000000000000003-7", "ID:0000000000000003-8"]
    assert works_of(block) is not None, "it names its unit"


def test_the_message_is_no_part_when_it_is_moved_to_another_destination_that_composes() -> None:
    rig = rig_of(redeliveryLimit=0, errorDestination="errors")
    rig.create("errors", **SINGLE)
    Senders(rig).send([("U", 1, False), ("U", 2, True)])
    consumer = reader(rig)
    consumer.got()
    consumer.settle(consumer._next_handle, "fail", "[U1+U2]")
    rig.sync()
    assert rig.bodies("errors") == ["[U1+U2]"]


def test_selectors_of_consumers_see_the_message_and_not_its_parts() -> None:
    rig = rig_of()
    client = Client(rig)
    consumer = Client(rig)
    consumer.consumer("q", selector="colour = 'red'")
    for n in (1, 2):
        client.send(
            client.producer(number=n + 3),
            f"r{n}",
            properties={WORK_UNIT: "R", WORK_NUMBER: n, WORK_END: n == 2, "colour": "red"},
            first=1,
        )
    assert consumer.got() == ["[r1+r2]"]


# ---- crashes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_wherever_the_host_stops_there_are_the_parts_or_the_message(kind: str) -> None:
    rig = rig_of(kind)
    if kind == "topic":
        reader(rig, kind).session.close()
    senders = Senders(rig, kind=kind)
    senders.send([("U", 1, False), ("U", 2, False)])
    rig.sync()
    senders.send([("U", 3, True)])
    seen = []
    while rig.committer.waiting:
        entries, done = rig.committer.waiting.pop(0)
        if entries:
            rig.store.commit(entries)
        survivor = rig.survivor()
        works = survivor.destination("q", kind).works
        seen.append((works.count, survivor.held("q", kind)))
        survivor.tick(1)
        assert reader(survivor, kind).got() in (["[U1+U2+U3]"], [])
        done()
    assert seen[-1] == (0, 1)
    assert (3, 3) in seen, "the parts were durable before the message was"
    assert all(row in ((2, 2), (3, 3), (0, 1)) for row in seen)


def test_a_part_of_a_prepared_transaction_keeps_its_number_over_a_restart() -> None:
    rig = rig_of()
    senders = Senders(rig)
    client = Client(rig, "c", "conn")
    client.ok("txn_begin", txn=1, key=b"k" * 16)
    senders.send([("U", 1, False)], txn=1, client=client)
    client.ok("txn_stage", txn=1, acks=[])
    assert client.ok("txn_prepare", txn=1, key=b"k" * 16, acks=[], coordinator="")["vote"] == "commit"
    rig = senders.rig = rig.restart()
    assert senders.send([("U", 1, False)]).refused() == ["message_format"]
    assert senders.send([("U", 2, True)]).refused() == []
    Client(rig).ok("txn_decide", key=b"k" * 16, commit=True)
    assert reader(rig).got() == ["[U1+U2]"]


def test_a_checkpoint_keeps_parts_and_since_when_they_wait() -> None:
    rig = rig_of(incompleteWorkExpirationTime=10_000, expirationPolicy="Discard")
    Senders(rig).send([("U", 1, False)])
    rig.tick(4_000)
    rig.host.executor.checkpoint()
    rig.sync()
    again = rig.restart()
    again.tick(5_000)
    assert again.held("q") == 1
    again.tick(2_000)
    assert again.held("q") == 0


def test_a_store_without_room_lets_the_unit_wait_and_composes_it_later(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = rig_of()
    senders = Senders(rig)
    senders.send([("U", 1, False)])
    client = senders.send([("U", 2, True)])
    with monkeypatch.context() as patch:
        patch.setattr(rig.host.executor, "has_room", lambda nbytes: False)
        rig.sync()
        assert client.refused() == []
        assert reader(rig).got() == []
    rig.tick(6_000)
    assert rig.held("q") == 1
    assert rig.restart().bodies("q") == ["[U1+U2]"]


# ---- limits ----------------------------------------------------------------------------------------------------------


def test_limits_of_the_destination_hold_for_parts_and_not_for_the_message() -> None:
    rig = rig_of(maxBytesPerMsg=2, maxTotalMsgBytes=6, maxNumMsgs=3)
    senders = Senders(rig)
    senders.send([("U", 1, False), ("U", 2, False)])
    assert senders.send([("V", 1, False), ("V", 2, False)]).refused() == ["quota_exceeded"]
    assert senders.send([("U", 3, True)]).refused() == ["quota_exceeded"]
    rig.host.administration.update("q", {"maxNumMsgs": 4, "maxTotalMsgBytes": 8}, lambda: None)
    assert senders.send([("U", 3, True)]).refused() == []
    assert rig.bodies("q") == ["[U1+U2+U3]"]


def test_a_unit_does_not_grow_over_the_largest_message() -> None:
    rig = Rig(imq__message__max_size="300")
    rig.create("q", **SINGLE)
    senders = Senders(rig)
    assert senders.send([("U", n, False) for n in range(1, 5)]).refused() == []
    assert senders.send([("U", 5, True)]).refused() == ["message_too_large"]


def test_a_number_is_bounded() -> None:
    rig = rig_of()
    senders = Senders(rig)
    assert senders.send([("U", unit_of_work.PARTS_MAX + 1, True)]).refused() == ["message_format"]
    assert senders.send([("U", unit_of_work.PARTS_MAX, True)]).refused() == []


@pytest.mark.parametrize(
    ("number", "end"), [(0, None), (-1, None), (True, None), ("1", None), (1.0, None), (None, None), (1, "yes"), (1, 1)]
)
def test_what_is_not_a_part_is_refused(number: Any, end: Any) -> None:  # W-98
    rig = rig_of()
    client = Client(rig)
    data = encode_block(
        [b"x"],
        producer=3,
        first_seq=1,
        timestamp_ms=0,
        persistent=True,
        kinds=BYTES,
        headers=[header("U", number, end)],
    )
    client.session.send(client.producer(number=3), 1, Block(data))
    assert client.refused() == ["message_format"]
    assert not rig.destination("q").works.units


def test_a_message_in_both_kinds_of_units_is_refused() -> None:  # W-94
    rig = rig_of()
    client = Client(rig)
    both = encode_header({WORK_UNIT: "U", WORK_NUMBER: 1}, None, None, None, unit="order")
    data = encode_block(
        [b"x", b"y"],
        producer=3,
        first_seq=1,
        timestamp_ms=0,
        persistent=True,
        kinds=BYTES,
        headers=[both, encode_header(None, None, None, None, unit="order")],
    )
    client.session.send(client.producer(number=3), 1, Block(data))
    assert client.refused() == ["message_format"]
    assert rig.bodies("q") == ["y"], "a unit of order alone is fine"


# ---- administration --------------------------------------------------------------------------------------------------


def test_parts_that_are_purged_while_their_message_is_made_are_gone() -> None:
    rig = rig_of()
    senders = Senders(rig)
    senders.send([("U", 1, False)])
    rig.sync()
    senders.send([("U", 2, True)])
    while rig.committer.waiting and not rig.destination("q").block_index.dead:
        entries, done = rig.committer.waiting.pop(0)
        rig.store.commit(entries)
        rig.host.executor._performing += 1  # The effect has come, and the host has not got to it.
        done()
        rig.host.executor._performing -= 1
    assert rig.destination("q").block_index.dead == 2
    rig.host.executor.perform(rig.destination("q"), cmd.Purge())
    rig.host.executor._settle_down()
    rig.sync()
    assert rig.held("q") == 0
    assert rig.restart().held("q") == 0


def test_a_topic_shows_no_subscription_for_its_parts() -> None:
    rig = rig_of("topic")
    Senders(rig, kind="topic").send([("U", 1, False)])
    rig.sync()
    row = rig.host.inspection.describe("topic", "q")
    assert (row["subscriptions"], row["incomplete"], row["messages"]) == (0, 1, 1)
    assert rig.host.inspection.subscriptions() == []


def test_a_unit_that_nobody_subscribes_to_by_then_is_nobodys() -> None:
    rig = rig_of("topic")
    Senders(rig, kind="topic").send([("U", 1, False), ("U", 2, True)])
    rig.sync()
    assert rig.held("q", "topic") == 0
    check(rig.destination("q", "topic"))
    assert rig.restart().held("q", "topic") == 0
