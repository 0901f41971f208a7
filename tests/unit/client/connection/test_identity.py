"""The client id of a connection, and who may choose it."""

from __future__ import annotations

import pytest

from raybroker.client.connection.identity import check_may_choose, client_id_of
from raybroker.config import Config
from raybroker.model.errors import IllegalStateError


@pytest.mark.parametrize(
    ("configured", "given", "user", "found"),
    [
        ("", None, None, None),
        ("", "me", None, "me"),
        ("us", None, None, "us"),
        ("us", "me", None, "me"),
        ("${u}xyz", None, "ann", "${u:ann}xyz"),
        ("${u}xyz", None, None, "${u:guest}xyz"),
    ],
)
def test_what_is_given_wins_over_what_is_configured(
    configured: str, given: str | None, user: str | None, found: str | None
) -> None:
    assert client_id_of(Config.from_values({"imqConfiguredClientID": configured}), given, user) == found


def test_an_administrator_may_keep_the_choice() -> None:
    config = Config.from_values({"imqDisableSetClientID": True, "imqConfiguredClientID": "us"})
    assert client_id_of(config, None, None) == "us"
    with pytest.raises(IllegalStateError, match="programs choose none"):
        client_id_of(config, "me", None)
    with pytest.raises(IllegalStateError):
        check_may_choose(config)
