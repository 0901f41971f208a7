"""Commands that carry out verbs: each is a function of ``conn.admin()`` and of its options."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack, redirect_stdout
from functools import partial, wraps
from typing import Annotated, Any, Final, get_args

import typer
from typer.models import OptionInfo

from raybroker.cli import connecting
from raybroker.cli.grid_words import Cluster, show_version
from raybroker.cli.groups import Made, grid
from raybroker.cli.watching import READING, Watch, watched

Epilog = Callable[[], str]
"""What stands below the options of a help; it is made when the command is."""
ASKS_NOTHING: Final = ("pause", "resume", "quiesce")
"""Verbs that take -f all the same, as scripts for imqcmd have it."""
Silent = Annotated[bool, typer.Option("-s", "--silent", help="Print nothing; errors and the exit status stay.")]
Version = Annotated[
    bool, typer.Option("-v", callback=show_version, is_eager=True, help="Print the version and end.", hidden=True)
]
Unasked = Annotated[bool, typer.Option("-f", "--force", help="As ever: nothing is asked.", hidden=True)]


def command(verb: str, name: str, epilog: Epilog = str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make ``function(admin, …)`` the command ``verb name``; see :func:`administrative`."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        grid[f"{verb} {name}"] = lambda: Made(administrative(verb, function), epilog() or None)
        return function

    return register


def administrative(verb: str, function: Callable[..., None]) -> Callable[..., None]:
    """``function(admin, …)`` as a command, with the option --cluster even if it has no use for it.

    ``admin`` connects when it is first called: what is wrong with the options is said before, and without a cluster. It
    asks the broker that the argument ``broker`` names, where the function has one.
    """
    _, *own = inspect.signature(function, eval_str=True).parameters.values()
    names = [parameter.name for parameter in own]
    more = _habits(verb, own)
    if "cluster" not in names:
        place = names.index("json") if "json" in names else len(names)
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        own.insert(place, inspect.Parameter("cluster", kind, default="default", annotation=Cluster))
    own += more

    @wraps(function)
    def run(**options: Any) -> None:
        with ExitStack() as quiet:
            if options.get("silent"):
                nowhere = quiet.enter_context(open(os.devnull, "w", encoding="utf-8"))
                quiet.enter_context(redirect_stdout(nowhere))
            watched(
                options.get("watch"),
                partial(connecting.administering, options["cluster"], options.get("broker")),
                lambda admin: function(admin, **{name: options[name] for name in names}),
                json=bool(options.get("json")),
            )

    run.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]  # typer reads it
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in own}
    return run


def _habits(verb: str, own: Iterable[inspect.Parameter]) -> list[inspect.Parameter]:
    """Options that commands have for those who know imqcmd, where the command itself has no other use for them."""
    taken = {text for parameter in own for text in texts(parameter.annotation)}
    wanted: dict[str, Any] = {
        "silent": Silent,
        "shown_version": Version,
        **({"force": Unasked} if verb in ASKS_NOTHING else {}),
    }
    wanted |= {"watch": Watch} if verb in READING else {}
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [
        inspect.Parameter(name, kind, default=None if name == "watch" else False, annotation=annotation)
        for name, annotation in wanted.items()
        if taken.isdisjoint(texts(annotation))
    ]


def texts(annotation: Any) -> set[str]:
    """The words by which an option is given; typer takes the first of them for a default."""
    return {
        text
        for meta in get_args(annotation)[1:]
        if isinstance(meta, OptionInfo)
        for text in (meta.default, *(meta.param_decls or ()))
        if isinstance(text, str)
    }
