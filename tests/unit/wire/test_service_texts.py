"""What is said before the protocol: the preamble of a connection, and the port mapper's map."""

from __future__ import annotations

import pytest

from raybroker.client.ways.service_address import ServiceAddress, service_address, service_addresses
from raybroker.errors import ConfigError, ProtocolError
from raybroker.wire.native.preamble import HEAD_BYTES, key_length, key_of, preamble
from raybroker.wire.port_map import ServicePort, port_map, read_map


def test_a_preamble_says_which_host() -> None:
    for key in ("", "b1/h3", "ü"):
        said = preamble(key)
        assert key_length(said[:HEAD_BYTES]) == len(said) - HEAD_BYTES
        assert key_of(said[HEAD_BYTES:]) == key
    with pytest.raises(ProtocolError, match="at most 255"):
        preamble("x" * 256)


@pytest.mark.parametrize("head", [b"", b"GET /", b"RBK\x01\x00", b"RBS\x02\x00", b"RBS\x01"])
def test_another_protocol_is_refused(head: bytes) -> None:
    with pytest.raises(ProtocolError, match="does not speak"):
        key_length(head)


@pytest.mark.parametrize("encoded", [b"\xff", b"a\nb", b"\x00"])
def test_a_key_is_printable_text(encoded: bytes) -> None:
    with pytest.raises(ProtocolError):
        key_of(encoded)


def test_the_map_names_services_and_ports() -> None:
    doors = [ServicePort("portmapper", "tcp", "PORTMAPPER", 7676), ServicePort("jms", "tcp", "NORMAL", 40000)]
    text = port_map("b1", "0.1.0", doors)
    assert text == b"101 b1 0.1.0\nportmapper tcp PORTMAPPER 7676\njms tcp NORMAL 40000\n.\n"
    assert read_map(text) == {door.name: door for door in doors}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"HTTP/1.1 400\r\n",
        b"\xff\xfe",
        b"101 b1 1\njms tcp NORMAL 1\n",
        b"101 b1 1\njms tcp\n.\n",
        b"101 b1 1\njms tcp NORMAL 0\n.\n",
        b"101 b1 1\njms tcp NORMAL 99999\n.\n",
    ],
)
def test_what_is_no_map_is_refused(text: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_map(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("mq://", ("localhost", 7676, "jms", True)),
        ("mq://h", ("h", 7676, "jms", True)),
        ("mq://h:1/admin", ("h", 1, "admin", True)),
        ("mqtcp://10.0.0.1:99/jms", ("10.0.0.1", 99, "jms", False)),
        ("mq://[::1]:7/jms", ("::1", 7, "jms", True)),
        ("mq:///admin", ("localhost", 7676, "admin", True)),
        ("mqs://h", ("h", 7676, "ssljms", True)),
        ("mqssl://h:9/ssladmin", ("h", 9, "ssladmin", False)),
        ("mqssl://h", ("h", 7676, "ssljms", False)),
        ("mq://h/ssljms", ("h", 7676, "ssljms", True)),
        ("http://h:8080/", ("h", 8080, "httpjms", False)),
        ("http://[::1]", ("::1", 80, "httpjms", False)),
        ("https://h", ("h", 443, "httpsjms", False)),
        ("https://h:8443/", ("h", 8443, "httpsjms", False)),
        ("mqs://h/httpsjms", ("h", 7676, "httpsjms", True)),
    ],
)
def test_parts_of_an_address_that_are_missing_are_the_usual_ones(text: str, found: tuple[object, ...]) -> None:
    address = service_address(text)
    assert tuple(address) == found
    assert service_address(str(address)) == address


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("h:1", ConfigError),
        ("ftp://h", ConfigError),
        ("mq://h:x", ConfigError),
        ("mq://h:0", ConfigError),
        ("mq://h:65536", ConfigError),
        ("mq://h/a/b", ConfigError),
        ("mq://u@h", ConfigError),
        ("mq://[::1", ConfigError),
        ("mqssl://h/jms", ConfigError),
        ("mqs://h/admin", ConfigError),
        ("mqtcp://h/ssljms", ConfigError),
        ("http://h/jms", ConfigError),
        ("https://h/jms", ConfigError),
        ("mqtcp://h/httpsjms", ConfigError),
        ("mqs://h/httpjms", ConfigError),
    ],
)
def test_what_is_no_address_is_refused(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        service_address(text)


def test_a_list_has_each_address_once() -> None:
    assert service_addresses("mq://a, mq://b,mq://a:7676") == (
        ServiceAddress("a", 7676, "jms", True),
        ServiceAddress("b", 7676, "jms", True),
    )
