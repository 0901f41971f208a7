"""What the engine of AMQP 1.0 costs a message, without a broker or a socket around it.

    python -m benchmarks.amqp_wire_cost

Two engines in one process pass messages of 1 KiB; each step of a batch is measured in processor time, the least of
many rounds. *receive* is bytes to deliveries, *settle* the answers to them one by one, *send* deliveries to bytes,
*settled* the peer's answers; *locate* finds the sections, *decode* reads all of them but the body.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager

from raybroker.wire.amqp.connection import ConnectionEndpoint
from raybroker.wire.amqp.events import DeliveryReceived, LinkAttached, SessionBegun
from raybroker.wire.amqp.limits import AmqpLimits
from raybroker.wire.amqp.links import ReceivingLink, SendingLink
from raybroker.wire.amqp.performatives import ACCEPTED, AmqpHeader, AmqpProperties, AmqpSource, AmqpTarget
from raybroker.wire.amqp.sections import (
    MESSAGE_ANNOTATIONS,
    MessageSections,
    annotations_section,
    application_properties_section,
    data_front,
    header_section,
    properties_section,
)
from raybroker.wire.amqp.types import Byte

BODY_BYTES = 1024
MESSAGES = 1000
ROUNDS = 30
READ_BYTES = 64 << 10
"""What a socket gives at a time."""
STEPS = ("receive", "settle", "send", "settled", "locate", "decode")


def message() -> bytes:
    """A message as JMS clients send it."""
    return b"".join(
        (
            header_section(AmqpHeader(durable=True)),
            annotations_section(MESSAGE_ANNOTATIONS, {"x-opt-jms-msg-type": Byte(3)}),
            properties_section(AmqpProperties("ID:6f9f:1:1:1-1", to="orders", creation_time=1_700_000_000_000)),
            application_properties_section({"colour": "red", "size": 7}),
            data_front(BODY_BYTES),
            b"x" * BODY_BYTES,
        )
    )


class Ends:
    """A client and a server that are connected, with a link from the client to the server."""

    def __init__(self) -> None:
        limits = AmqpLimits()
        self.server = ConnectionEndpoint.listening(limits, ())
        self.client = ConnectionEndpoint.connecting(limits, login=False)
        self.client.send_open("client")
        self.sender: SendingLink = self.client.begin_session().attach_sender("l", AmqpSource(), AmqpTarget("orders"))
        events = self.server.receive_data(self.client.data_to_send())
        self.server.send_open("server")
        for event in events:
            if isinstance(event, SessionBegun):
                event.session.send_begin()
            elif isinstance(event, LinkAttached) and isinstance(event.link, ReceivingLink):
                event.link.send_attach(event.attach.source, event.attach.target)
                self.receiver = event.link
        self.client.receive_data(self.server.data_to_send())


def one_round(ends: Ends, body: bytes, spent: dict[str, float]) -> None:
    """A batch in all steps; the least time of each step is kept."""

    @contextmanager
    def step(name: str) -> Iterator[None]:
        began = time.process_time()
        yield
        spent[name] = min(spent.get(name, 1e9), time.process_time() - began)

    ends.receiver.grant(MESSAGES)
    ends.client.receive_data(ends.server.data_to_send())
    with step("send"):
        for number in range(MESSAGES):
            ends.sender.send((body,), number)
        parts = ends.client.take_output()
    data = b"".join(parts)
    received = []
    with step("receive"):
        for at in range(0, len(data), READ_BYTES):
            received += ends.server.receive_data(data[at : at + READ_BYTES])
    deliveries = [event for event in received if isinstance(event, DeliveryReceived)]
    assert len(deliveries) == MESSAGES
    with step("settle"):
        for delivery in deliveries:
            ends.receiver.settle_deliveries((delivery.delivery_id,), ACCEPTED)
    answers = ends.server.data_to_send()
    with step("settled"):
        ends.client.receive_data(answers)
    assert not ends.sender.lane.sent
    with step("locate"):
        sections = [MessageSections(delivery.payload) for delivery in deliveries]
    with step("decode"):
        for one in sections:
            one.header, one.message_annotations, one.properties, one.application_properties  # noqa: B018


def costs(rounds: int = ROUNDS) -> dict[str, float]:
    """Step → microseconds a message."""
    ends, body, spent = Ends(), message(), dict[str, float]()
    for _ in range(rounds):
        one_round(ends, body, spent)
    return {name: spent[name] / MESSAGES * 1e6 for name in STEPS}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.amqp_wire_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    for name, us in costs(parser.parse_args().rounds).items():
        print(f"{name:10}{us:6.2f} µs")


if __name__ == "__main__":
    main()
