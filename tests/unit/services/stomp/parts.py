"""What the parts of a STOMP session are tested with: messages, a client that notes what it is told, and frames."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from raybroker.model.errors import BrokerError
from raybroker.services.gateways.answers import Answers
from raybroker.services.stomp.subscription import StompSubscription
from raybroker.wire.stomp.frame import StompFrame, Version
from raybroker.wire.stomp.parser import Parser


async def until(condition: Callable[[], object]) -> None:
    """Wait until it holds; the test has a timeout around it."""
    while not condition():  # noqa: ASYNC110 - what is waited for is another task's, which has no event
        await asyncio.sleep(0.001)


def message(number: int, **more: Any) -> Any:
    facts = {
        "id": f"id-{number}",
        "body": f"m{number}",
        "body_type": "text",
        "properties": {},
        "correlation_id": None,
        "reply_to": None,
        "type": None,
        "destination": "q",
        "timestamp": 1,
        "expiration": 0,
        "priority": 4,
        "persistent": True,
        "delivery_count": 1,
        "unit_of_order": None,
        "drop_content": lambda: None,
    }
    made = SimpleNamespace(**{**facts, **more})
    made.inflated_bytes = lambda most: len(made.body)
    return made


class Answer(Future[int]):
    """A confirmation. ``fault``: what it says once it is done."""

    def __init__(self, fault: BrokerError | None = None) -> None:
        super().__init__()
        self.fault = fault

    def verdict(self) -> BrokerError | None:
        return self.fault


class Session:
    """A session that receives: notes what it is asked to settle."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: list[Answer] = []
        self.flushed = 0

    def _note(self, text: str) -> Any:
        self.asked.append(text)
        self.answers.append(Answer())
        return self.answers[-1:]

    def acknowledge(self, up_to: Any, /) -> Any:
        return self._note(f"up to {up_to.body}")

    def acknowledge_one(self, one: Any, /) -> Any:
        return self._note(one.body)

    def settle_as(self, one: Any, outcome: str, delay_ms: int | None = None, reason: str = "", /) -> Any:
        return self._note(f"{outcome} {one.body}")

    def flush_lazily(self) -> None:
        self.flushed += 1

    async def close_the_rest(self) -> None:
        self.asked.append("close")


class Consumer:
    """A consumer with these messages, which is closed when they are taken."""

    def __init__(self, *messages: Any) -> None:
        self.left = list(messages)
        self.closed = not messages

    def take_one(self) -> Any:
        found = self.left.pop(0) if self.left else None
        self.closed = not self.left
        return found

    def arrival_future(self) -> Future[None]:
        raise AssertionError("there are messages, or the consumer is closed")

    def shut(self) -> None:
        self.closed = True

    async def close(self) -> None:
        self.closed = True


class Client:
    """The other side: frames that it was sent, and what it was told."""

    user = "ann"

    def __init__(self, version: Version = "1.2") -> None:
        self.turn = asyncio.Lock()
        self.answers = Answers()
        self.writes = 0
        self.receipts: list[str] = []
        self.failures: list[tuple[BaseException, StompFrame | None]] = []
        self._parser = Parser(body_bytes_max=1 << 20, version=version)

    def write(self, data: bytes) -> None:
        self.writes += 1
        self._parser.feed(data)

    async def flushed(self) -> None:
        await asyncio.sleep(0)

    def receipt(self, frame: StompFrame) -> None:
        if "receipt" in frame.headers:
            self.receipts.append(frame.headers["receipt"])

    def fail(self, error: BaseException, frame: StompFrame | None) -> None:
        self.failures.append((error, frame))

    def frames(self) -> list[StompFrame]:
        return list(iter(self._parser.next_frame, None))


def subscription(
    ack: str, *messages: Any, version: Version = "1.2", session: Session | None = None, number: int = 1
) -> StompSubscription:
    return StompSubscription(
        "s",
        str(number),
        ack,
        session or Session(),
        Consumer(*messages),
        version=version,  # type: ignore[arg-type]
        text_of=lambda kind, name: f"/{kind}/{name}",
        kind="queue",
    )
