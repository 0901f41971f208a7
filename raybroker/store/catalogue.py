"""The catalogue of a broker: its hosts, the cluster's token, templates, quotas, policies and changed properties, in one
file.

The file is replaced whole: written to a temporary file, synced, renamed, and the directory synced, so that a crash
leaves the old one or the new one.  Several threads may write it at a time: an older image never replaces a newer one.
Only the owner may read it, because the token is the permission to send and receive.
"""

from __future__ import annotations

import json
import os
import threading
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from raybroker.model.errors import StoreDamagedError, StoreError
from raybroker.store.fileio import FileIO

_NAME = "catalogue.json"


class Image(NamedTuple):
    """The content of a catalogue at one moment; a later image has a larger ``number``."""

    number: int
    body: bytes


@dataclass
class Catalogue:
    """``hosts``: id → hosting (one of model.settings.setting_table.HOSTINGS); ids are never used twice.

    ``templates``: name → destination attributes.  ``properties``: changes made while the broker ran, see
    raybroker.config.live, and ``quotas``: name → attributes, and ``policies``: name → fields; hosts read these when
    they start.  ``copies``: log of which a copy is
    kept → the secret that all its copies have, in hexadecimal digits, the type and name of its destination, and the id
    of the record that had it last.
    """

    token: bytes
    next_id: int = 1
    hosts: dict[str, str] = field(default_factory=dict)
    templates: dict[str, dict[str, Any]] = field(default_factory=dict)
    properties: dict[str, list[Any]] = field(default_factory=dict)
    quotas: dict[str, dict[str, Any]] = field(default_factory=dict)
    policies: dict[str, dict[str, Any]] = field(default_factory=dict)
    copies: dict[str, list[str]] = field(default_factory=dict)
    _images: int = field(default=0, init=False, repr=False, compare=False)
    _written: int = field(default=0, init=False, repr=False, compare=False)
    _writing: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    @classmethod
    def load(cls, directory: Path) -> Catalogue | None:
        """The saved catalogue, or None before the first save.  Raises StoreDamagedError and StoreError."""
        path = directory / _NAME
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error}") from None
        checksum, _, body = data.partition(b"\n")
        if checksum != b"%08x" % zlib.crc32(body):
            raise StoreDamagedError(f"{path} is damaged: its checksum does not match; restore it from a backup")
        fields = json.loads(body)
        return cls._from_fields(bytes.fromhex(fields["token"]), fields)

    @classmethod
    def kept_elsewhere(cls, token: bytes, kept: str) -> Catalogue:
        """The catalogue of which :meth:`kept` is ``kept``, with a token of its own."""
        return cls._from_fields(token, json.loads(kept))

    @classmethod
    def _from_fields(cls, token: bytes, fields: dict[str, Any]) -> Catalogue:
        return cls(
            token,
            fields["next_id"],
            fields["hosts"],
            fields.get("templates", {}),
            fields.get("properties", {}),
            fields.get("quotas", {}),
            fields.get("policies", {}),
            fields.get("copies", {}),
        )

    def kept(self) -> str:
        """All but the token, for another installation of the broker."""
        return json.dumps({key: value for key, value in self._fields().items() if key not in ("token", "copies")})

    def image(self) -> Image:
        """An image of the catalogue as it is now, for :meth:`write`; called by the thread that changes it."""
        self._images += 1
        return Image(self._images, json.dumps(self._fields()).encode())

    def _fields(self) -> dict[str, Any]:
        return {
            "token": self.token.hex(),
            "next_id": self.next_id,
            "hosts": self.hosts,
            "templates": self.templates,
            "properties": self.properties,
            "quotas": self.quotas,
            "policies": self.policies,
            "copies": self.copies,
        }

    def write(self, directory: Path, image: Image) -> None:
        """Replace the file, unless it has a newer image; from any thread.  Raises StoreError."""
        with self._writing:
            if image.number > self._written:
                _replace(directory, image.body)
                self._written = image.number

    def save(self, directory: Path) -> None:
        """Write the catalogue as it is now."""
        self.write(directory, self.image())


def _replace(directory: Path, body: bytes) -> None:
    path, temporary = directory / _NAME, directory / (_NAME + ".new")
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(b"%08x\n" % zlib.crc32(body) + body)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        FileIO().fsync_dir(directory)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error}") from None
