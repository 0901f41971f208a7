"""Whose client id a connection has (R-18)."""

from __future__ import annotations

import pytest

from raybroker.client.connection.identity import client_id_of
from raybroker.config import Config
from raybroker.errors import InvalidClientIDError


@pytest.mark.parametrize(
    ("configured", "given", "user", "expected"),
    [
        ("", None, None, None),
        ("", "mine", None, "mine"),
        ("shop", None, "ann", "shop"),
        ("shop", "mine", None, "mine"),
        ("${u}xyz", None, "ann", "${u:ann}xyz"),
        ("${u}xyz", None, None, "${u:guest}xyz"),
        ("x${u}", None, "ann", "x${u}"),
    ],
)
def test_the_id_given_beats_the_configured_one_and_u_stands_for_the_user(
    configured: str, given: str | None, user: str | None, expected: str | None
) -> None:
    assert client_id_of(Config.from_values({"imqConfiguredClientID": configured}), given, user) == expected


def test_a_bad_id_is_refused() -> None:
    with pytest.raises(InvalidClientIDError):
        client_id_of(Config.from_values({}), " ", None)
