"""What a producer handle holds: full blocks, order, and exactly what was not settled goes out again."""

from __future__ import annotations

from concurrent.futures import Future

from hypothesis import given
from hypothesis import strategies as st

from raybroker.client.producer.producer_state import MESSAGE_OVERHEAD_BYTES, ProducerState, SendBatch, Shared
from raybroker.client.producer.settlement import complete
from raybroker.content.headers import decode_header
from raybroker.model.blocks.block import BLOCK_BYTES_TARGET, BLOCK_MESSAGES_MAX, Block

PERSISTENT, LOST = Shared(True, 4), Shared(False, 4)


def fed(bodies: list[bytes], shared: Shared = PERSISTENT) -> ProducerState:
    state = ProducerState(7)
    for body in bodies:
        state.add(0, body, b"", shared, 1, None)
    return state


def drained(state: ProducerState) -> list[SendBatch]:
    state.seal()
    found = []
    while (batch := state.next_ready()) is not None:
        found.append(batch)
    return found


def bodies_of(batches: list[SendBatch]) -> list[bytes]:
    return [bytes(block.body(i)) for batch in batches for block in (Block(batch.data),) for i in range(block.count)]


def test_a_block_is_sealed_at_its_most_messages() -> None:
    batches = drained(fed([b""] * (BLOCK_MESSAGES_MAX + 1)))
    assert [b.count for b in batches] == [BLOCK_MESSAGES_MAX, 1]
    assert [b.first_seq for b in batches] == [1, BLOCK_MESSAGES_MAX + 1]


def test_a_block_is_sealed_before_it_grows_past_its_target_and_a_large_message_goes_alone() -> None:
    half = bytes(BLOCK_BYTES_TARGET // 2 - MESSAGE_OVERHEAD_BYTES)
    large = bytes(3 * BLOCK_BYTES_TARGET)
    assert [b.count for b in drained(fed([half, half, b"x", large, b"y"]))] == [2, 1, 1, 1]


def test_persistent_and_other_messages_never_share_a_block() -> None:
    state = ProducerState(7)
    for shared in (PERSISTENT, PERSISTENT, LOST, Shared(False, 9), PERSISTENT):
        state.add(0, b"x", b"", shared, 1, None)
    found = [(b.count, Block(b.data).persistent) for b in drained(state)]
    assert found == [(2, True), (2, False), (1, True)]


shareds = st.builds(
    Shared,
    st.just(True),
    st.integers(0, 9),
    st.sampled_from((0, 0, 1, 500)),
    st.sampled_from((0, 0, 1, 500)),
    named=st.booleans(),
    stamped=st.just(True),
)


@given(st.lists(st.tuples(shareds, st.integers(1_000, 2_000)), min_size=1, max_size=30))
def test_priority_expiry_and_delay_of_every_message_travel_in_one_block(rows: list[tuple[Shared, int]]) -> None:
    state = ProducerState(7)
    for shared, now_ms in rows:
        state.add(0, b"x", b"", shared, now_ms, None)
    (batch,) = drained(state)
    block = Block(batch.data)
    block.check()
    assert [block.priority_of(i) for i in range(block.count)] == [shared.priority for shared, _ in rows]
    assert [block.expires_of(i) for i in range(block.count)] == [s.ttl_ms and now + s.ttl_ms for s, now in rows]
    assert [block.deliver_at_of(i) for i in range(block.count)] == [s.delay_ms and now + s.delay_ms for s, now in rows]


def test_messages_with_and_without_a_timestamp_never_share_a_block() -> None:
    """R-16: what expires and is delayed does so by the clock all the same"""
    state = ProducerState(7)
    for shared in (PERSISTENT, Shared(True, 4, 10, stamped=False), Shared(True, 4, stamped=False), PERSISTENT):
        state.add(0, b"x", b"", shared, 1000, None)
    blocks = [Block(batch.data) for batch in drained(state)]
    assert [(block.count, block.timestamp_ms) for block in blocks] == [(1, 1000), (2, 0), (1, 1000)]
    assert blocks[1].expires_of(0) == 1010


KINDS_OF_MESSAGES = (
    PERSISTENT,
    Shared(True, 4),
    LOST,
    Shared(True, 7),
    Shared(True, 4, 1000),
    Shared(True, 4, stamped=False),
)
MESSAGES = st.tuples(
    st.integers(0, 3),
    st.sampled_from((b"", b"a", b"bc", b"x" * (BLOCK_BYTES_TARGET // 3))),
    st.sampled_from((b"", b"", b"", b"header")),
    st.sampled_from((PERSISTENT, PERSISTENT, *KINDS_OF_MESSAGES)),
    st.sampled_from((None, 0, 5)),
)


@given(st.lists(MESSAGES, max_size=40), st.sampled_from((0, 0, 3)))
def test_a_message_like_those_before_it_is_added_as_any_other(
    rows: list[tuple[int, bytes, bytes, Shared, int | None]], credit: int
) -> None:
    states = ProducerState(7), ProducerState(7)
    waiters: tuple[list[Future[str]], list[Future[str]]] = [], []
    for number, (kind, body, header, shared, since) in enumerate(rows):
        for state, known in zip(states, waiters, strict=True):
            state.credit = credit
            waiter = None if since is None else Future[str]()
            if waiter is not None:
                known.append(waiter)
            since_ns = 0 if since is None else since * (number + 1)
            seq = state.add_alike(kind, body, header, shared, waiter, since_ns) if state is states[1] else 0
            if not seq:
                seq = state.add(kind, body, header, shared, number, waiter, since_ns)
            assert seq == number + 1
        assert states[0].held_bytes == states[1].held_bytes
        assert len(states[0].ready) == len(states[1].ready)
    usual, quick = map(drained, states)
    assert [batch.data for batch in usual] == [batch.data for batch in quick]
    for one, other in zip(usual, quick, strict=True):
        assert (one.indexes, [*one.timed.values()], one.size) == (other.indexes, [*other.timed.values()], other.size)
        for mine, theirs in ((one.waiters, other.waiters), ([*one.timed], [*other.timed])):
            assert [waiters[0].index(w) for w in mine] == [waiters[1].index(w) for w in theirs]


@given(st.lists(st.tuples(MESSAGES, st.integers(1, 4)), max_size=20), st.sampled_from((0, 0, 1, 3)))
def test_a_run_is_added_as_its_messages_one_by_one(
    rows: list[tuple[tuple[int, bytes, bytes, Shared, int | None], int]], credit: int
) -> None:
    single, together = ProducerState(7), ProducerState(7)
    single.credit = together.credit = credit
    for number, ((kind, body, header, shared, _), count) in enumerate(rows):
        bodies = [body + bytes((n,)) for n in range(count)]
        for one in bodies:
            single.add(kind, one, header, shared, number, None)
        together.add_run(kind, bodies, header, shared, number, lambda *told: None)
        assert (single.held_bytes, single.next_seq) == (together.held_bytes, together.next_seq)
    usual, quick = drained(single), drained(together)
    assert [batch.data for batch in usual] == [batch.data for batch in quick]
    assert [batch.size for batch in usual] == [batch.size for batch in quick]
    assert all(batch.unawaited == 0 for batch in quick)


def test_a_run_that_is_more_than_a_block_is_told_of_block_by_block() -> None:
    state = ProducerState(7)
    told: list[tuple[int, int]] = []
    state.add(0, b"first", b"", PERSISTENT, 1, None)
    state.add_run(0, [b"x"] * (BLOCK_MESSAGES_MAX + 1), b"", PERSISTENT, 1, lambda a, b, _: told.append((a, b)))
    batches = drained(state)
    assert [batch.count for batch in batches] == [BLOCK_MESSAGES_MAX, 2]
    assert [batch.unawaited for batch in batches] == [1, 0]
    for batch in reversed(batches):
        complete(batch, 7, ())
    assert told == [(BLOCK_MESSAGES_MAX - 1, BLOCK_MESSAGES_MAX + 1), (0, BLOCK_MESSAGES_MAX - 1)]


def test_the_first_message_of_a_block_and_one_that_differs_are_none_like_those_before() -> None:
    state = ProducerState(7)
    assert state.add_alike(0, b"a", b"", PERSISTENT, None, 0) == 0
    assert (state.held_bytes, state.next_seq) == (0, 1)
    assert state.add(0, b"a", b"", PERSISTENT, 1, None) == 1
    assert state.add_alike(1, b"b", b"", PERSISTENT, None, 0) == 2
    for header, shared in ((b"header", PERSISTENT), (b"", Shared(True, 4)), (b"", LOST)):
        assert state.add_alike(0, b"c", header, shared, None, 0) == 0
    assert bodies_of(drained(state)) == [b"a", b"b"]


def test_only_those_who_have_waited_long_enough_wait_no_longer() -> None:
    """R-02"""
    state = ProducerState(7)
    for since_ns, waiter in ((10, "a"), (0, "b"), (20, "c"), (30, "d")):
        state.add(0, b"x", b"", PERSISTENT, 1, waiter, since_ns)
        if waiter == "b":
            state.seal()
            assert state.next_ready() is not None
    assert state.late(9) == ([], 10)
    assert state.late(20) == (["a", "c"], 30)
    assert state.late(20) == ([], 30)
    state.seal()
    assert state.late(30) == (["d"], 0)
    assert state.held_bytes > 0
    batch = state.settle_block(1)
    assert batch is not None
    assert batch.waiters == ["a", "b"]


def test_messages_with_equal_attributes_need_no_columns() -> None:
    state = ProducerState(7)
    for _ in range(3):
        state.add(0, b"x", b"", Shared(True, 7), 1, None)
    block = Block(drained(state)[0].data)
    assert (block.count, block.priority) == (3, 7)
    assert (block.priorities(), block.expires(), block.deliver_at()) == (None, None, None)


def test_a_run_of_bodies_has_the_attributes_of_its_producer() -> None:
    state = ProducerState(7)
    state.add_many(bytes(3), [b"x"] * 3, Shared(True, 9, 100, 20), 1_000, None)
    block = Block(drained(state)[0].data)
    assert (block.priority, block.priorities()) == (9, None)
    assert [block.expires_of(i) for i in range(3)] == [1_100] * 3
    assert [block.deliver_at_of(i) for i in range(3)] == [1_020] * 3


@given(st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=9), st.sampled_from((b"", b"h1", b"h2"))), min_size=1))
def test_kinds_headers_and_bodies_of_a_batch_are_those_of_its_messages(rows: list[tuple[int, bytes, bytes]]) -> None:
    state = ProducerState(7)
    for kind, body, header in rows:
        state.add(kind, body, header, PERSISTENT, 1, None)
    found = []
    for batch in drained(state):
        block = Block(batch.data)
        for i in range(block.count):
            header_view = block.header(i)
            found.append((block.kind_of(i), bytes(block.body(i)), bytes(header_view) if header_view else b""))
    assert found == rows


def test_after_a_lost_connection_what_is_not_settled_goes_out_again_in_order_before_the_rest() -> None:
    state = ProducerState(7)
    for index in range(5):
        state.add_many(bytes(1), [b"%d" % index], PERSISTENT, 1, None)
    for _ in range(3):
        state.next_ready()
    assert state.settle_block(2) is not None
    assert state.settle_block(2) is None, "settled before"
    state.send_again()
    assert state.floor == 1
    assert [b.first_seq for b in drained(state)] == [1, 3, 4, 5]


def doubtful(batches: list[SendBatch]) -> list[tuple[int, bool]]:
    """First sequence number, and whether all of its messages may come twice."""
    found = []
    for batch in batches:
        block = Block(batch.data)
        said = {decode_header(block.header(index)).doubtful for index in range(block.count)}
        assert len(said) == 1
        found.append((batch.first_seq, said.pop()))
    return found


def test_what_goes_out_again_to_another_broker_says_that_it_may_come_twice() -> None:  # K-19
    state = ProducerState(7)
    state.send_again("b1")
    for index in range(4):
        state.add_many(bytes(2), [b"%d" % index] * 2, PERSISTENT, 1, None)
    assert doubtful([batch for _ in range(2) if (batch := state.next_ready())]) == [(1, False), (3, False)]
    state.send_again("b1")
    assert doubtful(list(state.ready)) == [(1, False), (3, False), (5, False), (7, False)]
    assert state.next_ready() is not None
    state.send_again("b2")
    assert doubtful(drained(state)) == [(1, True), (3, True), (5, False), (7, False)]
    state.send_again("b2")
    assert doubtful(drained(state)) == [(1, True), (3, True), (5, False), (7, False)]


def test_a_non_persistent_block_is_done_once_it_is_written() -> None:
    state = fed([b"x", b"y"], LOST)
    assert drained(state)[0].count == 2
    assert state.held_bytes == 0
    state.send_again()
    assert state.next_ready() is None


def test_the_floor_is_the_first_message_that_may_be_sent_again() -> None:
    state = ProducerState(7)
    assert state.floor == 1
    for _ in range(3):
        state.add_many(bytes(2), [b"x"] * 2, PERSISTENT, 1, None)
    first, second = state.next_ready(), state.next_ready()
    assert first is not None
    assert second is not None
    assert state.floor == 1
    state.settle_block(first.first_seq)
    assert state.floor == 3
    state.settle_block(second.first_seq)
    assert state.floor == 5
    state.next_ready()
    state.settle_block(5)
    assert state.floor == 7
    state.add(0, b"x", b"", PERSISTENT, 1, None)
    assert state.floor == 7


@given(st.lists(st.sampled_from(("add", "many", "write", "settle first", "settle last", "lose")), max_size=60))
def test_nothing_accepted_is_lost_or_reordered_whatever_happens(steps: list[str]) -> None:
    """The twin is a list: everything accepted and not settled is what a reconnect would send, in order."""
    state, accepted, settled, on_wire = ProducerState(7), 0, set[int](), list[SendBatch]()
    for step in steps:
        if step == "add":
            accepted += 1
            state.add(0, b"%d" % accepted, b"", PERSISTENT, 1, None)
        elif step == "many":
            state.add_many(bytes(3), [b"%d" % (accepted + i + 1) for i in range(3)], PERSISTENT, 1, None)
            accepted += 3
        elif step == "write":
            state.seal()
            batch = state.next_ready()
            if batch is not None:
                on_wire.append(batch)
        elif step.startswith("settle") and on_wire:
            batch = on_wire.pop(0 if step == "settle first" else -1)
            assert state.settle_block(batch.first_seq) is batch
            settled |= set(range(batch.first_seq, batch.first_seq + batch.count))
        elif step == "lose":
            state.send_again()
            on_wire.clear()
    assert state.floor == min(set(range(1, accepted + 2)) - settled)
    state.send_again()
    missing = [b"%d" % n for n in range(1, accepted + 1) if n not in settled]
    assert bodies_of(drained(state)) == missing
    assert state.held_bytes == sum(len(body) + MESSAGE_OVERHEAD_BYTES for body in missing)
    assert sum(b.count for b in state.abandon()) == len(missing)
    assert state.held_bytes == 0


def test_what_was_written_before_the_end_is_in_doubt_and_the_rest_is_not() -> None:
    state = ProducerState(1)
    for body in (b"a", b"b", b"c"):
        state.add(0, body, b"", PERSISTENT, 1, None)
        state.seal()
    first, second = state.next_ready(), state.next_ready()
    assert state.in_doubt() == [first, second]
    state.send_again("b1")
    assert state.in_doubt() == [first, second], "ready again, and written before"
    state.settle_block(1)
    state.next_ready()
    assert state.in_doubt() == [first, second]
    state.add(0, b"d", b"", PERSISTENT, 1, None)
    assert [batch.first_seq for batch in state.abandon()] == [1, 2, 3, 4]
    assert (state.in_doubt(), state.abandon()) == ([], [])


def test_a_block_waits_for_the_window_and_for_its_credit() -> None:
    state = ProducerState(7)
    for _ in range(3):
        state.add_many(bytes(2), [b"a", b"b"], PERSISTENT, 0, None)
    state.credit = 3
    first = state.next_ready(1_000)
    assert first is not None
    assert state.next_ready(1_000) is None, "two are under way, and two more exceed the credit"
    state.credit = 4
    assert state.next_ready(first.size) is None, "the window is full"
    second = state.next_ready(first.size + 1)
    assert second is not None
    assert (first.floor, second.floor) == (1, 1)
    state.credit = 1
    state.settle_block(first.first_seq)
    state.settle_block(second.first_seq)
    last = state.next_ready(1)
    assert last is not None, "one that is larger than all of the credit goes alone"
    assert last.floor == 5
