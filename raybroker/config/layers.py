"""The layers of a configuration: a TOML file, the environment, ``-D`` flags.  The only reader of os.environ.

A layer is a list of :class:`LayerValue`: a property name and value as written, and their origin, so that every error
names the file and line, the variable or the flag to change.  ``config.config`` checks names and values.

Files are TOML and may use sections, dotted keys or quoted flat keys; all mean the same property::

    "imq.message.max_size" = "16m"

    [imq.system]
    max_count = 100000

TOML demands quoted flat keys for two properties of which one name begins the other (``imq.autocreate.queue``,
``imq.autocreate.queue.consumerFlowLimit``).

Variables are RAYBROKER_ and the property's name in upper case with ``__`` for each dot; the prefix ``raybroker.`` of
our own properties may be left out: RAYBROKER_IMQ__MESSAGE__MAX_SIZE, RAYBROKER_STORE__DIR.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from raybroker.model.errors import ConfigError

ENVIRONMENT_PREFIX: Final = "RAYBROKER_"
OWN_PREFIX: Final = "raybroker."
CLIENT_OVERRIDES: Final = "RAYBROKER_CLIENT_OVERRIDES"
"""Attributes that beat those which a program gives its connections."""
OBJECTS: Final = "RAYBROKER_OBJECTS"
"""The object store of programs and commands that name none."""
CONTEXT: Final = "RAYBROKER_CONTEXT"
"""The context that commands take which name none."""
COMPLETION_S: Final = "RAYBROKER_COMPLETION_S"
"""How long a shell's completion waits for names of a broker, in seconds."""
_NO_PROPERTIES: Final = frozenset({CLIENT_OVERRIDES, OBJECTS, CONTEXT, COMPLETION_S})


class LayerValue(NamedTuple):
    """One property as it is written in its layer."""

    name: str
    value: object
    origin: str


def file_layer(path: Path, what: str, *, never: str = "") -> list[LayerValue]:
    """The properties of a TOML file; ``what`` names its role, such as 'cluster file'; ``never``: one that it may not
    have.

    Raises ConfigError when it cannot be read or is no TOML.
    """
    import tomllib

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{what} {path} cannot be read: {error}") from error
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{what} {path} is not TOML: {error}; where one property's name begins another's, "
            'write both as quoted keys: "imq.autocreate.queue" = true'
        ) from error
    lines = _lines_of(text)
    found = []
    for name, value in _flatten(document, ""):
        line = lines.get(name)
        if name == never:
            raise ConfigError(f"{what} {path}: {name} names this file, which names no other; leave it out here")
        found.append(LayerValue(name, value, f"{what} {path}" + (f", line {line}" if line else "")))
    return found


def common_file(given: LayerValue) -> Path | None:
    """The file that a property with its address names: a path, or file:///path; None for an empty one.

    Raises ConfigError for any other address.
    """
    text = given.value.strip() if isinstance(given.value, str) else ""
    if not isinstance(given.value, str) or (scheme := urlsplit(text)).scheme not in ("", "file"):
        raise ConfigError(
            f"{given.origin}: {given.name} = {str(given.value)[:80]!r} is no path and no file:///path; other addresses"
            " are not read"
        )
    if scheme.netloc not in ("", "localhost"):
        raise ConfigError(f"{given.origin}: {given.name} = {text[:80]!r} is on another machine; write file:///path")
    path = unquote(scheme.path) if scheme.scheme else text
    if not path:
        return None
    if not Path(path).expanduser().is_absolute():
        raise ConfigError(f"{given.origin}: {given.name} = {text[:80]!r} is not absolute: brokers start in any folder")
    return Path(path).expanduser()


def environment_layer(known: Iterable[str], environ: Mapping[str, str] | None = None) -> list[LayerValue]:
    """The properties in the environment: every RAYBROKER_ variable, matched with the ``known`` names.

    A variable without a match is given under its own name, so that it is refused as an unknown property.
    """
    names = variable_names(known)
    return [
        LayerValue(names.get(variable, variable), value, f"environment variable {variable}")
        for variable, value in sorted((os.environ if environ is None else environ).items())
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in _NO_PROPERTIES
    ]


def variable_names(known: Iterable[str]) -> dict[str, str]:
    """Variable → property, for every accepted spelling."""
    names: dict[str, str] = {}
    for name in known:
        for spelling in {name, name.removeprefix(OWN_PREFIX)}:
            names[ENVIRONMENT_PREFIX + spelling.upper().replace(".", "__")] = name
    return names


def flag_layer(flags: Mapping[str, object] | Iterable[str]) -> list[LayerValue]:
    """The properties given by ``-D``: a mapping, or texts ``name=value``.  Raises ConfigError for any other text."""
    if isinstance(flags, Mapping):
        return [LayerValue(name, value, f"-D{name}") for name, value in flags.items()]
    found = []
    for flag in flags:
        name, equals, value = flag.removeprefix("-D").partition("=")
        if not equals or not name:
            raise ConfigError(f"-D{flag.removeprefix('-D')} is not understood: write -Dname=value")
        found.append(LayerValue(name.strip(), value, f"-D{name.strip()}"))
    return found


def state_home(environ: Mapping[str, str] | None = None) -> Path:
    """The user's state directory: $XDG_STATE_HOME, or .local/state below the home directory."""
    configured = (os.environ if environ is None else environ).get("XDG_STATE_HOME", "")
    return Path(configured) if configured else Path.home() / ".local" / "state"


def variable(name: str) -> str | None:
    """A variable of the environment that is no property, such as RAY_ADDRESS; None when it is unset or empty."""
    return os.environ.get(name) or None


def proxy_of_environment(scheme: str, host: str, port: int) -> tuple[str, str] | None:
    """(variable, address) of the proxy that HTTPS_PROXY, HTTP_PROXY or ALL_PROXY names for a host; None: none, or
    NO_PROXY has the host. ``scheme``: http or https."""
    from urllib.request import getproxies_environment, proxy_bypass

    known = getproxies_environment()
    if proxy_bypass(f"{host}:{port}"):
        return None
    for name in (scheme, "all"):
        if known.get(name):
            return f"{name.upper()}_PROXY", known[name]
    return None


def set_variables(values: Mapping[str, str]) -> None:
    """Set variables for libraries that have no other configuration, such as Ray; child processes inherit them."""
    os.environ.update(values)


def _flatten(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _lines_of(text: str) -> dict[str, int]:
    """Property → line number, for keys at the start of a line; only texts for people use it."""
    lines: dict[str, int] = {}
    section = ""
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if line.startswith("["):
            section = _bare(line.partition("]")[0].strip("[]")) + "."
        elif "=" in line and not line.startswith("#"):
            lines.setdefault(section + _bare(line.partition("=")[0]), number)
    return lines


def _bare(key: str) -> str:
    return key.strip().replace('"', "").replace("'", "").replace(" ", "")
