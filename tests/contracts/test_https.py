"""The service httpsjms: what each end accepts of the other's certificate, and certificates of clients as logins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from raybroker.errors import NoClusterError, SecurityError
from tests.contracts.test_web_socket import RULES, Outside
from tests.unit.security.certificates import Authority


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def secured(folder: Path, opened: ExitStack, **more: object) -> Outside:
    return Outside(folder, opened, "https", **more)


def test_a_client_says_what_is_wrong_with_the_servers_certificate(tmp_path: Path, opened: ExitStack) -> None:
    outside = secured(tmp_path, opened)
    with pytest.raises(SecurityError, match=r"authority that is not trusted here .* keytool export"):
        outside.connect(trust=Authority(tmp_path, "other").file)
    with pytest.raises(SecurityError, match="authority that is not trusted here"):
        outside.connect(trust="")
    outside.connect(trust="", imqSSLIsHostTrusted=True)
    assert [row["user"] for row in outside.admin.list_connections("httpsjms")] == ["ann"]


def test_the_certificate_is_for_the_name_of_the_address_or_for_the_one_that_is_given(
    tmp_path: Path, opened: ExitStack
) -> None:
    outside = secured(tmp_path, opened)
    outside.authority.issue("keystore", "broker.example", addresses=())
    with pytest.raises(SecurityError, match=r"is not for 127\.0\.0\.1.*server_name.*keytool make -n 127\.0\.0\.1"):
        outside.connect()
    session = outside.connect(**{"raybroker.client.tls.server_name": "broker.example"}).session()
    session.producer("q").send("x")
    assert session.receive("q", timeout=20).body == "x"  # The connection to the host has checked the name as well.


def test_http_and_https_are_told_from_each_other(tmp_path: Path, opened: ExitStack) -> None:
    (tmp_path / "clear").mkdir()
    (tmp_path / "tls").mkdir()
    outside, clear = secured(tmp_path / "tls", opened), Outside(tmp_path / "clear", opened, "http")
    with pytest.raises(NoClusterError, match="does that port have TLS"):
        outside.connect(url=outside.url.replace("https", "http"))
    with pytest.raises(NoClusterError, match="does not speak TLS"):
        clear.connect(url=clear.url.replace("http", "https"))


def test_a_certificate_stands_for_its_user(tmp_path: Path, opened: ExitStack) -> None:
    outside = secured(tmp_path, opened, **{"raybroker.tls.client_auth": "want"})
    issue = outside.authority.issue
    ann = outside.connect(None, certificate=issue("ann.pem", cn="ann"))
    ann.session().producer("q").send("by certificate")
    assert [row["user"] for row in outside.admin.list_connections("httpsjms")] == ["ann"]
    (tmp_path / "accesscontrol.properties").write_text(RULES + "queue.q.produce.deny.user=ann\n")
    with pytest.raises(SecurityError, match="user 'ann' may not produce"):
        ann.session().producer("q").send("denied")
    with pytest.raises(SecurityError, match="'nobody', is unknown"):
        outside.connect(None, certificate=issue("nobody.pem", cn="nobody"))
    with pytest.raises(NoClusterError, match="does not accept the client's certificate: its log"):
        outside.connect(None, certificate=Authority(tmp_path, "forger").issue("forged.pem", cn="ann"))
    outside.connect("bob").session().producer("q").send("by password")


def test_without_a_certificate_nobody_comes_in_where_one_is_needed(tmp_path: Path, opened: ExitStack) -> None:
    outside = secured(tmp_path, opened, **{"raybroker.tls.client_auth": "need"})
    with pytest.raises(NoClusterError, match="asks for a certificate of the client: give certificate="):
        outside.connect()
    client = outside.connect(certificate=outside.authority.issue("program.pem", cn="program"))
    client.session().producer("q").send("both")
    assert [row["user"] for row in outside.admin.list_connections("httpsjms")] == ["ann"]


def test_a_renewed_certificate_holds_for_the_next_client(tmp_path: Path, opened: ExitStack) -> None:
    outside = secured(tmp_path, opened)
    first = outside.connect()
    first.session().producer("q").send("one")
    other = Authority(tmp_path, "other")
    other.issue("keystore")
    outside.connect(trust=other.file).session().producer("q").send("two")
    with pytest.raises(SecurityError, match="not trusted"):
        outside.connect()
