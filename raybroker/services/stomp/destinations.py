"""Destinations as STOMP clients write them, and the other way round.

/queue/orders            the queue orders
/topic/weather.*         the topic, or with wildcards the topics
/temp-queue/answers      a temporary queue of this connection, made when the name is first used
/temp-topic/news         a temporary topic of this connection
/remote-temp-queue/…     a temporary queue of another connection, as ``reply-to`` names it
/remote-temp-topic/…
"""

from __future__ import annotations

from typing import Final, NamedTuple

from raybroker.model.errors import InvalidDestinationError
from raybroker.model.naming.names import is_temporary_name

FORMS: Final = {
    "/queue/": ("queue", ""),
    "/topic/": ("topic", ""),
    "/temp-queue/": ("queue", "own"),
    "/temp-topic/": ("topic", "own"),
    "/remote-temp-queue/": ("queue", "remote"),
    "/remote-temp-topic/": ("topic", "remote"),
}
"""Prefix → (type, whose: "" for destinations that are not temporary)."""
TEMPORARIES_MAX: Final = 100
"""Temporary destinations of one connection."""
OWN_NAME_CHARS_MAX: Final = 200


class StompTarget(NamedTuple):
    """``own``: ``name`` is that of a temporary destination as its connection calls it."""

    kind: str
    name: str
    own: bool = False


def target(text: str | None, header: str = "destination") -> StompTarget:
    """What a header names; raises InvalidDestinationError."""
    if not text:
        raise InvalidDestinationError(f"the frame has no header {header}")
    for prefix, (kind, whose) in FORMS.items():
        if text.startswith(prefix):
            name = text[len(prefix) :]
            if not name or (whose == "own" and len(name) > OWN_NAME_CHARS_MAX):
                break
            if whose == "remote" and not is_temporary_name(name):
                raise InvalidDestinationError(f"{header}:{text:.300} is no temporary destination")
            return StompTarget(kind, name, whose == "own")
    raise InvalidDestinationError(
        f"{header}:{text:.300} is no destination: it begins with {', '.join(FORMS)}, and a name follows"
    )


def text_of(kind: str, name: str) -> str:
    """The header for a destination by its real name."""
    return f"/remote-temp-{kind}/{name}" if is_temporary_name(name) else f"/{kind}/{name}"


class Temporaries:
    """Temporary destinations of one connection: what it calls them, and what they are."""

    def __init__(self) -> None:
        self._real: dict[tuple[str, str], str] = {}
        self._own: dict[str, str] = {}

    def real(self, kind: str, name: str) -> str | None:
        """The real name, if it was made."""
        return self._real.get((kind, name))

    def require_room(self) -> None:
        """Raises InvalidDestinationError when there are too many."""
        if len(self._real) >= TEMPORARIES_MAX:
            raise InvalidDestinationError(f"a connection has at most {TEMPORARIES_MAX} temporary destinations")

    def add(self, kind: str, name: str, real: str) -> None:
        self._real[kind, name] = real
        self._own[real] = f"/temp-{kind}/{name}"

    def text_of(self, kind: str, name: str) -> str:
        """Do what :func:`text_of` does; the connection's own ones are called as it calls them."""
        return self._own.get(name) or text_of(kind, name)
