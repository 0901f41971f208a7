"""Looking up administered objects: the connection factories and destinations that an administrator keeps in a store.

A program gets what it needs by name, and says nothing of brokers, addresses and attributes; those are the
administrator's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raybroker.client.connection.factory import AsyncConnectionFactory, ConnectionFactory
from raybroker.client.destinations import LookedUpQueue, LookedUpTopic
from raybroker.objects import operations
from raybroker.objects.administered import AdministeredObject
from raybroker.objects.stores import open_store

Store = str | Path | Mapping[str, object]


def lookup(name: str, store: Store | None = None) -> Any:
    """The administered object of that name: a ConnectionFactory, a Queue or a Topic.

    store  where it is: a folder, ldap://host:port/ou=objects,dc=example,dc=org, sqlite:///file or postgresql://…, or
           the attributes of a store as raybroker objmgr -j has them; None: what the variable RAYBROKER_OBJECTS names

    Raises NoObjectError where there is none, ForeignObjectError where the name is that of something else, and
    ConfigError for a store that cannot be asked and for attributes that this version does not know.
    """
    found = _found(name, store)
    return _destination(found) if found.is_destination else ConnectionFactory.of_object(found)


async def lookup_async(name: str, store: Store | None = None) -> Any:
    """:func:`lookup` for asyncio: the methods of a connection factory are to be awaited."""
    found = await asyncio.to_thread(_found, name, store)
    return _destination(found) if found.is_destination else AsyncConnectionFactory.of_object(found)


def _found(name: str, store: Store | None) -> AdministeredObject:
    with open_store(store) as opened:
        return operations.query(opened, name)


def _destination(found: AdministeredObject) -> LookedUpQueue | LookedUpTopic:
    checked = AdministeredObject.checked(found.name, found.kind, found.attributes)
    made = LookedUpQueue if found.kind == "q" else LookedUpTopic
    return made(checked.destination_name, checked.description, read_only=found.read_only)
