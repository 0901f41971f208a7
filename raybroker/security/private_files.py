"""Files that their owner alone may read: passwords, keys, users. Blocks for the disk."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from raybroker.model.errors import ConfigError

MODE: Final = 0o600
OTHERS: Final = 0o077
BYTES_MAX: Final = 1 << 20


def read_private(path: Path, what: str, bytes_max: int = BYTES_MAX) -> bytes:
    """Its bytes; raises ConfigError, naming ``what`` it is, for a file that is too long or that others may read."""
    return _read(path, what, bytes_max, private=True)


def read_public(path: Path, what: str, bytes_max: int = BYTES_MAX) -> bytes:
    """Do what :meth:`read_private` does, of a file that others may read."""
    return _read(path, what, bytes_max, private=False)


def _read(path: Path, what: str, bytes_max: int, *, private: bool) -> bytes:
    try:
        with path.open("rb") as file:
            if private and os.fstat(file.fileno()).st_mode & OTHERS:
                raise ConfigError(f"{what} {path} may be read by others than its owner; chmod 600 {path}")
            data = file.read(bytes_max + 1)
    except FileNotFoundError:
        raise ConfigError(f"{what} {path} is not there") from None
    except OSError as error:
        raise ConfigError(f"{what} {path} cannot be read: {error.strerror}") from None
    if len(data) > bytes_max:
        raise ConfigError(f"{what} {path} has more than {bytes_max} bytes")
    return data


def write_private(path: Path, data: bytes) -> None:
    """All or nothing: a new file takes the old one's place once it is on the disk. Raises ConfigError."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, MODE), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except OSError as error:
        with suppress(OSError):
            fresh.unlink()
        raise ConfigError(f"{path} cannot be written: {error}") from None
