"""How rows of behaviour are numbered: see the head of tests/behaviour.toml."""

from __future__ import annotations

from typing import Final

HYPHENATED: Final = r"(?:[BCPSMDKRFTOA]-\d{2}|W-\d{2,3})"
PLAIN: Final = r"[A-HNU][1-9]\d?"
