"""The owner of a directory of stores: a file ``owner`` in it, which names the cluster, the broker and, of a host, the
host.

A directory that was copied or moved under another broker would be served as that broker's own: its messages would come
twice, from both.  So it is refused, with the reason and without a change.  A directory without the file, of an older
release or a new one, is taken over and gets it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from raybroker.model.errors import StoreError
from raybroker.store.fileio import FileIO

NAME: Final = "owner"
BYTES_MAX: Final = 4096


def check(directory: Path, owner: str) -> None:
    """Raises StoreError when the directory belongs to somebody else, or that cannot be read."""
    path = directory / NAME
    try:
        with path.open("rb") as file:
            found = file.read(BYTES_MAX).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error}") from None
    if found and found != owner:
        raise StoreError(
            f"the store {directory} belongs to {found}, and this is {owner}: start what it belongs to, or have this one"
            f" use another directory (raybroker.store.dir). Remove {path} only if the other one will never use it again"
        )


def is_free(directory: Path, owner: str) -> bool:
    """Whether the directory belongs to nobody else, as far as can be seen."""
    try:
        check(directory, owner)
    except StoreError:
        return False
    return True


def claim(directory: Path, owner: str) -> None:
    """Write down whose the directory is, which is there; durable on return. Raises StoreError."""
    path, temporary = directory / NAME, directory / (NAME + ".new")
    if path.exists() and path.stat().st_size:
        return
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(owner.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        FileIO().fsync_dir(directory)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error}") from None
