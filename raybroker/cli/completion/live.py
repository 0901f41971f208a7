"""Names of what there is, asked of the broker that the line itself, a context or RAYBROKER_CONTEXT names.

A name is asked for with the user and the rights of the line, nothing is prompted for, and whatever fails gives none.
Inside the Ray cluster there are none: to join it takes longer than somebody who presses a key waits.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from raybroker.cli import connecting, contexts
from raybroker.cli.outside import OPTIONS, may_ask, reachable, way
from raybroker.config.layers import COMPLETION_S, variable

WAIT_S: Final = 1.0
"""How long the broker is waited for, unless COMPLETION_S says something else."""
WAIT_S_MAX: Final = 10.0
NAMES_MAX: Final = 1000


def names(what: str, kind: str | None, given: Mapping[str, Any]) -> list[str]:
    """The names of what there is, none where the broker does not tell them in time.

    what   the verb that lists it, the key that has the name, and the type of destinations where only one will do
    kind   the type of destinations that the line means, None for both
    given  the options of the line
    """
    verb, key, *only = what.split()
    options = {"type": only[0] if only else kind} if verb == "list_destinations" else {}
    found: list[str] = []

    def look(cluster: str = "default") -> None:
        if way.get() is None:
            return
        with connecting.administering(cluster) as admin:
            rows = {str(row.get(key) or "") for row in getattr(admin, verb)(**options)}
            found.extend(sorted(name for name in rows if name and name.isprintable())[:NAMES_MAX])

    def ask() -> None:
        contexts.wanted.set(given.get("context"))
        may_ask.set(False)
        try:
            reachable(look)(**_reached(given))
        except BaseException:  # noqa: BLE001 - whoever presses a key wants no reason
            found.clear()

    asking = threading.Thread(target=ask, name="raybroker-completion", daemon=True)
    asking.start()
    asking.join(_wait_s())
    return list(found)


def _reached(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options by which the line reaches a broker; those that say how long to wait have no part in this."""
    options = {name: given.get(name, False if name == "outside_secure" else None) for name in OPTIONS}
    named = given.get("broker", given.get("only"))
    if options["broker_address"] is None and ":" in str(named or ""):
        options["broker_address"] = named
    for name in ("outside_passfile", "outside_token"):
        options[name] = None if options[name] is None else Path(options[name]).expanduser()
    return {**options, "first_timeout": None, "further_waits": None, "cluster": given.get("cluster", "default")}


def _wait_s() -> float:
    try:
        return min(max(float(variable(COMPLETION_S) or WAIT_S), 0.0), WAIT_S_MAX)
    except ValueError:
        return WAIT_S
