"""Every error that can reach a user, in one table.

Each class carries what a caller has to know before retrying: a stable ``code``, whether the operation certainly did
not happen (``definite``) and whether trying again can help (``retryable``).  Arguments go to ``super().__init__``
unchanged, so that every error survives pickling between processes.  Errors are for the world; assertions are for our
own bugs.
"""

from __future__ import annotations

import re
from typing import ClassVar


class BrokerError(Exception):
    """Base of all raybroker errors.

    ``code`` is stable text for programs: the class's name in small letters, unless the class says another.
    ``definite`` is True when the operation certainly did not happen; ``retryable`` is True when the same call may
    succeed later.
    """

    code: ClassVar[str] = "broker"
    definite: ClassVar[bool] = True
    retryable: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        if "code" not in vars(cls):
            words = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z]+", cls.__name__.removesuffix("Error"))
            cls.code = "_".join(words).lower()

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else self.code


class NoClusterError(BrokerError):
    """No cluster of that name can be reached; the text says how to start one."""

    retryable = True


class ConnectionLostError(BrokerError):
    """The connection ended for good; whether the operation happened is unknown."""

    definite = False
    retryable = True


class BrokerGoneError(ConnectionLostError):
    """A broker of the cluster cannot be asked now; what it was asked to change may have been changed."""


class RequestTimeoutError(BrokerError):
    """No answer within the time allowed; whether the operation happened is unknown (C4000)."""

    code = "timeout"
    definite = False
    retryable = True


class IllegalStateError(BrokerError):
    """The call is not allowed in the object's present state."""


class ServiceClosedError(IllegalStateError):
    """A connection service takes no new clients now: it is paused or quiesced, as before its broker is restarted."""

    code = "service_closed"
    retryable = True


class NoXaError(IllegalStateError, AttributeError):
    """The session works in no distributed transactions: it has no ``xa``, which hasattr() says too."""


class NotSupportedError(BrokerError):
    """The feature is part of the design and not built yet; nothing was done."""


class InvalidClientIDError(BrokerError):
    """The client id is malformed or belongs to another live connection."""


class InvalidDestinationError(BrokerError):
    """The destination does not exist, has a bad name, or is of the other type."""


class LocalDestinationError(InvalidDestinationError):
    """A broker has a destination for its own clients alone, and somebody else's asks for it (isLocalOnly)."""


class InvalidSelectorError(BrokerError):
    """The message selector does not parse."""


class MessageFormatError(BrokerError):
    """A body, header or property has a type or value that cannot travel."""


class UnreadableError(MessageFormatError, AttributeError):
    """What was received cannot be read here, such as a pickled body; a program that looks at all attributes goes on.

    ``damaged``: it cannot be read anywhere, whatever is installed or allowed there.
    """

    damaged = False


class SecurityError(BrokerError):
    """Whoever asks is not authenticated, or not permitted."""


class NotAdmittedError(SecurityError):
    """The user is who he says, and may not connect to the service."""


class ConnectionEndedError(SecurityError):
    """The broker's side, an administrator above all, has ended the connection for good; the text has the reason.

    It does not come back by itself. What was under way then may have been done.
    """

    definite = False


class ResourceAllocationError(BrokerError):
    """A limit on consumers, producers or connections is reached."""

    retryable = True


class LoginLimitError(ResourceAllocationError):
    """Too many logins of an address have failed, or wait: nothing was looked at, and later it will be."""


class QuotaExceededError(ResourceAllocationError):
    """The destination or the broker holds as many messages or bytes as it may."""


class MemoryLowError(ResourceAllocationError):
    """The broker's memory is out (level red): nothing comes in until consumers have made room."""


class MessageTooLargeError(BrokerError):
    """One message is larger than the destination or the broker takes."""


class DestinationPausedError(BrokerError):
    """The destination does not take or give messages now."""

    retryable = True


class MasterUnavailableError(BrokerError):
    """The change needs the master broker, which cannot be reached."""

    retryable = True


class NotOpenError(MasterUnavailableError):
    """The broker takes no clients yet; the text says what it waits for."""

    definite = True


class StartingError(NotOpenError):
    """The broker is starting its hosts; the text says how far it has come, so that another text is progress."""

    code = "starting"


class StaleError(BrokerError):
    """An instance of a broker that has been replaced by a later one: what it says is refused."""


class TransactionRolledBackError(BrokerError):
    """The transaction was rolled back."""

    retryable = True


class TransactionInProgressError(BrokerError):
    """The call is not allowed while a transaction is open."""


class OrderError(BrokerError):
    """A unit-of-order rule would be broken."""


class ProtocolError(BrokerError):
    """The peer sent what the wire protocol does not allow; the connection is closed."""


class StoreError(BrokerError):
    """The store failed. Nothing of the failed batch is acknowledged and the host stops."""

    definite = False


class StoreDamagedError(StoreError):
    """Stored bytes are not what was written: the text names the file, the offset and what is unknown."""


class StoreFullError(StoreError):
    """There is no room for this batch: nothing of it was written, and the store stays usable."""

    definite = True
    retryable = True


class XAError(BrokerError):
    """An XA call failed.  ``code`` is the return code that X/Open's XA has for it, an integer.

    ``XAError(text, code)``; without a code it is XAER_RMERR, -3.
    """

    def __init__(self, text: str = "", code: int = -3) -> None:
        super().__init__(text, code)
        self.code = code  # type: ignore[misc, assignment]  # Of the class it is the text that goes over the wire.


class XAStateError(XAError, IllegalStateError):
    """The branch, the session or the arguments do not allow the call; the text names the XID and its state."""


class XARolledBackError(XAError, TransactionRolledBackError):
    """The branch was rolled back, or can only be rolled back."""


class ListenerError(BrokerError):
    """A listener raised: told to ``on_exception``, with what it raised as ``__cause__`` and its message in the text."""


class ConfigError(BrokerError):
    """An unknown property or a value out of bounds; the text names the nearest valid one."""


class UnknownDefinitionError(ConfigError):
    """A template, quota or policy that is asked for does not exist; the text names those there are.

    Attributes that refer to one that does not exist raise ConfigError itself.
    """


class ForeignObjectError(ConfigError):
    """Something that is no object of this broker's stands under the lookup name of an administered object."""


class ObjectExistsError(ConfigError):
    """There is an administered object of that lookup name already."""


class NoObjectError(ConfigError):
    """There is no administered object of that lookup name, or it has another type."""


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
