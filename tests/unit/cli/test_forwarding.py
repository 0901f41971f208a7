"""Forwarding agents from the command line (W-121, W-122)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raybroker.cli import connecting
from tests.contracts.cluster_rig import ClusterRig
from tests.unit.cli.conftest import Kept, Program


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterRig]:
    with ClusterRig(tmp_path_factory.mktemp("rig"), 1, raybroker__store__segment_bytes="1m") as found:
        yield found


@pytest.fixture(autouse=True)
def cluster(rig: ClusterRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that every command connects to; agents are defined in it and do not run."""
    kept = Kept(rig.connect())
    monkeypatch.setattr(connecting, "connect", kept.connect)


def test_an_agent_is_created_listed_shown_and_destroyed(raybroker: Program) -> None:
    assert raybroker("list", "saf").stderr == "no agents\n"
    told = raybroker.output("create", "saf", "-n", "eu", "-q", "orders", "--to", "far/in", "-o", "windowSize=100")
    assert told == "created forwarding agent eu\n"
    (row,) = raybroker.json("list", "saf")
    assert (row["name"], row["queue"], row["to"], row["windowSize"], row["state"]) == (
        "eu",
        "orders",
        "far/in",
        100,
        "STOPPED",
    )
    assert "Exactly-once" in raybroker.output("list", "saf")
    assert raybroker.json("query", "saf", "-n", "eu") == row
    assert "windowSize" in raybroker.output("query", "saf", "-n", "eu")
    assert raybroker.output("destroy", "saf", "-f", "-n", "eu") == "destroyed forwarding agent eu\n"
    assert raybroker.json("list", "saf") == []


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("query", "saf", "-n", "nobody"), 1, "no forwarding agent"),
        (("destroy", "saf", "-f", "-n", "nobody"), 1, "no forwarding agent"),
        (("create", "saf", "-n", "x", "-q", "q", "--to", "nowhere"), 1, "cluster/queue"),
        (("create", "saf", "-n", "x", "-q", "q", "--to", "far/in", "-o", "windowSize"), 2, "write attribute=value"),
        (("create", "saf", "-n", "x", "-q", "q", "--to", "far/in", "-o", "windowsize=3"), 1, "windowSize"),
        (("create", "saf", "-n", "x", "-q", "q"), 2, "--to"),
    ],
)
def test_what_cannot_be_ends_with_its_code(
    raybroker: Program, arguments: tuple[str, ...], code: int, word: str
) -> None:
    result = raybroker(*arguments)
    assert result.exit_code == code, result.output
    assert word in result.output
