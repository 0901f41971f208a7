"""Limits of selectors, apart from the parser, which not every process imports."""

from __future__ import annotations

from typing import Final

SELECTOR_CHARS_MAX: Final = 8_192
"""Longest selector in characters: it is kept by every subscription and sent with every consumer.

At the edge: a longer one is refused.
"""
NESTING_MAX: Final = 32
"""Depth of nested parentheses: the parser is recursive.  At the edge: one more is refused."""
IN_LIST_MAX: Final = 1_000
"""Texts in the list of one IN.  At the edge: a longer list is refused."""
