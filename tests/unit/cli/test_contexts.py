"""Contexts: names for how brokers are reached, and what of them a command takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from raybroker.cli import contexts
from raybroker.cli.contexts import Context, Contexts
from raybroker.cli.exits import UsageError
from raybroker.config import Config
from tests import program


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("RAYBROKER_CONTEXT", raising=False)
    return tmp_path / "raybroker" / "contexts.json"


def refused(*words: str) -> str:
    done = program.invoke(*words)
    assert done.exit_code == 2, done.output
    return done.stderr


def test_what_is_kept_is_read_again_and_only_its_owner_may_read_it(home: Path) -> None:
    context = Context("h:7676", "ann", "/pw", None, True, ("a=b",), "c")
    contexts.save(Contexts().with_context("prod \u65e5\u672c", context)._replace(in_use="prod \u65e5\u672c"))
    assert contexts.load() == Contexts({"prod \u65e5\u672c": context}, "prod \u65e5\u672c")
    assert home.stat().st_mode & 0o077 == 0
    assert contexts.current() == context


def test_the_option_goes_before_the_variable_and_that_before_the_one_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Contexts()
    for name in "abc":
        kept = kept.with_context(name, Context(f"{name}:1"))
    contexts.save(kept._replace(in_use="a"))
    found = []
    for change in (
        lambda: None,
        lambda: monkeypatch.setenv("RAYBROKER_CONTEXT", "b"),
        lambda: contexts.wanted.set("c"),
    ):
        change()
        context = contexts.current()
        assert context is not None
        found.append(context.broker)
    contexts.wanted.set(None)
    assert found == ["a:1", "b:1", "c:1"]


def test_without_any_there_is_none() -> None:
    assert contexts.current() is None


@pytest.mark.parametrize("name", ["", " a", "a" * 65, "a\nb", "-x"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="characters that can be printed"):
        Contexts().with_context(name, Context("h:1"))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"contexts": 1}', '{"contexts": {"a": 1}}', "\x00"])
def test_a_damaged_file_is_named(home: Path, text: str) -> None:
    home.parent.mkdir(parents=True)
    home.write_text(text)
    assert "contexts.json is no file of contexts" in refused("list", "dst")
    assert home.read_text() == text, "it is the user's to mend"


def test_an_unknown_name_is_said_with_what_was_meant() -> None:
    contexts.save(Contexts().with_context("prod", Context("h:1", "ann")))
    assert "did you mean prod?" in refused("--context", "prdo", "list", "dst")
    assert "did you mean prod?" in refused("context", "use", "prdo")
    assert "did you mean prod?" in refused("context", "delete", "prdo")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "a broker"),
        (("-b", "h:1"), "say as which user"),
        (("-u", "ann"), "a broker"),
        (("--cluster", "c", "-u", "ann"), "name one with -b"),
        (("-b", "h:1", "-u", "ann", "--token-file", "f"), "--token-file says who you are"),
        (("-b", "h:1", "-u", "ann", "-D", "nothing=1"), "nothing"),
        (("-b", "mqs://h:1", "-u", "ann", "--secure"), "--secure is for"),
    ],
)
def test_one_that_reaches_no_broker_is_not_kept(home: Path, words: tuple[str, ...], why: str) -> None:
    assert why in refused("context", "add", "x", *words)
    assert not home.exists()


def test_it_is_listed_used_and_deleted() -> None:
    assert program.invoke("context", "add", "prod", "-b", "h:1", "-u", "ann", "--use").exit_code == 0
    rows = json.loads(program.invoke("context", "list", "--json").stdout)
    assert [(row["name"], row["in_use"], row["broker"], row["user"]) for row in rows] == [("prod", True, "h:1", "ann")]
    assert program.invoke("context", "use", "--none").exit_code == 0
    assert "name one" in refused("context", "use")
    assert contexts.current() is None
    assert program.invoke("context", "delete", "prod").exit_code == 0
    assert json.loads(program.invoke("context", "list", "--json").stdout) == []


@pytest.mark.parametrize(
    "text",
    [
        '{"contexts": {"a": {"broker": ["h"]}}}',
        '{"contexts": {"a": {"broker": "h\\u001b[2J"}}}',
        '{"contexts": {"a": {"define": "x=1"}}}',
        '{"contexts": {"a": {"define": [1]}}}',
        '{"contexts": {"\\u001b[2J": {}}}',
        '{"contexts": {"": {}}}',
        '{"contexts": {}, "in_use": 1}',
        '{"contexts": ' + "[" * 100_000,
        "\ufeff{}",
    ],
)
def test_what_no_command_has_written_is_not_taken(home: Path, text: str) -> None:
    home.parent.mkdir(parents=True)
    home.write_text(text)
    told = refused("list", "dst")
    assert "is no file of contexts" in told
    assert "\x1b" not in told


def test_a_file_that_others_may_change_or_that_is_none_is_refused(home: Path) -> None:
    contexts.save(Contexts().with_context("prod", Context("h:1", "ann")))
    home.chmod(0o622)
    assert "may be changed by others" in refused("list", "dst")
    home.chmod(0o644)
    assert contexts.load().contexts, "there is no secret in it"
    home.unlink()
    home.mkdir()
    assert "and no file" in refused("list", "dst")
    home.rmdir()
    home.symlink_to("/dev/zero")
    assert "and no file" in refused("list", "dst")


def test_one_in_use_that_is_gone_is_not_taken_for_none(home: Path) -> None:
    """A command would go to whatever runs here."""
    contexts.save(Contexts({}, "prod"))
    assert "there is no context 'prod'" in refused("list", "dst")
    assert program.invoke("context", "use", "--none").exit_code == 0
    assert contexts.current() is None


def test_those_who_change_them_at_once_lose_nothing(home: Path) -> None:
    add = "import sys; from raybroker.cli.main import main; main()"
    started = [
        subprocess.Popen([sys.executable, "-c", add, "context", "add", f"c{number}", "-b", "h:1", "-u", "ann"])
        for number in range(5)
    ]
    assert [one.wait(60) for one in started] == [0] * 5
    assert sorted(contexts.load().contexts) == [f"c{number}" for number in range(5)]


def test_whoever_changes_them_for_long_is_not_waited_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "TRIES_MAX", 2)
    with contexts.changing():
        assert "another command changes the contexts" in refused("context", "use", "--none")
    assert program.invoke("context", "use", "--none").exit_code == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("-b", "h:99999", "-u", "ann"), "port"),
        (("-b", "ftp://h", "-u", "ann"), "ftp"),
        (("-b", "h:1", "-u", "ann", "-D", "imqDefaultPassword=x"), "a context has no secrets"),
    ],
)
def test_an_address_that_is_none_and_a_secret_are_not_kept(home: Path, words: tuple[str, ...], why: str) -> None:
    assert why in refused("context", "add", "x", *words)
    assert not home.exists()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
@pytest.mark.parametrize("option", ["--passfile", "--token-file"])
def test_a_password_that_others_may_read_is_not_sent(tmp_path: Path, mode: int, option: str) -> None:
    secret = tmp_path / "pw"
    secret.write_text("secret\n")
    secret.chmod(mode)
    who = ("-u", "ann") if option == "--passfile" else ()
    assert program.invoke("context", "add", "prod", "-b", "h:1", *who, option, str(secret), "--use").exit_code == 0
    assert "may be read by others" in refused("list", "dst")
    secret.unlink()
    assert "is not there" in refused("list", "dst")


def test_a_relative_place_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be another one in each directory."""
    monkeypatch.setenv("XDG_CONFIG_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert contexts.file() == tmp_path / ".config" / "raybroker" / "contexts.json"


def test_the_variable_is_no_property_of_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYBROKER_CONTEXT", "prod")
    monkeypatch.setenv("RAYBROKER_COMPLETION_S", "1")
    assert Config.load()
