"""The passfile: which passwords it may have, and who may read it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from raybroker.config import Config
from raybroker.model.errors import ConfigError
from raybroker.security.passfile import ENCODED, KEYSTORE, LDAP, passwords_of, read_passfile, rewritten


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "passfile"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_passwords_by_name_with_everything_behind_the_equals_sign(tmp_path: Path) -> None:
    text = f"# secrets\n\n{KEYSTORE}= a=b \nimq.imqcmd.password=x\n"
    found = read_passfile(written(tmp_path, text))
    assert (found.get(KEYSTORE), found.get("imq.imqcmd.password"), found.get(LDAP)) == (
        " a=b ",
        "x",
        None,
    )
    assert "a=b" not in repr(found)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("secret", "line 1: a line is name=password"),
        (f"{LDAP}=", "line 1: a line"),
        ("imq.keystore.passwort=top", r"did you mean imq\.keystore\.password"),
        ("x=top", "there are imq.keystore"),
        ("imq.persist.jdbc.sqlite.password=top", "a file of SQLite has no password"),
        ("imq.persist.jdbc.mysql.password=top", r"did you mean imq\.persist\.jdbc\.postgresql\.password"),
        (f"{LDAP}=top\n{LDAP}=top", "line 2: .* twice"),
    ],
)
def test_what_cannot_be_right_names_the_line_and_shows_no_password(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        read_passfile(written(tmp_path, text))
    assert "top" not in str(caught.value)


def test_a_passfile_is_for_its_owner_alone(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="chmod 600"):
        read_passfile(written(tmp_path, f"{LDAP}=x", 0o644))
    with pytest.raises(ConfigError, match="is not there"):
        read_passfile(tmp_path / "none")


def test_settings_say_where_it_is(tmp_path: Path) -> None:
    written(tmp_path, f"{LDAP}=x")
    assert passwords_of(Config.from_values({}), tmp_path).get(LDAP) is None
    assert passwords_of(Config.from_values({"imq.passfile.enabled": True}), tmp_path).get(LDAP) == "x"
    named = Config.from_values({"imq.passfile.enabled": True, "imq.passfile.dirpath": str(tmp_path)})
    assert passwords_of(named, None).get(LDAP) == "x"
    with pytest.raises(ConfigError, match=r"imq\.passfile\.dirpath"):
        passwords_of(Config.from_values({"imq.passfile.enabled": True}), None)


def test_encoded_passwords_are_read_as_those_in_clear_and_come_back_whole(tmp_path: Path) -> None:
    text = f"# secrets\n\n{KEYSTORE}= a=b ü\nimq.imqcmd.password={ENCODED}x\n"
    with pytest.raises(ConfigError, match=r"line 4: imq\.imqcmd\.password: what stands behind {encoded} is no"):
        rewritten(written(tmp_path, text), encode=True)
    text = text.replace(f"{ENCODED}x", "top secret")
    path = written(tmp_path, text)
    made = rewritten(path, encode=True)
    assert ("a=b" in made, "top secret" in made, made.count(ENCODED)) == (False, False, 2)
    assert made.splitlines()[:2] == ["# secrets", ""]
    path = written(tmp_path, made)
    assert rewritten(path, encode=True) == made, "what is encoded stays so"
    found = read_passfile(path)
    assert (found.get(KEYSTORE), found.get("imq.imqcmd.password"), found.clear) == (" a=b ü", "top secret", ())
    assert rewritten(path, encode=False) == text


def test_passwords_in_clear_are_told_in_the_log_without_showing_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    enabled = Config.from_values({"imq.passfile.enabled": True})
    path = written(tmp_path, f"{LDAP}=top\n")
    with caplog.at_level(logging.WARNING):
        passwords_of(enabled, tmp_path)
    assert f"passwords in clear: {LDAP}; encode them with raybroker usermgr encode" in caplog.text
    assert "top" not in caplog.text
    caplog.clear()
    path.write_text(rewritten(path, encode=True))
    with caplog.at_level(logging.WARNING):
        assert passwords_of(enabled, tmp_path).get(LDAP) == "top"
    assert caplog.text == ""
