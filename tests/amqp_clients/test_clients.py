"""Clients that nobody here wrote, against a real broker: Qpid JMS, Qpid Proton, rhea and go-amqp."""

from __future__ import annotations

import random
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from raybroker.objects.operations import add
from raybroker.objects.stores import open_store
from tests import program
from tests.amqp_clients import building, programs
from tests.amqp_clients.kills import killed, wrong
from tests.amqp_clients.server import Server
from tests.contracts.test_gateway_cluster import PASSWORD, Gateways

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

JORAM_S = 90
CASES_LEAST = 60
KILLS = 4


def test_joram_passes_in_time(server: Server) -> None:
    found = programs.run("joram", server)
    assert not found.failed, found.text
    assert len(found.passed) == programs.JORAM_TESTS
    assert found.seconds <= JORAM_S


@pytest.mark.parametrize("profile", ["javax", "jakarta"])
def test_each_case_of_our_list_passes(server: Server, profile: str) -> None:
    found = programs.run(f"cases-{profile}", server)
    assert not found.failed, found.text
    assert sorted(found.passed) == sorted(programs.cases_of_source())
    assert len(found.passed) >= CASES_LEAST


@pytest.mark.parametrize("client", ["proton", "rhea", "go"])
def test_a_client_of_another_language_does_what_it_can(server: Server, client: str) -> None:
    found = programs.run(client, server)
    assert not found.failed, found.text
    assert len(found.passed) >= programs.LEAST[client]


def test_nothing_confirmed_is_lost_when_the_broker_is_killed(folder: Path) -> None:
    with Server("raybroker", folder) as server:
        history = killed(server, KILLS, random.Random(5))
    assert not wrong(history, KILLS), wrong(history, KILLS)


class Elsewhere:
    """A program of Qpid JMS that knows one broker alone: where it is, and where it can send to after ``go_on``."""

    def __init__(self, profile: str, port: int, queue: str, opened: ExitStack) -> None:
        url = f"failover:(amqp://127.0.0.1:{port})?failover.initialReconnectDelay=0&failover.reconnectDelay=50"
        command = building.java(profile, "elsewhere.Elsewhere", url, "ann", PASSWORD, queue)
        self._client = opened.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        opened.callback(self._client.kill)

    def read(self) -> str:
        assert self._client.stdout is not None
        return self._client.stdout.readline().strip()

    def go_on(self) -> None:
        assert self._client.stdin is not None
        self._client.stdin.write("\n")
        self._client.stdin.flush()


def test_a_client_goes_on_at_another_broker_that_it_was_told_of(tmp_path: Path) -> None:
    """Its URL names one broker alone, which ends; or whose service takes no new clients."""
    with ExitStack() as opened:
        gateways = Gateways(tmp_path, opened)
        ports = {name: gateways.port(name, "amqp") for name in gateways.rig.brokers}
        first = Elsewhere("javax", ports["b1"], "first", opened)
        assert int(first.read()) == ports["b1"]
        gateways.rig.kill("b1")
        first.go_on()
        port, text = first.read().split()
        assert int(port) in {ports["b2"], ports["b3"]}
        assert text == "after"
        services = gateways.rig.brokers["b2"].local.services.services
        assert services is not None
        services.quiesce("amqp")
        sent_on = [Elsewhere(profile, ports["b2"], profile, opened) for profile in ("javax", "jakarta")]
        assert [int(client.read()) for client in sent_on] == [ports["b3"]] * 2


def test_a_java_program_looks_up_what_an_administrator_has_written(server: Server, tmp_path: Path) -> None:
    store = str(tmp_path / "objects")
    with open_store(store) as opened:
        add(opened, "cf/orders", "cf", {"imqAddressList": "mq://127.0.0.1", "imqConfiguredClientID": "shop & co"})
        add(opened, "queues/orders", "q", {"imqDestinationName": "orders"})
        add(opened, "topic of news", "t", {"imqDestinationName": "news"})
    path = building.classes("javax")
    done = program.invoke("objmgr", "jndi", tmp_path / "jndi.properties", "-j", store, "--port", server.port)
    assert done.exit_code == 0, done.output
    names = ("cf/orders", "queues/orders", "topic of news")
    looked = subprocess.run(
        [str(shutil.which("java")), "-cp", f"{tmp_path}:{path}", "lookup.Lookup", "ann", "secret", *names],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert looked.returncode == 0, looked.stdout + looked.stderr
    assert looked.stdout.count('"passed"') == len(names)
