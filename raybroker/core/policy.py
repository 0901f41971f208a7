"""Policy of a destination: its attributes, what its host adds to them, and what an administrator has paused."""

from __future__ import annotations

from raybroker.core.admission.limits import REMOVING, DestinationLimits, limits_of
from raybroker.core.admission.pool_share import Account
from raybroker.core.delivery.batch_wait import batch_wait_ms
from raybroker.model import causes
from raybroker.model.definitions.pauses import INSERTION
from raybroker.model.settings.settings import DestinationAttributes


class DestinationPolicy:
    """One object for as long as the destination is there; an update changes it.

    message_bytes_max  largest message that the host takes; -1: the attribute alone holds
    reference_bytes_max  so of one whose body comes by reference, for which ``reference_limits`` hold in place of
                       ``limits``
    limits             what arriving messages are held against
    own_limits         what the host's own sends are held against, whose bodies may have come by reference: nobody
                       waits for them to fit, so that FLOW_CONTROL keeps them out of a full destination as REJECT_NEWEST
                       does
    removing           why messages are discarded when a limit is exceeded; None: none are
    rollbacks_max      after so many failures a message is dead, whatever redeliveryLimit says; 0: it alone
                       counts
    auto_created_bytes the maxBytesPerMsg of what nobody has created, if this is such; for the text of a refusal
    cause_limits       cause of a failure that is counted apart → its redelivery limit, -1 for none
    named_causes       those of which the destination says the limit itself
    batch_wait_ms      how long a partial batch waits before it is handed out; 0: it does not
    account            what the pool is charged for the destination; None: it is in no pool
    paused             work, of model.definitions.pauses → until when, milliseconds; 0 until told otherwise
    paused_since       work → since when, where that is known: not of pauses from before a restart
    """

    __slots__ = (
        "account",
        "attributes",
        "auto_created_bytes",
        "batch_wait_ms",
        "cause_limits",
        "limits",
        "message_bytes_max",
        "named_causes",
        "own_limits",
        "paused",
        "paused_since",
        "reference_bytes_max",
        "reference_limits",
        "removing",
        "rollbacks_max",
    )

    attributes: DestinationAttributes
    limits: DestinationLimits
    reference_limits: DestinationLimits
    own_limits: DestinationLimits
    removing: str | None

    def __init__(self, attributes: DestinationAttributes) -> None:
        self.message_bytes_max = self.reference_bytes_max = -1
        self.auto_created_bytes: int | None = None
        self.rollbacks_max = 0
        self.paused: dict[str, int] = {}
        self.paused_since: dict[str, int] = {}
        self.account: Account | None = None
        self.update(attributes)

    def update(self, attributes: DestinationAttributes) -> None:
        """New attributes hold from now on."""
        self.attributes = attributes
        self.limits = limits_of(attributes, self.message_bytes_max, self.auto_created_bytes)
        self.reference_limits = self.own_limits = limits_of(
            attributes, self.reference_bytes_max, self.auto_created_bytes, "raybroker.reference.max_size"
        )
        if attributes.limitBehavior == "FLOW_CONTROL":
            self.own_limits = self.own_limits._replace(
                messages_max=attributes.maxNumMsgs, bytes_max=attributes.maxTotalMsgBytes
            )
        self.named_causes = causes.parse_limits(attributes.redeliveryLimitByCause)
        limits = {**causes.LIMITS, **self.named_causes}
        self.cause_limits = {
            cause: self.failures_max if limit == causes.SAME else limit for cause, limit in limits.items()
        }
        self.removing = REMOVING.get(attributes.limitBehavior)
        self.batch_wait_ms = batch_wait_ms(attributes)

    def set_host_limits(
        self,
        *,
        message_bytes_max: int,
        rollbacks_max: int,
        auto_created_bytes: int | None = None,
        reference_bytes_max: int = -1,
    ) -> None:
        """What the host adds to the attributes holds from now on; ``auto_created_bytes`` of :func:`limits_of`."""
        self.message_bytes_max, self.rollbacks_max = message_bytes_max, rollbacks_max
        self.reference_bytes_max = reference_bytes_max
        self.auto_created_bytes = auto_created_bytes
        self.update(self.attributes)

    @property
    def insertion_paused(self) -> bool:
        return INSERTION in self.paused

    @property
    def failures_max(self) -> int:
        """A message with more failures is dead; -1: none is."""
        limit = self.attributes.redeliveryLimit
        if self.rollbacks_max > 0 and not 0 <= limit < self.rollbacks_max:
            return self.rollbacks_max - 1
        return limit
