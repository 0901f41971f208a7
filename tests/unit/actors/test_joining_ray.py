"""What is said when a Ray accepts connections and does not let us in: what is wrong with the token."""

from __future__ import annotations

import pytest
from ray.exceptions import AuthenticationError

from raybroker.actors import runtime
from raybroker.config import places
from raybroker.model.errors import NoClusterError

ASKED = "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH as 'raybroker up' printed them"


@pytest.mark.parametrize(
    ("mode", "path", "said"),
    [
        (None, None, "without a token: RAY_AUTH_MODE is not set"),
        ("token", "/t", "with the token in /t"),
        ("token", None, "with the token of RAY_AUTH_TOKEN, or of ~/.ray/auth_token"),
    ],
)
def test_the_token_is_named_by_which_a_ray_was_asked(
    monkeypatch: pytest.MonkeyPatch, mode: str | None, path: str | None, said: str
) -> None:
    def refused(address: str) -> None:
        raise AuthenticationError("Unauthenticated: invalid token. More of it\nand more of it")

    for name, value in (("RAY_AUTH_MODE", mode), ("RAY_AUTH_TOKEN_PATH", path)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    monkeypatch.setattr(places, "for_program", lambda cluster: None)
    monkeypatch.setattr(runtime, "_probe", lambda: "127.0.0.1:6379")
    monkeypatch.setattr(runtime.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(runtime.ray._raylet, "GcsClient", refused)
    monkeypatch.setattr(runtime.ray, "init", lambda **options: pytest.fail("it would ask for half a minute"))
    with pytest.raises(NoClusterError) as caught:
        runtime.join_ray()
    text = str(caught.value)
    assert f"127.0.0.1:6379 accepts connections and has not let us in, {said} (Unauthenticated: invalid token)" in text
    assert ASKED in text
    assert "ore of it" not in text
