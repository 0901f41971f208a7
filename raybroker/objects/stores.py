"""Opening an object store: the kind of store that its address is of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from raybroker.model.errors import ConfigError
from raybroker.objects.addresses import ObjectStore, store_address, without_password


def open_store(store: str | Path | Mapping[str, object] | None) -> ObjectStore:
    """The store, for a ``with``; raises ConfigError."""
    address = store_address(store)
    scheme = address.scheme.partition("+")[0]
    if scheme == "file":
        from raybroker.objects.folder import FolderStore

        return FolderStore(Path(address.url).expanduser())
    if scheme in ("ldap", "ldaps"):
        from raybroker.objects.ldap import LdapStore

        return LdapStore(address)
    if scheme in ("sqlite", "postgresql"):
        from raybroker.objects.database import DatabaseStore

        return DatabaseStore(address)
    raise ConfigError(
        f"object store {without_password(address.url)!r:.200}: it is a folder, file://, ldap://, ldaps://, sqlite:///"
        " or postgresql://"
    )
