"""Logins of AMQP clients: which mechanisms are offered to whom, and what a client says by each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.client.ways.logging_in import RelayedDigest
from raybroker.model.errors import NotSupportedError, ProtocolError, SecurityError
from raybroker.services.amqp.broker import AmqpBroker
from raybroker.services.amqp.counts import AmqpCounts
from raybroker.services.amqp.limits import AmqpServiceLimits
from raybroker.services.amqp.login import OfferedLogins, login_text, plain_parts, scram_user, token_parts
from raybroker.wire.amqp.limits import AmqpLimits
from raybroker.wire.amqp.performatives import SaslInit

HERE, ELSEWHERE = "127.0.0.1:5000", "192.0.2.1:5000"


def broker(*, unencrypted: bool = False, **more: Any) -> AmqpBroker:
    gateway: Any = SimpleNamespace(
        service="amqp", credentials=lambda user, password, **more: (user, password, more.get("token"))
    )
    limits = AmqpServiceLimits(AmqpLimits(), 30.0, unencrypted)
    known: dict[str, Any] = {"tls": False, "kinds": ("digest", "basic"), "sha512": lambda: False, **more}
    return AmqpBroker(gateway, limits, "1.0", lambda peer, why: None, OfferedLogins(**known), counts=AmqpCounts())


async def challenged(text: str) -> str:
    return text


def claim(made: AmqpBroker, mechanism: str, response: bytes | None = None, peer: str = HERE) -> Any:
    return made.claim(SaslInit(mechanism, response), peer, challenged)


@pytest.mark.parametrize(
    ("more", "peer", "certified", "offered"),
    [
        ({}, HERE, False, "SCRAM-SHA-256 PLAIN ANONYMOUS"),
        ({}, ELSEWHERE, False, "SCRAM-SHA-256 ANONYMOUS"),
        ({"tls": True}, ELSEWHERE, False, "SCRAM-SHA-256 PLAIN ANONYMOUS"),
        ({"tls": True}, ELSEWHERE, True, "EXTERNAL SCRAM-SHA-256 PLAIN ANONYMOUS"),
        ({"unencrypted": True}, ELSEWHERE, False, "SCRAM-SHA-256 PLAIN ANONYMOUS"),
        ({"sha512": lambda: True}, HERE, False, "SCRAM-SHA-512 SCRAM-SHA-256 PLAIN ANONYMOUS"),
        ({"kinds": ("basic",), "sha512": lambda: True}, HERE, False, "PLAIN ANONYMOUS"),
        ({"kinds": ("token",)}, HERE, False, "XOAUTH2"),
        ({"kinds": ("token",), "tls": True}, ELSEWHERE, True, "EXTERNAL XOAUTH2"),
        ({"kinds": ("token",)}, ELSEWHERE, False, ""),
        ({"kinds": ("token", "digest")}, HERE, False, "SCRAM-SHA-256 PLAIN XOAUTH2 ANONYMOUS"),
    ],
)
def test_a_client_is_offered_what_is_safe_where_it_comes_from(
    more: dict[str, Any], peer: str, certified: bool, offered: str
) -> None:
    assert " ".join(broker(**more).mechanisms(peer, certified=certified)) == offered


def test_each_mechanism_says_who_the_client_is() -> None:
    made = broker(tls=True)
    plain = claim(made, "PLAIN", b"\0ann\0secret")
    assert (plain.user, plain.credentials, plain.turn) == ("ann", ("ann", "secret", None), "ann")
    anonymous = claim(made, "ANONYMOUS")
    assert (anonymous.user, anonymous.credentials) == ("guest", ("guest", "guest", None))
    token = claim(made, "XOAUTH2", b"user=ann\x01auth=Bearer abc\x01\x01")
    assert (token.user, token.credentials) == ("ann", ("", "", "abc"))
    scram = claim(made, "SCRAM-SHA-256", b"n,,n=an=2Cn,r=nonce")
    assert (scram.user, scram.turn) == ("an,n", None)
    assert isinstance(scram.credentials, RelayedDigest)
    assert claim(made, "EXTERNAL").user == ""
    with pytest.raises(NotSupportedError, match="GSSAPI"):
        claim(made, "GSSAPI")


@pytest.mark.parametrize(("mechanism", "response"), [("PLAIN", b"\0a\0b"), ("XOAUTH2", b"auth=Bearer x")])
def test_a_secret_in_clear_from_another_machine_is_refused(mechanism: str, response: bytes) -> None:
    with pytest.raises(SecurityError, match="use the service amqps, or set"):
        claim(broker(), mechanism, response, ELSEWHERE)
    claim(broker(unencrypted=True), mechanism, response, ELSEWHERE)


@pytest.mark.parametrize("response", [None, b"", b"ann", b"\0ann", b"\0\0secret", b"\0a\0b\0c", b"\xff"])
def test_a_plain_login_that_is_none_is_refused(response: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        plain_parts(response)


def test_nobody_acts_for_another_user() -> None:
    assert plain_parts(b"ann\0ann\0secret") == ("ann", "secret")
    with pytest.raises(SecurityError, match="cannot act for"):
        plain_parts(b"root\0ann\0secret")


@pytest.mark.parametrize("response", [None, b"n=a,r=b", b"p=tls-unique,,n=a,r=b", b"n,,r=b", b"n,,x=a,r=b"])
def test_a_first_message_of_scram_that_is_none_is_refused(response: bytes | None) -> None:
    with pytest.raises(ProtocolError, match="SCRAM"):
        scram_user(response)


@pytest.mark.parametrize("response", [None, b"auth=Basic x", b"user=a", b"auth=Bearer"])
def test_a_token_that_is_none_is_refused(response: bytes | None) -> None:
    with pytest.raises(ProtocolError, match="XOAUTH2"):
        token_parts(response)


def test_a_message_of_the_login_is_bounded() -> None:
    with pytest.raises(ProtocolError, match="at most 10"):
        login_text(b"x" * 11, 10)
