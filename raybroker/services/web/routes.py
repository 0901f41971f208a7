"""Routes: path and method → what answers.

A path is a text such as "/queues/{name}/messages". Segments are compared before they are decoded, so that a name may
have a slash, written %2F. A segment that is written out goes before a named one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import unquote_to_bytes

from raybroker.model.errors import MessageFormatError

T = TypeVar("T")


class Found(NamedTuple, Generic[T]):
    """``methods``: what a path has, by method, empty for one that there is not; ``given``: what its named segments
    are."""

    methods: Mapping[str, T]
    given: dict[str, str]


class _Node(Generic[T]):
    def __init__(self) -> None:
        self.methods: dict[str, T] = {}
        self.below: dict[str, _Node[T]] = {}
        self.named: tuple[str, _Node[T]] | None = None


class Routes(Generic[T]):
    """``paths``: those there are, as they were added."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()
        self.paths: list[str] = []

    def add(self, method: str, path: str, what: T) -> None:
        node = self._root
        for part in path.split("/")[1:]:
            if part.startswith("{"):
                name = part[1:-1]
                node.named = node.named or (name, _Node())
                assert node.named[0] == name, f"{path}: the segment is called {node.named[0]} elsewhere"
                node = node.named[1]
            else:
                node = node.below.setdefault(part, _Node())
        assert method not in node.methods, f"{method} {path} is there twice"
        node.methods[method] = what
        if path not in self.paths:
            self.paths.append(path)

    def find(self, raw_path: bytes) -> Found[T]:
        """``raw_path``: as it came, not decoded. Raises MessageFormatError for a segment that is no UTF-8."""
        node, given = self._root, {}
        for part in raw_path.split(b"/")[1:]:
            text = _decoded(part)
            below = node.below.get(text)
            if below is None and node.named is not None and text:
                given[node.named[0]], below = text, node.named[1]
            if below is None:
                return Found({}, {})
            node = below
        return Found(node.methods, given)


def _decoded(part: bytes) -> str:
    if b"%" not in part and part.isascii():
        return part.decode("ascii")
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise MessageFormatError(f"the path has a segment that is no UTF-8: {part!r:.80}") from None
