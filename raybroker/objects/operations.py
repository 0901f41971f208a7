"""Operations of an administrator on administered objects; each function has plain arguments and a store that is open.

They raise ConfigError for what cannot be, ForeignObjectError where the lookup name is another program's, and
IllegalStateError when others change the same object all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from raybroker.model.errors import ConfigError, IllegalStateError, NoObjectError, ObjectExistsError
from raybroker.objects.addresses import ObjectStore
from raybroker.objects.administered import KINDS, AdministeredObject, check_kind, check_lookup_name

TRIES: Final = 20
"""How often a change is tried again because somebody else has changed the object meanwhile."""


def add(
    store: ObjectStore,
    name: str,
    kind: str,
    attributes: Mapping[str, object] | None = None,
    *,
    read_only: bool = False,
    replace: bool = False,
) -> AdministeredObject:
    """Put a new object into a store. ``replace``: also in the place of one of this broker's; else ObjectExistsError."""
    name = store.canonical(check_lookup_name(name))
    made = AdministeredObject.checked(name, kind, attributes, read_only=read_only)
    for _ in range(TRIES):
        old = store.get(name)
        if old is not None:
            AdministeredObject.of_text(name, old)
            if not replace:
                raise ObjectExistsError(f"there is an object {name!r} in {store.shown} already; -f replaces it")
        if store.exchange(name, old, made.text()):
            return made
    raise _busy(store, name)


def delete(store: ObjectStore, name: str, kind: str | None = None) -> AdministeredObject:
    """Remove an object, and return what it was; ``kind``: it has to have this type."""
    return _changed(store, name, kind, lambda found: None)


def update(
    store: ObjectStore,
    name: str,
    attributes: Mapping[str, object] | None = None,
    kind: str | None = None,
    *,
    read_only: bool | None = None,
) -> AdministeredObject:
    """Change attributes of an object, and leave the others; an empty value is the default again. Returns what it is."""
    made: list[AdministeredObject] = []

    def change(found: AdministeredObject) -> AdministeredObject:
        made[:] = [found.changed(attributes or {}, read_only)]
        return made[0]

    _changed(store, name, kind, change)
    return made[0]


def query(store: ObjectStore, name: str, kind: str | None = None) -> AdministeredObject:
    """Return one object."""
    name = store.canonical(check_lookup_name(name))
    return _found(store, name, kind, store.get(name))


def list_objects(store: ObjectStore, kind: str | None = None) -> list[AdministeredObject]:
    """Return all objects, or those of one type, by name; what is foreign is none."""
    if kind is not None:
        check_kind(kind)
    found = []
    for name, text in store.all():
        try:
            one = AdministeredObject.of_text(name, text)
        except ConfigError:
            continue
        if kind in (None, one.kind):
            found.append(one)
    return sorted(found, key=lambda one: one.name)


def _changed(
    store: ObjectStore,
    name: str,
    kind: str | None,
    change: Callable[[AdministeredObject], AdministeredObject | None],
) -> AdministeredObject:
    name = store.canonical(check_lookup_name(name))
    for _ in range(TRIES):
        old = store.get(name)
        found = _found(store, name, kind, old)
        new = change(found)
        if store.exchange(name, old, None if new is None else new.text()):
            return found
    raise _busy(store, name)


def _found(store: ObjectStore, name: str, kind: str | None, text: str | None) -> AdministeredObject:
    if kind is not None:
        check_kind(kind)
    if text is None:
        raise NoObjectError(f"there is no object {name!r} in {store.shown}; raybroker objmgr list shows what there is")
    found = AdministeredObject.of_text(name, text)
    if kind not in (None, found.kind):
        raise NoObjectError(f"{name!r} in {store.shown} is a {KINDS[found.kind]} ({found.kind}), and no {kind}")
    return found


def _busy(store: ObjectStore, name: str) -> IllegalStateError:
    return IllegalStateError(
        f"object {name!r} in {store.shown} is changed by others all the time; nothing was done: try again"
    )
