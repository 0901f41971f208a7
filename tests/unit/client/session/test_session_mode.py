"""The acknowledgement mode of a session, from its arguments."""

from __future__ import annotations

import pytest

from raybroker.client.session.session import MODES, session_mode
from raybroker.errors import ConfigError


def test_known_modes_are_themselves_and_a_transaction_has_none() -> None:
    assert [session_mode(mode, False) for mode in MODES] == list(MODES)
    assert session_mode("auto", True) == "transacted"
    with pytest.raises(ConfigError, match="ack='often' is unknown; choose one of auto, client, dups_ok, none"):
        session_mode("often", False)


@pytest.mark.parametrize("ack", ["multicast", "MULTICAST_NO_ACKNOWLEDGE", "multicast_no_ack"])
def test_multicast_is_refused_with_what_to_use_instead(ack: str) -> None:
    with pytest.raises(ConfigError, match=rf"ack='{ack}' is not supported: .*use ack=\"none\" and a topic"):
        session_mode(ack, False)
