"""A reason: one thing that has to change before something goes on, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

REMEDIES: Final[Mapping[str, str]] = {
    # ---- of a message
    "not_selected": "nothing: the subscription does not want it",
    "not_owed": "nothing: the subscription does not have it, or not any more",
    "sent_in_transaction": "commit the transaction",
    "acknowledged_in_transaction": "end the transaction",
    "delivered": "let the consumer acknowledge, or close it",
    "dying": "wait; look for it in the dead message queue, and make room there if it is full",
    "delayed": "wait until then",
    "resting": "wait until then",
    "insertion_paused": "resume insertion",
    "incomplete_unit_of_work": "send the other messages of the unit",
    "expired": "nothing: it is removed as soon as it is looked at",
    "consumption_paused": "resume consumers",
    "unit_owned": "let that session acknowledge what it has of the unit, or close it",
    "unit_in_transaction": "end the transaction",
    "unit_blocked": "see why the earlier message cannot go",
    "unit_earlier": "let the earlier messages of the unit be consumed",
    "behind": "let what is before it be consumed",
    "sorting": "wait: it is compared with the selectors within some steps",
    "batch_wait": "wait: the batch goes when it is full, or at that time",
    "batch_forming": "wait: the batch goes when it is full, or at that time",
    "affinity": "wait until then, or attach a consumer with its label",
    "stale": "let what is fresh be consumed, or raise maxStaleness",
    "no_consumer": "attach a consumer",
    "ready": "wait: it goes with the next step",
    # ---- of a consumer
    "too_few_consumers": "attach more consumers, or lower consumersBeforeDispatch",
    "backup": "close an active consumer, or raise maxNumActiveConsumers",
    "not_local": "close the local consumers, or set localDeliveryPreferred=false",
    "stopped": "start the consumer's connection",
    "overdue": "see that the consumer is alive: it gets more when it is heard of again",
    "recalled": "wait: the consumer says what it gives back",
    "drained": "start consumers on other nodes, or end the drain: raybroker drain node NODE --off",
    "buffer_full": "let its application take what lies in its buffer",
    "half_held": "let it acknowledge, or raise maxNumMsgs",
    "no_credit": "let its application take messages, or raise its limit",
    "not_acknowledged": "let it acknowledge, or raise its limit",
    "not_asking": "let its application ask for a message",
    "selector": "nothing for this consumer: it does not want the message",
    "nothing_waits": "send messages",
    "starving": "send messages with the published version, or raise maxStaleness",
    "nothing_matches": "send messages that its selector picks",
    "units_elsewhere": "let the other sessions acknowledge what they have of the units",
    # ---- of a producer
    "production_paused": "resume producers",
    "slow": "consume messages, or raise the limit",
    "full": "consume messages, or raise the limit",
    "quota": "consume messages of the destinations that fill the quota, or raise it",
    # ---- of what a host or a transaction is in
    "halted": "skip or purge what is damaged",
    "disk_full": "consume messages, or free space on the disk",
    "memory_low": "consume messages, or give the host more memory",
    "transaction_open": "let the client commit or roll back; it is rolled back when the client is gone",
    "transaction_refused": "roll the transaction back",
    "waits_for_manager": "let the transaction manager decide; else commit or roll back by hand",
    "waits_for_coordinator": "let the coordinator's broker come back; it decides",
    "heuristic": "let the transaction manager forget it",
    "broker_lost": "start the broker again, with its disk",
    "no_leader": "let a majority of the brokers that keep a copy be there",
    "waits_for_copies": "let the brokers that keep the other copies come back, or give the log copies elsewhere",
    "copies_change": "wait: it goes on by itself as long as the brokers that it names are up",
    # ---- of what has happened
    "redelivered": "nothing",
    "dead": "retry msg sends it back where it died",
}
"""Code of a reason → what takes it away."""


class Reason(NamedTuple):
    """``code``: one of REMEDIES; ``facts``: plain values that the text says as well, for programs."""

    code: str
    text: str
    facts: Mapping[str, Any] = {}

    @property
    def as_row(self) -> dict[str, Any]:
        """The reason as a row of plain values."""
        return {"code": self.code, "text": self.text, "remedy": REMEDIES[self.code], **self.facts}
