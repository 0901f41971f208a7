"""Connections from outside through an HTTP proxy that has to be named: by each scheme, with TLS through it, and what
is said when it does not let them pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import ConfigError, NoClusterError, SecurityError
from tests.contracts.proxies import Proxy, tinyproxy
from tests.contracts.test_services import Outside, until
from tests.unit.security.certificates import Authority

LOGIN = "pro xy:ge:heim"
PROXY = "raybroker.client.proxy"
SCHEMES = ("mq", "mqs", "mqssl", "http", "https")
VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY")


class World(Outside):
    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self.authority = Authority(folder, "authority")
        self.authority.issue("keystore")
        super().__init__(folder, opened, **{"imq.service.activelist": "jms,ssljms,admin,httpjms,httpsjms"})
        self.folder = folder

    def address(self, scheme: str) -> str:
        where = {
            "mq": ("portmapper", "jms"),
            "mqs": ("portmapper", "ssljms"),
            "mqssl": ("ssljms", "ssljms"),
            "http": ("httpjms", ""),
            "https": ("httpsjms", ""),
        }[scheme]
        return f"{scheme}://127.0.0.1:{self.ports[where[0]]}/{where[1]}"

    def through(self, scheme: str, **more: Any) -> Any:
        trust = {} if scheme in ("mq", "http") else {"trust": str(self.authority.file)}
        made = rb.connect(self.address(scheme), username="ann", password="secret", **trust, **more)
        self._opened.callback(made.close)
        made.start()
        return made

    def passfile(self, text: str = f"raybroker.client.proxy.password={LOGIN.partition(':')[2]}\n") -> str:
        path = self.folder / "client passfile"
        path.write_text(text)
        path.chmod(0o600)
        return str(path)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as opened:
        yield World(Path(tmp_path_factory.mktemp("proxies")), opened)


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def made(opened: ExitStack, login: str = "", verdict: bytes = b"") -> Proxy:
    proxy = Proxy(login, verdict)
    opened.callback(proxy.close)
    return proxy


def works(connection: Any, name: str) -> None:
    session = connection.session()
    session.producer(name).send_many([b"x" * 9_000] * 200)
    assert sum(len(m.body) for m in session.consumer(name).receive_many(200, timeout=60)) > 0
    connection.close()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_each_scheme_passes_a_proxy_that_asks_for_a_password(world: World, opened: ExitStack, scheme: str) -> None:
    proxy = made(opened, LOGIN)
    how = {f"{PROXY}.user": "pro xy", f"{PROXY}.passfile": world.passfile()}
    works(world.through(scheme, proxy=proxy.url, **how), f"by.{scheme}")
    ports = {int(target.rpartition(":")[2]) for target in proxy.targets}
    named = {
        "mq": {"portmapper", "jms"},
        "mqs": {"portmapper", "ssljms"},
        "mqssl": {"ssljms"},
        "http": {"httpjms"},
        "https": {"httpsjms"},
    }[scheme]
    assert ports == {world.ports[name] for name in named}, "nothing went past the proxy"
    assert len(proxy.targets) > 1, "also the sockets to hosts"


@pytest.mark.parametrize("scheme", ["mqs", "https", "http"])
def test_by_a_proxy_of_somebody_else(world: World, tmp_path: Path, scheme: str) -> None:
    with tinyproxy(tmp_path, "ann:geheim") as url:
        how = {f"{PROXY}.user": "ann", f"{PROXY}.passfile": world.passfile(f"{PROXY}.password=geheim\n")}
        works(world.through(scheme, proxy=url, **how), f"tiny.{scheme}")
        with pytest.raises(SecurityError, match="asks for a user and a password"):
            world.through(scheme, proxy=url)


def test_polls_pass_as_well(world: World, opened: ExitStack) -> None:
    proxy = made(opened)
    works(world.through("https", proxy=proxy.url, **{"raybroker.client.http.carrier": "poll"}), "polled")
    assert len(proxy.targets) > 1


def test_a_connection_that_the_proxy_ends_is_made_again_through_it(world: World, opened: ExitStack) -> None:
    proxy = made(opened)
    connection = world.through("mqs", proxy=proxy.url)
    session = connection.session()
    producer = session.producer("again")
    producer.send("one")
    before = len(proxy.targets)
    proxy.cut()
    producer.send("two")
    assert session.receive("again", timeout=60).body == "one"
    until(lambda: len(proxy.targets) > before)


def test_what_a_proxy_answers_is_told(world: World, opened: ExitStack) -> None:
    refusals = {
        b"HTTP/1.1 403 Forbidden\r\n\r\n": "does not connect to 127.0.0.1:.*status 403 Forbidden",
        b"HTTP/1.0 502 Bad Gateway\r\n\r\n": "status 502 Bad Gateway",
        b"SSH-2.0-OpenSSH\r\n\r\n": "is no HTTP proxy: it answers 'SSH-2.0-OpenSSH'",
        b"HTTP/1.1 200 \r\nX: " + b"y" * 20_000: "more than 16384 bytes",
        b"HTTP/1.1 200 ": "ended the connection",
    }
    for verdict, told in refusals.items():
        for scheme in ("mqs", "https", "mq"):
            with pytest.raises(NoClusterError, match=told):
                world.through(scheme, proxy=made(opened, verdict=verdict).url)
    closed = made(opened)
    closed.close()
    with pytest.raises(NoClusterError, match=r"the proxy http://127\.0\.0\.1:.* does not answer"):
        world.through("mqs", proxy=closed.url)


def test_a_wrong_password_of_the_proxy_is_refused_and_not_told(world: World, opened: ExitStack) -> None:
    proxy = made(opened, LOGIN)
    how = {f"{PROXY}.user": "pro xy", f"{PROXY}.passfile": world.passfile(f"{PROXY}.password=falsch\n")}
    with pytest.raises(SecurityError, match="does not accept the user and password") as caught:
        world.through("https", proxy=proxy.url, **how)
    assert "falsch" not in str(caught.value)
    with pytest.raises(SecurityError, match=r"asks for a user and a password: raybroker\.client\.proxy\.user, and"):
        world.through("mqs", proxy=proxy.url)
    assert proxy.targets == []


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        ({"proxy": "https://p:1"}, "asked in clear"),
        ({"proxy": "http://"}, "http://host:port"),
        ({"proxy": "http://p:99999"}, "http://host:port"),
        ({"proxy": "http://u:geheim@p:1"}, "are given by"),
        ({"proxy": "http://p:1/path"}, "http://host:port"),
        ({f"{PROXY}.user": "u"}, "names none"),
        ({"proxy": "p:1", f"{PROXY}.user": "u:v"}, "no colon"),
        ({"proxy": "p:1", f"{PROXY}.passfile": "x"}, "name raybroker"),
        ({"proxy": "p:1", f"{PROXY}.user": "u", f"{PROXY}.passfile": "/none"}, "is not there"),
    ],
)
def test_what_names_no_proxy_is_refused_before_anything_is_tried(
    world: World, attributes: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        world.through("mqs", **attributes)
    assert "geheim" not in str(caught.value)


def test_the_environment_names_a_proxy_where_it_is_asked(
    world: World, opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*VARIABLES, *map(str.lower, VARIABLES)):
        monkeypatch.delenv(name, raising=False)
    secure, clear = made(opened, LOGIN), made(opened)
    monkeypatch.setenv("HTTPS_PROXY", secure.url.replace("://", "://pro%20xy:ge:heim@"))
    monkeypatch.setenv("HTTP_PROXY", clear.url)
    works(world.through("https", proxy="environment"), "env.secure")
    assert (len(secure.targets) > 1, clear.targets) == (True, [])
    works(world.through("http", proxy="environment"), "env.clear")
    seen = len(secure.targets), len(clear.targets)
    assert seen[1] > 1
    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")
    works(world.through("https", proxy="environment"), "env.none")
    monkeypatch.delenv("NO_PROXY")
    works(world.through("https"), "not.asked")
    assert (len(secure.targets), len(clear.targets)) == seen
    monkeypatch.setenv("HTTPS_PROXY", "https://u:geheim@p:1")
    with pytest.raises(ConfigError, match="environment variable HTTPS_PROXY") as caught:
        world.through("mqs", proxy="environment")
    assert "geheim" not in str(caught.value)
