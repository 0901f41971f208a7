"""The link of a client to the coordinator of its transactions: declare and discharge."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from raybroker.services.amqp.client import AmqpClient
from raybroker.services.amqp.conditions import told
from raybroker.wire.amqp.conditions import DECODE_ERROR, NOT_IMPLEMENTED, TRANSACTION_ROLLBACK, AmqpViolation
from raybroker.wire.amqp.events import DeliveryReceived
from raybroker.wire.amqp.links import ReceivingLink
from raybroker.wire.amqp.performatives import ACCEPTED, AmqpRejected, Declare, Declared, Discharge, decode_composite
from raybroker.wire.amqp.sections import VALUE, MessageSections

CREDIT: Final = 100


class CoordinatorLink:
    """``run``: does work of the session after what has come before it."""

    def __init__(
        self, client: AmqpClient, link: ReceivingLink, run: Callable[[Callable[[], Awaitable[None]]], None]
    ) -> None:
        self.link = link
        self._client = client
        self._run = run
        self._open: set[bytes] = set()
        """Transactions that were declared here and are open."""

    def activate(self) -> None:
        self.link.grant(CREDIT)

    def received(self, event: DeliveryReceived) -> None:
        self._run(partial(self._control, event))

    def hand_over(self) -> None:
        """Nothing is collected here."""

    async def _control(self, event: DeliveryReceived) -> None:
        transactions = self._client.transactions
        state: Any = ACCEPTED
        command: Any = None
        try:
            command = command_in(event.payload)
            if isinstance(command, Declare):
                if command.global_id is not None:
                    raise AmqpViolation("global transactions are not supported; only local ones", NOT_IMPLEMENTED)
                number = await transactions.declare()
                self._open.add(number)
                state = Declared(number)
            else:
                self._open.discard(command.txn_id)
                await transactions.discharge(command.txn_id, fail=bool(command.fail))
        except Exception as error:  # noqa: BLE001 - told to the client, and logged when it is no fault of its own
            found = told(error, "a transaction")
            if isinstance(command, Discharge) and not isinstance(error, AmqpViolation):
                found = found._replace(condition=TRANSACTION_ROLLBACK)
            state = AmqpRejected(found)
        self.link.settle_deliveries([event.delivery_id], state)
        if self.link.credit <= CREDIT // 2:
            self.link.grant(CREDIT)

    async def end_link(self, *, clean: bool) -> None:
        """Its transactions are rolled back."""
        for number in list(self._open):
            await self._client.transactions.discharge(number, fail=True)
        self._open.clear()


def command_in(payload: bytes) -> Declare | Discharge:
    """Raises AmqpViolation for what is neither."""
    sections = MessageSections(payload)
    value = sections.find(VALUE)
    found = decode_composite(payload, value.value)[0] if value is not None else None
    if not isinstance(found, Declare | Discharge):
        raise AmqpViolation("a message to the coordinator is neither declare nor discharge", DECODE_ERROR)
    return found
