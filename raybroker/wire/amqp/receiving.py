"""Performatives of a session as they come: what they change, and the events that tell of it.

A handler raises SessionViolation for what ends the session, and AmqpViolation for what ends the connection; a link that
breaks a rule is detached here.
"""

from __future__ import annotations

from typing import Any, Final

from raybroker.wire.amqp.conditions import (
    FRAMING_ERROR,
    HANDLE_IN_USE,
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSFER_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
    AmqpViolation,
    SessionViolation,
)
from raybroker.wire.amqp.events import (
    AmqpEvent,
    CreditGiven,
    DeliveryAborted,
    DeliveryReceived,
    DispositionReceived,
    LinkAttached,
    LinkDetached,
    LinkDrained,
    SessionUnblocked,
)
from raybroker.wire.amqp.links import TAG_BYTES_MAX, LinkEndpoint, ReceivingLink, SendingLink, Unsettled
from raybroker.wire.amqp.performatives import (
    U32,
    AmqpAccepted,
    AmqpAttach,
    AmqpDetach,
    AmqpDisposition,
    AmqpError,
    AmqpFlow,
    AmqpTransfer,
)
from raybroker.wire.amqp.sessions import SessionEndpoint
from raybroker.wire.amqp.states import ENDPOINT, EndpointEvent, EndpointState

_new: Final = tuple.__new__
"""Makes a named tuple without a call of Python: there is one for each message."""
_CLOSING: Final = EndpointState.CLOSING
_MESSAGE_PARTS_MAX: Final = 1 << 17
"""Transfers of one delivery: each may be nearly empty."""


def fail_link(session: SessionEndpoint, link: LinkEndpoint, events: list[AmqpEvent], condition: str, why: str) -> None:
    """End a link whose peer has broken a rule; where the session is not answered yet, the connection ends."""
    if session.state is EndpointState.PEER_OPENED:
        raise AmqpViolation(why, condition)
    error = AmqpError(condition, why)
    if link.state is EndpointState.PEER_OPENED:
        link.refuse(error)
    else:
        link.send_detach(error)
    link.failed = True
    session.drop_partial(link)
    events.append(LinkDetached(link, True, error, by_peer=False))


def unattached(handle: int) -> SessionViolation:
    return SessionViolation(f"the handle {handle} is not attached", UNATTACHED_HANDLE)


def _link(session: SessionEndpoint, handle: int) -> LinkEndpoint:
    link = session.links_of_peer.get(handle)
    if link is None:
        raise unattached(handle)
    return link


def received_transfer(
    session: SessionEndpoint, transfer: AmqpTransfer, payload: bytes, events: list[AmqpEvent]
) -> None:
    lane = session.lane
    if lane.window.received() and session.state is not EndpointState.PEER_OPENED:
        lane.flow()
    handle, number, tag, format_, settled, more, _, state, _, aborted, _ = transfer
    link = session.links_of_peer.get(handle)
    if link is None:
        raise unattached(handle)
    if not isinstance(link, ReceivingLink):
        raise SessionViolation(f"a transfer came on the link {link.name}, whose receiver the peer is", NOT_ALLOWED)
    if link.state is _CLOSING:
        return
    first = link.first
    if first is None:
        if number is None or tag is None or len(tag) > TAG_BYTES_MAX:
            why = f"a delivery begins without a delivery-id, or a delivery-tag of at most {TAG_BYTES_MAX} bytes"
            fail_link(session, link, events, INVALID_FIELD, why)
            return
        if number in lane.received:
            raise SessionViolation(f"the delivery-id {number} is of a delivery that is not settled", INVALID_FIELD)
        if not link.uses_credit():
            fail_link(session, link, events, TRANSFER_LIMIT_EXCEEDED, "a delivery came for which there is no credit")
            return
        first = transfer
    elif number is not None and number != first.delivery_id:
        why = f"the delivery-id {number} came within the delivery {first.delivery_id}"
        fail_link(session, link, events, INVALID_FIELD, why)
        return
    if aborted:
        session.drop_partial(link)
        events.append(DeliveryAborted(link))
        return
    most = link.max_message_size
    if most and link.held_bytes + len(payload) > most:
        why = f"a message is larger than max-message-size, {most} bytes"
        fail_link(session, link, events, MESSAGE_SIZE_EXCEEDED, why)
        return
    if more:
        _hold(session, link, first, transfer, payload)
        return
    if transfer is not first:
        payload = b"".join([*link.parts, payload])
        session.drop_partial(link)
        number, tag, format_, settled = (
            first.delivery_id,
            first.delivery_tag,
            first.message_format,
            first.settled or settled,
        )
        if state is None:
            state = first.state
    assert number is not None
    if not settled:
        lane.received[number] = link
    events.append(_new(DeliveryReceived, (link, number, tag, bool(settled), state, format_ or 0, payload)))


def _hold(
    session: SessionEndpoint, link: ReceivingLink, first: AmqpTransfer, transfer: AmqpTransfer, payload: bytes
) -> None:
    """A part of a delivery that is not whole yet."""
    if transfer is not first and transfer.settled:
        first = first._replace(settled=True)
    link.first = first
    if payload:
        link.parts.append(payload)
        link.held_bytes += len(payload)
        session.incomplete.total += len(payload)
    if session.incomplete.total > session.incomplete.most:
        why = f"deliveries that are not whole have more than {session.incomplete.most} bytes"
        raise AmqpViolation(why, RESOURCE_LIMIT_EXCEEDED)
    if len(link.parts) > _MESSAGE_PARTS_MAX:
        raise AmqpViolation(f"a delivery of more than {_MESSAGE_PARTS_MAX} transfers", RESOURCE_LIMIT_EXCEEDED)


def received_flow(session: SessionEndpoint, flow: AmqpFlow, events: list[AmqpEvent]) -> None:
    lane = session.lane
    lane.window.flowed(flow.next_incoming_id, flow.incoming_window)
    if lane.waiting and lane.send_waiting():
        events.append(SessionUnblocked(session))
    if flow.handle is None:
        if flow.echo and session.state is not EndpointState.PEER_OPENED:
            lane.flow()
        return
    link = _link(session, flow.handle)
    if link.state not in (EndpointState.OPEN, EndpointState.PEER_OPENED):
        return
    try:
        if isinstance(link, SendingLink):
            link.granted(flow)
            events.append(CreditGiven(link, link.credit, flow.drain))
            if flow.echo and link.state is EndpointState.OPEN:
                link.tell_state()
        elif isinstance(link, ReceivingLink):
            if link.told(flow):
                events.append(LinkDrained(link))
            if flow.echo and link.state is EndpointState.OPEN:
                lane.flow(link, drain=link.draining)
    except AmqpViolation as error:
        fail_link(session, link, events, error.condition, str(error))


def received_disposition(session: SessionEndpoint, disposition: AmqpDisposition, events: list[AmqpEvent]) -> None:
    """The peer tells a state of deliveries: of ours as their receiver, of its own as their sender."""
    first = disposition.first
    last = first if disposition.last is None else disposition.last
    known: dict[int, Any] = session.lane.sent if disposition.role else session.lane.received
    state, settled = disposition.state, disposition.settled
    count = ((last - first) & U32) + 1
    if count == 1:
        numbers = [first] if first in known else []
    elif count > len(known):
        numbers = [number for number in known if (number - first) & U32 < count]
    else:
        numbers = [number for step in range(count) if (number := (first + step) & U32) in known]
    found: list[Unsettled] = []
    for number in numbers:
        one = known.pop(number) if settled else known[number]
        if not disposition.role:
            one = Unsettled(one, number, None)
        if found and found[-1].link is not one.link:
            events.append(DispositionReceived(found[-1].link, found, state, settled))
            found = []
        found.append(one)
    if not found:
        return
    # Receivers that accept message by message are told of in one event: what comes of it costs as one.
    before = events[-1] if settled and type(state) is AmqpAccepted and events else None
    if (
        type(before) is DispositionReceived
        and before.link is found[0].link
        and before.settled
        and type(before.state) is AmqpAccepted
    ):
        before.deliveries.extend(found)
    else:
        events.append(_new(DispositionReceived, (found[0].link, found, state, settled)))


def received_attach(session: SessionEndpoint, attach: AmqpAttach, events: list[AmqpEvent]) -> None:
    if attach.handle > session.limits.handle_max:
        raise AmqpViolation(f"the handle {attach.handle}; handle-max is {session.limits.handle_max}", FRAMING_ERROR)
    if attach.handle in session.links_of_peer:
        raise SessionViolation(f"the handle {attach.handle} is attached already", HANDLE_IN_USE)
    link = next(
        (one for one in session.links if one.peer is None and one.name == attach.name and one.role is not attach.role),
        None,
    )
    if link is None:
        if session.full:
            raise SessionViolation(
                f"the session has {len(session.links)} links; it has no more", RESOURCE_LIMIT_EXCEEDED
            )
        make = session.new_sender if attach.role else session.new_receiver
        link = make(attach.name, attach.handle)
    session.links_of_peer[attach.handle] = link
    link.attached(attach)
    if not link.failed:
        events.append(LinkAttached(session, link, attach))


def received_detach(session: SessionEndpoint, detach: AmqpDetach, events: list[AmqpEvent]) -> None:
    link = _link(session, detach.handle)
    del session.links_of_peer[detach.handle]
    if not ENDPOINT.takes(link.state, EndpointEvent.PEER_CLOSES):
        raise SessionViolation(f"the link {link.name} is {link.state}; it cannot be detached", NOT_ALLOWED)
    link.happens(EndpointEvent.PEER_CLOSES)
    session.drop_partial(link)
    link.drop_unsettled()
    if not link.failed:
        events.append(LinkDetached(link, detach.closed, detach.error, by_peer=True))


HANDLERS: Final[dict[type[Any], Any]] = {
    AmqpFlow: received_flow,
    AmqpDisposition: received_disposition,
    AmqpAttach: received_attach,
    AmqpDetach: received_detach,
}
"""Performative → what takes it, beside transfers, which have a payload."""
