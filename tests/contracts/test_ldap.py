"""Users of a directory server: who gets in with which groups, and what happens when the server does not answer."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import ConfigError, IllegalStateError, SecurityError
from raybroker.security.access_rules import User
from raybroker.security.ldap_repository import LdapRepository, LdapRules, servers_of
from raybroker.security.mechanism import LoginRefusedError
from tests.contracts.slapd import BASE, PRINCIPAL, PRINCIPAL_PASSWORD, Directory, directory
from tests.contracts.test_services import Outside

PEOPLE, GROUPS = f"ou=people,{BASE}", f"ou=groups,{BASE}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Directory]:
    (tmp_path / "ldap").mkdir()
    with directory(tmp_path / "ldap") as made:
        yield made


@pytest.fixture
def rules(server: Directory) -> LdapRules:
    return LdapRules(
        servers_of(server.address, tls=False), PEOPLE, PRINCIPAL, PRINCIPAL_PASSWORD, grpsearch=True, grpbase=GROUPS
    )


def test_a_user_has_the_groups_of_the_directory_and_not_groups_of_groups(rules: LdapRules) -> None:
    repository = LdapRepository(rules)
    assert repository.check("ann", "secret") == User("ann", frozenset({"admin"}))
    assert repository.check("bob", "secret") == User("bob", frozenset({"all (really)"}))
    assert LdapRepository(replace(rules, grpfilter="cn=nothing")).check("ann", "secret") == User("ann")
    assert LdapRepository(replace(rules, grpsearch=False)).check("ann", "secret") == User("ann")


@pytest.mark.parametrize(
    ("name", "password", "why"),
    [
        ("ann", "wrong", "wrong password"),
        ("nobody", "secret", "is unknown"),
        ("ann", "", "no password"),
        ("*", "secret", "is unknown"),
        ("ann)(uid=*", "secret", "is unknown"),
        ("\0", "secret", "is unknown"),
        (f"uid=ann,{PEOPLE}", "secret", "is unknown"),
    ],
)
def test_who_is_not_let_in(rules: LdapRules, name: str, password: str, why: str) -> None:
    with pytest.raises(LoginRefusedError, match=why):
        LdapRepository(rules).check(name, password)


def test_filters_and_bases_choose_entries(rules: LdapRules) -> None:
    with pytest.raises(LoginRefusedError, match="several entries"):
        LdapRepository(replace(rules, base=BASE)).check("ann", "secret")
    staff = LdapRepository(replace(rules, usrfilter="(employeeType=staff)"))
    assert staff.check("bob", "secret").name == "bob"
    with pytest.raises(LoginRefusedError, match="is unknown"):
        staff.check("eve", "x")
    with pytest.raises(LoginRefusedError, match="is unknown"):
        LdapRepository(replace(rules, uidattr="sn")).check("of another branch", "secret")


def test_names_of_entries_need_no_search(rules: LdapRules) -> None:
    repository = LdapRepository(replace(rules, usrformat="dn"))
    assert repository.check(f"uid=ann,{PEOPLE}", "secret") == User("ann", frozenset({"admin"}))
    for name in (f"uid=ann,{PEOPLE},dc=none", "ann", f"cn=ann,{PEOPLE}"):
        with pytest.raises(LoginRefusedError):
            repository.check(name, "secret")


def test_the_next_server_is_asked_when_one_is_down(rules: LdapRules) -> None:
    dead = servers_of("127.0.0.1:1", tls=False)
    assert LdapRepository(replace(rules, servers=dead + rules.servers)).check("ann", "secret").name == "ann"
    with pytest.raises(IllegalStateError, match="does not answer"):
        LdapRepository(replace(rules, servers=dead)).check("ann", "secret")


@pytest.mark.parametrize("password", ["wrong", "secret"])
def test_nobody_is_let_in_while_the_broker_itself_is_not(
    rules: LdapRules, caplog: pytest.LogCaptureFixture, password: str
) -> None:
    with caplog.at_level(logging.ERROR), pytest.raises(IllegalStateError, match="does not answer"):
        LdapRepository(replace(rules, password="not the broker's")).check("ann", password)
    assert "principal is not let in" in caplog.text
    assert "not the broker's" not in caplog.text + repr(rules)


def test_a_server_that_says_nothing_is_given_up(server: Directory, rules: LdapRules) -> None:
    server.freeze()
    with pytest.raises(IllegalStateError, match="does not answer"):
        LdapRepository(replace(rules, timeout_s=1)).check("ann", "secret")


def test_rules_that_cannot_be_right() -> None:
    good = LdapRules((("h", 1),), "b")
    for wrong, told in (
        (replace(good, base=""), "ldap.base"),
        (replace(good, principal="p"), "has no password"),
        (replace(good, grpsearch=True), "grpbase"),
    ):
        with pytest.raises(ConfigError, match=told):
            LdapRepository(wrong)
    assert servers_of("a ldaps://b:7", tls=True) == (("a", 636), ("b", 7))
    for text in ("", "a:b", ":7", "a:70000", " ".join("x" * 17)):
        with pytest.raises(ConfigError, match=r"ldap\.server"):
            servers_of(text, tls=False)


def test_users_of_the_directory_come_in_and_administrators_administer(
    server: Directory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ldap = "imq.user_repository.ldap."
    (tmp_path / "passfile").write_text(f"{ldap}password={PRINCIPAL_PASSWORD}\n")
    (tmp_path / "passfile").chmod(0o600)
    properties: dict[str, Any] = {
        "imq.authentication.type": "basic",
        "imq.authentication.basic.user_repository": "ldap",
        "imq.passfile.enabled": "true",
        f"{ldap}server": server.address,
        f"{ldap}base": PEOPLE,
        f"{ldap}principal": PRINCIPAL,
        f"{ldap}grpsearch": "true",
        f"{ldap}grpbase": GROUPS,
        f"{ldap}timeout": 2,
    }
    with ExitStack() as opened:
        outside = Outside(tmp_path, opened, **properties)
        outside.connect("ann", "admin").admin().create_destination("queue", "q")
        with pytest.raises(SecurityError, match="may not connect to ADMIN services"):
            outside.connect("bob", "admin")
        bob = outside.connect("bob").session()
        bob.producer("q").send("from bob")
        with pytest.raises(SecurityError, match="wrong user or password"):
            rb.connect(outside.url(), username="bob", password="wrong")
        server.stop()
        with pytest.raises(IllegalStateError, match="the directory of users does not answer"):
            outside.connect("bob")
        assert "nobody is let in" in caplog.text
        assert PRINCIPAL_PASSWORD not in caplog.text
        bob.producer("q").send("who is in stays in")
        server.start()
        outside.connect("bob")
