"""Where the files of users, keys and passwords of a cluster's brokers are on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from raybroker.cli.exits import UsageError
from raybroker.config import Config, store_directory
from raybroker.model.errors import ConfigError

_ANY_BROKER: Final = "b"


def security_files(config: Path | None, cluster: str) -> tuple[Config, Path]:
    """The configuration, and the security directory that it means."""
    try:
        found = Config.load(cluster_file=config)
        named: str = found["raybroker.security.dir"]
        return found, Path(named) if named else store_directory(found, cluster, _ANY_BROKER).parent / "security"
    except ConfigError as error:
        raise UsageError(str(error)) from None
