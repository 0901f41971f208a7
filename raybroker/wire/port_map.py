"""The map of the port mapper: lines of text, which anybody may read by connecting.

101 broker version
portmapper tcp PORTMAPPER 7676
jms tcp NORMAL 41263
.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from raybroker.model.errors import ProtocolError

MAP_VERSION: Final = "101"
MAP_BYTES_MAX: Final = 65_536
MAPPER: Final = "portmapper"
"""The name of the port mapper among the services."""
_PORT_MAX: Final = 65_535


class ServicePort(NamedTuple):
    """A service that listens: ``protocol`` tcp or tls; ``kind`` NORMAL, ADMIN or PORTMAPPER."""

    name: str
    protocol: str
    kind: str
    port: int


def port_map(broker: str, version: str, doors: Iterable[ServicePort]) -> bytes:
    """The text that the port mapper sends."""
    lines = [f"{MAP_VERSION} {broker} {version}", *(" ".join(map(str, door)) for door in doors), ".", ""]
    return "\n".join(lines).encode()


def read_map(text: bytes) -> dict[str, ServicePort]:
    """Name → service; raises ProtocolError for what is no map."""
    try:
        first, *lines = text.decode().split("\n")
    except UnicodeDecodeError:
        raise ProtocolError("there is no port mapper: what it says is no text") from None
    if not first.startswith(f"{MAP_VERSION} ") or "." not in lines:
        raise ProtocolError("there is no port mapper: what it says is no map of services")
    doors: dict[str, ServicePort] = {}
    for line in lines[: lines.index(".")]:
        parts = line.split(" ")
        if len(parts) < len(ServicePort._fields) or not parts[3].isdecimal() or not 0 < int(parts[3][:6]) <= _PORT_MAX:
            raise ProtocolError(f"the port mapper's line {line!r:.80} is no service")
        doors[parts[0]] = ServicePort(parts[0], parts[1], parts[2], int(parts[3]))
    return doors
