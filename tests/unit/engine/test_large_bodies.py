"""Bodies in pieces, as the engine takes and gives them: alone, with a worker that works when it is told to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.core.policy import limits_of
from raybroker.engine.memory.large_bodies import BODIES_MAX, STEP_PIECES, LargeBodies
from raybroker.engine.sessions.sessions import ClientSession
from raybroker.model.blocks.block import encode_block
from raybroker.model.blocks.large_block import PIECE_BYTES, PIECES_WAITING_MAX, LargeBlock
from raybroker.model.errors import (
    BrokerError,
    IllegalStateError,
    MessageTooLargeError,
    ProtocolError,
    ResourceAllocationError,
    StoreDamagedError,
    StoreFullError,
)
from raybroker.model.settings.settings import DestinationAttributes

DATA = b"0" * PIECE_BYTES + b"1" * PIECE_BYTES + b"end"
PIECES = [DATA[:PIECE_BYTES], DATA[PIECE_BYTES : 2 * PIECE_BYTES], b"end"]


class Body:
    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.data = b""
        self.finished = False
        self.failure: BrokerError | None = None

    def write(self, data: bytes) -> None:
        if self.failure is not None:
            raise self.failure
        self.data += data

    def finish(self) -> None:
        self.finished = True

    def piece(self, number: int) -> bytes:
        if self.failure is not None:
            raise self.failure
        return self.data[number * PIECE_BYTES : (number + 1) * PIECE_BYTES]

    def claim(self) -> bool:
        return True


class Store:
    def __init__(self) -> None:
        self.bodies: list[Body] = []
        self.failure: BrokerError | None = None

    def begin_body(self, nbytes: int) -> Body:
        if self.failure is not None:
            raise self.failure
        self.bodies.append(Body(nbytes))
        return self.bodies[-1]

    def large(self, destination: int, ordinal: int) -> LargeBlock | None:
        return None


class Referred:
    """A body by reference. ``kept``: its copy."""

    def __init__(self, data: bytes) -> None:
        self.data, self.nbytes = data, len(data)
        self.kept = Body(len(data))

    def pieces(self) -> Iterator[bytes]:
        return iter([self.data[at : at + PIECE_BYTES] for at in range(0, self.nbytes, PIECE_BYTES)])

    def owned(self) -> Body:
        return self.kept


class Given:
    def __init__(self) -> None:
        self.by_token: dict[str, Referred] = {}

    def take_body(self, token: str) -> Referred:
        found = self.by_token.pop(token, None)
        if found is None:
            raise IllegalStateError("no body was given")
        return found


class Worker:
    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], bytes | None], Callable[[bytes | None, BrokerError | None], None]]] = []

    def run(self, job: Any, done: Any) -> None:
        self.jobs.append((job, done))

    def work(self) -> None:
        while self.jobs:
            job, done = self.jobs.pop(0)
            try:
                result = job()
            except BrokerError as error:
                done(None, error)
            else:
                done(result, None)


class Peer:
    def __init__(self) -> None:
        self.replies: dict[int, Any] = {}
        self.failures: dict[int, tuple[str, str]] = {}
        self.is_full = False

    def reply(self, request: int, result: object) -> None:
        self.replies[request] = result

    def failed(self, request: int, code: str, text: str) -> None:
        self.failures[request] = code, text

    def full(self) -> bool:
        return self.is_full


class Rig:
    """A host's part, with one client, a queue ``q`` with a large block of number 3, and a consumer of handle 1."""

    def __init__(self) -> None:
        self.store, self.worker, self.peer = Store(), Worker(), Peer()
        attributes = DestinationAttributes(maxBytesPerMsg=len(DATA) + 100)
        references = limits_of(DestinationAttributes(), 10 * len(DATA), None, "raybroker.reference.max_size")
        policy = SimpleNamespace(limits=limits_of(attributes, -1), reference_limits=references)
        self.given = Given()
        self.body = Body(len(DATA))
        self.body.data = DATA
        front = encode_block([DATA], producer=1, first_seq=1, timestamp_ms=1, persistent=True, kinds=0, front=True)
        self.block: Any = LargeBlock(front, self.body)
        self.destination: Any = SimpleNamespace(
            name="q", number=1, policy=policy, block_index=SimpleNamespace(held={3: object()})
        )
        self.unreadable: list[BrokerError] = []
        registry: Any = SimpleNamespace(find=lambda kind, name: self.destination)
        blocks: Any = SimpleNamespace(
            read=lambda destination, ordinal: self.block,
            unreadable=lambda destination, error: self.unreadable.append(error),
        )
        self.part = LargeBodies(registry, blocks, self.store, self.worker, self.given.take_body)
        self.session: Any = SimpleNamespace(
            peer=self.peer,
            client=ClientSession(self.peer),  # type: ignore[arg-type]
            browsers={},
            consumer=lambda handle, epoch: (
                SimpleNamespace(destination=self.destination) if (handle, epoch) == (1, 9) else None
            ),
        )
        self.request = 0

    def call(self, op: str, **args: Any) -> int:
        self.request += 1
        self.part.operations()[op](self.session, self.request, args)
        return self.request

    def begin(self, body: int = 1, nbytes: int = len(DATA)) -> int:
        return self.call("begin_body", body=body, bytes=nbytes, type="queue", name="q")

    def come(self, body: int = 1) -> None:
        self.begin(body)
        for piece in PIECES:
            self.call("body_piece", body=body, data=piece)
        self.worker.work()

    def read(self, piece: int = 0, ordinal: int = 3, handle: int = 1, epoch: int = 9) -> int:
        return self.call("read_body", handle=handle, epoch=epoch, ordinal=ordinal, piece=piece)


@pytest.fixture
def rig() -> Rig:
    return Rig()


# ---- bodies that come by reference -----------------------------------------------------------------------------------


def refer(rig: Rig, body: int = 1, nbytes: int = len(DATA), *, persistent: bool = True) -> int:
    facts = {"type": "queue", "name": "q", "token": "t", "persistent": persistent}
    return rig.call("refer_body", body=body, bytes=nbytes, **facts)


def block_of(nbytes: int) -> LargeBlock:
    front = encode_block(
        [bytes(nbytes)], producer=1, first_seq=1, timestamp_ms=1, kinds=0, front=True, persistent=False
    )
    return LargeBlock.promised(front)


def test_a_persistent_body_by_reference_is_in_the_store_before_that_is_said(rig: Rig) -> None:
    data = DATA + bytes(STEP_PIECES * PIECE_BYTES)
    rig.given.by_token["t"] = Referred(data)
    request = refer(rig, nbytes=len(data))
    steps = 0
    while rig.worker.jobs:
        assert request not in rig.peer.replies
        job, done = rig.worker.jobs.pop(0)
        done(job(), None)
        steps += 1
    assert steps == 3, "other bodies have their turn between the steps"
    assert request in rig.peer.replies
    assert (rig.store.bodies[0].data, rig.store.bodies[0].finished) == (data, True)
    block = block_of(len(data))
    rig.part.give_body(rig.session.client, 1, block)
    assert block.large is rig.store.bodies[0]
    assert block.referred


def test_another_body_by_reference_has_an_owner_and_no_file(rig: Rig) -> None:
    found = rig.given.by_token["t"] = Referred(DATA)
    request = refer(rig, persistent=False)
    rig.worker.work()
    assert request in rig.peer.replies
    block = block_of(len(DATA))
    rig.part.give_body(rig.session.client, 1, block)
    assert (block.large, rig.store.bodies) == (found.kept, [])
    with pytest.raises(ProtocolError, match="which has not come"):
        rig.part.give_body(rig.session.client, 1, block_of(len(DATA)))


def test_references_have_a_limit_of_their_own(rig: Rig) -> None:
    rig.given.by_token["t"] = Referred(DATA)
    refer(rig, nbytes=10 * len(DATA))  # More than maxBytesPerMsg of other messages of the rig.
    with pytest.raises(MessageTooLargeError, match=r"raybroker.reference.max_size=\d+ of destination q"):
        refer(rig, 2, nbytes=10 * len(DATA) + 1)


def test_a_reference_that_is_not_there_or_has_another_size_is_refused(rig: Rig) -> None:
    requests = [refer(rig)]
    rig.worker.work()
    rig.given.by_token["t"] = Referred(DATA)
    requests.append(refer(rig, nbytes=5))
    rig.worker.work()
    assert [rig.peer.failures[request][0] for request in requests] == [IllegalStateError.code, ProtocolError.code]
    rig.given.by_token["t"] = Referred(DATA)
    rig.store.failure = StoreFullError("no room")
    request = refer(rig)
    rig.worker.work()
    assert rig.peer.failures[request] == (StoreFullError.code, "no room")
    with pytest.raises(ProtocolError, match="which has not come"):
        rig.part.take_body(rig.session.client, 1, len(DATA))


def test_a_client_that_has_left_ends_what_is_written_for_it(rig: Rig) -> None:
    rig.given.by_token["t"] = Referred(DATA)
    refer(rig)
    rig.part.left(rig.session.client)
    rig.worker.work()
    assert (rig.store.bodies[0].data, rig.peer.replies) == (b"", {})


def test_pieces_of_a_reference_do_not_come_over_the_connection(rig: Rig) -> None:
    refer(rig)
    with pytest.raises(ProtocolError, match="has all its pieces"):
        rig.call("body_piece", body=1, data=PIECES[0])


# ---- bodies that come ------------------------------------------------------------------------------------------------


def test_a_body_is_there_for_its_message_once_its_last_piece_is_durable(rig: Rig) -> None:
    rig.begin()
    for piece in PIECES:
        rig.call("body_piece", body=1, data=piece)
    with pytest.raises(ProtocolError, match="body 1, which has not come"):
        rig.part.take_body(rig.session.client, 1, len(DATA))
    rig.come(2)
    assert rig.peer.failures == {}
    assert rig.store.bodies[1].finished
    found = rig.part.take_body(rig.session.client, 2, len(DATA))
    assert found is rig.store.bodies[1]
    with pytest.raises(ProtocolError, match="which has not come"):
        rig.part.take_body(rig.session.client, 2, len(DATA))


def test_a_message_that_says_another_size_is_refused(rig: Rig) -> None:
    rig.come()
    with pytest.raises(ProtocolError, match="says that its body has 5 bytes"):
        rig.part.take_body(rig.session.client, 1, 5)


def test_a_body_that_its_destination_would_not_take_is_refused_before_it_comes(rig: Rig) -> None:
    with pytest.raises(MessageTooLargeError, match=r"maxBytesPerMsg=\d+ of destination q"):
        rig.begin(nbytes=len(DATA) + 101)
    for nbytes in (0, -1):
        with pytest.raises(MessageTooLargeError):
            rig.begin(nbytes=nbytes)
    assert rig.worker.jobs == []


def test_headers_that_are_announced_count_for_the_maximum_size(rig: Rig) -> None:  # W-54
    rig.destination.policy.limits = limits_of(DestinationAttributes(maximumMessageSize=len(DATA) + 10), -1)
    with pytest.raises(MessageTooLargeError, match="11 of them headers, exceeds maximumMessageSize"):
        rig.call("begin_body", body=1, bytes=len(DATA), type="queue", name="q", headers=11)
    assert rig.worker.jobs == []
    rig.call("begin_body", body=1, bytes=len(DATA), type="queue", name="q", headers=10)
    rig.begin(2)
    assert len(rig.worker.jobs) == 2, "who says nothing is held against it when the message comes"


@pytest.mark.parametrize("data", [b"", b"0" * (PIECE_BYTES - 1), b"0" * (PIECE_BYTES + 1), "text", None, 5])
def test_a_piece_has_the_size_that_it_has_to_have(rig: Rig, data: Any) -> None:
    rig.begin()
    with pytest.raises(ProtocolError, match=f"piece 0 of body 1 has {PIECE_BYTES} bytes"):
        rig.call("body_piece", body=1, data=data)


def test_pieces_of_nothing_and_too_many_pieces_are_refused(rig: Rig) -> None:
    with pytest.raises(ProtocolError, match="not under way"):
        rig.call("body_piece", body=1, data=b"x")
    rig.come()
    with pytest.raises(ProtocolError, match="has all its pieces"):
        rig.call("body_piece", body=1, data=b"end")


def test_bodies_and_pieces_under_way_are_bounded(rig: Rig) -> None:
    for number in range(BODIES_MAX):
        rig.begin(number)
    with pytest.raises(ProtocolError, match="body 0 is under way already"):
        rig.begin(0)
    with pytest.raises(ResourceAllocationError, match=f"{BODIES_MAX} bodies"):
        rig.begin(BODIES_MAX)
    for number in range(PIECES_WAITING_MAX):
        rig.call("body_piece", body=number // 2, data=PIECES[number % 2])
    with pytest.raises(ProtocolError, match="wait for their answers"):
        rig.call("body_piece", body=15, data=b"end")
    rig.worker.work()
    rig.call("drop_body", body=0)
    rig.begin(BODIES_MAX)


def test_a_failure_is_told_for_each_piece_and_the_body_is_gone(rig: Rig) -> None:
    rig.store.failure = StoreFullError("no room")
    requests = [rig.begin(), *(rig.call("body_piece", body=1, data=piece) for piece in PIECES[:2])]
    rig.worker.work()
    assert {rig.peer.failures[request] for request in requests} == {(StoreFullError.code, "no room")}
    assert rig.peer.replies == {}
    with pytest.raises(ProtocolError, match="not under way"):
        rig.call("body_piece", body=1, data=b"end")
    rig.store.failure = None
    rig.come()
    assert rig.part.take_body(rig.session.client, 1, len(DATA)) is rig.store.bodies[0]


def test_nothing_is_told_to_one_that_has_left(rig: Rig) -> None:
    rig.begin()
    rig.read()
    rig.part.left(rig.session.client)
    rig.worker.work()
    assert (rig.peer.replies, rig.peer.failures) == ({2: PIECES[0]}, {})
    with pytest.raises(ProtocolError):
        rig.part.take_body(rig.session.client, 1, len(DATA))


def test_a_host_without_files_takes_no_bodies_in_pieces() -> None:
    nothing: Any = None
    part = LargeBodies(nothing, nothing, None, None)
    assert not part.taken
    session: Any = SimpleNamespace(client=object())
    with pytest.raises(IllegalStateError, match="takes no bodies in pieces"):
        part.operations()["begin_body"](session, 1, {"body": 1, "bytes": 5, "type": "queue", "name": "q"})


# ---- bodies that are read --------------------------------------------------------------------------------------------


def test_a_consumer_reads_its_message_piece_by_piece(rig: Rig) -> None:
    requests = [rig.read(piece) for piece in range(3)]
    rig.worker.work()
    assert [rig.peer.replies[request] for request in requests] == PIECES


def test_who_is_no_consumer_reads_nothing(rig: Rig) -> None:
    with pytest.raises(IllegalStateError, match="not attached any more"):
        rig.read(epoch=8)
    rig.session.browsers[4] = SimpleNamespace(destination=rig.destination)
    request = rig.read(handle=4, epoch=0)
    rig.worker.work()
    assert rig.peer.replies[request] == PIECES[0]


def test_a_message_that_is_gone_or_has_no_such_piece_is_said_so(rig: Rig) -> None:
    gone, beyond, before = rig.read(ordinal=4), rig.read(3), rig.read(-1)
    assert rig.worker.jobs == []
    assert "not there any more" in rig.peer.failures[gone][1]
    assert {rig.peer.failures[request][0] for request in (beyond, before)} == {ProtocolError.code}


def test_pieces_wait_for_a_connection_that_is_full_and_no_more_than_so_many(rig: Rig) -> None:
    rig.peer.is_full = True
    for _ in range(PIECES_WAITING_MAX):
        rig.read()
    assert rig.worker.jobs == []
    with pytest.raises(ProtocolError, match="take them first"):
        rig.read()
    rig.part.writable(rig.session.client)
    assert rig.worker.jobs == []
    rig.peer.is_full = False
    rig.part.writable(rig.session.client)
    assert len(rig.worker.jobs) == PIECES_WAITING_MAX
    rig.worker.work()
    assert len(rig.peer.replies) == PIECES_WAITING_MAX
    rig.read()


def test_a_damaged_body_is_told_to_the_host_unless_its_message_has_gone_meanwhile(rig: Rig) -> None:
    rig.body.failure = StoreDamagedError("rotten")
    request = rig.read()
    rig.worker.work()
    assert rig.peer.failures[request] == (StoreDamagedError.code, "rotten")
    assert [str(error) for error in rig.unreadable] == ["rotten"]
    rig.read()
    rig.destination.block_index.held.clear()
    rig.worker.work()
    assert len(rig.unreadable) == 1
