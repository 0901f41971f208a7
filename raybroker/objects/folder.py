"""A folder as an object store: a file of JSON for each object, for its owner alone, since factories may have passwords.

The name of a file is made of the lookup name by percent signs, capital letters too, so that names that differ in those
alone are two files everywhere, and that no name leads out of the folder. Names that would be too long for a file have
their SHA-256 in its place; the whole name is in the file in any case.

Who writes holds the lock of the folder. A file is on the disk before it takes the place of another one: after a power
cut there is the old one or the new one, and what was left of a new one is removed by the next writer.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from raybroker.model.errors import ConfigError, ForeignObjectError, IllegalStateError
from raybroker.objects.addresses import OBJECTS_MAX
from raybroker.objects.administered import TEXT_BYTES_MAX, AdministeredObject, is_secret, name_in
from raybroker.security.private_files import OTHERS, write_private
from raybroker.system.clock import SystemClock

SUFFIX: Final = ".json"
LOCK: Final = ".lock"
LOCK_WAIT_S: Final = 10.0
"""How long a writer waits for another one."""
LOCK_PAUSE_S: Final = 0.01
STEM_CHARS_MAX: Final = 200
_AS_IS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-.")
_HASHED: Final = "%"
"""Two of them begin the name of no other file: there each has two digits behind it."""


def file_name(name: str) -> str:
    """The name of the file of an object."""
    stem = "".join(
        char if char in _AS_IS and (index or char != ".") else "".join(f"%{byte:02x}" for byte in char.encode())
        for index, char in enumerate(name)
    )
    if len(stem) > STEM_CHARS_MAX:
        stem = f"{_HASHED}{_HASHED}{hashlib.sha256(name.encode()).hexdigest()}"
    return stem + SUFFIX


class FolderStore:
    """See :class:`raybroker.objects.addresses.ObjectStore`. The folder is made by the first object."""

    def __init__(self, folder: Path) -> None:
        self.shown = str(folder)
        self._folder = folder

    def __enter__(self) -> FolderStore:
        if self._folder.exists() and not self._folder.is_dir():
            raise ConfigError(f"object store {self.shown}: it is a file, and no folder")
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def canonical(self, name: str) -> str:
        return name

    def get(self, name: str) -> str | None:
        return self._read(self._folder / file_name(name), name)

    def all(self) -> Iterator[tuple[str, str]]:
        try:
            paths = [Path(found) for found in os.scandir(self._folder) if found.name.endswith(SUFFIX)]
        except FileNotFoundError:
            return
        except OSError as error:
            raise ConfigError(f"object store {self.shown} cannot be read: {error.strerror}") from None
        if len(paths) > OBJECTS_MAX:
            raise ConfigError(f"object store {self.shown} has more than {OBJECTS_MAX} files")
        for path in paths:
            text = self._read(path, path.name)
            name = name_in(text or "")
            if text is not None and name is not None and file_name(name) == path.name:
                yield name, text

    def exchange(self, name: str, old: str | None, new: str | None) -> bool:
        path = self._folder / file_name(name)
        with self._locked():
            if self._read(path, name) != old:
                return False
            if new is not None:
                write_private(path, new.encode())
            elif old is not None:
                path.unlink()
            self._sync()
        return True

    def _read(self, path: Path, name: str) -> str | None:
        try:
            with path.open("rb") as file:
                data = file.read(TEXT_BYTES_MAX + 1)
                mode = os.fstat(file.fileno()).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ConfigError(f"object {name!r}: {path} cannot be read: {error.strerror}") from None
        if len(data) > TEXT_BYTES_MAX:
            raise ForeignObjectError(f"{name!r}: {path} is too long for an object of this broker's")
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise ForeignObjectError(f"{name!r}: {path} is no text, and no object of this broker's") from None
        if mode & OTHERS and _has_secret(text):
            raise ConfigError(f"{path} has a password, and may be read by others than its owner; chmod 600 {path}")
        return text

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"object store {self.shown} cannot be written: {error.strerror}") from None
        try:
            clock, pauses = SystemClock(), threading.Event()
            deadline_ns = clock.monotonic_ns() + int(LOCK_WAIT_S * 1e9)
            while not _taken(lock):
                if clock.monotonic_ns() > deadline_ns:
                    raise IllegalStateError(
                        f"object store {self.shown} is being written by somebody else for {LOCK_WAIT_S:g} s; nothing"
                        " was changed: try again"
                    )
                pauses.wait(LOCK_PAUSE_S)
            for left in self._folder.glob(f"*{SUFFIX}.*.new"):  # Of a writer that has ended early: we have the lock.
                left.unlink(missing_ok=True)
            yield
        except OSError as error:
            raise ConfigError(f"object store {self.shown} cannot be written: {error.strerror}") from None
        finally:
            os.close(lock)

    def _sync(self) -> None:
        """What was renamed or removed is so after a power cut too."""
        folder = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def _has_secret(text: str) -> bool:
    name = name_in(text)
    if name is None:
        return False
    try:
        found = AdministeredObject.of_text(name, text)
    except ConfigError:
        return False
    return any(value and is_secret(attribute) for attribute, value in found.attributes.items())
