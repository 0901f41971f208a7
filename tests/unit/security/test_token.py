"""Mechanism token by itself: which keys and claims are taken, and what the log and the client are told."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from raybroker.errors import ConfigError, IllegalStateError, ProtocolError, SecurityError
from raybroker.security.access_rules import User
from raybroker.security.checks import CheckThreads
from raybroker.security.mechanism import LoginPeer, LoginRefusedError
from raybroker.security.token import (
    FILE_BYTES_MAX,
    GROUPS_MAX,
    KEYS_MAX,
    REFUSED,
    TOKEN_CHARS_MAX,
    KeyFile,
    Token,
    TokenRules,
    identity_of,
)

KEY, OTHER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()


def jwk(key: Ed25519PrivateKey = KEY, **more: Any) -> dict[str, Any]:
    return {**jwt.algorithms.OKPAlgorithm.to_jwk(key.public_key(), as_dict=True), "alg": "EdDSA", **more}


def publish(path: Path, *keys: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"keys": list(keys)}))
    return path


def token(key: Ed25519PrivateKey = KEY, kid: str | None = "k", **claims: Any) -> str:
    told = {"sub": "ann", "exp": int(time.time()) + 600, **claims}
    return jwt.encode(told, key, "EdDSA", headers={"kid": kid} if kid else {})


@pytest.fixture
def file(tmp_path: Path) -> KeyFile:
    return KeyFile(publish(tmp_path / "jwks.json", jwk(kid="k"), jwk(OTHER, kid="other")))


def test_a_token_names_a_user_his_groups_and_its_end(file: KeyFile) -> None:
    ends = int(time.time()) + 600
    found = identity_of(token(groups=["a", "b"], exp=ends), file.keys(), TokenRules(leeway_s=5))
    assert (found.user.name, found.user.groups, found.until_s) == ("ann", frozenset({"a", "b"}), ends + 5)
    plain = identity_of(token(groups="a b"), file.keys(), TokenRules())
    assert plain.user.groups == frozenset({"a", "b"})
    rules = TokenRules(user_claim="email", groups_claim="roles")
    assert identity_of(token(email="a@b", roles=["x"]), file.keys(), rules).user == User("a@b", frozenset({"x"}))


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda: "x.y", "what is no token"),
        (lambda: token(OTHER), "not good: Signature"),
        (lambda: token(kid="gone"), "of the key 'gone', which is not in the file"),
        (lambda: token(kid=None), "of the key None"),
        (lambda: jwt.encode({"sub": "ann"}, "k" * 32, "HS256"), "signed with 'HS256'; allowed: RS256, EdDSA"),
        (lambda: token(groups=["g"] * (GROUPS_MAX + 1)), "no list of at most"),
        (lambda: token(groups=[1]), "no list of at most"),
        (lambda: token(sub="x" * 10_000), "no user's name"),
        (lambda: token(sub=""), "no user's name"),
        (lambda: token(exp=1), "expired"),
    ],
    ids=[
        "no token",
        "another signature",
        "an unknown key",
        "no key named",
        "a shared secret",
        "too many groups",
        "groups of numbers",
        "a long name",
        "no name",
        "expired",
    ],
)
def test_what_is_refused_is_named_and_not_shown(file: KeyFile, made: Any, told: str) -> None:
    given = made()
    with pytest.raises(LoginRefusedError, match=told) as caught:
        identity_of(given, file.keys(), TokenRules())
    assert given not in str(caught.value)


def test_one_key_alone_needs_no_name(tmp_path: Path) -> None:
    file = KeyFile(publish(tmp_path / "jwks.json", jwk()))
    assert identity_of(token(kid=None), file.keys(), TokenRules()).user.name == "ann"


def test_a_changed_file_holds_at_once_and_a_bad_one_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "jwks.json"
    file = KeyFile(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        file.keys()
    publish(path, jwk(kid="k"))
    assert set(file.keys()) == {"k"}
    for number, text in enumerate(
        (
            "{",
            '{"keys": []}',
            " " * (FILE_BYTES_MAX + 1),
            json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}),
            json.dumps({"keys": [jwk(kid=str(one)) for one in range(KEYS_MAX + 1)]}),
        )
    ):
        path.write_text(text)
        os.utime(path, ns=(number, number))
        with caplog.at_level(logging.ERROR):
            assert set(file.keys()) == {"k"}
    assert caplog.text.count("[B2042] the keys of tokens stay as they were") == 5
    publish(path, jwk(kid="new"))
    assert set(file.keys()) == {"new"}


class Exchanges:
    def __init__(self, file: KeyFile) -> None:
        self.checks = CheckThreads(1)
        self.mechanism = Token(file, TokenRules(), self.checks)


@pytest.fixture
def exchanges(file: KeyFile) -> Iterator[Exchanges]:
    made = Exchanges(file)
    yield made
    made.checks.close()


def test_a_login_by_token_has_one_step(exchanges: Exchanges) -> None:
    exchange = exchanges.mechanism.exchange(LoginPeer("127.0.0.1"))
    with pytest.raises(ProtocolError, match="begins with nothing"):
        exchange.make_challenge("ann")
    assert exchange.make_challenge("") == ""
    identity, proof = asyncio.run(exchange.finish(token()))
    assert (identity.user.name, exchange.name, proof) == ("ann", "ann", "")
    with pytest.raises(ProtocolError, match="1 to 12000 characters"):
        asyncio.run(exchange.finish("x" * (TOKEN_CHARS_MAX + 1)))


def test_the_client_is_told_nothing_of_the_reason(exchanges: Exchanges, file: KeyFile) -> None:
    exchange = exchanges.mechanism.exchange(LoginPeer("127.0.0.1"))
    with pytest.raises(SecurityError) as caught:
        asyncio.run(exchange.finish(token(OTHER)))
    assert str(caught.value) == REFUSED
    assert exchange.why.startswith("somebody sent a token that is not good")
    file.path.unlink()
    missing = Token(KeyFile(file.path), TokenRules(), exchanges.checks).exchange(LoginPeer("127.0.0.1"))
    with pytest.raises(IllegalStateError, match="cannot check tokens now"):
        asyncio.run(missing.finish(token()))
    assert "cannot be read" in missing.why


def test_tokens_are_taken_where_nobody_else_reads_them(exchanges: Exchanges) -> None:
    with pytest.raises(SecurityError, match="takes no tokens over a connection that is not encrypted"):
        exchanges.mechanism.exchange(LoginPeer("192.0.2.7"))
    exchanges.mechanism.exchange(LoginPeer("192.0.2.7", encrypted=True))
