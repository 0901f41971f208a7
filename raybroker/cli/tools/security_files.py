"""Files of users, keys and passwords of a cluster's brokers: where they are on this machine, and passwords in them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from raybroker.cli.exits import UsageError
from raybroker.config import Config, instance_of, store_directory
from raybroker.model.errors import ConfigError
from raybroker.security.private_files import read_private

PASSWORD_FILE_BYTES_MAX: Final = 16_384
"""Enough for a token."""
_ANY_BROKER: Final = "b"


def security_files(config: Path | None, cluster: str | None) -> tuple[Config, Path]:
    """The configuration, and the security directory that it means; ``cluster``: None where no option names it."""
    try:
        found = Config.load(cluster_file=config)
        named: str = found["raybroker.security.dir"]
        instance = instance_of(found, cluster)
        return found, Path(named) if named else store_directory(found, instance, _ANY_BROKER).parent / "security"
    except ConfigError as error:
        raise UsageError(str(error)) from None


def password_in(path: Path, what: str) -> str:
    """The first line of a file that its owner alone may read; raises UsageError, naming ``what`` it is."""
    try:
        text = read_private(path, what, PASSWORD_FILE_BYTES_MAX).decode("utf-8", "replace")
    except ConfigError as error:
        raise UsageError(str(error)) from None
    return text.split("\n", 1)[0].rstrip("\r")
