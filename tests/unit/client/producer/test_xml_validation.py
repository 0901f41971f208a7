"""Texts that are, or are not, the XML that a destination wants (R-17)."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from html import escape
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from raybroker.client.producer.bodies import xml_validation
from raybroker.client.producer.bodies.xml_validation import Validator, validating
from raybroker.content.bodies import encode_body
from raybroker.errors import ConfigError, MessageFormatError

XSD = '<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"{}>{}</xs:schema>'
ORDER = '<xs:element name="order" type="xs:int"/>'
Write = Callable[..., str]


def schema(body: str = ORDER, namespace: str = "") -> str:
    named = f' targetNamespace="{escape(namespace)}" xmlns="{escape(namespace)}"' if namespace else ""
    return XSD.format(named, body)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a schema and returns the name of its file."""

    def write(name: str, body: str = ORDER, namespace: str = "") -> str:
        (tmp_path / name).write_text(schema(body, namespace))
        return str(tmp_path / name)

    return write


def refused(validator: Validator, text: str) -> str:
    with pytest.raises(MessageFormatError, match="validateXMLSchemaEnabled of q") as caught:
        validator.check(text)
    return str(caught.value)


def test_a_text_is_checked_by_the_schema_and_what_is_no_text_is_not_looked_at(write: Write) -> None:
    validator = Validator("q", [write("a.xsd")], reload=False)
    assert validator("<order>1</order>") == encode_body("<order>1</order>")
    for body in (b"<no", {"order": "x"}, 1, None):
        validator.check(body)
    assert "line 2" in refused(validator, "\n<order>x</order>")
    assert "invoice" in refused(validator, "<invoice/>")
    for text in ("", "no xml", "<order>", "<order>1</order><order>1</order>", "\ud800"):
        assert "well formed" in refused(validator, text)


def test_a_text_is_characters_so_the_encoding_that_it_names_means_nothing(write: Write) -> None:
    validator = Validator("q", [write("a.xsd", '<xs:element name="name" type="xs:string"/>')], reload=False)
    for encoding in ("utf-8", "iso-8859-1", "utf-16"):
        validator.check(f'<?xml version="1.0" encoding="{encoding}"?><name>Łódź</name>')


def test_several_schemas_are_one_set_whatever_their_namespaces(write: Write) -> None:
    schemas = [
        write("a.xsd"),
        write("b.xsd", '<xs:element name="b" type="xs:date"/>'),
        write("c.xsd", '<xs:element name="c" type="xs:int"/>', "urn:x"),
        write("d.xsd", '<xs:element name="d" type="xs:date"/>', "urn:x"),
        Path(write("e.xsd", '<xs:element name="e" type="xs:int"/>', "urn:y?a=1&b=2")).as_uri(),
    ]
    validator = Validator("q", schemas, reload=False)
    day = "2024-02-29"
    good = (
        "<order>1</order>",
        f"<b>{day}</b>",
        '<c xmlns="urn:x">1</c>',
        f'<d xmlns="urn:x">{day}</d>',
        '<e xmlns="urn:y?a=1&amp;b=2">1</e>',
    )
    for text in good:
        validator.check(text)
        refused(validator, text.replace(day, "x").replace(">1<", ">x<"))
    refused(validator, "<c>1</c>")


def test_schemas_are_read_with_what_they_include(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        "types.xsd",
        '<xs:simpleType name="few"><xs:restriction base="xs:int"><xs:maxInclusive value="9"/>'
        "</xs:restriction></xs:simpleType>",
    )
    write("a.xsd", '<xs:include schemaLocation="types.xsd"/><xs:element name="order" type="few"/>')
    monkeypatch.chdir(tmp_path)
    for name in ("a.xsd", "./a.xsd", str(tmp_path / "a.xsd")):
        validator = Validator("q", [name], reload=False)
        validator.check("<order>9</order>")
        refused(validator, "<order>10</order>")


class Served(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/a.xsd" else 404)
        self.end_headers()
        self.wfile.write(schema().encode())

    def log_message(self, *_: object) -> None:
        """Not to the terminal."""


def test_schemas_come_from_a_web_server_and_one_that_it_does_not_have_is_refused() -> None:
    server = HTTPServer(("127.0.0.1", 0), Served)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        there = f"http://127.0.0.1:{server.server_port}"
        refused(Validator("q", [f"{there}/a.xsd"], reload=False), "<order>x</order>")
        with pytest.raises(ConfigError, match="404"):
            Validator("q", [f"{there}/b.xsd"], reload=False)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_schema_that_cannot_be_read_or_is_none_is_refused(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text").write_text("no xml")
    inner = write("inner.xsd", '<xs:include schemaLocation="gone.xsd"/><xs:element name="x" type="few"/>')
    wrong = write("wrong.xsd", '<xs:element name="x" type="nowhere"/>')
    for name, word in (
        (str(tmp_path / "gone"), "gone"),
        (str(tmp_path / "text"), "'<' not found"),
        (inner, "gone.xsd"),
        (wrong, "nowhere"),
        ("ftp://host/a.xsd", "ftp"),
        (str(tmp_path), "directory"),
    ):
        with pytest.raises(ConfigError, match=r"XMLSchemaURIList.* of q") as caught:
            Validator("q", [name], reload=False)
        assert word in str(caught.value)
    monkeypatch.setattr(xml_validation, "SCHEMA_BYTES_MAX", 10)
    with pytest.raises(ConfigError, match="more than 10 bytes"):
        Validator("q", [write("a.xsd")], reload=False)


def test_schemas_are_read_again_after_a_failure_when_that_is_wanted(write: Write) -> None:
    name = write("a.xsd")
    once, again = (Validator("q", [name], reload=reload) for reload in (False, True))
    write("a.xsd", '<xs:element name="order" type="xs:string"/>')
    refused(once, "<order>x</order>")
    again.check("<order>x</order>")
    refused(again, "<invoice/>")
    Path(name).unlink()
    again.check("<order>y</order>")
    with pytest.raises(ConfigError, match="XMLSchemaURIList"):
        again.check("<invoice/>")


def test_without_schemas_a_text_is_well_formed_and_valid_by_its_own_dtd() -> None:
    validator = Validator("q", [], reload=True)
    dtd = "<!DOCTYPE a [<!ELEMENT a (b)><!ELEMENT b EMPTY>]>"
    for text in ("<a/>", f"{dtd}<a><b/></a>", "<!DOCTYPE a><a/>"):
        validator.check(text)
    assert "line" in refused(validator, f"{dtd}<a/>")
    assert "well formed" in refused(validator, "<a")


def test_nothing_outside_of_a_text_is_read_and_nothing_in_it_grows(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("<!ELEMENT a (b)>")
    validator = Validator("q", [], reload=False)
    validator.check(f'<!DOCTYPE a SYSTEM "{secret.as_uri()}"><a/>')
    validator.check(f'<!DOCTYPE a [<!ENTITY x SYSTEM "{secret.as_uri()}">]><a>&x;</a>')
    laughs = "".join(f'<!ENTITY x{i} "{f"&x{i - 1};" * 20 if i else "ha" * 20}">' for i in range(12))
    assert "amplification" in refused(validator, f"<!DOCTYPE a [{laughs}]><a>&x11;</a>")


def test_a_producer_keeps_its_check_while_the_rule_is_the_same(write: Write) -> None:
    async def work() -> None:
        assert await validating(encode_body, "q", None) is encode_body
        rule = {"schemas": [write("a.xsd")], "reload": False}
        first = await validating(encode_body, "q", rule)
        assert await validating(first, "q", rule) is first
        other = await validating(first, "q", {**rule, "reload": True})
        assert isinstance(other, Validator)
        assert other.encode is encode_body
        assert other is not first
        assert await validating(other, "q", None) is encode_body

    asyncio.run(work())


def test_without_the_library_the_refusal_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lxml", None)
    with pytest.raises(ConfigError, match=r"pip install 'raybroker\[xml\]'"):
        Validator("q", [], reload=False)
