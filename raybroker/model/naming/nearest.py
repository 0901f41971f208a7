"""The nearest known name, for the text of an error about an unknown one."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], *, least: float = 0.6) -> str:
    """The most similar of ``known``; "" when none has at least that similarity, from 0 for any to 1 for the same."""
    import difflib  # Only errors need it.

    found = difflib.get_close_matches(name, list(known), n=1, cutoff=least)
    return found[0] if found else ""
