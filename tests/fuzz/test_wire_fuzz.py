"""A short round of every fuzz target; longer ones: ``python -m tests.fuzz.wire --seconds N``."""

from __future__ import annotations

import pytest

from tests.fuzz.engine import by_hypothesis, examine
from tests.fuzz.wire import main, targets

FEW = 30


@pytest.mark.parametrize("name", targets())
def test_some_hostile_bytes_do_no_harm(name: str) -> None:
    target, strategy = targets()[name]
    examine(target, strategy, FEW)


@pytest.mark.sweep
@pytest.mark.parametrize("name", targets())
def test_hostile_bytes_do_no_harm(name: str, sweep_seconds: float) -> None:
    tried = by_hypothesis(targets(), [name], sweep_seconds, first=1)
    print(f"{tried[name]} inputs")
    assert tried[name] > 0


def test_the_command_runs_and_says_what_it_tried(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seconds", "0.1", "--target", "stranger", "--engine", "hypothesis"]) == 0
    assert "nothing found" in capsys.readouterr().out


def test_a_target_that_fails_is_noticed() -> None:
    def brittle(data: bytes) -> None:
        assert len(data) < 5

    with pytest.raises(AssertionError):
        examine(brittle, targets()["content"][1], 200)
