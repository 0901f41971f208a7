"""Errors as HTTP says them: a status and a body of problem+json (RFC 9457) with the broker's code and text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from raybroker.model.errors import (
    BrokerError,
    ConfigError,
    ConnectionLostError,
    DestinationPausedError,
    IllegalStateError,
    InvalidDestinationError,
    InvalidSelectorError,
    LoginLimitError,
    MasterUnavailableError,
    MemoryLowError,
    MessageFormatError,
    MessageTooLargeError,
    NoClusterError,
    NotSupportedError,
    OrderError,
    ProtocolError,
    QuotaExceededError,
    RequestTimeoutError,
    ResourceAllocationError,
    SecurityError,
    ServiceClosedError,
    StoreError,
    StoreFullError,
    TransactionRolledBackError,
    UnknownDefinitionError,
)

CONTENT_TYPE: Final = "application/problem+json"

STATUSES: Final[tuple[tuple[type[BrokerError], int], ...]] = (
    (SecurityError, 403),
    (MessageTooLargeError, 413),
    (MessageFormatError, 400),
    (InvalidSelectorError, 400),
    (InvalidDestinationError, 404),
    (UnknownDefinitionError, 404),
    (ConfigError, 400),
    (ProtocolError, 400),
    (NotSupportedError, 501),
    (QuotaExceededError, 507),
    (StoreFullError, 507),
    (LoginLimitError, 429),
    (MemoryLowError, 503),
    (DestinationPausedError, 503),
    (ResourceAllocationError, 503),
    (NoClusterError, 503),
    (MasterUnavailableError, 503),
    (RequestTimeoutError, 504),
    (ConnectionLostError, 503),
    (OrderError, 409),
    (TransactionRolledBackError, 409),
    (ServiceClosedError, 503),
    (IllegalStateError, 409),
    (StoreError, 500),
)
"""Error → status; the first that fits."""

TITLES: Final[Mapping[int, str]] = {
    400: "The request is malformed",
    401: "Who are you",
    403: "Not permitted",
    404: "There is no such thing",
    405: "Not this method",
    410: "It has ended",
    408: "The request did not come in time",
    409: "Not in this state",
    411: "The length of the body is missing",
    413: "Too large",
    415: "Not this type of body",
    429: "Too many logins",
    431: "Headers too large",
    500: "The broker failed",
    501: "Not built",
    503: "Not now",
    504: "No answer in time",
    505: "Not this version of HTTP",
    507: "Full",
}


class RefusedError(BrokerError):
    """A request that is refused with a status of HTTP. ``RefusedError(text, status)``."""

    code = "http"

    def __init__(
        self, text: str, status: int, headers: Mapping[str, str] | None = None, *, retryable: bool = False
    ) -> None:
        super().__init__(text, status)
        self.status = status
        self.headers = dict(headers or {})
        self.may_be_retried = retryable


def status_of(error: BrokerError) -> int:
    """The status that says it."""
    if isinstance(error, RefusedError):
        return error.status
    return next((status for kind, status in STATUSES if isinstance(error, kind)), 500)


def problem(error: BrokerError) -> dict[str, Any]:
    """The body that says it."""
    status = status_of(error)
    retryable = error.may_be_retried if isinstance(error, RefusedError) else error.retryable
    return {
        "type": "about:blank",
        "title": TITLES[status],
        "status": status,
        "detail": str(error),
        "code": str(error.code),
        "retryable": retryable,
        "definite": error.definite,
    }


def headers_of(error: BrokerError) -> dict[str, str]:
    """Headers that go with it."""
    found = dict(error.headers) if isinstance(error, RefusedError) else {}
    if status_of(error) in (429, 503):
        found.setdefault("Retry-After", "1")
    return found
