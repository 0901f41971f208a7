"""General options of commands: -D and --secure for the way in, -rtm and -rtr for the wait."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from raybroker.cli.patience import Patience
from raybroker.errors import ConfigError, RequestTimeoutError
from tests.contracts.proxies import Proxy
from tests.contracts.test_cli_outside import Shell
from tests.contracts.test_services import Outside
from tests.unit.security.certificates import Authority


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_a_command_comes_in_over_tls_with_attributes_of_its_connection(tmp_path: Path, opened: ExitStack) -> None:
    authority = Authority(tmp_path, "authority")
    authority.issue("keystore")
    outside = Outside(tmp_path, opened, **{"imq.service.activelist": "ssljms,ssladmin"})
    shell, proxy = Shell(outside, tmp_path), Proxy()
    opened.callback(proxy.close)
    trust = ["-D", f"raybroker.client.tls.trust={authority.file}"]
    assert "not trusted" in shell.run("root", "list", "svc", "--secure").stderr
    assert json.loads(shell.output("root", "list", "svc", "--json", "--secure", *trust))
    assert shell.output("ann", "send", "q", "hello", "--secure", *trust) == "sent 1 message to q\n"
    through = ["-D", f"raybroker.client.proxy.address={proxy.url}"]
    assert "hello" in shell.output("ann", "receive", "q", "--secure", *trust, *through)
    assert proxy.targets
    assert "there is no service 'admin'" in shell.run("root", "list", "svc").stderr
    for words, told in (
        (["-D", "raybroker.client.tls.trsut=x"], "raybroker.client.tls.trust"),
        (["-D", "x"], "write -Dname=value"),
        (["-D", "imq.log.level=INFO"], "it is a broker property"),
    ):
        done = shell.run("root", "list", "svc", *words)
        assert (done.exit_code, told in done.stderr) == (2, True), done.stderr


def test_a_broker_that_does_not_answer_is_waited_for_as_long_as_is_said(tmp_path: Path, opened: ExitStack) -> None:
    shell = Shell(Outside(tmp_path, opened), tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        shell.address = f"127.0.0.1:{silent.getsockname()[1]}"
        done = shell.run("root", "list", "dst", "-rtm", "0.2", "-rtr", "2")
    assert done.exit_code == 3
    assert done.stderr.splitlines() == [
        "raybroker: no answer in 0.2 s; waiting 0.4 s more (1 of 2)",
        "raybroker: no answer in 0.6 s; waiting 0.6 s more (2 of 2)",
        "raybroker: no answer in 1.2 s; whether it has happened is not known",
    ]
    assert shell.run("root", "list", "dst", "-rtr", "-1").exit_code == 2


def test_an_answer_that_comes_later_is_one_answer() -> None:
    asked: list[int] = []

    def slow() -> Any:
        asked.append(1)
        time.sleep(0.3)
        return "done"

    assert Patience(0.1, 50).wait(slow) == "done"
    assert asked == [1]
    with pytest.raises(RequestTimeoutError, match=r"no answer in 0\.001 s"):
        Patience(0.001, 0).wait(lambda: time.sleep(0.5))

    def fails() -> Any:
        raise ConfigError("wrong")

    with pytest.raises(ConfigError, match="wrong"):
        Patience(30).wait(fails)
