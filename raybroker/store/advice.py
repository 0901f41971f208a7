"""Advice to an administrator about a store that does not open because it is damaged."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raybroker.model.errors import StoreDamagedError


@contextmanager
def advised(directory: Path | None) -> Iterator[None]:
    """Damage that keeps a store in files from opening says what an administrator can do; None: it is not in files."""
    try:
        yield
    except StoreDamagedError as error:
        if directory is None:
            raise
        command = f"raybroker salvage {shlex.quote(str(directory))}"
        raise StoreDamagedError(
            f"{error}; restore the store from a backup, or bring out what is intact: {command} --dry-run says what that"
            f" is, and {command} sets the rest aside"
        ) from error
