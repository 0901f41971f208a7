"""Clients that nobody here wrote, against a real broker: Qpid JMS, Qpid Proton, rhea and go-amqp."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from raybroker.objects.operations import add
from raybroker.objects.stores import open_store
from tests import program
from tests.amqp_clients import building, programs
from tests.amqp_clients.kills import killed, wrong
from tests.amqp_clients.server import Server

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
