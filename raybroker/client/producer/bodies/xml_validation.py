"""XML validation: a producer checks a text against the schemas of its destination, before anything is sent.

The library is lxml, which is optional (``pip install 'raybroker[xml]'``): it checks against XML schemas of version 1.0
and DTDs.  A text is characters already, so the encoding that its declaration names is not looked at.  Nothing that a
text refers to is read: no entities, no DTD outside of it, no schema that it names; only the schemas of the destination
count, and those that they include or import.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from raybroker.client.producer.bodies.body_encoding import Encode
from raybroker.content.bodies import encode_body
from raybroker.model.errors import ConfigError, MessageFormatError

SCHEMA_BYTES_MAX: Final = 16 << 20
"""Largest schema document."""
READ_TIMEOUT_S: Final = 10.0
"""How long a server may be silent that has a schema."""
SCHEMES: Final = ("file", "http", "https")
OWN_SCHEME: Final = "raybroker-schema:"
XSD: Final = "http://www.w3.org/2001/XMLSchema"


async def validating(encode: Encode, name: str, rule: Mapping[str, Any] | None) -> Encode:
    """``encode`` with the check that destination ``name`` wants now, in place of the one that it may have already.

    ``rule``: "schemas" and "reload", or None for no check. Raises ConfigError when the library is missing, or a schema
    cannot be read or is none. Reading happens beside the loop.
    """
    present = encode if isinstance(encode, Validator) else None
    plain = encode if present is None else present.encode
    if rule is None:
        return plain
    schemas, reload = tuple(map(str, rule["schemas"])), bool(rule["reload"])
    if present is not None and present.rule == (schemas, reload):
        return present
    return await asyncio.to_thread(Validator, name, schemas, reload=reload, encode=plain)


class Validator:
    """Checks texts and encodes bodies, from any thread.

    ``schemas``: files or URIs, together one set; without any, see :meth:`check`.
    """

    def __init__(self, name: str, schemas: Sequence[str], *, reload: bool, encode: Encode = encode_body) -> None:
        self.encode = encode
        self.rule = (tuple(schemas), reload)
        self._name = name
        self._reload = reload and bool(schemas)
        self._lock = threading.Lock()
        self._etree = _library(name)
        self._parser = self._etree.XMLParser(
            encoding="utf-8", resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False
        )
        self._schema = self._load()

    def __call__(self, body: Any) -> tuple[int, bytes]:
        self.check(body)
        return self.encode(body)

    def check(self, body: object) -> None:
        """Raises MessageFormatError when ``body`` is a text that is not well formed, or not valid.

        Without schemas a text is valid by the DTD that it contains, or by none. With reloadXMLSchemaOnFailure the
        schemas are read again before a text is refused; raises ConfigError when that fails.
        """
        if not isinstance(body, str):
            return
        with self._lock:
            fault = self._fault(body)
            if fault and self._reload:
                self._schema = self._load()
                fault = self._fault(body)
        if fault:
            raise MessageFormatError(f"the text is not what validateXMLSchemaEnabled of {self._name} asks for: {fault}")

    def _fault(self, text: str) -> str:
        """The first thing that is wrong, "" for nothing."""
        try:
            root = self._etree.fromstring(text.encode(), self._parser)
        except (self._etree.XMLSyntaxError, UnicodeEncodeError) as error:
            return f"it is not well formed: {error}"
        rules = self._schema
        if rules is None:
            rules = root.getroottree().docinfo.internalDTD
            if rules is None or next(rules.iterelements(), None) is None:
                return ""
        try:
            if rules.validate(root.getroottree()):
                return ""
        except self._etree.LxmlError as error:  # The library does not validate what was not read.
            entity = next(root.iter(self._etree.Entity), None)
            return (
                f"it refers to the entity {entity.text:.80}, and entities are not read"
                if entity is not None
                else (f"it cannot be validated: {error}")
            )
        first = rules.error_log[0]
        return f"line {first.line}: {first.message}"

    def _load(self) -> Any:
        schemas = self.rule[0]
        if not schemas:
            return None
        try:
            return _read_all(self._etree, [_uri(schema) for schema in schemas])
        except (OSError, ValueError, self._etree.LxmlError) as error:
            raise ConfigError(f"XMLSchemaURIList={' '.join(schemas)!r} of {self._name}: {error}") from None


def _library(name: str) -> Any:
    try:
        from lxml import etree
    except ImportError:
        raise ConfigError(
            f"validateXMLSchemaEnabled of {name} is true, and checking XML needs a library that is not installed here:"
            " pip install 'raybroker[xml]'"
        ) from None
    return etree


def _uri(schema: str) -> str:
    """A file's name as a URI; anything else as it is."""
    if "://" in schema or urlsplit(schema).scheme in SCHEMES:
        return schema
    return Path(schema).expanduser().absolute().as_uri()


def _read(uri: str) -> bytes:
    """A document; raises OSError or ValueError."""
    if urlsplit(uri).scheme not in SCHEMES:
        raise ValueError(f"{uri}: schemas are read from {', '.join(SCHEMES)}")
    import urllib.request  # With its parsers of mail it takes longer to import than a loopback to start.

    with urllib.request.urlopen(uri, timeout=READ_TIMEOUT_S) as source:
        data: bytes = source.read(SCHEMA_BYTES_MAX + 1)
    if len(data) > SCHEMA_BYTES_MAX:
        raise ValueError(f"{uri} has more than {SCHEMA_BYTES_MAX} bytes")
    return data


def _read_all(etree: Any, uris: Sequence[str]) -> Any:
    """One schema of all documents, whatever their namespaces.

    More than one are imported by a document made here; those of one namespace are included by one more, since a second
    import of a namespace is passed over.
    """
    from html import escape

    made: dict[str, bytes] = {}
    failures: list[Exception] = []

    class SchemaReading(etree.Resolver):  # type: ignore[misc]  # lxml
        """Reads what schemas include and import as they themselves are read."""

        def resolve(self, url: str, public_id: str | None, context: Any) -> Any:
            try:
                data = made.get(url) or _read(_uri(url))
            except (OSError, ValueError) as error:
                failures.append(error)
                raise
            return self.resolve_string(data, context, base_url=url)

    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    parser.resolvers.add(SchemaReading())
    by_namespace: dict[str, list[str]] = {}
    for uri in uris:
        made[uri] = _read(uri)
        found = etree.fromstring(made[uri], parser, base_url=uri).get("targetNamespace", "")
        by_namespace.setdefault(found, []).append(uri)
    top = uris[0]
    if len(uris) > 1:
        parts = []
        for number, (namespace, group) in enumerate(by_namespace.items()):
            location = group[0]
            if len(group) > 1 or not namespace:
                location = f"{OWN_SCHEME}{number}"
                made[location] = _joining(namespace, [f'<xs:include schemaLocation="{escape(u)}"/>' for u in group])
            named = f' namespace="{escape(namespace)}"' if namespace else ""
            parts.append(f'<xs:import{named} schemaLocation="{escape(location)}"/>')
        top = OWN_SCHEME
        made[top] = _joining(OWN_SCHEME, parts)
    try:
        return etree.XMLSchema(etree.fromstring(made[top], parser, base_url=top))
    except etree.LxmlError:
        if failures:
            raise failures[0] from None
        raise


def _joining(namespace: str, parts: Sequence[str]) -> bytes:
    from html import escape

    target = f' targetNamespace="{escape(namespace)}"' if namespace else ""
    return f'<xs:schema xmlns:xs="{XSD}"{target}>{"".join(parts)}</xs:schema>'.encode()
