"""Guesses of known passwords: right, in their order, and bounded."""

from __future__ import annotations

import pytest

from raybroker.security import guessing
from raybroker.security.guessing import WELL_KNOWN, guess
from raybroker.wire.scram import Verifier


def stored(password: str, iterations: int = 10) -> str:
    return str(Verifier.from_password(password, b"0123456789abcdef", iterations))


class Clock:
    """A second passes with each look."""

    def __init__(self) -> None:
        self.s = 0

    def __call__(self) -> int:
        self.s += 1
        return self.s * 1_000_000_000


def test_known_passwords_and_names_are_guessed_and_others_are_not() -> None:
    passwords = [("admin", "admin"), ("Ann", "ann123"), ("bob", "8uH-horse"), ("eve", WELL_KNOWN[-1]), ("a", "a")]
    found = guess([(name, stored(password)) for name, password in passwords], 1e6, Clock())
    assert (sorted(found.found), sorted(found.left)) == ([0, 1, 3, 4], [])


def test_it_ends_with_its_time_and_says_who_is_left() -> None:
    users = [("one", stored("nobody knows")), ("two", stored("two")), ("three", stored("nobody knows"))]
    found = guess(users, 3, Clock())
    assert (sorted(found.found), sorted(found.left)) == ([1], [0, 2])


def test_a_hash_that_takes_long_is_not_tried() -> None:
    dear = stored("x").replace("$10:", "$9999999999:")
    argon = "$argon2id$v=19$m={},t={},p=4$c2FsdHNhbHQ$aGFzaA"
    users = [("x", dear), ("x", argon.format(1 << 30, 3)), ("x", argon.format(65536, 1000)), ("x", "no verifier")]
    assert guess(users, 1e6, Clock()) == (frozenset(), frozenset(range(4)))


def test_a_hash_of_argon2_is_guessed() -> None:
    argon2 = pytest.importorskip("argon2")
    cheap = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    assert guess([("ann", cheap.hash("guest")), ("bob", cheap.hash("8uH-horse"))], 1e6, Clock()).found == {0}


def test_without_argon2_its_hashes_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    from raybroker.errors import IllegalStateError

    def missing(kept: str, password: str) -> bool:
        raise IllegalStateError("argon2-cffi is missing")

    monkeypatch.setattr(guessing, "is_right", missing)
    assert guess([("ann", stored("ann"))], 1e6, Clock()) == (frozenset(), {0})
