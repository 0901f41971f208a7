"""Files of definitions: TOML, or JSON where the name of the file ends so; what is there twice is refused."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from raybroker.cli.exits import UsageError
from raybroker.cli.objects import archive
from raybroker.model.definitions.definitions import definitions_of
from raybroker.model.definitions.values import Defaults
from raybroker.model.errors import BrokerError
from raybroker.security.private_files import MODE, OTHERS

STANDARD: Final = "-"
"""Standard input or output in the place of a file."""
BYTES_MAX: Final = 16 << 20
"""Of a file that is read."""
TITLE: Final = "# Definitions of raybroker; what they would change: raybroker import definitions FILE --dry-run\n"


def read(name: str) -> dict[str, Any]:
    """The definitions of a file, checked; raises UsageError."""
    text, mode = _text(name)
    try:
        found = json.loads(text, object_pairs_hook=_once) if text.lstrip().startswith("{") else tomllib.loads(text)
        definitions_of(found, Defaults.from_config())
    except (BrokerError, ValueError, RecursionError) as error:
        raise UsageError(f"{name}: {error}") from None
    if found.get("users") and mode & OTHERS:
        raise UsageError(f"{name} has users, and may be read by others than its owner; chmod 600 {name}")
    return dict(found)


def _text(name: str) -> tuple[str, int]:
    """What it says, and its mode."""
    mode = 0
    try:
        if name == STANDARD:
            data = sys.stdin.buffer.read(BYTES_MAX + 1)
        else:
            with Path(name).open("rb") as file:
                data, mode = file.read(BYTES_MAX + 1), os.fstat(file.fileno()).st_mode
        if len(data) > BYTES_MAX:
            raise UsageError(f"{name} has more than {BYTES_MAX >> 20} MiB: divide the definitions")
        return data.decode("utf-8-sig"), mode
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{name} cannot be read: {error}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key!r} is there twice")
        found[key] = value
    return found


def check_target(name: str, *, overwrite: bool) -> None:
    """Raises UsageError when the file is there already and may not be replaced."""
    if name != STANDARD:
        archive.check_target(Path(name), overwrite=overwrite)


def write(name: str, definitions: Mapping[str, Any], *, overwrite: bool, as_json: bool) -> None:
    """Write them whole or not at all, with users for their owner alone; raises UsageError."""
    text = json.dumps(definitions, indent=2) + "\n" if as_json or name.endswith(".json") else to_toml(definitions)
    if name == STANDARD:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    check_target(name, overwrite=overwrite)
    part = Path(name + ".part")
    try:
        part.unlink(missing_ok=True)  # What a run that ended left there may have another mode.
        mode = MODE if definitions.get("users") else 0o666
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(name)
    except OSError as error:
        raise UsageError(f"{name} cannot be written: {error}") from None
    finally:
        part.unlink(missing_ok=True)


def to_toml(definitions: Mapping[str, Any]) -> str:
    """The text; reading it gives the same definitions."""
    lines = [TITLE]
    for section, entries in definitions.items():
        if isinstance(entries, list):
            for entry in entries:
                lines += [f"[[{section}]]", *_lines(entry), ""]
        elif any(isinstance(entry, Mapping) for entry in entries.values()):
            for name, entry in entries.items():
                lines += [f"[{section}.{_key(name)}]", *_lines(entry), ""]
        else:
            lines += [f"[{section}]", *_lines(entries), ""]
    text = "\n".join(lines)
    assert tomllib.loads(text) == definitions, "what is written is what will be read"
    return text


def _lines(entry: Mapping[str, Any]) -> list[str]:
    return [f"{_key(name)} = {_value(value)}" for name, value in entry.items()]


def _key(name: str) -> str:
    plain = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if plain else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(_lines(value)) + " }"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")  # JSON's pairs of \\u are not TOML's.
