"""The address of a proxy, and its answer to CONNECT: nothing behind the answer is read."""

from __future__ import annotations

import asyncio
import base64
import socket
import threading

import pytest

from raybroker.client.ways.proxy import ADDRESS, Proxy, connecting, proxy_at
from raybroker.client.ways.sockets import direct
from raybroker.config import Config
from raybroker.model.errors import ConfigError, SecurityError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("http://p:1", Proxy("p", 1)),
        ("p:3128", Proxy("p", 3128)),
        ("HTTP://p/", Proxy("p", 80)),
        ("http://[::1]:9", Proxy("::1", 9)),
        ("http://u%3A:a%40b@p:1", None),
        ("socks5://p:1", None),
        ("http://p:x", None),
        ("", None),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, found: Proxy | None) -> None:
    if found is None:
        with pytest.raises(ConfigError, match=r"raybroker\.client\.proxy") as caught:
            proxy_at(text, ADDRESS)
        assert "b@p" not in str(caught.value)
        return
    assert proxy_at(text, ADDRESS) == found


def test_user_and_password_are_sent_and_not_shown() -> None:
    proxy = proxy_at("http://p:1", ADDRESS, "ann", "ge:heim ü")
    assert base64.b64decode(proxy.credentials).decode() == "ann:ge:heim ü"
    assert repr(proxy) == "Proxy(http://p:1)"


def test_without_an_address_there_is_none() -> None:
    assert connecting(Config.from_values({})) is direct


def answered(said: bytes) -> tuple[bytes, bytes]:
    """(what is behind the answer, the request) of a proxy that says this at once."""
    requests = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            taken, _ = listening.accept()
            with taken:
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    head += taken.recv(1)
                requests.append(head)
                taken.sendall(said)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            proxy = Proxy("127.0.0.1", listening.getsockname()[1], "dTpw")
            sock = asyncio.run(proxy.connect("::1", 7))
            sock.setblocking(True)
            with sock:
                rest = b"".join(iter(lambda: sock.recv(100), b""))
        finally:
            thread.join()
    return rest, requests[0]


def test_what_follows_the_answer_is_the_services() -> None:
    rest, request = answered(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n101 first\r\n\r\n")
    assert rest == b"101 first\r\n\r\n"
    assert request.startswith(b"CONNECT [::1]:7 HTTP/1.1\r\nHost: [::1]:7\r\nProxy-Authorization: Basic dTpw\r\n")


@pytest.mark.parametrize(
    ("said", "error", "told"),
    [
        (b"HTTP/1.1 407 No\r\n\r\n", SecurityError, "does not accept"),
        (b"", OSError, "ended the connection"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", OSError, "status 404 Not Found"),
        (b"\0\r\n\r\n", OSError, "no HTTP proxy"),
        (b"HTTP/1.1 \xb2\xb0\xb0 OK\r\n\r\n", OSError, "no HTTP proxy|status"),
    ],
)
def test_another_answer_is_an_error(said: bytes, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        answered(said)
