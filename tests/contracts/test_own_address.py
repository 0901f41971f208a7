"""A program of this machine that comes by another address of it than loopback sends its password, as by loopback."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest

import raybroker as rb
from raybroker.config import Config
from raybroker.model.settings.setting import PortRange
from raybroker.services.metrics.metrics_access import metrics_access
from raybroker.services.metrics.metrics_http import MetricsEndpoint
from tests.contracts.stomp_socket import StompSocket
from tests.contracts.test_services import Outside
from tests.unit.services.test_metrics_http import Broker


def own_address() -> str:
    """An address of this machine that is not its loopback; "" where there is none."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asked:
        try:
            asked.connect(("203.0.113.1", 9))
        except OSError:
            return ""
        return str(asked.getsockname()[0])


ADDRESS = own_address()
pytestmark = pytest.mark.skipif(
    not ADDRESS or ADDRESS.startswith("127."), reason="the machine has no address but its loopback"
)


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    with ExitStack() as opened:
        yield Outside(
            tmp_path,
            opened,
            **{
                "imq.service.activelist": "jms,admin,stomp,httpjms,httpadmin",
                "imq.hostname": "0.0.0.0",
                "imq.jms.authentication.type": "basic",
                "imq.admin.authentication.type": "basic",
            },
        )


def test_passwords_are_taken_by_every_service(outside: Outside) -> None:
    for service in ("jms", "admin"):
        url = f"mq://{ADDRESS}:{outside.ports['portmapper']}/{service}"
        with rb.connect(url, username="root", password="secret") as connection:
            assert connection.admin().list_services() if service == "admin" else connection.session()
    with closing(StompSocket(socket.create_connection((ADDRESS, outside.ports["stomp"]), timeout=20))) as client:
        client.login("ann", "secret")
    for user, service, path in (("ann", "httpjms", "/queues/q/messages"), ("root", "httpadmin", "/destinations")):
        url = f"http://{ADDRESS}:{outside.ports[service]}{path}"
        answer = httpx.get(url, auth=(user, "secret"), timeout=30)
        assert answer.status_code == 200, answer.text
    hosts = {row["host"].rpartition(":")[0] for row in outside.admin.list_connections()}
    assert hosts <= {ADDRESS}, "they are listed by the address that they came from"


def test_an_administrator_sees_metrics_with_his_password_and_others_are_told_that_they_may_not(
    outside: Outside, tmp_path: Path
) -> None:
    endpoint = MetricsEndpoint(Broker(), list)
    config = Config.from_values({"imq.service.activelist": "jms"})
    endpoint.admit(metrics_access(config, tmp_path, lambda: 0.0))
    url = endpoint.start("0.0.0.0", PortRange(0, 0)).replace("0.0.0.0", ADDRESS)
    try:
        for user, password, status in (("root", "secret", 200), ("ann", "secret", 403), ("root", "wrong", 401)):
            answer = httpx.get(url, auth=(user, password), timeout=30)
            assert (answer.status_code, "www-authenticate" in answer.headers) == (status, status == 401), answer.text
    finally:
        endpoint.stop()
