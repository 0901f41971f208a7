"""Links: credit and drain, transfers in one frame and in many, what is settled, and what a peer does wrong."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.model.errors import IllegalStateError
from raybroker.wire.amqp.conditions import (
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_FOUND,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSFER_LIMIT_EXCEEDED,
)
from raybroker.wire.amqp.connection import ConnectionEndpoint
from raybroker.wire.amqp.events import (
    AmqpEvent,
    CreditGiven,
    DeliveryAborted,
    DeliveryReceived,
    DispositionReceived,
    LinkAttached,
    LinkDetached,
    LinkDrained,
    ProtocolFailed,
    SessionBegun,
    SessionUnblocked,
)
from raybroker.wire.amqp.limits import AmqpLimits
from raybroker.wire.amqp.links import ReceivingLink, SendingLink, runs_of
from raybroker.wire.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    U32,
    AmqpAttach,
    AmqpBegin,
    AmqpClose,
    AmqpDetach,
    AmqpDisposition,
    AmqpError,
    AmqpFlow,
    AmqpModified,
    AmqpSource,
    AmqpTarget,
    AmqpTransfer,
    Coordinator,
    TransactionalState,
)
from tests.unit.wire.amqp.pair import Pair, frame, opened_server, said

TAG = b"t"


def deliveries(events: list[AmqpEvent]) -> list[DeliveryReceived]:
    return [event for event in events if isinstance(event, DeliveryReceived)]


class Bare:
    """A listening end, and the frames of a peer that keeps to no rule; ``link`` has ``credit``."""

    def __init__(self, credit: int = 10, limits: AmqpLimits | None = None, **more: Any) -> None:
        self.server: ConnectionEndpoint = opened_server(limits)
        attach = AmqpAttach("l", 0, False, source=AmqpSource(), target=AmqpTarget("q"), initial_delivery_count=0)
        begun, attached = self.server.receive_data(frame(AmqpBegin(None, 0, 100, 100)) + frame(attach))
        assert isinstance(begun, SessionBegun)
        assert isinstance(attached, LinkAttached)
        assert isinstance(attached.link, ReceivingLink)
        begun.session.send_begin()
        self.session, self.link = begun.session, attached.link
        self.link.send_attach(AmqpSource(), AmqpTarget("q"), **more)
        self.link.grant(credit)
        self.said()

    def hear(self, *frames: bytes) -> list[AmqpEvent]:
        return self.server.receive_data(b"".join(frames))

    def said(self) -> list[Any]:
        return list(said(self.server.data_to_send()))


# ---- attach and detach ---------------------------------------------------------------------------------------------


def test_attach_tells_all_fields_and_takes_over_the_modes_of_the_peer() -> None:
    pair = Pair().opened()
    ours, _ = pair.session()
    source = AmqpSource("q", 2, "never", filter={"f": 1}, outcomes=("amqp:accepted:list",), capabilities=("topic",))
    link = ours.attach_receiver("sub", source, AmqpTarget(), snd_settle_mode=0, rcv_settle_mode=1, properties={"p": 1})
    (attached,) = pair.talk()
    assert isinstance(attached, LinkAttached)
    assert isinstance(attached.link, SendingLink)
    assert attached.attach.source == source
    assert attached.attach.properties == {"p": 1}
    attached.link.send_attach(source, AmqpTarget(), offered_capabilities=("x",))
    pair.talk()
    assert link.peer is not None
    assert (link.peer.snd_settle_mode, link.peer.rcv_settle_mode) == (0, 1)
    assert link.peer.offered_capabilities == ("x",)
    assert link.peer.initial_delivery_count == 0


def test_a_receiver_tells_its_largest_message() -> None:
    pair = Pair(AmqpLimits(message_bytes_max=1000)).opened()
    ours, _ = pair.session()
    first, _ = pair.incoming(ours)
    second, theirs = pair.incoming(ours, max_message_size=50)
    assert first.peer is not None
    assert second.peer is not None
    assert first.peer.max_message_size == 1000
    assert second.peer.max_message_size == theirs.max_message_size == 50


@pytest.mark.parametrize("target", [AmqpTarget("nowhere"), Coordinator(("x",)), None])
def test_a_refusal_is_an_attach_without_terminus_and_a_detach(target: Any) -> None:
    pair = Pair().opened()
    ours, _ = pair.session()
    link = ours.attach_sender("l", AmqpSource(), target)
    (attached,) = pair.talk()
    assert isinstance(attached, LinkAttached)
    attached.link.refuse(AmqpError(NOT_FOUND, "no such queue"))
    pair.talk()
    answered, detached = pair.told
    assert isinstance(answered, LinkAttached)
    assert answered.attach.target is None
    assert answered.attach.source == AmqpSource()
    assert detached == LinkDetached(link, True, AmqpError(NOT_FOUND, "no such queue"), by_peer=True)
    link.send_detach()
    assert pair.talk()[0] == LinkDetached(attached.link, True, None, by_peer=True)
    assert not ours.links


def test_a_handle_is_used_again_after_both_have_detached() -> None:
    pair = Pair().opened()
    ours, theirs = pair.session()
    for closed in (True, False):
        link, other = pair.incoming(ours)
        assert link.handle == other.handle == 0
        link.send_detach(closed=closed)
        assert pair.talk() == [LinkDetached(other, closed, None, by_peer=True)]
        other.send_detach(closed=closed)
        pair.talk()
        assert pair.told == [LinkDetached(link, closed, None, by_peer=True)]
        assert not ours.links
        assert not theirs.links


def test_two_links_of_one_name_in_both_directions() -> None:
    pair = Pair().opened()
    ours, _ = pair.session()
    ours.attach_sender("x", AmqpSource(), AmqpTarget("q"))
    ours.attach_receiver("x", AmqpSource("q"), AmqpTarget())
    first, second = pair.talk()
    assert isinstance(first, LinkAttached)
    assert isinstance(second, LinkAttached)
    for event in (second, first):  # The answers come the other way round.
        event.link.send_attach(event.attach.source, event.attach.target)
    pair.talk()
    assert [type(event.link) for event in pair.told if isinstance(event, LinkAttached)] == [ReceivingLink, SendingLink]


# ---- deliveries ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 1000, 130_000, 131_072, 131_073, 1_000_000])
def test_messages_of_all_sizes_arrive_whole(size: int) -> None:
    pair = Pair().opened()
    ours, _ = pair.session()
    sender, receiver = pair.incoming(ours)
    receiver.grant(10)
    pair.talk()
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    sender.send([body[: size // 3], memoryview(body)[size // 3 :]], "context")
    (delivery,) = pair.talk()
    assert delivery == DeliveryReceived(receiver, 0, b"\0\0\0\0", False, None, 0, body)
    assert pair.server.incomplete_bytes == 0
    receiver.settle_deliveries([0], ACCEPTED)
    pair.talk()
    (told,) = pair.told
    assert isinstance(told, DispositionReceived)
    assert (told.link, told.state, told.settled) == (sender, ACCEPTED, True)
    assert [one.context for one in told.deliveries] == ["context"]
    assert not sender.lane.sent
    assert not receiver.lane.received


def test_frames_are_as_long_as_both_allow() -> None:
    pair = Pair(AmqpLimits(frame_bytes_max=1000), AmqpLimits(frame_bytes_max=512)).opened()
    ours, _ = pair.session()
    receiver, sender = pair.outgoing(ours)
    receiver.grant(1)
    pair.talk()
    sender.send([b"x" * 2000])
    data = pair.server.data_to_send()
    sizes = []
    while data:
        size = int.from_bytes(data[:4], "big")
        sizes.append(size)
        data = data[size:]
    assert len(sizes) == 5
    assert sizes[:4] == [512] * 4


def test_what_is_sent_settled_needs_no_answer() -> None:
    pair = Pair().opened()
    ours, _ = pair.session()
    sender, receiver = pair.incoming(ours)
    receiver.grant(2)
    pair.talk()
    sender.send([b"a"], settled=True)
    sender.send([b"b" * 200_000], settled=True)
    assert [one.settled for one in deliveries(pair.talk())] == [True, True]
    assert not sender.lane.sent
    assert not receiver.lane.received
    receiver.settle_deliveries([0, 1], ACCEPTED)
    assert not pair.server.has_output


def test_a_state_goes_with_a_delivery() -> None:
    pair = Pair().opened()
    ours, _ = pair.session()
    sender, receiver = pair.incoming(ours)
    receiver.grant(1)
    pair.talk()
    sender.send([b"a"], state=TransactionalState(b"txn"), format_=7)
    (delivery,) = deliveries(pair.talk())
    assert (delivery.state, delivery.message_format) == (TransactionalState(b"txn"), 7)


def test_transfers_of_several_links_are_kept_apart() -> None:
    bare = Bare()
    attach = AmqpAttach("m", 7, False, source=AmqpSource(), target=AmqpTarget("q"), initial_delivery_count=5)
    (other,) = bare.hear(frame(attach))
    assert isinstance(other, LinkAttached)
    assert isinstance(other.link, ReceivingLink)
    other.link.send_attach(AmqpSource(), AmqpTarget("q"))
    other.link.grant(1)
    events = bare.hear(
        frame(AmqpTransfer(0, 0, TAG, 0, more=True), b"a"),
        frame(AmqpTransfer(7, 1, TAG, 0, more=True), b"x"),
        frame(AmqpTransfer(0, more=True)),
        frame(AmqpTransfer(7, 1), b"y"),
        frame(AmqpTransfer(0, settled=True), b"b"),
    )
    assert [(one.link, one.payload, one.settled) for one in deliveries(events)] == [
        (other.link, b"xy", False),
        (bare.link, b"ab", True),
    ]
    assert bare.server.incomplete_bytes == 0


def test_an_aborted_delivery_is_dropped() -> None:
    bare = Bare()
    assert bare.hear(frame(AmqpTransfer(0, 0, TAG, 0, more=True), b"a" * 100)) == []
    assert bare.server.incomplete_bytes == 100
    assert bare.hear(frame(AmqpTransfer(0, aborted=True), b"ignored")) == [DeliveryAborted(bare.link)]
    assert bare.server.incomplete_bytes == 0
    assert bare.link.credit == 9
    assert bare.hear(frame(AmqpTransfer(0, 1, TAG, aborted=True))) == [DeliveryAborted(bare.link)]
    (delivery,) = deliveries(bare.hear(frame(AmqpTransfer(0, 2, TAG), b"b")))
    assert delivery.payload == b"b"


@pytest.mark.parametrize(
    ("frames", "condition"),
    [
        ([frame(AmqpTransfer(0))], INVALID_FIELD),
        ([frame(AmqpTransfer(0, 0))], INVALID_FIELD),
        ([frame(AmqpTransfer(0, None, TAG))], INVALID_FIELD),
        ([frame(AmqpTransfer(0, 0, b"t" * 33))], INVALID_FIELD),
        ([frame(AmqpTransfer(0, 0, TAG, more=True)), frame(AmqpTransfer(0, 1, TAG))], INVALID_FIELD),
        ([frame(AmqpTransfer(0, n, TAG)) for n in range(3)], TRANSFER_LIMIT_EXCEEDED),
        ([frame(AmqpTransfer(0, 0, TAG), b"x" * 101)], MESSAGE_SIZE_EXCEEDED),
        ([frame(AmqpTransfer(0, 0, TAG, more=True), b"x" * 60)] * 2, MESSAGE_SIZE_EXCEEDED),
        ([frame(AmqpFlow(0, 9, 0, 9, 0, 5, 0))], INVALID_FIELD),  # gives back more than it has
    ],
)
def test_what_breaks_a_rule_of_a_link_detaches_that_alone(frames: list[bytes], condition: str) -> None:
    bare = Bare(credit=2, max_message_size=100)
    events = bare.hear(*frames, frame(AmqpTransfer(0, 9, TAG), b"under way"))
    (detached,) = [event for event in events if not isinstance(event, DeliveryReceived)]
    assert isinstance(detached, LinkDetached)
    assert detached.error is not None
    assert detached.error.condition == condition
    assert not detached.by_peer
    (detach,) = [one for one in bare.said() if isinstance(one, AmqpDetach)]
    assert detach.closed
    assert detach.error == detached.error
    assert bare.server.incomplete_bytes == 0
    bare.link.grant(5)
    bare.link.settle_deliveries([0, 1, 2], ACCEPTED)
    bare.link.send_detach()
    assert not bare.server.has_output
    assert bare.hear(frame(AmqpDetach(0, True))) == []
    assert not bare.session.links


def test_incomplete_deliveries_of_a_connection_are_bounded() -> None:
    bare = Bare(limits=AmqpLimits(incomplete_bytes_max=1000))
    assert bare.hear(frame(AmqpTransfer(0, 0, TAG, more=True), b"x" * 1000)) == []
    (failed,) = bare.hear(frame(AmqpTransfer(0, more=True), b"x"))
    assert isinstance(failed, ProtocolFailed)
    assert failed.error.condition == RESOURCE_LIMIT_EXCEEDED
    assert bare.server.incomplete_bytes == 0


def test_numbers_go_round() -> None:
    pair = Pair().opened()
    ours, theirs = pair.session()
    sender, receiver = pair.incoming(ours)
    for lane in (ours.lane, theirs.lane):
        lane.next_delivery_id = lane.window.next_outgoing_id = U32 - 2
        lane.window.next_incoming_id = U32 - 2
    sender.delivery_count = receiver.delivery_count = U32 - 1
    receiver.grant(10)
    pair.talk()
    for _ in range(5):
        sender.send([b"m"])
    assert [one.delivery_id for one in deliveries(pair.talk())] == [U32 - 2, U32 - 1, U32, 0, 1]
    assert receiver.credit == sender.credit == 5
    bare = frame(AmqpDisposition(True, U32 - 1, 0, True, RELEASED))
    (told,) = pair.client.receive_data(bare)
    assert isinstance(told, DispositionReceived)
    assert [one.delivery_id for one in told.deliveries] == [U32 - 1, U32, 0]
    assert list(sender.lane.sent) == [U32 - 2, 1]
    receiver.grant(10)
    pair.talk()
    assert sender.credit == 10


# ---- credit, drain, windows ----------------------------------------------------------------------------------------


def test_credit_is_used_and_granted_in_all() -> None:
    pair = Pair().opened()
    ours, _ = pair.session()
    sender, receiver = pair.incoming(ours)
    with pytest.raises(IllegalStateError, match="0 credits"):
        sender.send([b"a"])
    receiver.grant(3)
    pair.talk()
    assert pair.told == [CreditGiven(sender, 3, drain=False)]
    sender.send([b"a"])
    assert (sender.credit, sender.sendable) == (2, 2)
    receiver.grant(3)  # crosses the delivery: it is one of the three
    pair.client.receive_data(pair.server.data_to_send())
    assert sender.credit == 2
    pair.talk()
    receiver.grant(0)
    pair.talk()
    assert sender.sendable == 0


def test_less_credit_does_not_make_what_is_under_way_wrong() -> None:
    pair = Pair().opened()
    ours, _ = pair.session()
    sender, receiver = pair.incoming(ours)
    receiver.grant(3)
    pair.talk()
    sender.send([b"a"])
    receiver.grant(0)
    assert len(deliveries(pair.talk())) == 1
    assert receiver.credit == 0
    assert sender.credit == 0


def test_a_drain_gives_back_what_is_left() -> None:
    pair = Pair().opened()
    ours, _ = pair.session()
    receiver, sender = pair.outgoing(ours)
    receiver.grant(10, drain=True)
    assert pair.talk() == [CreditGiven(sender, 10, drain=True)]
    sender.send([b"a"], 1)
    sender.drained()
    pair.talk()
    assert len(deliveries(pair.told)) == 1
    assert pair.told[-1] == LinkDrained(receiver)
    assert (receiver.credit, receiver.delivery_count, sender.credit) == (0, 10, 0)
    receiver.grant(1)
    assert pair.talk() == [CreditGiven(sender, 1, drain=False)]


def test_a_drain_without_credit_is_answered() -> None:
    pair = Pair().opened()
    ours, _ = pair.session()
    receiver, sender = pair.outgoing(ours)
    receiver.grant(0, drain=True)
    assert pair.talk() == [CreditGiven(sender, 0, drain=True)]
    sender.drained()
    pair.talk()
    assert pair.told == [LinkDrained(receiver)]


def test_a_drain_that_is_used_up_by_deliveries_is_answered() -> None:
    pair = Pair().opened()
    ours, _ = pair.session()
    receiver, sender = pair.outgoing(ours)
    receiver.grant(1, drain=True)
    pair.talk()
    sender.send([b"a" * 300_000])
    sender.drained()
    pair.talk()
    assert [type(event) for event in pair.told] == [DeliveryReceived, LinkDrained]


def test_an_echo_is_answered_with_the_state() -> None:
    bare = Bare()
    bare.hear(frame(AmqpFlow(0, 50, 0, 50, echo=True)))
    (flow,) = bare.said()
    assert flow == AmqpFlow(0, 2048, 0, flow.outgoing_window)
    bare.hear(frame(AmqpFlow(0, 50, 0, 50, 0, 0, 0, echo=True)))
    (flow,) = bare.said()
    assert (flow.handle, flow.delivery_count, flow.link_credit) == (0, 0, 10)


def test_credit_may_come_before_the_attach_is_answered() -> None:
    server = opened_server()
    attach = AmqpAttach("l", 0, True, source=AmqpSource("q"), target=AmqpTarget())
    flow = AmqpFlow(None, 100, 0, 100, 0, None, 5)
    begun, attached, given = server.receive_data(frame(AmqpBegin(None, 0, 100, 100)) + frame(attach) + frame(flow))
    assert isinstance(begun, SessionBegun)
    assert isinstance(attached, LinkAttached)
    assert isinstance(attached.link, SendingLink)
    assert given == CreditGiven(attached.link, 5, drain=False)
    with pytest.raises(IllegalStateError):
        attached.link.send([b"a"])
    begun.session.send_begin()
    attached.link.send_attach(AmqpSource("q"), AmqpTarget())
    attached.link.send([b"a"])
    assert attached.link.credit == 4


def test_what_the_session_window_does_not_allow_waits() -> None:
    pair = Pair(client_limits=AmqpLimits(incoming_window=3, frame_bytes_max=512)).opened()
    ours, theirs = pair.session()
    receiver, sender = pair.outgoing(ours)
    receiver.grant(10)
    pair.talk()
    for context in range(4):
        sender.send([b"x" * 600], context)  # two frames each
    assert theirs.blocked
    assert sender.sendable == 0
    assert theirs.lane.window.outgoing == 0
    first = list(said(pair.server.data_to_send()))
    assert [one.more for one in first] == [True, False, True]
    assert [one.delivery_id for one in first] == [0, None, 1]


def test_the_window_opens_as_transfers_arrive() -> None:
    pair = Pair(client_limits=AmqpLimits(incoming_window=3, frame_bytes_max=512)).opened()
    ours, theirs = pair.session()
    receiver, sender = pair.outgoing(ours)
    receiver.grant(10)
    pair.talk()
    for context in range(4):
        sender.send([b"x" * 600], context)
    sender.drained()
    assert pair.talk()[-1] == SessionUnblocked(theirs)
    assert [len(one.payload) for one in deliveries(pair.told)] == [600] * 4
    assert not theirs.blocked
    assert receiver.delivery_count == sender.delivery_count


def test_a_link_that_ends_takes_what_waits_with_it() -> None:
    pair = Pair(client_limits=AmqpLimits(incoming_window=2, frame_bytes_max=512)).opened()
    ours, theirs = pair.session()
    receiver, sender = pair.outgoing(ours)
    other, second = pair.outgoing(ours)
    receiver.grant(10)
    other.grant(10)
    pair.talk()
    sender.send([b"x" * 3000])
    second.send([b"y"])
    sender.send_detach()
    assert theirs.blocked
    pair.talk()
    assert [one.payload for one in deliveries(pair.told)] == [b"y"]
    assert pair.client.incomplete_bytes == 0
    assert [one.link for one in theirs.lane.sent.values()] == [second]


# ---- dispositions --------------------------------------------------------------------------------------------------


def test_runs() -> None:
    assert runs_of([]) == []
    assert runs_of([5]) == [(5, 5)]
    assert runs_of([1, 2, 3, 7, 8, 1]) == [(1, 3), (7, 8), (1, 1)]
    assert runs_of([U32, 0]) == [(U32, U32), (0, 0)]


def test_runs_of_deliveries_are_settled_by_a_frame_each() -> None:
    bare = Bare()
    bare.hear(*(frame(AmqpTransfer(0, number, TAG), b"m") for number in (0, 1, 2, 5, 6)))
    bare.link.settle_deliveries([0, 1, 2, 3, 5], ACCEPTED)
    bare.link.settle_deliveries([0, 6], AmqpModified(True))
    assert bare.said() == [
        AmqpDisposition(True, 0, 2, True, ACCEPTED),
        AmqpDisposition(True, 5, 5, True, ACCEPTED),
        AmqpDisposition(True, 6, None, True, AmqpModified(True)),
    ]


def test_one_disposition_over_several_links_is_told_link_by_link() -> None:
    pair = Pair().opened()
    ours, _ = pair.session()
    one, first = pair.outgoing(ours)
    two, second = pair.outgoing(ours)
    one.grant(5)
    two.grant(5)
    pair.talk()
    for context, link in enumerate([first, first, second, first]):
        link.send([b"m"], context)
    pair.talk()
    events = pair.server.receive_data(frame(AmqpDisposition(True, 0, 1 << 30, True, ACCEPTED)))
    told = [event for event in events if isinstance(event, DispositionReceived)]
    assert [(event.link, [delivery.context for delivery in event.deliveries]) for event in told] == [
        (first, [0, 1]),
        (second, [2]),
        (first, [3]),
    ]
    assert pair.server.receive_data(frame(AmqpDisposition(True, 0, 3, True, ACCEPTED))) == []


def test_deliveries_that_are_accepted_one_by_one_are_told_of_together() -> None:
    """Up to another outcome, another link, or what is not settled."""
    pair = Pair().opened()
    ours, _ = pair.session()
    one, first = pair.outgoing(ours)
    two, second = pair.outgoing(ours)
    one.grant(9)
    two.grant(9)
    pair.talk()
    for context, link in enumerate([first, first, first, first, first, second, first, first]):
        link.send([b"m"], context)
    pair.talk()
    rejected = AmqpModified(True)
    states = [ACCEPTED, ACCEPTED, rejected, rejected, ACCEPTED, ACCEPTED, ACCEPTED, ACCEPTED]
    frames = [frame(AmqpDisposition(True, at, None, at < 7, state)) for at, state in enumerate(states)]
    events = pair.server.receive_data(b"".join(frames))
    told = [event for event in events if isinstance(event, DispositionReceived)]
    assert [([one.context for one in event.deliveries], event.link, event.settled) for event in told] == [
        ([0, 1], first, True),
        ([2], first, True),
        ([3], first, True),
        ([4], first, True),
        ([5], second, True),
        ([6], first, True),
        ([7], first, False),
    ]
    assert events == told


def test_a_receiver_that_settles_second() -> None:
    """It tells a state, the sender settles, and only then it forgets the delivery."""
    pair = Pair().opened()
    ours, _ = pair.session()
    receiver, sender = pair.outgoing(ours)
    receiver.grant(1)
    pair.talk()
    sender.send([b"m"], "context")
    pair.talk()
    receiver.settle_deliveries([0], ACCEPTED, settled=False)
    (told,) = pair.talk()
    assert isinstance(told, DispositionReceived)
    assert not told.settled
    assert list(sender.lane.sent) == [0]
    sender.settle_deliveries([one.delivery_id for one in told.deliveries], told.state)
    sender.settle_deliveries([0], told.state)
    pair.talk()
    (end,) = pair.told
    assert isinstance(end, DispositionReceived)
    assert (end.link, end.settled, [one.delivery_id for one in end.deliveries]) == (receiver, True, [0])
    assert not sender.lane.sent
    assert not receiver.lane.received


def test_a_number_that_is_not_settled_does_not_come_again() -> None:
    bare = Bare()
    bare.hear(frame(AmqpTransfer(0, 0, TAG), b"m"))
    events = bare.hear(frame(AmqpTransfer(0, 0, TAG), b"m"))
    assert [type(event).__name__ for event in events] == ["SessionEnded"]


def test_a_link_that_fails_before_it_is_answered_is_refused() -> None:
    server = opened_server()
    attach = AmqpAttach("l", 0, False, source=AmqpSource(), target=AmqpTarget("q"), initial_delivery_count=0)
    transfer = frame(AmqpTransfer(0, 0, TAG), b"without credit")
    (begun,) = server.receive_data(frame(AmqpBegin(None, 0, 100, 100)))
    assert isinstance(begun, SessionBegun)
    begun.session.send_begin()
    attached, detached = server.receive_data(frame(attach) + transfer)
    assert isinstance(attached, LinkAttached)
    assert isinstance(detached, LinkDetached)
    assert [type(one) for one in said(server.data_to_send())] == [AmqpBegin, AmqpAttach, AmqpDetach]
    attached.link.send_attach(AmqpSource(), AmqpTarget("q"))
    attached.link.refuse(AmqpError(NOT_FOUND))
    assert not server.has_output


@pytest.mark.parametrize("wrong", [AmqpTransfer(0, 0, TAG), AmqpTransfer(5, 0, TAG)])
def test_in_a_session_that_is_not_answered_yet_a_fault_ends_the_connection(wrong: AmqpTransfer) -> None:
    server = opened_server(AmqpLimits(incoming_window=1))
    attach = AmqpAttach("l", 0, False, source=AmqpSource(), target=AmqpTarget("q"), initial_delivery_count=0)
    echo = frame(AmqpFlow(None, 1, 0, 1, echo=True))
    events = server.receive_data(frame(AmqpBegin(None, 0, 100, 100)) + frame(attach) + echo + frame(wrong))
    assert isinstance(events[-1], ProtocolFailed)
    assert [type(one) for one in said(server.data_to_send())] == [AmqpClose]
