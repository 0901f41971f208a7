"""The reader of shell lines finds the commands in them, and the programs' parsers find what they do not understand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.commands import comment_commands, environment, expanded, faults, simple_commands, syntax_fault


def test_commands_are_found_behind_assignments_keywords_and_redirections() -> None:
    line = "A=1 ray start --head >x 2>&1 </dev/null & until raybroker up; do sleep 5; done"
    assert list(simple_commands(line)) == [["ray", "start", "--head"], ["raybroker", "up"], ["sleep", "5"]]


def test_a_shell_within_a_shell_is_looked_into() -> None:
    assert list(simple_commands("""setsid bash -c 'raybroker up --name "$X"' &""")) == [
        ["raybroker", "up", "--name", "$X"]
    ]


def test_variables_are_put_in_their_places() -> None:
    words = ["ray", "$PORTS", "--a=${A}", "--b=$A"]
    assert expanded(words, {"PORTS": "--x=1 --y=2", "A": "one two"}) == [
        "ray",
        "--x=1",
        "--y=2",
        "--a=one two",
        "--b=one two",
    ]


def test_what_the_programs_do_not_understand_is_found() -> None:
    assert faults("ray start --head --port=6379 && raybroker up --config x.toml") == []
    assert "No such option" in faults("ray start --haed")[0]
    assert "not a valid integer" in faults("ray start --port=high")[0]
    assert "there is no upp; did you mean up?" in faults("raybroker upp")[0]
    assert "No such option" in faults("raybroker list bkr --jsn")[0]
    assert "nobody sets" in faults("ray start --address=$HEAD")[0]
    assert "unexpected" in faults("ray start; (")[0]


def test_only_what_bash_can_parse_passes() -> None:
    assert syntax_fault("a; b && c") == ""
    assert syntax_fault("until a; do b") != ""


def test_commands_in_comments_are_those_that_are_indented() -> None:
    assert list(comment_commands("# Words.\n#   ray up x.yaml       # why\nvalue: 1\n")) == ["ray up x.yaml"]


def test_an_environment_file_that_is_read_in_two_ways_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x.env"
    path.write_text('# A\nA=1\nB=\'{"b": 1}\'\nC="--x --y"\n')
    assert environment(path) == {"A": "1", "B": '{"b": 1}', "C": "--x --y"}
    for line in ("A=$B", "export A=1", "A=one two", 'A="$B"'):
        path.write_text(line + "\n")
        with pytest.raises(AssertionError, match="line 1"):
            environment(path)
