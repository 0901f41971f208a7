"""The code blocks of README and manual, and the way in which each is tried: the words behind its opening fence.

    python -m tests.manual.blocks

lists them all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.tidy.source import read

WAYS: Final = {
    "python": "run, page by page, over a loopback: rb, conn, session and admin are there",
    "python ray": "run, page by page, in a Ray with a cluster",
    "python outside": "run, page by page, against a broker with services",
    "sh": "each command parsed: programs, commands, options, modules, extras and paths are there",
    "sh ray": "each command run in a Ray with a cluster, and parsed",
    "sh loopback": "each command run over a loopback, and parsed",
    "sh run": "run by bash in an empty folder, and parsed",
    "http": "each call of curl made at a broker with HTTP services",
    "toml": "read as a configuration of brokers",
    "properties": "read as access rules",
    "text": "a picture or an answer: nothing to run",
}
"""Language and tag of a block → how it is tried. A block of another kind is refused."""
_FENCE: Final = re.compile(r"^```(.*)$")


@dataclass(frozen=True, slots=True)
class Block:
    page: str
    line: int
    way: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_in(page: str, text: str) -> Iterator[Block]:
    start, way, inside = 0, "", list[str]()
    for number, line in enumerate(text.splitlines(), start=1):
        fence = _FENCE.match(line.strip())
        if fence is None:
            inside.append(line)
        elif start:
            yield Block(page, start, way, "\n".join(inside) + "\n")
            start = 0
        else:
            start, way, inside = number, fence[1].strip(), []
    assert not start, f"{page}:{start}: the block has no end"


def blocks(*ways: str) -> list[Block]:
    """All blocks, or those of some ways."""
    pages = read("README.md", "raybroker/manual", "raybroker/CONTRIBUTING.md", suffixes=(".md",))
    found = (block for page, text in pages.items() for block in blocks_in(page, text))
    return [block for block in found if not ways or block.way in ways]


def by_page(way: str) -> dict[str, list[Block]]:
    """The blocks of one way, which go one after the other on their page."""
    pages: dict[str, list[Block]] = {}
    for block in blocks(way):
        pages.setdefault(block.page, []).append(block)
    return pages


def main() -> None:
    for block in blocks():
        print(f"{block.place}: {block.way}: {WAYS.get(block.way, 'NO WAY')}")


if __name__ == "__main__":
    main()
