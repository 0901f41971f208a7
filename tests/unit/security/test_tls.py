"""TLS contexts from files and settings, and what cannot be right in them."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

import pytest

from raybroker.config import Config
from raybroker.model.errors import ConfigError
from raybroker.security.tls import (
    KeyFiles,
    ServerTls,
    client_context,
    first_certificate,
    pinned_context,
    server_context,
)
from tests.unit.security.certificates import Authority, private


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def shake(server: ssl.SSLContext, client: ssl.SSLContext, name: str = "localhost") -> ssl.SSLObject:
    """A handshake in memory; the client's end."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(down, up, server_hostname=name), server.wrap_bio(up, down, server_side=True)]
    waiting = list(ends)
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue
    assert not waiting
    return ends[0]


def test_a_client_that_trusts_the_authority_gets_in(authority: Authority) -> None:
    server = server_context(KeyFiles(authority.issue("key.pem")))
    end = shake(server, client_context(trust=authority.file))
    assert end.version() == "TLSv1.3"


@pytest.mark.parametrize(
    ("name", "trust", "says"),
    [
        ("localhost", None, "unable to get local issuer"),
        ("elsewhere", "own", "Hostname mismatch"),
        ("localhost", "other", "unable to get local issuer"),
    ],
)
def test_a_client_refuses_whom_it_does_not_know(
    authority: Authority, tmp_path: Path, name: str, trust: str | None, says: str
) -> None:
    server = server_context(KeyFiles(authority.issue("key.pem")))
    file = {None: None, "own": authority.file, "other": Authority(tmp_path, "other").file}[trust]
    with pytest.raises(ssl.SSLCertVerificationError, match=says):
        shake(server, client_context(trust=file), name)


def test_a_client_may_trust_whoever_answers(authority: Authority) -> None:
    shake(server_context(KeyFiles(authority.issue("key.pem"))), client_context(trusted=True), "elsewhere")


def test_older_versions_of_tls_are_refused(authority: Authority) -> None:
    key = KeyFiles(authority.issue("key.pem"))
    old = client_context(trust=authority.file)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert shake(server_context(key), old).version() == "TLSv1.2"
    with pytest.raises(ssl.SSLError, match=r"UNSUPPORTED_PROTOCOL|VERSION"):
        shake(server_context(key, min_version="TLSv1.3"), old)
    assert server_context(key).minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_key_with_a_password_and_a_chain_of_its_own(authority: Authority, tmp_path: Path) -> None:
    both = authority.issue("both.pem", password="let me in")
    text = both.read_bytes()
    at = text.index(b"-----BEGIN CERTIFICATE")
    key, chain = private(tmp_path / "key", text[:at]), tmp_path / "chain"
    chain.write_bytes(text[at:])
    shake(server_context(KeyFiles(key, chain, "let me in")), client_context(trust=authority.file))
    with pytest.raises(ConfigError, match="cannot be decrypted: the password is wrong"):
        server_context(KeyFiles(key, chain, "let me out"))
    with pytest.raises(ConfigError, match="is encrypted, and nobody told"):
        server_context(KeyFiles(key, chain, None, "nobody told"))


def test_what_cannot_be_right_is_said(authority: Authority, tmp_path: Path) -> None:
    good, other = authority.issue("good.pem"), authority.issue("other.pem")
    both = private(
        tmp_path / "mixed",
        good.read_bytes().split(b"-----BEGIN CERT")[0],
        b"-----BEGIN CERT" + other.read_bytes().split(b"-----BEGIN CERT")[1],
    )
    wrong = {
        tmp_path / "missing": "is not there; make one: raybroker keytool make",
        private(tmp_path / "empty"): "has no certificate as PEM",
        authority.file: "may be read by others than its owner; chmod 600",
        private(tmp_path / "no key", authority.file.read_bytes()): "no usable private key",
        both: "is not that of the first certificate",
        authority.issue("late.pem", last=-1): "has expired at",
        authority.issue("early.pem", first=2): "is not valid before",
    }
    for path, says in wrong.items():
        with pytest.raises(ConfigError, match=re.escape(says)) as caught:
            server_context(KeyFiles(path))
        assert str(path) in str(caught.value)
    good.chmod(0o640)
    with pytest.raises(ConfigError, match="may be read by others"):
        server_context(KeyFiles(good))
    with pytest.raises(ConfigError, match="has no certificates as PEM"):
        client_context(trust=tmp_path / "empty")
    with pytest.raises(ConfigError, match=r"trust: .* cannot be read"):
        client_context(trust=tmp_path / "missing")


def test_clients_show_certificates_of_a_trusted_authority(authority: Authority, tmp_path: Path) -> None:
    server = server_context(KeyFiles(authority.issue("key.pem")), trust=authority.file, client_auth="need")
    ann = KeyFiles(authority.issue("ann.pem", "ann"))
    shake(server, client_context(trust=authority.file, files=ann))
    stranger = KeyFiles(Authority(tmp_path, "other").issue("stranger.pem", "ann"))
    for files, says in ((None, "peer did not return a certificate"), (stranger, "unable to get local issuer")):
        with pytest.raises(ssl.SSLError, match=says):
            shake(server, client_context(trust=authority.file, files=files))
    with pytest.raises(ConfigError, match="which authorities"):
        server_context(KeyFiles(authority.issue("key.pem")), client_auth="need")


def test_settings_name_the_files_and_the_passfile_has_the_password(authority: Authority, tmp_path: Path) -> None:
    authority.issue("keystore", password="open")
    with pytest.raises(ConfigError, match=r"keystore is encrypted.*passfile \(imq\.passfile\.enabled is false\)"):
        ServerTls.from_config(Config.from_values({}), tmp_path)
    config = Config.from_values({"imq.passfile.enabled": True})
    with pytest.raises(ConfigError, match=r"passfile .* is not there"):
        ServerTls.from_config(config, tmp_path)
    private(tmp_path / "passfile", b"imq.keystore.password=open\n")
    shake(ServerTls.from_config(config, tmp_path).context(), client_context(trust=authority.file))
    with pytest.raises(ConfigError, match=r"imq\.keystore\.file\.dirpath"):
        ServerTls.from_config(Config.from_values({}), None)


def test_a_renewed_keystore_holds_and_a_spoilt_one_does_not(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority.issue("keystore")
    tls = ServerTls.from_config(Config.from_values({}), tmp_path)
    first = tls.context()
    assert tls.context() is first
    private(tmp_path / "keystore", b"spoilt")
    assert tls.context() is first
    assert "[B2042]" in caplog.text
    authority.issue("keystore", "renewed")
    shake(tls.context(), client_context(trust=authority.file), "renewed")


def test_a_client_takes_the_one_certificate_that_it_was_told_and_no_other(authority: Authority) -> None:
    """Whatever names it has; and not because of who has issued it."""
    one, other = authority.issue("one.pem", "elsewhere", addresses=()), authority.issue("other.pem")
    client = pinned_context(first_certificate(one))
    assert shake(server_context(KeyFiles(one)), client).version() == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(server_context(KeyFiles(other)), client)
    late = authority.issue("late.pem", last=-1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(late)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        shake(context, pinned_context(first_certificate(late)))


def test_the_certificate_that_is_told_is_the_one_that_is_shown(authority: Authority) -> None:
    directory = authority.issue("keystore").parent
    tls = ServerTls.from_config(Config.from_values({}), directory)
    before = tls.certificate()
    assert shake(tls.context(), pinned_context(before)).getpeercert(True) == before
    authority.issue("keystore")
    assert tls.certificate() == first_certificate(directory / "keystore") != before
    shake(tls.context(), pinned_context(tls.certificate()))
    (directory / "keystore").write_bytes(b"damaged")
    shake(tls.context(), pinned_context(tls.certificate()))


def test_inside_the_cluster_no_certificates_of_clients_are_asked_for(authority: Authority) -> None:
    directory = authority.issue("keystore").parent
    config = Config.from_values({"raybroker.tls.client_auth": "need"})  # There is no truststore either.
    assert ServerTls.from_config(config, directory, clients=False).context().verify_mode is ssl.CERT_NONE
    with pytest.raises(ConfigError, match="truststore"):
        ServerTls.from_config(config, directory)


def test_a_file_without_a_certificate_has_no_first_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        first_certificate(tmp_path / "absent")
    with pytest.raises(ConfigError, match="no certificate as PEM"):
        first_certificate(private(tmp_path / "empty", b""))
