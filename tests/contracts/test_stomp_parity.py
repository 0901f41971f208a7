"""The scenarios of stomp.py against raybroker, and against ActiveMQ where it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.contracts.stomp_parity import activemq, cases, main, missing
from tests.contracts.stomp_rig import StompRig
from tests.contracts.stomp_scenarios import SCENARIOS, Scenario, play

pytestmark = pytest.mark.xdist_group("stomp_parity")  # One worker makes what they share.


def _marks(one: Scenario, version: str) -> tuple[pytest.MarkDecorator, ...]:
    """Earlier versions of the protocol take as long and show little more."""
    return () if version == one.versions[-1] else (pytest.mark.sweep,)


CASES = pytest.mark.parametrize(
    ("one", "version"),
    [pytest.param(*case, id=f"{case[0].name}-{case[1]}", marks=_marks(*case)) for case in cases()],
)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with ExitStack() as opened:
        yield StompRig(Path(tmp_path_factory.mktemp("ours")), opened).port


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    if why := missing():
        pytest.skip(why)
    with ExitStack() as opened:
        yield activemq(Path(tmp_path_factory.mktemp("activemq")), opened)


@CASES
def test_raybroker(ours: int, one: Scenario, version: str) -> None:
    assert play(one, version, ours) == one.ours


@pytest.mark.sweep
@CASES
def test_activemq(theirs: int, one: Scenario, version: str) -> None:
    assert play(one, version, theirs) == one.expected(peer=True)


def test_a_scenario_differs_or_says_nothing_of_the_peer() -> None:
    assert [one.name for one in SCENARIOS if one.theirs == one.ours] == []
    assert len({one.name for one in SCENARIOS}) == len(SCENARIOS)


def test_the_table_has_what_is_not_as_it_is_written_down(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.contracts.stomp_parity.missing", lambda: "it is not wanted here")
    assert main(["--only", "empty_body"]) == 0
    wrong = Scenario("wrong", lambda side: side.client().send(side.queue), "error", None, ("1.2",))
    monkeypatch.setattr("tests.contracts.stomp_parity.SCENARIOS", [wrong])
    assert main([]) == 1
    printed = capsys.readouterr()
    assert "| wrong | 1.2 | done | not expected of raybroker |" in printed.out
    assert "ActiveMQ: skipped, it is not wanted here" in printed.err
