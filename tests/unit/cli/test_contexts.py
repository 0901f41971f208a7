"""Contexts: names for how brokers are reached, and what of them a command takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raybroker.cli import contexts
from raybroker.cli.contexts import Context, Contexts
from raybroker.cli.exits import UsageError
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
