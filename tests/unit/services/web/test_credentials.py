"""Who asks is read from the request, and passwords do not travel in clear."""

from __future__ import annotations

import base64

import pytest

from raybroker.services.web.credentials import TOKEN_CHARS_MAX, Digests, Offer, who
from raybroker.services.web.problems import RefusedError


def basic(text: bytes) -> str:
    return "Basic " + base64.b64encode(text).decode()


def test_user_and_password_are_read_and_the_password_shows_nowhere() -> None:
    found = who(basic("änn:se:cret".encode()))
    assert found == ("änn", "se:cret", None)
    assert "se:cret" not in repr(found)
    assert who("bAsIc " + base64.b64encode(b"a:b").decode()) == ("a", "b", None)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer x",
        "Basic",
        "Basic %%%",
        basic(b"ann"),
        basic(b":secret"),
        basic(b"ann:"),
        basic(b"\xff:x"),
        basic(b"a\nb:x"),
        basic(b"ann:" + b"x" * 2000),
    ],
)
def test_without_them_it_is_asked_for(header: str | None) -> None:
    with pytest.raises(RefusedError) as caught:
        who(header)
    assert caught.value.status == 401
    assert "Basic" in caught.value.headers["WWW-Authenticate"]


def test_a_digest_is_of_one_password_and_of_one_process() -> None:
    one, other = Digests(), Digests()
    assert one.digest("a") == one.digest("a") != one.digest("b")
    assert one.digest("a") != other.digest("a")


def test_a_token_is_taken_where_it_is_offered_and_shows_nowhere() -> None:
    both, tokens = Offer(tokens=True), Offer(passwords=False, tokens=True)
    for offer in (both, tokens):
        found = offer.given("bEarEr  abc.def.ghi ")
        assert (found.secret, found.user, repr(found)) == ("abc.def.ghi", "", "Credentials(a token)")
    assert both.given(basic(b"a:b")).secret == "b"
    with pytest.raises(RefusedError, match="Bearer with a token") as caught:
        tokens.given(basic(b"a:b"))
    assert caught.value.headers["WWW-Authenticate"] == 'Bearer realm="raybroker"'
    for header in ("Bearer", "Bearer ", "Bearer a\nb", "Bearer " + "x" * (TOKEN_CHARS_MAX + 1)):
        with pytest.raises(RefusedError, match="has no token, or more than"):
            both.given(header)
