"""Whom faults meet, and that an agent sends signals to actors alone and leaves nothing stopped."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from raybroker.model.errors import ConfigError, IllegalStateError
from raybroker.verify.faults import NODE_FAULTS, Dice, FaultAgent, Rounds, node_kills, planned
from raybroker.verify.plan import FAULTS, VerifyPlan, faults_of

BROKERS = {"b1": ("n1", {"broker": 10, "h1": 11, "h2": 12}), "b2": ("n2", {"broker": 20, "h1": 21})}
LONG_S = 3600.0
WAIT_S = 10.0


@pytest.fixture
def actor() -> Iterator[subprocess.Popen[bytes]]:
    """A process whose command line looks like that of an actor."""
    process = subprocess.Popen(["bash", "-c", "exec -a ray::Sleeper sleep 600"])
    until(lambda: Path(f"/proc/{process.pid}/cmdline").read_bytes().startswith(b"ray::"))
    yield process
    process.kill()
    process.wait()


def until(holds: object) -> None:
    assert callable(holds)
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def state(process: subprocess.Popen[bytes]) -> str:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("kind", [kind for kind in FAULTS if kind not in ("kill-client", *NODE_FAULTS)])
def test_a_fault_meets_somebody_who_is_there(kind: str) -> None:
    for seed in range(20):
        deed = planned(kind, Dice(seed), BROKERS)
        assert deed is not None
        broker = deed.target.rpartition("broker ")[2].split()[0]
        node, pids = BROKERS[broker]
        assert deed.node == node
        assert deed.pauses == kind.startswith("pause")
        names = set(deed.processes)
        assert dict(deed.processes).items() <= pids.items()
        assert names == {"host": names - {"broker"}, "broker": {"broker"}, "machine": set(pids)}[kind.partition("-")[2]]
        assert len(names) == 1 or kind.endswith("machine")


@pytest.mark.parametrize("kind", NODE_FAULTS)
def test_a_fault_of_a_node_meets_all_brokers_on_it_unless_it_is_spared(kind: str) -> None:
    deed = planned(kind, Dice(1), {**BROKERS, "b3": ("n1", {"broker": 30})}, spared=("n2",))
    assert deed is not None
    assert (deed.node, deed.target) == ("n1", "the node of broker b1, b3")
    assert set(deed.processes.values()) == {10, 11, 12, 30}
    assert planned(kind, Dice(1), BROKERS, spared=("n1", "n2")) is None


def test_a_majority_of_nodes_is_left() -> None:
    assert [node_kills(nodes) for nodes in range(1, 6)] == [0, 0, 1, 1, 2]


def test_what_no_raylet_has_started_does_not_kill_its_node() -> None:
    with pytest.raises(IllegalStateError, match="is no raylet"):
        FaultAgent(LONG_S).kill_node()
    with pytest.raises(IllegalStateError, match="is no raylet"):
        FaultAgent(LONG_S).pause_node(LONG_S)


def test_a_seed_chooses_the_same_again() -> None:
    assert [planned("kill-host", Dice(3), BROKERS) for _ in range(2)] == [planned("kill-host", Dice(3), BROKERS)] * 2
    assert len({planned("kill-host", Dice(seed), BROKERS).text for seed in range(30)}) == 3  # type: ignore[union-attr]


def test_each_fault_comes_once_before_one_comes_again() -> None:
    rounds = Rounds(Dice(7))
    chosen = [rounds.choose(tuple(FAULTS)) for _ in range(3 * len(FAULTS))]
    for start in range(0, len(chosen), len(FAULTS)):
        assert set(chosen[start : start + len(FAULTS)]) == set(FAULTS)
    assert chosen[: len(FAULTS)] != chosen[len(FAULTS) : 2 * len(FAULTS)]
    assert {rounds.choose(("kill-host",)) for _ in range(3)} == {"kill-host"}


def test_a_host_within_its_broker_is_no_host_to_kill() -> None:
    inside = {"b1": ("n1", {"broker": 10, "h1": 10})}
    assert planned("kill-host", Dice(1), inside) is None
    assert planned("kill-host", Dice(1), {}) is None


def test_no_signal_is_sent_to_a_process_that_is_no_actor() -> None:
    with pytest.raises(IllegalStateError, match="no actor"):
        FaultAgent(LONG_S).kill([os.getpid()])


def test_an_agent_kills_what_is_there(actor: subprocess.Popen[bytes]) -> None:
    assert FaultAgent(LONG_S).kill([actor.pid]) == [actor.pid]
    actor.wait(WAIT_S)
    assert FaultAgent(LONG_S).kill([actor.pid]) == []


def test_what_is_paused_goes_on_when_the_time_is_over(actor: subprocess.Popen[bytes]) -> None:
    assert FaultAgent(LONG_S).pause([actor.pid], 0.3) == [actor.pid]
    until(lambda: state(actor) == "T")
    until(lambda: state(actor) == "S")


def test_what_is_paused_goes_on_when_it_is_asked_for(actor: subprocess.Popen[bytes]) -> None:
    agent = FaultAgent(LONG_S)
    agent.pause([actor.pid], LONG_S)
    until(lambda: state(actor) == "T")
    agent.go_on()
    until(lambda: state(actor) == "S")


def test_an_agent_that_nobody_asks_lets_all_go_on_and_ends(actor: subprocess.Popen[bytes]) -> None:
    script = (
        "import sys, threading; from raybroker.verify.faults import FaultAgent;"
        " FaultAgent(0.3).pause([int(sys.argv[1])], 3600); threading.Event().wait(60); sys.exit(9)"
    )
    child = subprocess.Popen([os.sys.executable, "-c", script, str(actor.pid)])  # type: ignore[attr-defined]
    until(lambda: state(actor) == "T" or child.poll() is not None)
    assert child.wait(WAIT_S) == 0
    until(lambda: state(actor) == "S")


def test_faults_are_allowed_by_name_alone() -> None:
    assert faults_of("none") == faults_of("") == ()
    assert faults_of("kill-host, pause-broker,kill-host") == ("kill-host", "pause-broker")
    with pytest.raises(ConfigError, match="did you mean kill-host"):
        faults_of("kill-hosts")
    with pytest.raises(ConfigError, match="'none'"):
        faults_of("none,kill-host")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"duration_seconds": 0.0}, "duration"),
        ({"duration_seconds": float("nan")}, "finite"),
        ({"pause_seconds": 91.0}, "pause"),
        ({"producers": 0}, "producers"),
        ({"consumers": 65}, "consumers"),
        ({"size_bytes": 3}, "size"),
        ({"rate_per_second": 1e9}, "rate x duration"),
        ({"messages": -1}, "messages"),
        ({"units": -1}, "units"),
    ],
)
def test_a_plan_that_cannot_be_right_is_refused(wrong: dict[str, float], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        VerifyPlan(**wrong)  # type: ignore[arg-type]
