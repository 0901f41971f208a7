"""Command lines as shells have them, until the cursor: words without their quotes, and words with new ones."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:=@%+,-]|[^\x00-\x7f]")
"""Characters that stand for themselves wherever a word has them."""


class Last(NamedTuple):
    """The word at the cursor. ``text``: without quotes; ``quote``: the one that is open; ``start``: where its part
    begins that the shell replaces, in ``text``; None: it cannot be replaced."""

    text: str
    quote: str = ""
    start: int | None = 0


def split(line: str, breaks: str = "") -> tuple[list[str], Last]:
    """The words before the cursor, and the one at it. Nothing is expanded: ``$(x)`` and ``$x`` stand for themselves.

    breaks  characters at which the shell begins a new word for completion, COMP_WORDBREAKS of bash
    """
    words: list[str] = []
    text, quote, start, begun, escaped = "", "", 0, False, False
    whole: int | None = 0
    for sign in line:
        if escaped:
            if quote == '"' and sign not in '"\\$`':
                text += "\\"
            text, escaped = text + sign, False
        elif sign == "\\" and quote != "'":
            escaped = begun = True
        elif quote:
            if sign == quote:
                quote, whole = "", None
            else:
                text += sign
        elif sign in "'\"":
            if text[start:]:
                whole = None
            quote, begun = sign, True
        elif sign.isspace():
            if begun:
                words.append(text)
            text, start, begun, whole = "", 0, False, 0
        else:
            text, begun = text + sign, True
            if sign in breaks:
                start, whole = len(text), 0
    if escaped:
        whole = None
    return words, Last(text, quote, None if whole is None else start)


def quoted(text: str, quote: str = "") -> str | None:
    """The text for a shell's line behind this open quote, or outside of quotes; None where it cannot be written."""
    if quote == "'":
        return text.replace("'", "'\\''")
    if quote == '"':
        return None if "!" in text else re.sub(r'(["\\$`])', r"\\\1", text)
    return "".join(sign if _PLAIN.match(sign) else f"\\{sign}" for sign in text)
