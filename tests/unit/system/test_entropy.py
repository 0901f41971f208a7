"""Tokens have the length asked for and differ."""

from __future__ import annotations

from raybroker.system.entropy import token


def test_tokens_have_the_length_asked_for_and_differ() -> None:
    tokens = {token(32) for _ in range(100)}
    assert len(tokens) == 100
    assert {len(each) for each in tokens} == {32}
