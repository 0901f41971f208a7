"""The record of brokers in Ray that is saved and restored, and pauses of all destinations of a broker, which it has or
has not, by the command lines of Message Queue."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from tests import program
from tests.cluster import rays
from tests.contracts.handles import until

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(300)]
PAUSED_FROM_THE_START = "-Draybroker.system.consumptionPausedAtStartup=true"


class Cluster:
    """A cluster that is started and stopped by commands, which run in this process."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._file = folder / "cluster.toml"
        store = "\n".join(f"{key} = {value!r}" for key, value in rays.small_store(folder / "store").items())
        self._file.write_text(f'{store}\n[imq.cluster]\nbrokerlist = "b1,b2"\nmasterbroker = "b1"\n')

    def does(self, line: str, status: int = 0) -> str:
        done = program.invoke(*shlex.split(line))
        assert done.exit_code == status, f"{line}: {done.output}{done.exception}"
        return done.output

    def start(self, *options: str) -> None:
        started = self.does(f"mq imqbrokerd -name {self.name} {self.way} -Dimq.service.activelist= {' '.join(options)}")
        assert f"cluster {self.name} runs: brokers b1, b2" in started

    def restore(self, file: Path, status: int = 0) -> str:
        return self.does(f"mq imqbrokerd -name {self.name} {self.way} -restore {file}", status)

    def stop(self) -> None:
        self.does(f"down --name {self.name}")

    @property
    def way(self) -> str:
        return f"--config {self._file}"

    def connect(self, broker: str) -> rb.Connection:
        return rb.connect(cluster=self.name, broker=broker)

    def states(self, queue: str) -> dict[str, str]:
        """Broker → state of its member."""
        with self.connect("b1") as connection:
            row = connection.admin().query_destination("queue", queue)
            return {member["broker"]: member["state"] for member in row["members"]}

    def record(self, broker: str) -> Any:
        with self.connect(broker) as connection:
            return connection.admin().query_cluster()["record"]


@pytest.fixture
def kept(own_ray: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("RAY_ADDRESS", own_ray)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = Cluster("kept", tmp_path)
    yield made
    made.stop()


def test_a_backup_becomes_the_record_of_all_brokers_again(kept: Cluster, tmp_path: Path) -> None:  # K-14
    saved = tmp_path / "record.backup"
    kept.start()
    kept.does("mq imqcmd create dst -t q -n JMSQueue -o maxNumMsgs=7 --cluster kept")
    kept.does("mq imqcmd create dst -t t -n prices --cluster kept")
    kept.does("create dur -n audit -d prices -c billing --cluster kept")
    with kept.connect("b2") as connection:
        connection.session().producer("JMSQueue").send("stored by b2")
    assert f"to {saved}" in kept.does(f"mq imqbrokerd -name kept -backup {saved}")
    assert "is not overwritten" in kept.does(f"mq imqbrokerd -name kept -backup {saved}", 2)
    kept.does("mq imqcmd update dst -t q -n JMSQueue -o maxNumMsgs=8 --cluster kept")
    kept.does("mq imqcmd destroy dst -t t -n prices -f --cluster kept")
    kept.does("mq imqcmd create dst -t q -n later --cluster kept")
    with kept.connect("b1") as connection:
        connection.session().producer("later").send("of a queue that the backup does not know")
    before = kept.record("b2")
    assert "broker b1 runs: stop all brokers first" in kept.restore(saved, 1)
    kept.stop()
    damaged = tmp_path / "damaged.backup"
    damaged.write_bytes(saved.read_bytes()[:-9])
    kept.restore(damaged, 1)
    assert "restored 3 destinations and subscriptions" in kept.restore(saved)
    kept.start()
    assert until(lambda: found if (found := kept.record("b1")) == kept.record("b2") else None)["id"] != before["id"]
    for broker in ("b1", "b2"):
        with kept.connect(broker) as connection:
            admin = connection.admin()
            assert admin.query_destination("queue", "JMSQueue")["attributes"]["maxNumMsgs"] == 7
            assert [row["name"] for row in admin.list_subscriptions("prices")] == ["audit"]
            assert admin.query_destination("queue", "JMSQueue")["messages"] == 1
    assert set(kept.states("later").values()) == {"ORPHANED"}
    kept.does("adopt dst -t q -n later --cluster kept")
    with kept.connect("b2") as connection:
        connection.start()
        session = connection.session()
        assert session.receive("later", timeout=20).body.startswith("of a queue")
        assert session.receive("JMSQueue", timeout=20).body == "stored by b2"


def test_pauses_of_whole_brokers_over_a_restart_and_for_one_that_joins(kept: Cluster) -> None:  # W-126
    kept.start(PAUSED_FROM_THE_START)
    for name in ("orders", "bills"):
        kept.does(f"mq imqcmd create dst -t q -n {name} --cluster kept")
    kept.does("mq imqcmd pause dst -pst PRODUCERS --cluster kept")
    kept.does("mq imqcmd resume dst -t q -n bills --cluster kept")
    kept.does(f"up --name kept {kept.way} --broker b3 -D imq.cluster.brokerlist=b1,b2,b3 {PAUSED_FROM_THE_START}")
    there = ("b1", "b2")
    assert until(lambda: kept.states("orders") == {**dict.fromkeys(there, "PRODUCERS_PAUSED"), "b3": "PAUSED"})
    assert until(lambda: kept.states("bills") == {**dict.fromkeys(there, "RUNNING"), "b3": "CONSUMERS_PAUSED"})
    kept.stop()
    kept.start(PAUSED_FROM_THE_START)
    assert until(lambda: kept.states("orders") == dict.fromkeys(there, "PAUSED"))
    assert until(lambda: kept.states("bills") == dict.fromkeys(there, "CONSUMERS_PAUSED"))
    kept.does("mq imqcmd resume dst --cluster kept")
    assert kept.states("orders") == kept.states("bills") == dict.fromkeys(there, "RUNNING")
