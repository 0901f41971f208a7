"""Generates the blocking handles from the asynchronous ones: the same text without coroutines.

    python -m tests.tidy.blocking_face

What differs by more than words is written by hand for both, with the same names: ``waiting.py`` and ``serving.py``.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from typing import Final

from ruff import find_ruff_bin

from tests.tidy.source import ROOT

FROM: Final = "raybroker/client/aio"
TO: Final = "raybroker/client/blocking"
FILES: Final = ("handles.py", "listening.py")
HEAD: Final = "# Generated from {path}: change that file, then run `python -m tests.tidy.blocking_face`.\n"
RULES: Final = (
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit|iter)__\b", r"__\1__"),
    (r"\bAsync(Admin|Iterator)\b", r"\1"),
    (r"\braybroker\.client\.aio\b", "raybroker.client.blocking"),
    (r"\baio\.connect_xa\b", "rb.connect_xa"),
    # Documentation of what is another thing in a thread than on a loop.
    (r"\basynchronous\b", "blocking"),
    (r"; each method returns an awaitable\b", ""),
    (r"\n\n +Each method returns an awaitable\.\n +(?=\"\"\")", ""),
    (r"\bon the loop that runs now\b", "in a thread of the connection's own"),
    (r"\bsession's task\b", "session's thread"),
    (r"\bAnother task\b", "Another thread"),
)


def blocking(source: str, path: str) -> str:
    """The blocking face of an asynchronous file, formatted: words that are gone make lines shorter."""
    for pattern, replacement in RULES:
        source = re.sub(pattern, replacement, source)
    ruff = [find_ruff_bin(), "format", "--stdin-filename", str(ROOT / TO / "generated.py"), "-"]
    return subprocess.run(
        ruff, input=HEAD.format(path=path) + source, capture_output=True, text=True, check=True
    ).stdout


def generated() -> Iterator[tuple[str, str]]:
    """Path and text of each generated file."""
    for name in FILES:
        path = f"{FROM}/{name}"
        yield f"{TO}/{name}", blocking((ROOT / path).read_text(encoding="utf-8"), path)


def main() -> None:
    for path, text in generated():
        (ROOT / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
