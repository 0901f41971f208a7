"""Packages that machines with brokers have, and those with clients alone need not have."""

from __future__ import annotations

from typing import Final

SERVER: Final = frozenset({"ray", "prometheus_client"})
"""Those of the extra ``server``, as they are imported."""


def how_to_install(error: ModuleNotFoundError) -> str | None:
    """What to do about a package that is not there; None for one that the extra ``server`` does not bring."""
    package = (error.name or "").partition(".")[0]
    if package not in SERVER:
        return None
    return (
        f"the package {package} is not installed here: clients need the address of a connection service"
        " (mq://host:7676), and for brokers and the programs in their Ray cluster pip install 'raybroker[server]'"
    )
