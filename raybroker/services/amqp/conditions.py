"""Errors of the broker as AMQP tells them."""

from __future__ import annotations

import logging
from typing import Final

from raybroker.model.errors import (
    BrokerError,
    ConnectionEndedError,
    ConnectionLostError,
    IllegalStateError,
    InvalidClientIDError,
    InvalidDestinationError,
    InvalidSelectorError,
    MessageFormatError,
    MessageTooLargeError,
    NotSupportedError,
    RequestTimeoutError,
    ResourceAllocationError,
    SecurityError,
    StoreFullError,
    TransactionRolledBackError,
)
from raybroker.wire.amqp.conditions import (
    CONNECTION_FORCED,
    DECODE_ERROR,
    ILLEGAL_STATE,
    INTERNAL_ERROR,
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSACTION_ROLLBACK,
    UNAUTHORIZED_ACCESS,
    AmqpViolation,
)
from raybroker.wire.amqp.performatives import AmqpError

LOG: Final = logging.getLogger("raybroker.services")
TEXT_CHARS_MAX: Final = 2000
_TABLE: Final[tuple[tuple[type[BrokerError], str], ...]] = (
    (ConnectionEndedError, CONNECTION_FORCED),
    (SecurityError, UNAUTHORIZED_ACCESS),
    (MessageTooLargeError, MESSAGE_SIZE_EXCEEDED),
    (ResourceAllocationError, RESOURCE_LIMIT_EXCEEDED),
    (StoreFullError, RESOURCE_LIMIT_EXCEEDED),
    (InvalidDestinationError, NOT_FOUND),
    (InvalidSelectorError, INVALID_FIELD),
    (InvalidClientIDError, INVALID_FIELD),
    (MessageFormatError, DECODE_ERROR),
    (TransactionRolledBackError, TRANSACTION_ROLLBACK),
    (NotSupportedError, NOT_IMPLEMENTED),
    (IllegalStateError, ILLEGAL_STATE),
    (RequestTimeoutError, INTERNAL_ERROR),
    (ConnectionLostError, CONNECTION_FORCED),
)
"""Kind of error → condition; the first that fits."""


def told(error: BaseException, what: str = "") -> AmqpError:
    """The error of AMQP for one of the broker; one that is none is logged, since it is the broker's fault. ``what``:
    was being done."""
    if isinstance(error, AmqpViolation):
        return AmqpError(error.condition, str(error.args[0])[:TEXT_CHARS_MAX])
    if not isinstance(error, BrokerError):
        LOG.error("%s of an AMQP client has failed", what or "a request", exc_info=error)
        return AmqpError(INTERNAL_ERROR, f"the broker failed: {type(error).__name__}")
    condition = next((name for kind, name in _TABLE if isinstance(error, kind)), PRECONDITION_FAILED)
    return AmqpError(condition, str(error)[:TEXT_CHARS_MAX])
