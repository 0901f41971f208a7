"""Secrets are taken where others cannot read them."""

from __future__ import annotations

import pytest

from raybroker.model.errors import SecurityError
from raybroker.security.mechanism import UNENCRYPTED, LoginPeer, require_private, require_safe

HERE, ELSEWHERE = "::ffff:127.0.0.1", "192.0.2.1"


def test_a_mechanism_takes_secrets_over_tls_from_this_machine_or_where_it_is_allowed() -> None:
    for peer, unencrypted in (
        (LoginPeer(ELSEWHERE, encrypted=True), False),
        (LoginPeer(HERE), False),
        (LoginPeer(ELSEWHERE), True),
    ):
        require_safe(peer, "passwords", unencrypted)
    with pytest.raises(SecurityError, match="takes no tokens over a connection that is not encrypted"):
        require_safe(LoginPeer(ELSEWHERE), "tokens", False)


def test_a_gateway_names_the_service_with_tls_and_the_setting() -> None:
    require_private(HERE, False, "sslstomp")
    require_private(ELSEWHERE, True, "sslstomp")
    with pytest.raises(SecurityError, match=f"use the service sslstomp, or set {UNENCRYPTED}=true"):
        require_private(ELSEWHERE, False, "sslstomp")
