"""Which user a certificate stands for: by its common name, or by the file that says it."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from raybroker.model.errors import ConfigError, SecurityError
from raybroker.security.certificate_users import CertificateUsers
from raybroker.security.keystore import certificates, described, instant
from tests.unit.security.certificates import Authority


@pytest.fixture
def der(tmp_path: Path) -> bytes:
    pem = Authority(tmp_path).issue("ann.pem", cn="ann").read_text()
    return ssl.PEM_cert_to_DER_cert(pem[pem.index("-----BEGIN CERT") :])


def test_without_a_file_it_is_the_common_name(der: bytes, tmp_path: Path) -> None:
    assert CertificateUsers(tmp_path / "none").user_of(der) == "ann"


def test_a_file_names_subjects_and_fingerprints_and_its_edits_hold_at_once(der: bytes, tmp_path: Path) -> None:
    file = tmp_path / "certificates"
    users = CertificateUsers(file)
    file.write_text("# who is who\nbob: CN=ann\n")
    assert users.user_of(der) == "bob"
    (made,) = certificates(ssl.DER_cert_to_PEM_cert(der).encode())
    print_ = described(made, instant(0))["sha256"]
    file.write_text(f"carol: SHA256:{':'.join(print_[at : at + 2] for at in range(0, 64, 2)).upper()}\nbob: CN=ann\n")
    assert users.user_of(der) == "carol"
    file.write_text("bob: CN=other\n")
    with pytest.raises(SecurityError, match="'CN=ann' stands for no user of certificates"):
        users.user_of(der)
    file.unlink()
    assert users.user_of(der) == "ann"


@pytest.mark.parametrize("text", ["ann", "ann:", ": CN=x", "ann: sha256:12", "ann: CN=x\nbob: CN=x", "ann: nobody"])
def test_a_file_that_cannot_be_right_names_its_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "certificates").write_text(text)
    with pytest.raises(ConfigError, match=r"certificates, line \d"):
        CertificateUsers(tmp_path / "certificates").users()
