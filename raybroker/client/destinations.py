"""Names of destinations: queues, topics, and temporary ones, which live as long as their connection.

A destination is a value: a type and a name.  Making one creates nothing on a broker.  As text it is
``queue:name`` or ``topic:name``; a name alone is a queue's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

from raybroker.model.errors import IllegalStateError, InvalidDestinationError, MessageFormatError
from raybroker.model.naming.names import (
    DEAD_MESSAGE_QUEUE,
    TEMPORARY_PREFIX,
    DestinationType,
    check_destination_name,
    is_temporary_name,
)
from raybroker.model.naming.wildcard import is_pattern

SYSTEM_TOPICS: Final = "mq.metrics."
"""Topics of the broker's own that everybody may read."""


class Destination:
    """A type and a name; equal to every other handle of the same destination."""

    __slots__ = ("name",)
    kind: ClassVar[DestinationType]
    description = ""
    """What an administrator says of it, where it was looked up."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def is_pattern(self) -> bool:
        """True for a topic name with wildcards."""
        return False

    @property
    def text(self) -> str:
        """``queue:name`` or ``topic:name``."""
        return f"{self.kind}:{self.name}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Destination):
            return NotImplemented
        return (self.kind, self.name) == (other.kind, other.name)

    def __hash__(self) -> int:
        return hash((self.kind, self.name))

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class Queue(Destination):
    """Names a queue."""

    __slots__ = ()
    kind = "queue"

    @classmethod
    def checked(cls, name: object) -> Queue:
        """The queue of that name, or the queue itself; raises InvalidDestinationError for a bad name."""
        if isinstance(name, Queue):
            return name
        return cls(check_destination_name(name, allow_reserved=name == DEAD_MESSAGE_QUEUE))


class Topic(Destination):
    """Names a topic, or with ``*``, ``**`` and ``>`` every topic that matches."""

    __slots__ = ()
    kind = "topic"

    @property
    def is_pattern(self) -> bool:
        return is_pattern(self.name)

    @classmethod
    def checked(cls, name: object) -> Topic:
        """The topic of that name or pattern, or the topic itself; raises InvalidDestinationError."""
        if isinstance(name, Topic):
            return name
        system = isinstance(name, str) and name.startswith(SYSTEM_TOPICS)
        return cls(check_destination_name(name, allow_reserved=system, allow_wildcards=True))


class _Temporary:
    """What a temporary queue and a temporary topic have in common, beside a destination."""

    _plain: ClassVar[type[Destination]]

    def __init__(self, name: str, owner: object, delete: Callable[[Any], Any]) -> None:
        self.name = name
        self.owner = owner
        self._delete = delete

    def __reduce__(self) -> tuple[object, ...]:
        """What travels is its name: anybody may send there, and only its own connection receives and deletes."""
        return self._plain, (self.name,)

    def delete(self) -> Any:
        """End it now; raises IllegalStateError while a consumer is open on it."""
        return self._delete(self)


class TemporaryQueue(_Temporary, Queue):
    """A queue that ends with its connection; only that connection may receive from it."""

    _plain = Queue


class TemporaryTopic(_Temporary, Topic):
    """A topic that ends with its connection; only that connection may receive from it."""

    _plain = Topic


class _LookedUp:
    """What a queue and a topic have in common that were looked up, beside a destination."""

    __slots__ = ()
    _plain: ClassVar[type[Destination]]
    name: str
    read_only: bool

    def __init__(self, name: str, description: str, *, read_only: bool) -> None:
        set_own = object.__setattr__
        set_own(self, "name", name)
        set_own(self, "description", description)
        set_own(self, "read_only", read_only)

    def __setattr__(self, name: str, value: object) -> None:
        if self.read_only:
            raise IllegalStateError(f"{self!r} is read-only, as its administrator wants it: {name} cannot be set")
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"{self._plain.__name__}({self.name!r})"

    def __reduce__(self) -> tuple[object, ...]:
        found: Any = self
        return _looked_up, (type(self), found.name, found.description, found.read_only)


class LookedUpQueue(_LookedUp, Queue):
    """A queue by the administered object that stands for it. ``read_only``: its attributes cannot be set."""

    __slots__ = ("description", "read_only")
    _plain = Queue


class LookedUpTopic(_LookedUp, Topic):
    """A topic by the administered object that stands for it. ``read_only``: its attributes cannot be set."""

    __slots__ = ("description", "read_only")
    _plain = Topic


def _looked_up(made: Any, name: str, description: str, read_only: bool) -> Destination:
    found: Destination = made(name, description, read_only=read_only)
    return found


Temporary = TemporaryQueue | TemporaryTopic
_TYPES: Final[dict[str, type[Queue] | type[Topic]]] = {"queue": Queue, "topic": Topic}


def destination_of(destination: object) -> Destination:
    """What the user means: a handle, ``topic:name``, ``queue:name``, or the name of a queue.

    Raises InvalidDestinationError for anything else.
    """
    if isinstance(destination, Destination):
        return destination
    if not isinstance(destination, str):
        raise InvalidDestinationError(f"{destination!r} is no destination; use session.queue(name) or topic(name)")
    kind, colon, name = destination.partition(":")
    made: type[Queue] | type[Topic] | None = _TYPES.get(kind)
    if not colon or made is None:
        made, name = Queue, destination
    if not is_temporary_name(name):
        return made.checked(name)
    made = Topic if name.startswith(f"{TEMPORARY_PREFIX}t.") else Queue
    return made(check_destination_name(name, allow_reserved=True))


def reply_text(reply_to: object) -> str | None:
    """The text that a message carries for its ``reply_to``; raises MessageFormatError for no destination."""
    if reply_to is None:
        return None
    if not isinstance(reply_to, Destination | str):
        raise MessageFormatError(f"reply_to={reply_to!r}; it is a destination")
    return destination_of(reply_to).text
