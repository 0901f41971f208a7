"""The files of the console's pages: a table that is read once, so that no path of a request reaches the file system."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

FOLDER: Final = Path(__file__).parent / "static"
INDEX: Final = "index.html"
TYPES: Final[Mapping[str, str]] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".LICENSE": "text/plain; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
}
"""Ending of a name → what the file is."""


class StaticFile(NamedTuple):
    """``tag``: changes with what is in it (ETag)."""

    data: bytes
    kind: str
    tag: str


def static_files(folder: Path = FOLDER) -> dict[str, StaticFile]:
    """Name below ``folder`` → file."""
    found: dict[str, StaticFile] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in TYPES:
            data = path.read_bytes()
            tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
            found[path.relative_to(folder).as_posix()] = StaticFile(data, TYPES[path.suffix], tag)
    return found
