"""Who may ask for metrics: administrators with their passwords, scrapers with the token, and nobody else."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raybroker.errors import ConfigError, SecurityError
from raybroker.security.private_files import write_private
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.services.metrics.metrics_access import TOKEN_FILE, MetricsAccess, metrics_access
from raybroker.wire.scram import Verifier

TOKEN = "0123456789abcdef0123456789abcdef"
VERIFIER = str(Verifier.from_password("secret", b"s" * 16, 64))


def users_in(folder: Path) -> UserFile:
    users = UserFile(folder / "passwd")
    users.add("root", UserEntry(VERIFIER, "admin"))
    users.add("ann", UserEntry(VERIFIER, "user"))
    return users


@pytest.fixture
def access(tmp_path: Path) -> Iterator[MetricsAccess]:
    made = MetricsAccess(tmp_path, users_in(tmp_path), unencrypted=False, threads=1, now_s=lambda: 0.0)
    yield made
    made.close()


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def why(access: MetricsAccess, header: str | None, address: str = "127.0.0.1") -> str:
    """What whoever asks is told; "" when he is let in."""
    try:
        asyncio.run(access.require(header, address))
    except SecurityError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("header", "address", "told"),
    [
        (basic("root", "secret"), "127.0.0.1", ""),
        (basic("root", "secret"), "10.0.0.1", "in clear"),
        (basic("root", "wrong"), "127.0.0.1", "wrong user or password"),
        (basic("nobody", "secret"), "127.0.0.1", "wrong user or password"),
        (basic("ann", "secret"), "127.0.0.1", "group admin"),
        ("Basic x", "127.0.0.1", "malformed"),
        ("Digest x", "127.0.0.1", "Basic"),
        (None, "127.0.0.1", "say who you are"),
    ],
)
def test_an_administrator_is_let_in_from_this_machine(
    access: MetricsAccess, header: str | None, address: str, told: str
) -> None:
    found = why(access, header, address)
    assert (told in found) if told else found == ""


def test_the_token_is_that_of_the_file_as_it_is_now(access: MetricsAccess, tmp_path: Path) -> None:
    assert "token" in why(access, f"Bearer {TOKEN}")
    write_private(tmp_path / TOKEN_FILE, f"{TOKEN}\n".encode())
    assert why(access, f"Bearer {TOKEN}", "10.0.0.1") == ""
    assert why(access, f"bearer  {TOKEN}") == ""
    for wrong in ("", TOKEN[:-1], TOKEN + "0", "\udcff", "é"):
        assert "token" in why(access, f"Bearer {wrong}")
    write_private(tmp_path / TOKEN_FILE, (TOKEN[::-1]).encode())
    assert "token" in why(access, f"Bearer {TOKEN}")


@pytest.mark.parametrize("text", ["", "\n", "short"])
def test_a_token_that_can_be_guessed_opens_nothing(access: MetricsAccess, tmp_path: Path, text: str) -> None:
    write_private(tmp_path / TOKEN_FILE, text.encode())
    assert "token" in why(access, f"Bearer {text}")


def test_a_token_that_others_may_read_opens_nothing(access: MetricsAccess, tmp_path: Path) -> None:
    write_private(tmp_path / TOKEN_FILE, TOKEN.encode())
    (tmp_path / TOKEN_FILE).chmod(0o644)
    assert "token" in why(access, f"Bearer {TOKEN}")


def test_wrong_passwords_lock_a_user_out(access: MetricsAccess) -> None:
    for _ in range(5):
        assert "wrong" in why(access, basic("root", "wrong"))
    assert "too many failed logins" in why(access, basic("root", "secret"))
    assert why(access, basic("root", "secret"), "127.0.0.2") == ""


@pytest.mark.parametrize(
    ("authentication", "services", "asks"),
    [("services", "", False), ("services", "jms", True), ("always", "", True), ("none", "jms", False)],
)
def test_who_is_asked_is_a_property(tmp_path: Path, authentication: str, services: str, asks: bool) -> None:
    config: Any = {
        "raybroker.metrics.authentication": authentication,
        "imq.service.activelist": services,
        "imq.user_repository.file.filename": "passwd",
        "raybroker.authentication.unencrypted": False,
        "raybroker.authentication.threads": 1,
        "raybroker.metrics.probes": False,
    }
    found = metrics_access(config, tmp_path, lambda: 0.0)
    assert (found is not None) == asks
    if found is not None:
        found.close()
        with pytest.raises(ConfigError, match="security"):
            metrics_access(config, None, lambda: 0.0)
