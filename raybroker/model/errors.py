"""Every error that can reach a user, in one table.

Each class carries what a caller has to know before retrying: a stable ``code``, whether the operation certainly did
not happen (``definite``) and whether trying again can help (``retryable``).  Arguments go to ``super().__init__``
unchanged, so that every error survives pickling between processes.  Errors are for the world; assertions are for our
own bugs.

    BrokerError
    ├── NoClusterError            no cluster of that name can be reached
    ├── ConnectionLostError       the connection ended; the outcome of what was under way is unknown
    │   └── BrokerGoneError       a broker cannot be asked: it is down, or cut off
    ├── RequestTimeoutError       no answer in time; the outcome is unknown
    ├── IllegalStateError         the call is not allowed in this state
    ├── NotSupportedError         the feature is not built
    ├── InvalidClientIDError      malformed, or in use by another connection
    ├── InvalidDestinationError   no such destination, a bad name, or the wrong type
    │   └── LocalDestinationError  it is for clients of its own broker alone
    ├── InvalidSelectorError      the selector does not parse
    ├── MessageFormatError        a body or property of a type that cannot travel
    ├── SecurityError             not authenticated, or not permitted
    ├── ResourceAllocationError   a limit on consumers, producers or connections is reached
    │   └── QuotaExceededError    a limit on messages or bytes is reached
    ├── MessageTooLargeError      one message exceeds a size limit
    ├── DestinationPausedError    the destination does not take or give messages now
    ├── MasterUnavailableError    the change needs the master broker
    ├── StaleError                an instance of a broker that has been replaced by a later one
    ├── TransactionRolledBackError / TransactionInProgressError
    ├── XAError                   an XA call failed; ``code`` is the return code of X/Open's XA
    │   ├── XAStateError          … in a state or with arguments that do not allow it (an IllegalStateError too)
    │   └── XARolledBackError     … since the branch was rolled back (a TransactionRolledBackError too)
    ├── OrderError                a unit-of-order rule would be broken
    ├── ProtocolError             the peer broke the wire protocol
    ├── StoreError                the store failed; the host stops
    │   ├── StoreDamagedError     stored bytes are not what was written
    │   └── StoreFullError        no room for this batch; nothing of it was written and the store lives on
    ├── ListenerError             a listener raised; what it raised is the cause
    └── ConfigError               an unknown property or a value out of bounds
"""

from __future__ import annotations

from typing import ClassVar


class BrokerError(Exception):
    """Base of all raybroker errors.

    ``code`` is stable text for programs; ``definite`` is True when the operation certainly did not happen;
    ``retryable`` is True when the same call may succeed later.
    """

    code: ClassVar[str] = "broker"
    definite: ClassVar[bool] = True
    retryable: ClassVar[bool] = False

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else self.code


class NoClusterError(BrokerError):
    """No cluster of that name can be reached; the text says how to start one."""

    code = "no_cluster"
    retryable = True


class ConnectionLostError(BrokerError):
    """The connection ended for good; whether the operation happened is unknown."""

    code = "connection_lost"
    definite = False
    retryable = True


class BrokerGoneError(ConnectionLostError):
    """A broker of the cluster cannot be asked now; what it was asked to change may have been changed."""

    code = "broker_gone"


class RequestTimeoutError(BrokerError):
    """No answer within the time allowed; whether the operation happened is unknown (C4000)."""

    code = "timeout"
    definite = False
    retryable = True


class IllegalStateError(BrokerError):
    """The call is not allowed in the object's present state."""

    code = "illegal_state"


class NotSupportedError(BrokerError):
    """The feature is part of the design and not built yet; nothing was done."""

    code = "not_supported"


class InvalidClientIDError(BrokerError):
    """The client id is malformed or belongs to another live connection."""

    code = "invalid_client_id"


class InvalidDestinationError(BrokerError):
    """The destination does not exist, has a bad name, or is of the other type."""

    code = "invalid_destination"


class LocalDestinationError(InvalidDestinationError):
    """A broker has a destination for its own clients alone, and somebody else's asks for it (isLocalOnly)."""

    code = "local_destination"


class InvalidSelectorError(BrokerError):
    """The message selector does not parse."""

    code = "invalid_selector"


class MessageFormatError(BrokerError):
    """A body, header or property has a type or value that cannot travel."""

    code = "message_format"


class SecurityError(BrokerError):
    """Not authenticated, or not permitted."""

    code = "security"


class ResourceAllocationError(BrokerError):
    """A limit on consumers, producers or connections is reached."""

    code = "resource_allocation"
    retryable = True


class QuotaExceededError(ResourceAllocationError):
    """The destination or the broker holds as many messages or bytes as it may."""

    code = "quota_exceeded"


class MessageTooLargeError(BrokerError):
    """One message is larger than the destination or the broker takes."""

    code = "message_too_large"


class DestinationPausedError(BrokerError):
    """The destination does not take or give messages now."""

    code = "destination_paused"
    retryable = True


class MasterUnavailableError(BrokerError):
    """The change needs the master broker, which cannot be reached."""

    code = "master_unavailable"
    retryable = True


class NotOpenError(MasterUnavailableError):
    """The broker takes no clients yet; the text says what it waits for."""

    code = "not_open"
    definite = True


class StaleError(BrokerError):
    """An instance of a broker that has been replaced by a later one: what it says is refused."""

    code = "stale"


class TransactionRolledBackError(BrokerError):
    """The transaction was rolled back."""

    code = "transaction_rolled_back"
    retryable = True


class TransactionInProgressError(BrokerError):
    """The call is not allowed while a transaction is open."""

    code = "transaction_in_progress"


class OrderError(BrokerError):
    """A unit-of-order rule would be broken."""

    code = "order"


class ProtocolError(BrokerError):
    """The peer sent what the wire protocol does not allow; the connection is closed."""

    code = "protocol"


class StoreError(BrokerError):
    """The store failed. Nothing of the failed batch is acknowledged and the host stops."""

    code = "store"
    definite = False


class StoreDamagedError(StoreError):
    """Stored bytes are not what was written: the text names the file, the offset and what is unknown."""

    code = "store_damaged"


class StoreFullError(StoreError):
    """There is no room for this batch: nothing of it was written, and the store stays usable."""

    code = "store_full"
    definite = True
    retryable = True


class XAError(BrokerError):
    """An XA call failed.  ``code`` is the return code that X/Open's XA has for it, an integer.

    ``XAError(text, code)``; without a code it is XAER_RMERR, -3.
    """

    code = "xa"

    def __init__(self, text: str = "", code: int = -3) -> None:
        super().__init__(text, code)
        self.code = code  # type: ignore[misc, assignment]  # Of the class it is the text that goes over the wire.


class XAStateError(XAError, IllegalStateError):
    """The branch, the session or the arguments do not allow the call; the text names the XID and its state."""

    code = "xa_state"


class XARolledBackError(XAError, TransactionRolledBackError):
    """The branch was rolled back, or can only be rolled back."""

    code = "xa_rolled_back"


class ListenerError(BrokerError):
    """A listener raised: told to ``on_exception``, with what it raised as ``__cause__`` and its message in the text."""

    code = "listener"


class ConfigError(BrokerError):
    """An unknown property or a value out of bounds; the text names the nearest valid one."""

    code = "config"


def _table() -> dict[str, type[BrokerError]]:
    found: dict[str, type[BrokerError]] = {}
    todo: list[type[BrokerError]] = [BrokerError]
    while todo:
        kind = todo.pop()
        assert found.get(kind.code, kind) is kind, f"two errors share the code {kind.code}"
        found[kind.code] = kind
        todo.extend(kind.__subclasses__())
    return found


BY_CODE: dict[str, type[BrokerError]] = _table()
"""code → class, for errors that travel on a wire as (code, text)."""


def from_code(code: str, text: str) -> BrokerError:
    """The error that a peer named; an unknown code becomes a plain :class:`BrokerError`."""
    return BY_CODE.get(code, BrokerError)(text)
