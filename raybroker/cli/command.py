"""Commands that carry out verbs: each is a function of ``conn.admin()`` and of its options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from raybroker.cli import connecting
from raybroker.cli.groups import groups
from raybroker.cli.objects import Cluster


def command(verb: str, name: str, epilog: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make ``function(admin, …)`` the command ``verb name``, with the option --cluster even if it has no use for it.

    ``admin`` connects when it is first called: what is wrong with the options is said before, and without a cluster. It
    asks the broker that the argument ``broker`` names, where the function has one.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        _, *own = inspect.signature(function, eval_str=True).parameters.values()
        names = [parameter.name for parameter in own]
        if "cluster" not in names:
            place = names.index("json") if "json" in names else len(names)
            kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
            own.insert(place, inspect.Parameter("cluster", kind, default="default", annotation=Cluster))

        @wraps(function)
        def run(**options: Any) -> None:
            with connecting.administering(options["cluster"], options.get("broker")) as admin:
                function(admin, **{name: options[name] for name in names})

        run.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in own}
        groups[verb].command(name, epilog=epilog)(run)
        return function

    return register
