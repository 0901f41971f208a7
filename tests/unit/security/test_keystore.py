"""Keystores that are made or imported, and how they are described."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from raybroker.model.errors import ConfigError
from raybroker.security.keystore import certificates, combined, described, exported, instant, self_signed
from raybroker.security.private_files import write_private
from raybroker.security.tls import KeyFiles, client_context, server_context
from tests.unit.security.certificates import Authority
from tests.unit.security.test_tls import shake

NOW = datetime.now(UTC)


@pytest.mark.parametrize("key_type", ["ec", "rsa"])
def test_a_keystore_that_was_made_serves_whoever_trusts_its_certificate(tmp_path: Path, key_type: str) -> None:
    pem = self_signed(["broker.example", "10.0.0.1"], days=30, now=NOW, key_type=key_type, password="open")
    write_private(tmp_path / "keystore", pem)
    (tmp_path / "trust").write_bytes(exported(pem))
    assert b"PRIVATE" not in exported(pem)
    server = server_context(KeyFiles(tmp_path / "keystore", password="open"))
    for name in ("broker.example", "10.0.0.1"):
        client = client_context(trust=tmp_path / "trust")
        client.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python 3.13 has it
        shake(server, client, name)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake(server, client_context(trust=tmp_path / "trust"), "other.example")


def test_a_description_shows_names_dates_and_the_key() -> None:
    (made,) = certificates(self_signed(["b", "::1"], days=30, now=NOW, organisation="Example"))
    row = described(made, NOW)
    assert (row["subject"], row["names"], row["key"]) == ("CN=b,O=Example", "b, ::1", "EC 256")
    assert row["self_signed"]
    assert row["days_left"] in (29, 30)
    assert instant(0) + timedelta(milliseconds=1500) == instant(1500)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"names": []}, "1 to 100 names"),
        ({"names": ["a b"]}, "neither an address nor a host name"),
        ({"days": 0}, "1 to 3660 days"),
        ({"key_type": "dsa"}, "one of ec, rsa"),
        ({"organisation": "x" * 65}, "at most 64"),
        ({"names": ["a..b"]}, "neither an address"),
    ],
)
def test_what_no_certificate_can_have_is_said(given: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        self_signed(**{"names": ["b"], "days": 1, "now": NOW, **given})  # type: ignore[arg-type]


def test_an_import_checks_that_key_and_chain_belong_together(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pem, other = authority.issue("a.pem", password="given").read_bytes(), authority.issue("b.pem").read_bytes()
    root = authority.file.read_bytes()
    whole = combined(pem, pem + root, given="given", password="kept")
    write_private(tmp_path / "keystore", whole)
    assert len(certificates(whole)) == 2
    shake(server_context(KeyFiles(tmp_path / "keystore", password="kept")), client_context(trust=authority.file))
    wrong = (
        (pem, pem, None, "has a password, which is not given"),
        (pem, pem, "bad", "the password is wrong"),
        (other, other, "given", "has no password, and one is given"),
        (root, root, None, "no private key as PEM"),
        (other, pem, None, "not that of the first certificate"),
        (other, b"", None, "no certificate as PEM"),
        (other, other + pem, None, "out of order"),
    )
    for key, chain, given, says in wrong:
        with pytest.raises(ConfigError, match=says):
            combined(key, chain, given=given)


def test_private_files_are_the_owners_and_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    write_private(path, b"one")
    write_private(path, b"two")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"two", 0o600)
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]
    with pytest.raises(ConfigError, match="cannot be written"):
        write_private(path / "below", b"x")
