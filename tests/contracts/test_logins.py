"""Ways of logging in from outside: by digest, by a password that is sent, by a token; and the audit log of all that."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

import raybroker as rb
from raybroker.client.ways.reaching import Given
from raybroker.errors import ConfigError, NotSupportedError, ResourceAllocationError, SecurityError
from raybroker.security.file_repository import argon2_hash
from raybroker.security.lockout import FAILURES_MAX
from raybroker.security.user_file import UserEntry
from tests.contracts.test_services import Outside, until

PLANTED = "pa55word-planted"
ISSUER, AUDIENCE = "https://login.example", "raybroker"


class Provider:
    """An identity provider: two keys, and a file of them."""

    def __init__(self, folder: Path) -> None:
        self.keys = {"rsa": generate_private_key(65537, 2048), "ed": Ed25519PrivateKey.generate()}
        self.file = folder / "jwks.json"
        self.publish("rsa", "ed")

    def publish(self, *names: str) -> None:
        found = []
        for name in names:
            kind = jwt.algorithms.RSAAlgorithm if name == "rsa" else jwt.algorithms.OKPAlgorithm
            row = kind.to_jwk(self.keys[name].public_key(), as_dict=True)  # type: ignore[attr-defined]
            found.append({**row, "kid": name, "use": "sig", "alg": "RS256" if name == "rsa" else "EdDSA"})
        self.file.write_text(json.dumps({"keys": found}))

    def token(self, key: str = "ed", **claims: Any) -> str:
        now = int(time.time())
        given = {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "exp": now + 60, "groups": ["user"], **claims}
        told = {name: value for name, value in given.items() if value is not None}
        return jwt.encode(
            told,
            self.keys[key],
            "RS256" if key == "rsa" else "EdDSA",
            headers={"kid": key},  # type: ignore[arg-type]
        )


Make = Callable[..., Outside]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with ExitStack() as opened:
        yield lambda **properties: Outside(tmp_path, opened, **{k.replace("__", "."): v for k, v in properties.items()})


@pytest.fixture
def provider(tmp_path: Path) -> Provider:
    return Provider(tmp_path)


def by_token(outside: Outside, token: Any, service: str = "jms") -> Any:
    made = rb.connect(outside.url(service), token=token)
    outside._opened.callback(made.close)
    made.start()
    return made


TOKENS = {
    "imq.authentication.type": "token,digest",
    "raybroker.authentication.token.issuer": ISSUER,
    "raybroker.authentication.token.audience": AUDIENCE,
    "raybroker.authentication.token.leeway": 0,
}


# ---- S-03: basic and digest


def test_a_service_with_basic_takes_sent_passwords_and_knows_both_kinds_of_hashes(make: Make) -> None:
    outside = make(imq__authentication__type="basic")
    outside.users.add("new", UserEntry(argon2_hash(PLANTED)))
    outside.connect("ann").session().producer("q").send("by a verifier of SCRAM")
    made = rb.connect(outside.url(), username="new", password=PLANTED)
    made.session().producer("q").send("by a hash of argon2")
    made.close()
    for user, password in (("new", "wrong"), ("nobody", PLANTED), ("stranger", "secret"), ("ann", "")):
        with pytest.raises(SecurityError):
            rb.connect(outside.url(), username=user, password=password)
    with pytest.raises(SecurityError, match=r"send_secrets=never forbids: nothing was sent"):
        rb.connect(outside.url(), username="ann", password="secret", **{"raybroker.client.send_secrets": "never"})


def test_a_password_for_basic_alone_is_no_use_for_digest(make: Make) -> None:
    outside = make()
    outside.users.add("new", UserEntry(argon2_hash(PLANTED)))
    with pytest.raises(SecurityError, match="wrong user or password"):
        rb.connect(outside.url(), username="new", password=PLANTED)
    with pytest.raises(NotSupportedError, match="takes no login by 'token'; it takes digest"):
        rb.connect(outside.url(), token="x.y.z")


def test_a_service_may_differ_from_the_others(make: Make, tmp_path: Path) -> None:
    outside = make(imq__admin__authentication__type="basic")
    outside.connect("ann")
    outside.connect("root", "admin").admin().list_destinations()
    with pytest.raises(ConfigError, match=r"imq\.jms\.authentication\.type='md5': it is one or several of digest"):
        rb.loopback(
            properties={
                "imq.service.activelist": "jms",
                "raybroker.security.dir": str(tmp_path),
                "imq.jms.authentication.type": "md5",
            }
        )


def test_wrong_passwords_lock_a_user_out_also_with_basic(make: Make) -> None:
    outside = make(imq__authentication__type="basic")
    for _ in range(FAILURES_MAX):
        with pytest.raises(SecurityError, match="wrong user or password"):
            rb.connect(outside.url(), username="ann", password="wrong")
    with pytest.raises(SecurityError, match="too many failed logins"):
        outside.connect("ann")
    outside.connect("bob")


# ---- tokens


@pytest.mark.parametrize("key", ["rsa", "ed"])
def test_a_token_says_who_a_client_is(make: Make, provider: Provider, key: str) -> None:
    outside = make(**TOKENS)
    by_token(outside, provider.token(key)).session().producer("q").send("here")
    assert [row["user"] for row in outside.admin.list_connections()] == ["ann"]
    by_token(outside, provider.token(key, sub="boss", groups=["admin"]), "admin").admin().list_destinations()
    outside.connect("bob")


@pytest.mark.parametrize("mechanisms", ["token", "token,digest"])
def test_a_token_is_taken_over_http_for_messages_and_for_administration(
    make: Make, provider: Provider, mechanisms: str
) -> None:
    services = {"imq.service.activelist": "httpjms,httpadmin"}
    outside = make(**{**TOKENS, **services, "imq.authentication.type": mechanisms})
    urls = {name: f"http://127.0.0.1:{outside.ports[name]}" for name in ("httpjms", "httpadmin")}
    ann = {"Authorization": f"Bearer {provider.token()}"}
    boss = {"Authorization": f"Bearer {provider.token(sub='boss', groups=['admin'])}"}
    sent = httpx.post(f"{urls['httpjms']}/queues/q/messages", json={"body": 1}, headers=ann, timeout=30)
    assert sent.status_code == 201, sent.text
    found = httpx.get(f"{urls['httpadmin']}/destinations/queue/q", headers=boss, timeout=30)
    assert (found.status_code, found.json()["messages"]) == (200, 1)
    assert sorted(row["user"] for row in outside.admin.list_connections()) == ["ann", "boss"]
    refused = httpx.get(f"{urls['httpadmin']}/destinations", headers=ann, timeout=30)
    assert (refused.status_code, "may not connect to ADMIN" in refused.text) == (403, True)
    for token in ("x", provider.token(exp=1), provider.token(aud="other")):
        shown = {"Authorization": f"Bearer {token}"}
        answer = httpx.get(f"{urls['httpadmin']}/destinations", headers=shown, timeout=30)
        assert (answer.status_code, "the token is not accepted" in answer.text) == (401, True)
        assert "Bearer" in answer.headers["www-authenticate"]
        assert ("Basic" in answer.headers["www-authenticate"]) is ("digest" in mechanisms)
    basic = httpx.get(f"{urls['httpjms']}/queues/q/messages", auth=("ann", "secret"), timeout=30)
    assert basic.status_code == (200 if "digest" in mechanisms else 401)


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": 1}, "expired"),
        ({"exp": None}, 'missing the "exp"'),
        ({"aud": "other"}, "Audience"),
        ({"iss": "other"}, "issuer"),
        ({"nbf": 1 << 33}, "not yet valid"),
        ({"sub": None}, 'missing the "sub"'),
        ({"sub": "a\nb"}, "no user's name"),
        ({"groups": 7}, "no list"),
    ],
)
def test_a_token_that_is_not_good_lets_nobody_in(
    make: Make, provider: Provider, caplog: pytest.LogCaptureFixture, claims: dict[str, Any], reason: str
) -> None:
    outside = make(**TOKENS)
    with caplog.at_level(logging.WARNING), pytest.raises(SecurityError, match="the token is not accepted"):
        by_token(outside, provider.token(**claims))
    assert reason in caplog.text
    assert outside.admin.list_connections() == []


def test_a_token_of_nobody_or_without_a_signature_is_refused(make: Make, provider: Provider, tmp_path: Path) -> None:
    outside = make(**TOKENS)
    (tmp_path / "other").mkdir()
    unsigned = jwt.encode({"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "exp": 1 << 33}, None, "none")  # type: ignore[arg-type]
    shared = jwt.encode({"sub": "ann", "exp": 1 << 33}, "k" * 32, "HS256", headers={"kid": "rsa"})
    for token in ("x", "a.b.c", unsigned, shared, Provider(tmp_path / "other").token(), provider.token() + "x"):
        with pytest.raises(SecurityError, match="the token is not accepted"):
            by_token(outside, token)


def test_keys_are_read_again_when_they_change(make: Make, provider: Provider) -> None:
    outside = make(**TOKENS)
    provider.publish("rsa")
    with pytest.raises(SecurityError):
        by_token(outside, provider.token("ed"))
    by_token(outside, provider.token("rsa"))
    provider.file.write_text("{")
    by_token(outside, provider.token("rsa"))
    provider.publish("rsa", "ed")
    by_token(outside, provider.token("ed"))


def test_an_expiring_token_ends_the_connection_with_the_reason(make: Make, provider: Provider) -> None:
    outside = make(**TOKENS)
    client = by_token(outside, lambda: provider.token(exp=int(time.time()) + 2))
    client.session().producer("q").send("in time")
    until(lambda: outside.admin.list_connections() == [])
    with pytest.raises(SecurityError, match="the token has expired"):
        client.session().producer("other").send("too late")


def test_who_a_connection_is_for_is_said_once(make: Make, provider: Provider) -> None:
    outside = make(**TOKENS)
    with pytest.raises(ConfigError, match="a token says who you are"):
        rb.connect(outside.url(), token="x", username="ann", password="secret")
    with pytest.raises(ConfigError, match="a username and a password, or a token, or over TLS"):
        rb.connect(outside.url(), username="ann")
    with pytest.raises(ConfigError, match="for connections from outside"):
        rb.connect(token="x")


# ---- limits of addresses and users


def test_limits_of_a_user_and_of_an_address(make: Make) -> None:
    outside = make(raybroker__service__user_connections_max=2, raybroker__service__address_connections_max=3)
    first, _ = outside.connect("ann"), outside.connect("ann")
    with pytest.raises(ResourceAllocationError, match=r"'ann' has 2 clients .*user_connections_max"):
        outside.connect("ann")
    outside.connect("bob")
    with pytest.raises(ResourceAllocationError, match=r"127.0.0.1 has 3 clients .*address_connections_max"):
        outside.connect("bob")
    first.close()
    until(lambda: len(outside.admin.list_connections()) == 2)
    outside.connect("ann")


# ---- S-16: the audit log


def lines(folder: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for path in (folder / "audit").glob("*.log") for line in path.read_text().splitlines()]
    return sorted(found, key=lambda row: row["time"])


def events(folder: Path) -> list[tuple[str, ...]]:
    return [(row["event"], row["result"], row.get("user", "")) for row in lines(folder)]


def test_the_audit_log_says_who_did_what_and_how_it_went(make: Make, tmp_path: Path) -> None:
    outside = make(imq__audit__enabled="true")
    root = outside.connect("root", "admin").admin()
    root.create_destination("queue", "made")
    with pytest.raises(ConfigError):
        root.update_destination("queue", "made", maxNumMsgs=-7)
    root.list_destinations()
    outside.admin.purge_destination("queue", "made")
    bob = outside.connect("bob").session()
    with pytest.raises(SecurityError):
        bob.receive("made", timeout=5)
    with pytest.raises(SecurityError):
        bob.producer("fresh").send("x")
    with pytest.raises(SecurityError):
        rb.connect(outside.url(), username="ann", password=PLANTED)
    outside.admin.destroy_connection(
        next(row["id"] for row in outside.admin.list_connections() if row["user"] == "bob")
    )
    until(lambda: ("closed", "ok", "bob") in events(tmp_path))
    found = events(tmp_path)
    inside = "(in the Ray cluster)"
    for wanted in (
        ("start", "ok", ""),
        ("login", "ok", "root"),
        ("admin", "ok", "root"),
        ("admin", "refused", "root"),
        ("admin", "ok", inside),
        ("login", "ok", "bob"),
        ("denied", "refused", "bob"),
        ("login", "refused", "ann"),
    ):
        assert wanted in found, wanted
    assert found.count(("denied", "refused", "bob")) == 2, "one by the host, one by the broker"
    rows = lines(tmp_path)
    assert not [row for row in rows if "list_destinations" in row.get("what", "")], "reading is not written down"
    (failed,) = [row for row in rows if (row["event"], row["result"]) == ("login", "refused")]
    assert (failed["service"], failed["reason"]) == ("jms", "user 'ann' has a wrong password (1 in a row)")
    (closed,) = [row for row in rows if (row["event"], row.get("user")) == ("closed", "bob")]
    assert closed["reason"] == "an administrator has closed the connection"
    assert all(row["audit"] == "AUDIT" and row["broker"] == "loopback" for row in rows)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "audit").iterdir()} == {0o600}


def test_without_the_switch_there_is_no_audit_log(make: Make, tmp_path: Path) -> None:
    make().connect("ann")
    assert not (tmp_path / "audit").exists()


def test_no_secret_is_anywhere(
    make: Make, provider: Provider, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A planted password and a planted token are in no log, error, metric, file, list of processes, or repr."""
    outside = make(**{**TOKENS, "imq.authentication.type": "basic,token"}, imq__audit__enabled="true")
    outside.users.add("new", UserEntry(argon2_hash(PLANTED)))
    token, bad = provider.token(), provider.token(aud="other")
    told: list[str] = []
    with caplog.at_level(logging.DEBUG):
        clients = [rb.connect(outside.url(), username="new", password=PLANTED), by_token(outside, token)]
        for secrets in ({"username": "ann", "password": PLANTED + "x"}, {"token": bad}, {"token": token[:-4]}):
            with pytest.raises(SecurityError) as failed:
                rb.connect(outside.url(), **secrets)
            told.append(repr(failed.value) + str(failed.value))
        given = Given("new", PLANTED), Given(token=token)
        told += [repr(one) for one in (*clients, *(client._core for client in clients), *given)]
        told += [repr(one.credentials("always")) for one in given]
        told += [repr(client._core.directory) + repr(vars(client._core.directory)) for client in clients]
        admin = outside.admin
        told += [repr(answer) for answer in (admin.list_connections(), admin.metrics(), admin.query_broker())]
        clients[0].close()
    told += [caplog.text, Path(f"/proc/{os.getpid()}/cmdline").read_text()]
    told += [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert any("login" in text and "refused" in text for text in told), "the audit log is among them"
    for secret in (PLANTED, token, bad, token.rpartition(".")[2]):
        assert not [text[max(0, text.index(secret) - 200) :][:400] for text in told if secret in text]
