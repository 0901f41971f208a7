"""Stable hashing: the same answer in every process, on every machine and in every release."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b


def rendezvous(unit: str, names: Sequence[str]) -> str:
    """The name that ``unit`` belongs to: the one with the highest hash together with it.

    The order of ``names`` does not matter, and when a name comes or goes only units move that have to: to the new one,
    or away from the one that is gone.  Raises ValueError when there are no names.
    """
    if len(names) == 1:
        return names[0]
    text = unit.encode("utf-8", "surrogatepass")
    seed = blake2b(len(text).to_bytes(4, "little") + text, digest_size=8)
    best, found = b"", None
    for name in names:
        weight = seed.copy()
        weight.update(name.encode())
        digest = weight.digest()
        if found is None or (digest, name) > (best, found):
            best, found = digest, name
    if found is None:
        raise ValueError("a unit is routed over at least one name")
    return found
