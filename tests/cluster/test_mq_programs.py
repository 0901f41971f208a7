"""The programs of Message Queue in a Ray of their own: a life of an instance, by the command lines of the manuals."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from tests.cluster.test_cli import Shell, shell
from tests.contracts.test_services import free_port

__all__ = ["shell"]
pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture
def mq(shell: Shell) -> Iterator[Shell]:
    yield shell
    shell.run("down", "--name", "prod")


def test_an_instance_from_its_start_to_its_removal(mq: Shell) -> None:
    port = free_port()
    (mq.folder / "pw").touch(0o600)
    (mq.folder / "pw").write_text("imq.imqcmd.password=secret\n")
    way = f"-b 127.0.0.1:{port} -u admin -passfile pw"
    start = f"imqbrokerd -name prod -port {port} -loglevel WARNING -Dimq.hostname=127.0.0.1"

    def does(line: str) -> str:
        return mq.output("mq", *shlex.split(line))

    def refused(line: str, status: int = 1) -> str:
        done = mq.run("mq", *shlex.split(line))
        assert done.returncode == status, done.stdout + done.stderr
        return done.stderr

    def held(name: str) -> list[int]:
        return [row["messages"] for row in mq.json("list", "dst", "--cluster", "prod") if row["name"] == name]

    does("imqusermgr add -u admin -p secret -g admin -i prod")
    assert "cluster prod runs: brokers b1" in does(start)
    does(f"imqcmd create dst -t q -n JMSQueue -o consumerFlowLimit=20 {way}")
    does("imqcmd create dst -t t -n prices --cluster prod")
    mq.output("send", "JMSQueue", "kept", "--cluster", "prod")
    mq.output("create", "dur", "-n", "audit", "-d", "prices", "-c", "billing", "--cluster", "prod")
    assert "imq.log.level=ERROR" in does(f"imqcmd update bkr -o imq.log.level=ERROR {way}")
    assert "MSGS_IN" in does(f"imqcmd metrics bkr -m ttl -int 1 -msp 1 {way}")
    assert "stop them first" in refused("imqbrokerd -name prod -reset messages", 2)
    assert "is down" in mq.output("down", "--name", "prod")

    told = does(f"{start} -reset messages -reset durables -reset props")
    assert "reset messages of broker b1: 1 messages" in told
    assert "imq.log.level as the configuration says" in told
    assert "1 durable subscription ended" in told
    assert held("JMSQueue") == [0]
    assert mq.json("list", "dur", "--cluster", "prod") == []
    mq.output("down", "--name", "prod")

    does(f"{start} -reset store")
    assert held("JMSQueue") == []
    assert "is down" in mq.output("down", "--name", "prod")
    does("imqbrokerd -name prod -remove instance -force")
    assert not (mq.folder / "state" / "raybroker" / "prod").exists()
