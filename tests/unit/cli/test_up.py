"""What ``raybroker up`` and ``down`` say, over brokers that answer as the test wants; everything else is the program's.

Ray is stood in for at its seam (``raybroker.actors.runtime``).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raybroker.actors import cluster as clusters
from raybroker.actors import runtime
from raybroker.cli import connecting
from raybroker.cli.tools import up
from raybroker.cluster.compatibility import Difference, refusal
from raybroker.config import places
from raybroker.model.errors import ConnectionLostError
from tests.unit.cli.conftest import Program

REFUSED = refusal("b2", "b1", [Difference("raybroker.cluster.heartbeat_ms", 50, 1000)])
CONTRADICTION = "imq.cluster.masterbroker is b2, and the master is b1 since term 3: set it to b1"


class Broker:
    """A broker's actor: ``ready`` is what it says of itself, or how asking it fails."""

    def __init__(self, name: str, ready: Any = None, **more: Any) -> None:
        row = {"operating": True, "refusal": "", "contradiction": "", "faults": [], "node": "n1", "broker": name}
        serves = {"state": "OPERATING", "refusals": [], "starting": []}
        self._ready = ready if ready is not None else {**row, **serves, **more}
        self.stopped = False

    def ready(self) -> Any:
        if isinstance(self._ready, Exception):
            raise self._ready
        return self._ready

    def stop(self) -> None:
        self.stopped = True


class Starting(Broker):
    """One that runs, and whose host h2 has started once it was asked a third time."""

    asked = 0

    def ready(self) -> Any:
        self.asked += 1
        return {**super().ready(), "starting": ["b1/h2"] if self.asked < 3 else []}

    def how_far(self) -> str:
        return "broker b1 is starting: 1 of its 2 hosts serve; it waits for host b1/h2 to start"


def patiently(method: Any, *, timeout_s: float, turn_s: float, meanwhile: Callable[[], None]) -> Any:
    meanwhile()
    return method()


Make = Callable[..., dict[str, Broker]]


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Make:
    """Brokers that run already in a Ray that runs already."""

    def make(**brokers: Broker) -> dict[str, Broker]:
        actors = {runtime.broker_name("default", name): actor for name, actor in brokers.items()}
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        monkeypatch.setattr(connecting, "find_ray", lambda name: places.FilePlace("127.0.0.1:1"))
        monkeypatch.setattr(connecting, "require_ray", lambda name: places.FilePlace("127.0.0.1:1"))
        for name in ("keep_quiet", "join_ray", "start_local_ray"):
            monkeypatch.setattr(runtime, name, lambda: None)
        monkeypatch.setattr(runtime, "address", lambda: "127.0.0.1:1")
        monkeypatch.setattr(runtime, "node_id", lambda: "n1")
        monkeypatch.setattr(runtime, "list_actors", lambda prefix: sorted(a for a in actors if a.startswith(prefix)))
        monkeypatch.setattr(runtime, "find_actor", actors.get)
        monkeypatch.setattr(runtime, "call_blocking", lambda method, *args, timeout_s=None: method(*args))
        monkeypatch.setattr(runtime, "call_patiently", patiently)
        monkeypatch.setattr(runtime, "kill", lambda actor: None)
        monkeypatch.setattr(clusters, "place", lambda plan, config, name, there: dict.fromkeys(there, "n1"))
        return brokers

    return make


def test_up_names_the_brokers_that_take_clients_and_says_why_another_does_not(running: Make) -> None:
    running(b1=Broker("b1"), b2=Broker("b2", operating=False, refusal=f"broker b2 takes no clients yet: {REFUSED}"))
    result = Program()("up", "--brokers", "2")
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("cluster default")]
    assert line == "cluster default runs already: brokers b1, Ray at 127.0.0.1:1"
    assert f"broker b2 takes no clients yet: {REFUSED}" in result.stderr
    assert "heartbeat_ms is 50 on b2 and 1000 on b1" in result.stderr
    assert result.exit_code == 1


def test_up_waits_for_hosts_that_are_starting_and_says_so(running: Make) -> None:
    (broker,) = running(b1=Starting("b1")).values()
    result = Program()("up")
    assert isinstance(broker, Starting)
    assert broker.asked >= 3
    assert "1 of its 2 hosts serve; it waits for host b1/h2 to start" in result.stdout
    assert result.exit_code == 0


def test_a_broker_that_does_not_answer_or_does_not_run_is_in_trouble(running: Make) -> None:
    running(b1=Broker("b1", contradiction=CONTRADICTION), b2=Broker("b2", ConnectionLostError("b2 does not answer")))
    cluster = clusters.Cluster("default", ["b1", "b2", "b3"])
    troubles = {"b2": "b2 does not answer", "b3": "broker b3 of cluster default is not running"}
    assert cluster.troubles() == troubles
    assert cluster.contradictions() == [f"broker b1: {CONTRADICTION}"]


def test_up_without_a_broker_that_takes_clients_says_none(running: Make) -> None:
    running(b1=Broker("b1", operating=False, refusal=""))
    result = Program()("up")
    assert "brokers none, Ray at" in result.stdout
    assert "broker b1 takes no clients yet" in result.stderr
    assert result.exit_code == 1


def test_up_says_where_the_configuration_contradicts_the_record(running: Make) -> None:
    running(b1=Broker("b1"), b2=Broker("b2", contradiction=CONTRADICTION))
    result = Program()("up", "--brokers", "2")
    assert "brokers b1, b2, Ray at" in result.stdout
    assert result.stderr.splitlines() == [f"raybroker: broker b2: {CONTRADICTION}"]
    assert result.exit_code == 0


def test_up_fails_when_a_service_that_was_asked_for_does_not_listen(
    running: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up, "PORT_WAIT_NS", 0)
    taken = "service stomp does not listen: no free port imq.stomp.tcp.port=7672 on 0.0.0.0: Address already in use"
    running(b1=Broker("b1", services=taken), b2=Broker("b2", services=""))
    result = Program()("up", "--brokers", "2")
    assert "brokers b1, b2, Ray at" in result.stdout
    assert result.stderr.splitlines() == [f"raybroker: broker b1: {taken}; the broker runs without, and tries again"]
    assert result.exit_code == 1


def test_up_says_nothing_of_trouble_where_there_is_none(running: Make) -> None:
    running(b1=Broker("b1"))
    result = Program()("up")
    assert (result.exit_code, result.stderr) == (0, "")


def test_down_stops_one_broker_and_not_the_last(running: Make) -> None:
    brokers = running(b1=Broker("b1"), b2=Broker("b2"))
    assert Program()("down", "--broker", "b2").exit_code == 0
    assert (brokers["b1"].stopped, brokers["b2"].stopped) == (False, True)
    wrong = Program()("down", "--broker", "b9")
    assert wrong.exit_code == 2
    assert "b1, b2" in wrong.stderr
    running(b1=brokers["b1"])
    last = Program()("down", "--broker", "b1")
    assert last.exit_code == 2
    assert "raybroker down" in last.stderr
    assert not brokers["b1"].stopped


def test_options_of_mq_are_the_properties_that_they_stand_for(
    running: Make, raybroker: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    running(b1=Broker("b1"))
    chosen: list[Any] = []
    cluster = clusters.Cluster("default", ["b1"])

    def start(name: str, brokers: Any, config: Any, *, only: Any, told: Any) -> Any:
        chosen.append(config)
        return cluster

    monkeypatch.setattr(clusters, "start", start)
    monkeypatch.chdir(tmp_path)
    raybroker.output("up", "--passfile", "secrets", "--dbuser", "mq", "-D", "imq.log.level=ERROR")
    raybroker.output("up")
    names = (
        "imq.passfile.enabled",
        "imq.passfile.dirpath",
        "imq.passfile.name",
        "imq.persist.jdbc.postgresql.user",
        "imq.log.level",
    )
    assert [chosen[0][name] for name in names] == [True, str(tmp_path), "secrets", "mq", "ERROR"]
    assert chosen[1]["imq.passfile.enabled"] is False


def test_the_port_of_the_port_mapper_is_an_option(running: Make) -> None:
    running(b1=Broker("b1"))
    services = ["-D", "imq.service.activelist=jms"]
    assert Program()("up", "--port", "7700", *services).exit_code == 0
    wrong = Program()("up", "-p", "7700", *services, "-D", "imq.portmapper.port=7701")
    assert (wrong.exit_code, "contradict each other" in wrong.stderr) == (2, True)
    idle = Program()("up", "-p", "7700")
    assert (idle.exit_code, "no service listens" in idle.stderr) == (2, True)
    assert Program()("up", "-p", "70000", *services).exit_code == 2


def test_the_instance_is_named_by_the_option_or_the_property(running: Make) -> None:
    running(b1=Broker("b1"))
    wrong = Program()("up", "--name", "office", "-D", "imq.instancename=shop")
    assert (wrong.exit_code, "the instance is named twice" in wrong.stderr) == (2, True)
    assert "cluster default runs" in Program()("up", "-D", "imq.instancename=default").stdout
