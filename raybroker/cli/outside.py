"""Options by which a command reaches a broker from outside the Ray cluster: -b, -u, --passfile, --token-file.

Every verb has them.  With -b a command goes through the broker's connection services, ``admin`` for verbs and ``jms``
for messages, as the user of -u; Ray is neither needed nor imported then.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, get_args

import typer

from raybroker.cli.contexts import Context, current
from raybroker.cli.exits import UsageError
from raybroker.cli.patience import FIRST_S, RETRIES, Patience, patience
from raybroker.cli.tools.security_files import password_in
from raybroker.config.layers import flag_layer
from raybroker.model.errors import ConfigError
from raybroker.model.settings.settings import lookup
from raybroker.security.passfile import COMMAND, Passwords, read_passfile

_ADDRESS: Final = "broker_address"
SECURE: Final = {"jms": "ssljms", "admin": "ssladmin"}
"""Service → the one with TLS."""
WEB: Final = ("http", "https")
"""Schemes of addresses at which there is one service."""
FLAGS: Final = frozenset({"outside_secure"})


class Way(NamedTuple):
    """How a command comes in. ``secret``: what ``rb.connect`` takes beside the address; it is not shown.
    ``attributes``: of the connection."""

    address: str
    secret: dict[str, str]
    attributes: dict[str, str]

    def __repr__(self) -> str:
        return f"Way({self.address!r})"

    def url(self, service: str) -> str:
        """Return the URL of a service: of the one that the user named, where he named one."""
        scheme, found, rest = self.address.partition("://")
        if not found:
            scheme, rest = "mq", self.address
        if scheme in WEB:
            return f"{scheme}://{rest.removesuffix('/')}/"
        if scheme == "mqs":
            service = SECURE.get(service, service)
        return f"{scheme}://{rest}" if "/" in rest else f"{scheme}://{rest}/{service}"


way: ContextVar[Way | None] = ContextVar("raybroker_cli_way", default=None)
"""Of the command that runs; None inside the Ray cluster."""


may_ask: ContextVar[bool] = ContextVar("raybroker_cli_may_ask", default=True)
"""Whether somebody may be asked for a password."""


Address = Annotated[
    str | None,
    typer.Option(
        "-b",
        "--broker-address",
        metavar="HOST:PORT",
        help="From outside the Ray cluster: the broker's port mapper, or mqtcp://host:port of a service.",
    ),
]
OPTIONS: Final = {
    _ADDRESS: Address,
    "outside_user": Annotated[str | None, typer.Option("-u", "--user", metavar="NAME", help="The user, with -b.")],
    "outside_passfile": Annotated[
        Path | None,
        typer.Option(
            "--passfile",
            metavar="FILE",
            help="File with the user's password: alone in its first line, or imq.imqcmd.password=…; else it is asked.",
        ),
    ],
    "outside_token": Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="File with a token (JWT), in place of user and password."),
    ],
    "outside_secure": Annotated[
        bool, typer.Option("--secure", help="With -b host:port: the services with TLS, ssladmin and ssljms.")
    ],
    "outside_define": Annotated[
        list[str] | None,
        typer.Option(
            "-D",
            metavar="ATTR=VALUE",
            help="With -b: an attribute of the connection, such as raybroker.client.tls.trust=FILE. Repeatable.",
        ),
    ],
    "first_timeout": Annotated[
        float | None,
        typer.Option(
            "-rtm",
            metavar="S",
            min=0.001,
            max=86_400,
            show_default=False,
            help=f"How long to wait for an answer first, {FIRST_S:g} s with -rtr; then twice, three times as "
            "long and so on.",
        ),
    ],
    "further_waits": Annotated[
        int | None,
        typer.Option(
            "-rtr",
            metavar="N",
            min=0,
            max=1000,
            show_default=False,
            help=f"How many times to wait longer, {RETRIES} with -rtm; the request is sent once. Without both "
            "the broker's own limits hold.",
        ),
    ],
}


def reachable(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a command with the options beside its own, unless it has no cluster to reach.

    Where -b names a broker already, its value is an address when it has a colon.
    """
    own = list(inspect.signature(function, eval_str=True).parameters.values())
    names = [parameter.name for parameter in own]
    if "cluster" not in names or "outside_user" in names:
        return function
    named = next((parameter.name for parameter in own if _is_b(parameter)), None)
    added = {name: kind for name, kind in OPTIONS.items() if name != _ADDRESS or named is None}
    place = names.index("cluster")
    own[place:place] = [
        inspect.Parameter(
            name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=False if name in FLAGS else None, annotation=kind
        )
        for name, kind in added.items()
    ]

    @wraps(function)
    def run(**options: Any) -> Any:
        address = options.pop(_ADDRESS, None)
        if named is not None and ":" in str(options.get(named) or ""):
            address, options[named] = options[named], None
        given = (options.pop("outside_user"), options.pop("outside_passfile"), options.pop("outside_token"))
        how = (options.pop("outside_secure"), options.pop("outside_define"))
        if address is None and (context := current()) is not None:
            address, given, how = _filled(context, given, how)
            if options["cluster"] == "default" and context.cluster is not None:
                options["cluster"] = context.cluster
        waits = (options.pop("first_timeout"), options.pop("further_waits"))
        waiting = patience.set(_patience(*waits))
        token = way.set(_with(_way(address, *given), *how))
        try:
            return function(**options)
        finally:
            way.reset(token)
            patience.reset(waiting)

    run.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]  # typer reads it
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in own}
    return run


_Given = tuple[str | None, Path | None, Path | None]
_How = tuple[bool, list[str] | None]


def _filled(context: Context, given: _Given, how: _How) -> tuple[str | None, _Given, _How]:
    """Address, who and how, where a context says what the command line does not."""
    user, passfile, token = given
    if user is None and token is None:
        user, token = context.user, _path(context.token_file)
    if passfile is None and user is not None and user == context.user:
        passfile = _path(context.passfile)
    secure, define = how
    return context.broker, (user, passfile, token), (secure or context.secure, [*context.define, *(define or ())])


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def require_way(context: Context) -> None:
    """Raises UsageError for a context with which no command could reach a broker. No password is asked for."""
    _require_who(context.broker, context.user, context.passfile, context.token_file)
    way = _with(None if context.broker is None else Way(context.broker, {}, {}), context.secure, list(context.define))
    if way is not None:
        _require_kept(way)


def _require_kept(way: Way) -> None:
    """Raises UsageError for an address that is none, and for a secret, which belongs into a file of its own."""
    from raybroker.client.ways.service_address import service_addresses

    try:
        service_addresses(way.url("admin"))
    except ConfigError as error:
        raise UsageError(str(error)) from None
    for name in way.attributes:
        if lookup(name, "factory").secret:
            raise UsageError(f"-D {name}=…: a context has no secrets; keep it in a file, for --passfile")


def _require_who(address: str | None, user: object, passfile: object, token_file: object) -> None:
    """Raises UsageError unless a broker from outside is named with who comes, and nobody without one."""
    if address is None:
        if user is not None or passfile is not None or token_file is not None:
            raise UsageError("-u, --passfile and --token-file are for brokers from outside: name one with -b host:port")
    elif token_file is not None:
        if user is not None or passfile is not None:
            raise UsageError("--token-file says who you are: give no -u and --passfile beside it")
    elif user is None:
        raise UsageError(f"-b {address}: say as which user, with -u, or give a --token-file")


def _patience(first_s: float | None, retries: int | None) -> Patience | None:
    if first_s is None and retries is None:
        return None
    return Patience(FIRST_S if first_s is None else first_s, RETRIES if retries is None else retries)


def _with(found: Way | None, secure: bool, define: list[str] | None) -> Way | None:
    """Add --secure and -D; raises UsageError."""
    if found is None:
        if secure or define:
            raise UsageError("--secure and -D are for brokers from outside: name one with -b host:port")
        return None
    attributes = _attributes(define) if define else {}
    address = found.address
    if secure:
        if "://" in address:
            raise UsageError(f"--secure is for -b host:port; {address} says itself whether there is TLS")
        address = f"mqs://{address}"
    return found._replace(address=address, attributes=attributes)


def _attributes(define: list[str]) -> dict[str, str]:
    """Attributes of the connection; raises UsageError."""
    from raybroker.client.ways.reaching import checked

    try:
        attributes = {given.name: str(given.value) for given in flag_layer(define)}
        checked(attributes)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    return attributes


def _is_b(parameter: inspect.Parameter) -> bool:
    """Whether an option is called -b; typer keeps the first name where defaults may be."""
    return any(
        "-b" in (getattr(one, "default", None), *(getattr(one, "param_decls", None) or ()))
        for one in get_args(parameter.annotation)[1:]
    )


def _way(address: str | None, user: str | None, passfile: Path | None, token_file: Path | None) -> Way | None:
    _require_who(address, user, passfile, token_file)
    if address is None:
        return None
    if token_file is not None:
        return Way(address, {"token": password_in(token_file, "token file").strip()}, {})
    assert user is not None
    return Way(address, {"username": user, "password": _password(user, passfile)}, {})


def _password(user: str, passfile: Path | None) -> str:
    """It never stands on a command line, where others can see it."""
    if passfile is None:
        if not (may_ask.get() and sys.stdin.isatty()):
            raise UsageError(f"there is no terminal to ask for the password of {user} at; give a --passfile")
        return str(typer.prompt(f"password of {user}", hide_input=True, err=True))
    first = password_in(passfile, "passfile")
    if first.startswith(("imq.", "raybroker.", "#")):
        try:
            found: Passwords = read_passfile(passfile)
        except ConfigError as error:
            raise UsageError(f"--passfile: {error}") from None
        password = found.get(COMMAND)
        if password is None:
            raise UsageError(f"--passfile {passfile}: it has no {COMMAND}=…")
        return password
    return first
