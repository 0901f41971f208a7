"""Class archive: the classes of Spark as Java keeps them in memory, stored so that the next analysis starts sooner.

The Java process of the first analysis writes the archive when it ends, after the command has; the next analysis takes
the archive in use.  One archive is kept: that of the Java and the Spark that ran last.  An archive only saves time:
where the folder cannot be written, where another process is writing, or where Java finds that the archive does not fit,
the analysis runs without one and says nothing of it.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

WRITING_MS: Final = 3_600_000
"""After so long a process that began to write an archive is taken for dead."""
_FILE: Final = "classes.jsa"
_DYNAMIC: Final = ("SharedArchiveFile", "ArchiveClassesAtExit")
_AOT: Final = (25, ("AOTCache", "AOTCacheOutput"))
"""The options to use an archive and to write one; a Java from release 25 on has others, which keep more."""
_QUIET: Final = "-Xlog:disable"
"""Java would warn when an archive does not fit."""
_SPECIAL: Final = frozenset('":\\')
"""What would end a path in Java's options."""


class Choice(NamedTuple):
    """Options for Java, and the folder where it writes an archive at its end, if it is to write one."""

    options: str = ""
    writing: Path | None = None


def key(java: Path, jars: Path) -> str:
    """Names what an archive fits: a Java and the jars of a Spark, by their paths, sizes and times of change."""
    seen = hashlib.sha256()
    for path in [java.resolve(), *sorted(jars.absolute().glob("*.jar"))]:
        found = path.stat()
        seen.update(f"{path} {found.st_size} {found.st_mtime_ns}\n".encode())
    return seen.hexdigest()[:20]


def choose(folder: Path, java: Path, release: int, jars: Path, now_ms: int) -> Choice:
    """Use the archive that fits, or write it unless another process does; archives of other keys are removed."""
    use, write = _AOT[1] if release >= _AOT[0] else _DYNAMIC
    if _SPECIAL & set(str(folder)):
        return Choice()
    try:
        name = key(java, jars)
        archive, writing = folder / f"{name}.jsa", folder / f"{name}.new"
        _take(archive, writing, now_ms)
        _remove_others(folder, name)
        if archive.exists():
            return Choice(_options(use, archive))
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        writing.mkdir()
    except OSError:
        return Choice()
    return Choice(_options(write, writing / _FILE), writing)


@contextmanager
def of_whole_runs(choice: Choice) -> Iterator[None]:
    """A block that fails leaves no archive: it has not used the classes that a whole analysis uses."""
    try:
        yield
    except BaseException:
        if choice.writing is not None:
            shutil.rmtree(choice.writing, ignore_errors=True)
        raise


def complete(archive: Path) -> bool:
    """Whether Java has written all of an archive: it writes the beginning last."""
    try:
        with archive.open("rb") as opened:
            return any(opened.read(4))
    except FileNotFoundError:
        return False


def _options(name: str, path: Path) -> str:
    return f'"-XX:{name}={path}" {_QUIET}'


def _take(archive: Path, writing: Path, now_ms: int) -> None:
    """Take what has been written; the folder of a dead process gives way to the next one."""
    if complete(writing / _FILE):
        (writing / _FILE).replace(archive)
        shutil.rmtree(writing, ignore_errors=True)
    elif writing.exists() and 1000 * writing.stat().st_mtime < now_ms - WRITING_MS:
        shutil.rmtree(writing, ignore_errors=True)


def _remove_others(folder: Path, name: str) -> None:
    with suppress(OSError):
        for other in folder.iterdir():
            if other.stem == name:
                continue
            if other.is_dir():
                shutil.rmtree(other, ignore_errors=True)
            else:
                other.unlink()
