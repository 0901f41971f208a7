"""Encryption of connections inside the Ray cluster: imq.cluster.transport=ssl, with the broker's keystore.

Clients there have the cluster's token, so no certificates are asked of them. A broker tells them in its answer to where
a destination is which certificate its host shows, and they take no other one: no names are compared, and no authority
has to be known.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from raybroker.broker.services.auditing import security_directory
from raybroker.model.errors import ConfigError
from raybroker.model.settings.settings import ConfigView
from raybroker.security.tls import ServerTls

TRANSPORT: Final = "imq.cluster.transport"
SSL: Final = "ssl"


def cluster_tls(config: ConfigView, beside: Path | None) -> ServerTls | None:
    """The keystore for connections to hosts; None where they are not encrypted. ``beside``: the directory of the
    cluster's stores. Raises ConfigError; blocks."""
    if config[TRANSPORT] != SSL:
        return None
    try:
        return ServerTls.from_config(config, security_directory(config, beside), clients=False)
    except ConfigError as error:
        raise ConfigError(f"{TRANSPORT}={SSL}: {error}") from None
