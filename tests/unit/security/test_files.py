"""The files of users and of access rules: read again when they change, and never half."""

from __future__ import annotations

from pathlib import Path

import pytest

from raybroker.errors import ConfigError
from raybroker.security.access import Access
from raybroker.security.access_rules import DEFAULT_RULES, AccessRequest, User
from raybroker.security.rule_file import RuleFile
from raybroker.security.user_file import UserEntry, UserFile

ANN = UserEntry("SCRAM-SHA-256$1:YQ==$a:b")


@pytest.fixture
def users(tmp_path: Path) -> UserFile:
    return UserFile(tmp_path / "security" / "passwd")


def test_users_are_added_changed_and_deleted(users: UserFile) -> None:
    assert users.users() == {}
    users.add("ann", ANN)
    users.add("guest", UserEntry("v:1", "anonymous"))
    users.update("ann", active=False)
    guest = UserEntry("v:1", "anonymous")
    assert UserFile(users.path).users() == {"ann": UserEntry(ANN.verifier, "user", False), "guest": guest}
    users.update("ann", verifier="other", active=True)
    users.delete("guest")
    assert UserFile(users.path).users() == {"ann": UserEntry("other")}
    assert users.path.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in users.path.parent.iterdir()] == ["passwd"]


@pytest.mark.parametrize(
    ("name", "entry", "told"),
    [
        ("ann", ANN, "exists already"),
        ("", ANN, "1 to 128"),
        ("a,b", ANN, r"none of \* , :"),
        ("a:b", ANN, "none of"),
        ("*", ANN, "none of"),
        ("a\nb", ANN, "printable"),
        ("x" * 129, ANN, "1 to 128"),
        ("bob", UserEntry("v", "owners"), "the groups are admin, user, anonymous"),
        ("bob", UserEntry("v", "anonymous"), "anonymous holds one user"),
    ],
)
def test_what_cannot_be_a_user_is_refused(users: UserFile, name: str, entry: UserEntry, told: str) -> None:
    users.add("ann", ANN)
    users.add("guest", UserEntry("v", "anonymous"))
    with pytest.raises(ConfigError, match=told):
        users.add(name, entry)
    assert sorted(users.users()) == ["ann", "guest"]


def test_nobody_can_change_who_is_not_there(users: UserFile) -> None:
    for change in (lambda: users.delete("ann"), lambda: users.update("ann", active=True)):
        with pytest.raises(ConfigError, match="no user 'ann'"):
            change()


def test_a_file_that_others_may_read_or_that_is_damaged_is_refused(users: UserFile) -> None:
    users.add("ann", ANN)
    users.path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        UserFile(users.path).users()
    users.path.chmod(0o600)
    users.path.write_text("ann:v:user:perhaps\n")
    with pytest.raises(ConfigError, match="line 1"):
        UserFile(users.path).users()


def test_no_verifier_is_shown() -> None:
    assert "SCRAM" not in repr(ANN)


def test_rules_are_read_again_when_they_change(tmp_path: Path) -> None:
    path = tmp_path / "rules"
    file = RuleFile(path)
    wanted, ann = AccessRequest("queue", "q", "produce"), User("ann")
    assert file.rules().decide(ann, wanted).allowed
    path.write_text(DEFAULT_RULES + "queue.q.produce.deny.user=ann\n")
    assert not file.rules().decide(ann, wanted).allowed
    path.write_text("nothing")
    assert not file.rules().decide(ann, wanted).allowed, "what cannot be read leaves what held"
    path.write_text(DEFAULT_RULES)
    assert file.rules().decide(ann, wanted).allowed
    path.unlink()
    assert file.rules().decide(ann, wanted).allowed


def test_rules_that_were_never_right_let_nobody_in(tmp_path: Path) -> None:
    path = tmp_path / "rules"
    path.write_text("nothing")
    with pytest.raises(ConfigError, match="line 1"):
        RuleFile(path).rules()


def test_what_the_broker_owns_needs_a_rule_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "rules"
    path.write_text(DEFAULT_RULES + "queue.mq.sys.dmq.browse.allow.group=admin\n")
    access, off = Access.parse(str(path)), Access.parse("")
    ann, root = User("ann"), User("root", frozenset({"admin"}))
    assert not access.decide(ann, AccessRequest("queue", "mq.sys.dmq", "browse")).allowed
    assert access.decide(root, AccessRequest("queue", "mq.sys.dmq", "browse")).allowed
    assert off.decide(ann, AccessRequest("queue", "mq.sys.dmq", "browse")).allowed
    assert [off.decide(user, AccessRequest("connection", "ADMIN", "")).allowed for user in (ann, root)] == [False, True]
