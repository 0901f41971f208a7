"""Limits of a destination, held against arriving messages one by one, at exact boundaries.

N held of maxNumMsgs N is full.  A message is admitted while the bytes held are below maxTotalMsgBytes, so one
message may overshoot.  A message of exactly maxBytesPerMsg, which counts its body, is taken, and so is one of exactly
maximumMessageSize, which counts body and headers and holds for what producers send.  The behaviour at the limit is
REJECT_NEWEST: the arriving message is refused, and its producer told if it is persistent.

Where others make room for an arriving message (REMOVE_OLDEST, REMOVE_LOW_PRIORITY), one that has no room even alone is
refused before anything is removed for it: it is larger than maxTotalMsgBytes, or maxNumMsgs is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from raybroker.core.admission.pool_share import PoolShare
from raybroker.core.blocks.ranges import Ranges
from raybroker.core.outcome import Refused
from raybroker.model.errors import MessageFormatError, MessageTooLargeError
from raybroker.model.settings.settings import DestinationAttributes

REMOVING: Final = {"REMOVE_OLDEST": "OLDEST", "REMOVE_LOW_PRIORITY": "LOW_PRIORITY"}
"""limitBehavior → why messages are discarded."""
_OUT_OF_ORDER: Final = (
    "the message was refused when it came first, and later ones of its producer were taken since; send it as a new"
    " message if it may come after them"
)


_SMALLER: Final = "send it smaller or raise the limit"
_UNCREATED: Final = (
    "send it smaller, create the destination with another limit, or raise"
    " imq.autocreate.destination.maxBytesPerMsg, which those have that nobody created"
)


class DestinationLimits(NamedTuple):
    """-1 is no limit."""

    messages_max: int
    bytes_max: int
    message_bytes_max: int
    message_bytes_from: str = "maxBytesPerMsg"
    """The property that sets the line above, for the text of a refusal."""
    whole_bytes_max: int = -1
    """Body and headers of one message."""
    advice: str = _SMALLER
    """What to do about a message of more than ``message_bytes_max``."""

    def take_all(self, messages: int, held_bytes: int, sizes: Sequence[int], count: int) -> bool:
        """Whether ``count`` messages of a block with these sizes are all admitted beside ``messages`` messages of
        ``held_bytes`` bytes, whichever they are."""
        if 0 <= self.messages_max < messages + count:
            return False
        if 0 <= self.message_bytes_max < max(sizes):
            return False
        return self.bytes_max < 0 or held_bytes + sum(sizes) < self.bytes_max


def limits_of(
    attributes: DestinationAttributes,
    host_bytes_max: int,
    auto_created_bytes: int | None = None,
    host_bytes_from: str = "imq.message.max_size",
) -> DestinationLimits:
    """The limits of a destination; of one message the smallest of its own, ``host_bytes_max``, bytes, -1 for none, and
    what there may be of all together where others make room for it.  ``host_bytes_from``: the setting of the second.

    ``auto_created_bytes``: the maxBytesPerMsg of destinations that nobody has created, for one of these.
    """
    behaviour, count, total = attributes.limitBehavior, attributes.maxNumMsgs, attributes.maxTotalMsgBytes
    rejecting, removing = behaviour == "REJECT_NEWEST", behaviour in REMOVING
    most, source = attributes.maxBytesPerMsg, "maxBytesPerMsg"
    if host_bytes_max >= 0 and not 0 <= most <= host_bytes_max:
        most, source = host_bytes_max, host_bytes_from
    if removing and total >= 0 and not 0 <= most <= total:
        most, source = total, "maxTotalMsgBytes"
    return DestinationLimits(
        count if rejecting or (removing and count == 0) else -1,
        total if rejecting else -1,
        most,
        source,
        attributes.maximumMessageSize,
        _UNCREATED if source == "maxBytesPerMsg" and most == auto_created_bytes else _SMALLER,
    )


def admit(
    name: str,
    limits: DestinationLimits,
    held_messages: int,
    held_bytes: int,
    sizes: Sequence[int],
    offered: Ranges,
    pool: PoolShare | None = None,
    before: tuple[int, int] = (0, 0),
) -> tuple[Ranges, list[Refused]]:
    """Split the offered messages (ranges of indexes into ``sizes``) into those admitted and those refused.

    ``pool``: they need room there too, beside so many messages and bytes of their block ``before``.
    """
    admitted: Ranges = []
    refused: list[Refused] = []
    charged, charged_bytes = before
    for start, end in offered:
        for index in range(start, end):
            reason = _reason(name, limits, held_messages, held_bytes, sizes[index])
            if reason is None and pool is not None and not pool.fits(charged + 1, charged_bytes + sizes[index]):
                reason = "quota_exceeded", pool.refusal(charged + 1, sizes[index])
                pool.refused += 1
            if reason is None:
                held_messages += 1
                held_bytes += sizes[index]
                charged += 1
                charged_bytes += sizes[index]
                _extend(admitted, index)
            elif refused and refused[-1].end == index and refused[-1][2:] == reason:
                refused[-1] = refused[-1]._replace(end=index + 1)
            else:
                refused.append(Refused(index, index + 1, *reason))
    return admitted, refused


def oversized(
    name: str, limits: DestinationLimits, sizes: Sequence[int], heads: Sequence[int], offered: Ranges
) -> tuple[Ranges, list[Refused]]:
    """Split the offered messages into those within maximumMessageSize, by their bodies and headers, and the others."""
    kept: Ranges = []
    refused: list[Refused] = []
    for start, end in offered:
        for index in range(start, end):
            if why := largest_exceeded(name, limits, sizes[index], heads[index]):
                refused.append(Refused(index, index + 1, MessageTooLargeError.code, why))
            else:
                _extend(kept, index)
    return kept, refused


def largest_exceeded(name: str, limits: DestinationLimits, size: int, head: int | None = None) -> str:
    """Why a message with a body of ``size`` bytes is too large for destination ``name``; "" when it is not.

    ``head``: bytes of its headers; None: they do not count, since it was sent before.
    """
    if head is not None and 0 <= limits.whole_bytes_max < size + head:
        return (
            f"a message of {size + head} bytes, {head} of them headers, exceeds"
            f" maximumMessageSize={limits.whole_bytes_max} of destination {name}; send it smaller or raise the limit"
        )
    if not 0 <= limits.message_bytes_max < size:
        return ""
    return (
        f"a message of {size} bytes exceeds {limits.message_bytes_from}={limits.message_bytes_max}"
        f" of destination {name}; {limits.advice}"
    )


def _reason(name: str, limits: DestinationLimits, messages: int, held_bytes: int, size: int) -> tuple[str, str] | None:
    if too_large := largest_exceeded(name, limits, size):
        return "message_too_large", too_large
    if 0 <= limits.messages_max <= messages:
        return (
            "quota_exceeded",
            f"destination {name} holds its maxNumMsgs={limits.messages_max} messages; consume some or raise the limit",
        )
    if 0 <= limits.bytes_max <= held_bytes:
        return (
            "quota_exceeded",
            f"destination {name} holds its maxTotalMsgBytes={limits.bytes_max} bytes; consume some or raise the limit",
        )
    return None


def out_of_order(start: int, end: int) -> Refused:
    """A retry of messages that were refused before later ones of their producer were taken."""
    return Refused(start, end, "quota_exceeded", _OUT_OF_ORDER)


def ordered(name: str, start: int, end: int) -> Refused:
    """Messages with a unit of order, for a queue with bounded staleness."""
    text = (
        f"queue {name} has versionKey, and takes no messages with a unit of order: what goes together is a unit of"
        " work, or a batch by key"
    )
    return Refused(start, end, MessageFormatError.code, text)


def store_full(start: int, end: int) -> Refused:
    return Refused(start, end, "store_full", "the store's disk is full; consume messages or free space")


def _extend(admitted: Ranges, index: int) -> None:
    if admitted and admitted[-1][1] == index:
        admitted[-1] = (admitted[-1][0], index + 1)
    else:
        admitted.append((index, index + 1))
