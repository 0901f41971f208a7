"""Guessing of passwords that everybody knows, for an audit: defaults of products, and the name of the user itself.

Each guess costs what a login costs, which hashes make long on purpose. So the work is bounded: guesses end with the
time for them, the likeliest come first for all users, and users whose hash would take longer than usual are not tried.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from raybroker.model.errors import BrokerError
from raybroker.security.file_repository import is_right
from raybroker.security.user_file import is_verifier
from raybroker.wire.scram import Verifier

WELL_KNOWN: Final = (
    "admin",
    "password",
    "guest",
    "changeit",
    "secret",
    "123456",
    "raybroker",
    "12345678",
    "changeme",
    "default",
    "root",
    "adminadmin",
    "welcome1",
    "imq",
    "jms",
    "weblogic",
    "test",
    "user",
    "passw0rd",
    "letmein",
    "qwerty",
)
"""Passwords that products come with, or that are guessed first."""
ITERATIONS_MAX: Final = 200_000
MEMORY_KIB_MAX: Final = 256 << 10
PASSES_MAX: Final = 10
"""Rounds of SCRAM, and memory and passes of argon2, beyond which a hash is left."""
_ARGON2: Final = re.compile(r"\$argon2(?:id|i|d)\$(?:v=\d+\$)?m=(\d+),t=(\d+),p=\d+\$")


class Guesses(NamedTuple):
    """``found``: users, by number, whose password was guessed; ``left``: those of which not all was tried."""

    found: frozenset[int]
    left: frozenset[int]


def guess(users: Sequence[tuple[str, str]], seconds: float, now_ns: Callable[[], int]) -> Guesses:
    """``users``: name and what is kept of the password. It ends ``seconds`` later, when the guess under way ends."""
    until_ns = now_ns() + round(seconds * 1e9)
    left = {number for number, (_, stored) in enumerate(users) if not _is_cheap(stored)}
    open_ = {number: _candidates(name) for number, (name, _) in enumerate(users) if number not in left}
    found = set[int]()
    while open_:
        for number, candidates in list(open_.items()):
            password = next(candidates, None)
            if password is None:
                del open_[number]
                continue
            if now_ns() >= until_ns:
                return Guesses(frozenset(found), frozenset(left | open_.keys()))
            try:
                right = is_right(users[number][1], password)
            except BrokerError:  # It cannot be compared here: argon2-cffi is missing, or it is no verifier.
                left.add(number)
                del open_[number]
                continue
            if right:
                found.add(number)
                del open_[number]
    return Guesses(frozenset(found), frozenset(left))


def _candidates(name: str) -> Iterator[str]:
    own = (name, name.lower(), name.capitalize(), name + "1", name + "123", name.lower() + "123", name[::-1])
    yield from dict.fromkeys([own[0], *WELL_KNOWN[:4], *own, *WELL_KNOWN])


def _is_cheap(stored: str) -> bool:
    """Whether a comparison takes about as long as with the hashes that raybroker makes."""
    if is_verifier(stored):
        try:
            return Verifier.parse(stored).iterations <= ITERATIONS_MAX
        except BrokerError:
            return False
    known = _ARGON2.match(stored)
    return known is not None and int(known[1]) <= MEMORY_KIB_MAX and int(known[2]) <= PASSES_MAX
