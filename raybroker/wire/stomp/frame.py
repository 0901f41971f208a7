"""Frames of STOMP: how headers are written and read, which differs between the versions.

    version            a header value                            a line ends with
    1.0                as it is, without blanks at its ends      LF
    1.1                \\n \\c \\\\ for LF, colon, backslash       LF
    1.2                those, and \\r for CR                      LF or CR LF
    CONNECT, CONNECTED as it is, in every version

What a version cannot say (an LF in 1.0, a CR in 1.1, a NUL in any) is written as a blank.  A reader takes CR LF as the
end of a line in every version, since programs are typed by hand, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from raybroker.model.errors import ProtocolError

Version = Literal["1.0", "1.1", "1.2"]
VERSIONS: Final[tuple[Version, ...]] = ("1.0", "1.1", "1.2")
PLAIN: Final = frozenset({"CONNECT", "CONNECTED"})
"""Commands whose headers are never escaped."""
WITH_BODY: Final = frozenset({"SEND", "MESSAGE", "ERROR"})
EOL: Final = b"\n"
"""What a heart-beat is."""
CONTENT_LENGTH: Final = "content-length"

_IMPOSSIBLE: Final[dict[Version, dict[int, str]]] = {
    "1.0": str.maketrans({"\n": " ", "\r": " ", "\0": " "}),
    "1.1": str.maketrans({"\\": "\\\\", "\n": "\\n", ":": "\\c", "\r": " ", "\0": " "}),
    "1.2": str.maketrans({"\\": "\\\\", "\n": "\\n", ":": "\\c", "\r": "\\r", "\0": " "}),
}
_NAMES_1_0: Final = str.maketrans({"\n": " ", "\r": " ", "\0": " ", ":": " "})
_MEANING: Final[dict[Version, dict[str, str]]] = {
    "1.0": {},
    "1.1": {"n": "\n", "c": ":", "\\": "\\"},
    "1.2": {"n": "\n", "c": ":", "\\": "\\", "r": "\r"},
}


class StompFrame(NamedTuple):
    """``headers``: of one that is repeated the first, as the protocol says."""

    command: str
    headers: Mapping[str, str]
    body: bytes = b""


def escaped(text: str, version: Version) -> str:
    """A header's name or value, as the version writes it."""
    return text.translate(_IMPOSSIBLE[version])


def unescaped(text: str, version: Version) -> str:
    """The reverse; raises ProtocolError for an escape that the version does not have."""
    if "\\" not in text or version == "1.0":
        return text
    meaning, found, at = _MEANING[version], [], 0
    while (slash := text.find("\\", at)) >= 0:
        char = meaning.get(text[slash + 1 : slash + 2])
        if char is None:
            allowed = ", ".join(f"\\{one}" for one in meaning)
            wrong = text[slash : slash + 2]
            raise ProtocolError(f"{wrong!r} in a header is no escape of STOMP {version}: it has {allowed}")
        found += [text[at:slash], char]
        at = slash + 2
    return "".join([*found, text[at:]])


def encode(frame: StompFrame, version: Version) -> bytes:
    """The bytes of a frame; one of a command that may have a body says its length."""
    command, headers, body = frame
    lines = [command]
    if command in PLAIN:
        lines += [f"{_plain(name, names=True)}:{_plain(value)}" for name, value in headers.items()]
    elif version == "1.0":
        lines += [f"{name.translate(_NAMES_1_0)}:{escaped(value, version)}" for name, value in headers.items()]
    else:
        lines += [f"{escaped(name, version)}:{escaped(value, version)}" for name, value in headers.items()]
    if command in WITH_BODY and CONTENT_LENGTH not in headers:
        lines.append(f"{CONTENT_LENGTH}:{len(body)}")
    lines.append("\n")
    return b"".join(("\n".join(lines).encode("utf-8", "replace"), body, b"\0\n"))


def receipt(receipt_id: str, version: Version) -> bytes:
    """The bytes of a RECEIPT frame, as :func:`encode` makes them: there is one for most frames that a client sends."""
    return f"RECEIPT\nreceipt-id:{receipt_id.translate(_IMPOSSIBLE[version])}\n\n\0\n".encode("utf-8", "replace")


def _plain(text: str, *, names: bool = False) -> str:
    return text.translate(_NAMES_1_0 if names else _IMPOSSIBLE["1.0"])


def decode_headers(lines: list[str], version: Version, command: str) -> dict[str, str]:
    """Raises ProtocolError for a line that is no header. A colon in a value may stand unescaped."""
    found: dict[str, str] = {}
    plain = command in PLAIN or version == "1.0"
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name:
            raise ProtocolError(f"the line {line!r:.80} of a {command:.20} frame is no header: it is name:value")
        if not plain:
            if "\\" in line:
                name, value = unescaped(name, version), unescaped(value, version)
        elif version == "1.0":
            name, value = name.strip(" "), value.strip(" ")
        found.setdefault(name, value)
    return found
