"""A subscription is written and read as it is, and what is none is damage."""

from __future__ import annotations

import pytest

from raybroker.core.subscription import Subscription, shared_otherwise
from raybroker.model.errors import StoreDamagedError

FULL = Subscription("client", "näme\0", True, True, "a = 'ü'", True, "client")


@pytest.mark.parametrize("one", [Subscription(), FULL, FULL._replace(selector="")])
def test_it_comes_back_as_it_was(one: Subscription) -> None:
    assert Subscription.decode(one.encode()) == one


def test_what_an_older_version_wrote_gets_the_defaults_of_what_came_later() -> None:
    assert Subscription.decode(b'["c","n",true]') == Subscription("c", "n", True)


@pytest.mark.parametrize("data", [b"", b"{", b"7", b"\xff", b"[1,2,3,4,5,6,7,8]"])
def test_other_bytes_are_damage(data: bytes) -> None:
    with pytest.raises(StoreDamagedError, match=r"^a stored subscription does not decode: "):
        Subscription.decode(data)


@pytest.mark.parametrize(
    ("shared", "there", "wanted"), [(True, "a shared", "an unshared"), (False, "an unshared", "a shared")]
)
def test_the_other_kind_under_a_name_is_refused_with_what_is_there(shared: bool, there: str, wanted: str) -> None:
    text = str(shared_otherwise("s", shared=shared))
    assert text.startswith(f"subscription 's' exists as {there} durable subscription")
    assert text.endswith(f"for {wanted} one")
