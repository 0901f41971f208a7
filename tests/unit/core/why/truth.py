"""Are the reasons true? Each is taken away, as its remedy says, until the message is delivered or at its end.

A reason that is true goes when that is done that it asks for, and with the last one the message goes to a consumer.
One that stays, a message without any reason, or one that is not delivered though nothing keeps it, is a fault.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Final

from raybroker.core import command as cmd
from raybroker.core.blocks import message_mask as pk
from raybroker.core.delivery.consumers import Consumer
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.delivery.window import DrainWindow
from raybroker.core.unit_of_work import PARTS
from raybroker.core.why import messages
from raybroker.core.why.messages import Explained
from raybroker.core.why.reason import REMEDIES, Reason
from tests.unit.core.driver import Driver

ACTS: Final = 120
STEPS_MAX: Final = 400
"""Reasons that are taken away for one message: each of a few hundred messages before it may need some."""
ENDS: Final = ("dying", "delivered", "absent")
Message = tuple[int, int, int]
"""Delivery queue, block and index of a message that is owed to somebody."""


def state(seed: int) -> Driver:
    """A random state of a queue or topic."""
    rng = Random(seed)
    driver = Driver(seed, rng.choice(("queue", "queue", "topic")))
    for _ in range(rng.randrange(10, ACTS)):
        driver.act()
    return driver


def undelivered(driver: Driver) -> list[Message]:
    """Everything that is owed and is with no consumer."""
    found = []
    for queue in driver.core.queues.values():
        if queue.subscription == PARTS:
            continue
        here = {
            (item.run.ordinal, index)
            for consumer in queue.consumers.by_attachment.values()
            for item in consumer.unsettled
            for index in pk.indexes(item.run.mask)
        }
        for ordinal in driver.core.block_index.held:
            found += [(queue.number, ordinal, i) for i in pk.indexes(queue.owed(ordinal)) if (ordinal, i) not in here]
    return found


def look(driver: Driver, message: Message) -> Explained | None:
    """The explanation; None when the message is at its end."""
    number, ordinal, index = message
    queue, block = driver.core.queues.get(number), driver.core.block_index.held.get(ordinal)
    if queue is None or block is None or block.done >> index & 1:
        return None
    return messages.explained(queue, driver.core.staged, ordinal, index, driver.contents[ordinal])


def check_state(driver: Driver, rng: Random, most: int) -> int:
    """Explain every message that is not delivered, and take the reasons of some away; how many those were."""
    waiting = undelivered(driver)
    for message in waiting:
        found = look(driver, message)
        assert found is not None
        assert found.state != "delivered", "it is with nobody"
        assert found.reasons, f"no reason is given for {message}"
        assert all(reason.code in REMEDIES for reason in found.reasons)
        assert not any(reason.code == "ready" for reason in found.reasons), f"{message} would go by itself"
    for message in rng.sample(waiting, min(most, len(waiting))):
        Remover(deepcopy(driver), rng).deliver(message)
    return len(waiting)


class Remover:
    """Takes reasons away. ``steps``: how many it has."""

    def __init__(self, driver: Driver, rng: Random) -> None:
        self.driver = driver
        self.rng = rng
        self.steps = 0

    def deliver(self, message: Message) -> None:
        """Take one reason away after the other until there is none."""
        said: list[str] = []
        while (found := look(self.driver, message)) is not None and found.state not in ENDS:
            reason = self._chosen(found.reasons, message)
            said.append(reason.code)
            self.steps += 1
            assert self.steps < STEPS_MAX, f"{message} is not delivered after {said[-20:]}"
            if reason.code == "expired":
                self._require_expired(message)
                return
            self._remove(reason, message)
            if reason.code in AT_ONCE and (after := look(self.driver, message)) is not None:
                same = [one for one in after.reasons if (one.code, _whom(one)) == (reason.code, _whom(reason))]
                assert not same, f"{message}: {reason.code} is taken away and still said: {same[0].text}"

    def _chosen(self, reasons: list[Reason], message: Message) -> Reason:
        """One that has to go: any of the message's own, else one of a consumer that could have it."""
        assert reasons, f"{message} waits, and no reason is given"
        own = [reason for reason in reasons if "consumer" not in reason.facts]
        if own:
            return self.rng.choice(own)
        others = [reason for reason in reasons if reason.code != "selector"] or reasons
        chosen = others[0].facts["consumer"]
        return self.rng.choice([reason for reason in others if reason.facts["consumer"] == chosen])

    def _remove(self, reason: Reason, message: Message) -> None:
        queue = self.driver.core.queues[message[0]]
        _REMEDIES[reason.code](self, reason, queue, message)

    # ---- what the remedies do

    def resume(self, reason: Reason, queue: DeliveryQueue, message: Message) -> None:
        self.driver.do(cmd.Resume(reason.code.removesuffix("_paused")))

    def commit(self, reason: Reason, queue: DeliveryQueue, message: Message) -> None:
        self.driver.open_txns.pop(reason.facts["transaction"], None)
        self.driver.do(cmd.Decide(reason.facts["transaction"], True))

    def roll_back(self, reason: Reason, queue: DeliveryQueue, message: Message) -> None:
        self.driver.open_txns.pop(reason.facts["transaction"], None)
        self.driver.do(cmd.Decide(reason.facts["transaction"], False))

    def wait(self, reason: Reason, queue: DeliveryQueue, message: Message) -> None:
        ms = max(reason.facts["until_ms"] - self.driver.now_ms, 0) if "until_ms" in reason.facts else 0
        self.driver.tick(ms)

    def consumer(self, reason: Reason, queue: DeliveryQueue, message: Message) -> None:
        """One without a selector comes."""
        own = queue.subscription
        more = {} if own is None else {"subscription": own}
        self._make_place(queue)
        self.driver.consumer(5, **more)

    def _make_place(self, queue: DeliveryQueue) -> None:
        """There is room for a further consumer that is active and alone in what it has."""
        for consumer in list(queue.consumers.by_attachment.values()):
            if queue.subscription is None or not queue.subscription.shared:
                self.leave(consumer)

    def leave(self, consumer: Consumer) -> None:
        if consumer.attachment in self.driver.consumers:
            self.driver.consumers.remove(consumer.attachment)
        self.driver.do(cmd.DetachConsumer(consumer.attachment))

    def consume(self, reason: Reason, queue: DeliveryQueue, message: Message) -> None:
        """All consumers acknowledge what they have, and ask for more."""
        for consumer in list(queue.consumers.by_attachment.values()):
            if consumer.unsettled:
                self.driver.do(cmd.Acknowledge(consumer.attachment, [(1, consumer.next_tag)], 0))
        for consumer in list(queue.consumers.by_attachment.values()):
            if consumer.active and not self._has(queue, message):
                self.ask(consumer)

    def _has(self, queue: DeliveryQueue, message: Message) -> bool:
        found = look(self.driver, message)
        return found is None or found.state in ENDS

    def ask(self, consumer: Consumer) -> None:
        drains = isinstance(consumer.window, DrainWindow)
        self.driver.do((cmd.Drain if drains else cmd.Grant)(consumer.attachment, 5))

    def of_session(self, reason: Reason, queue: DeliveryQueue, message: Message) -> None:
        """The session acknowledges what it has."""
        for consumer in list(queue.consumers.by_attachment.values()):
            if str(consumer.owner or consumer.attachment) == reason.facts["session"] and consumer.unsettled:
                self.driver.do(cmd.Acknowledge(consumer.attachment, [(1, consumer.next_tag)], 0))

    def earlier(self, reason: Reason, queue: DeliveryQueue, message: Message) -> None:
        """The earlier message has reasons of its own: one of them goes."""
        ordinal, index = map(int, reason.facts["earlier"].split("."))
        first = queue.number, ordinal, index
        found = look(self.driver, first)
        assert found is not None, f"{first} is settled and keeps nothing"
        if reason.code == "unit_blocked":
            assert found.state in ("delayed", "hidden", "sent"), f"a message that is {found.state} blocks nothing"
        self._remove(self._chosen(found.reasons, first), first)

    def expire(self, reason: Reason, queue: DeliveryQueue, message: Message) -> None:
        """The message is taken out, as a scan does it."""
        self._require_expired(message)
        self.driver.do(cmd.Remove({message[1]: 1 << message[2]}))

    def _require_expired(self, message: Message) -> None:
        expires = self.driver.core.block_index.held[message[1]].columns.expires
        assert expires is not None
        assert 0 < expires[message[2]] <= self.driver.core.current.wall_ms

    def of_consumer(self, reason: Reason, queue: DeliveryQueue, message: Message) -> None:
        number = reason.facts["consumer"]
        consumer = queue.consumers.by_attachment[number]
        match reason.code:
            case "backup":
                for other in [c for c in queue.consumers.by_attachment.values() if c.active]:
                    self.leave(other)
            case "not_local":
                for other in [
                    c for c in queue.consumers.by_attachment.values() if not c.asked.remote and not c.leaving
                ]:
                    self.leave(other)
            case "stopped":
                self.driver.do(cmd.Proceed(number))
            case "overdue":
                self.driver.do(cmd.Begun(number, 0))
            case "recalled":
                # It keeps all: where the oldest are to make room, it is asked for the next ones then.
                while consumer.recall is not None:
                    asked = consumer.recall
                    self.driver.do(cmd.Recalled(number, [], True))
                    assert consumer.recall is not asked, "an answer ends its question"
            case "buffer_full":
                self.driver.do(cmd.Taken(number, consumer.next_tag - 1))
            case "not_acknowledged" | "half_held":
                self.driver.do(cmd.Acknowledge(number, [(1, consumer.next_tag)], 0))
            case _:
                self.ask(consumer)


Remedy = Callable[[Remover, Reason, DeliveryQueue, Message], None]
_REMEDIES: Final[dict[str, Remedy]] = {
    "consumption_paused": Remover.resume,
    "insertion_paused": Remover.resume,
    "sent_in_transaction": Remover.commit,
    "acknowledged_in_transaction": Remover.roll_back,
    "unit_in_transaction": Remover.commit,
    "expired": Remover.expire,
    "delayed": Remover.wait,
    "resting": Remover.wait,
    "sorting": Remover.wait,
    "no_consumer": Remover.consumer,
    "selector": Remover.consumer,
    "unit_owned": Remover.of_session,
    "unit_blocked": Remover.earlier,
    "unit_earlier": Remover.earlier,
    "behind": Remover.consume,
    **dict.fromkeys(
        (
            "backup",
            "not_local",
            "stopped",
            "overdue",
            "recalled",
            "buffer_full",
            "not_acknowledged",
            "half_held",
            "no_credit",
            "not_asking",
        ),
        Remover.of_consumer,
    ),
}
AT_ONCE: Final = frozenset(
    {
        "consumption_paused",
        "insertion_paused",
        "sent_in_transaction",
        "acknowledged_in_transaction",
        "unit_in_transaction",
        "delayed",
        "no_consumer",
        "stopped",
        "overdue",
        "recalled",
    }
)
"""Reasons that are gone when they are taken away once; others may be there again for what is before the message."""


def _whom(reason: Reason) -> tuple[object, ...]:
    return tuple(reason.facts.get(key) for key in ("consumer", "transaction"))
