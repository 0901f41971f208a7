"""Users of the connection services on the command line: raybroker usermgr add, delete, update, list, encode, decode.

The commands change the file of users on this machine, and need no broker; brokers read it again when it has changed.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from raybroker.cli import output
from raybroker.cli.answers import show_list
from raybroker.cli.exits import Commands, UsageError
from raybroker.cli.grid_words import Force, Instance, Json, ask
from raybroker.cli.objects.cluster import ClusterFile
from raybroker.cli.tools.security_files import password_in, security_files
from raybroker.model.definitions.user import GROUPS, check_name
from raybroker.model.errors import ConfigError
from raybroker.security.file_repository import argon2_hash
from raybroker.security.passfile import rewritten
from raybroker.security.private_files import write_private
from raybroker.security.user_file import UserEntry, UserFile, check_password
from raybroker.system.entropy import token
from raybroker.wire.scram import SALT_BYTES, verifiers_of

HASHES: Final = ("scram", "argon2")
User = Annotated[str, typer.Option("-u", "--user", metavar="NAME", help="Name of the user.")]
PasswordFile = Annotated[
    Path | None,
    typer.Option("--passfile", metavar="FILE", help="File whose first line is the password; without it, it is asked."),
]
Hash = Annotated[
    str,
    typer.Option(
        "--hash",
        metavar="scram|argon2",
        help="What is kept of the password: scram, for logins by digest and by basic; argon2, for basic alone.",
    ),
]
UsersFile = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="The file of users; without it that of the cluster's brokers here."),
]

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    short_help="Users of the connection services.",
    help="Users of the connection services, by which programs outside the Ray cluster come in. Brokers on several "
    "machines each read the file of theirs.",
)


def _users(file: Path | None, config: Path | None, cluster: str | None) -> UserFile:
    if file is not None:
        return UserFile(file)
    found, directory = security_files(config, cluster)
    return UserFile(directory / found["imq.user_repository.file.filename"])


def _verifier(user: str, passfile: Path | None, kind: str) -> str:
    """Ask for the password, or read it; it never stands on a command line, where others can see it."""
    check_name(user)
    if kind not in HASHES:
        raise UsageError(f"--hash {kind}: it is {' or '.join(HASHES)}")
    if passfile is not None:
        password = password_in(passfile, "--passfile")
    else:
        password = typer.prompt(f"password of {user}", hide_input=True, confirmation_prompt=True)
    check_password(password)
    return argon2_hash(password) if kind == "argon2" else verifiers_of(password, partial(token, SALT_BYTES))


@app.command()
def add(
    user: User,
    group: Annotated[str, typer.Option("-g", "--group", metavar="GROUP", help=f"One of {', '.join(GROUPS)}.")] = "user",
    passfile: PasswordFile = None,
    kind: Hash = "scram",
    file: UsersFile = None,
    config: ClusterFile = None,
    cluster: Instance = None,
) -> None:
    """Make a user: raybroker usermgr add -u ann -g admin; the password is asked."""
    users = _users(file, config, cluster)
    if group not in GROUPS:
        raise UsageError(f"-g {group}: the groups are {', '.join(GROUPS)}")
    if user in users.users():
        raise ConfigError(f"user {user!r} exists already; update or delete it")
    users.add(user, UserEntry(_verifier(user, passfile, kind), group))
    output.say(f"added user {user} of group {group} to {users.path}")


@app.command()
def delete(
    user: User, force: Force = False, file: UsersFile = None, config: ClusterFile = None, cluster: Instance = None
) -> None:
    """Remove a user; its open connections stay open: raybroker destroy cxn closes them."""
    ask(force, f"delete user {user}?")
    _users(file, config, cluster).delete(user)
    output.say(f"deleted user {user}")


@app.command()
def update(
    user: User,
    active: Annotated[
        bool | None, typer.Option("--active/--inactive", help="Whether the user may connect.", show_default=False)
    ] = None,
    password: Annotated[bool, typer.Option("--password", help="Ask for another password.")] = False,
    passfile: PasswordFile = None,
    kind: Hash = "scram",
    file: UsersFile = None,
    config: ClusterFile = None,
    cluster: Instance = None,
) -> None:
    """Change a password, or whether a user may connect: raybroker usermgr update -u ann --inactive"""
    if active is None and not password and passfile is None:
        raise UsageError("usermgr update: say what changes, --password, --active or --inactive")
    users = _users(file, config, cluster)
    verifier = _verifier(user, passfile, kind) if password or passfile is not None else None
    users.update(user, verifier=verifier, active=active)
    output.say(f"updated user {user}")


@app.command("list")
def list_users(
    user: Annotated[str | None, typer.Option("-u", "--user", metavar="NAME", help="Only this one.")] = None,
    file: UsersFile = None,
    json: Json = False,
    config: ClusterFile = None,
    cluster: Instance = None,
) -> None:
    """List users with their groups; no passwords."""
    users = _users(file, config, cluster)
    rows = [
        {"user": name, "group": row.group, "active": row.active}
        for name, row in sorted(users.users().items())
        if user in (None, name)
    ]
    if user is not None and not rows:
        raise ConfigError(f"there is no user {user!r} in {users.path}")
    show_list(rows, "user, group, active", empty=f"no users in {users.path}", json=json)


Source = Annotated[Path, typer.Option("-src", "--source", metavar="FILE", help="The passfile to read.")]
Target = Annotated[
    Path | None, typer.Option("-target", "--target", metavar="FILE", help="The file to write; without it the same.")
]


@app.command()
def encode(source: Source, target: Target = None, force: Force = False) -> None:
    """Write the passwords of a passfile encoded: raybroker usermgr encode -src passfile

    Encoded passwords are not seen in passing, and anybody who may read the file can decode them: its mode protects it.
    """
    _rewrite(source, target, force, encode=True)


@app.command()
def decode(source: Source, target: Target = None, force: Force = False) -> None:
    """Write the passwords of a passfile in clear again: raybroker usermgr decode -src passfile -target clear"""
    _rewrite(source, target, force, encode=False)


def _rewrite(source: Path, target: Path | None, force: bool, *, encode: bool) -> None:
    text = rewritten(source, encode)
    chosen = target if target is not None else source
    if target is not None and target.exists():
        ask(force, f"write over {target}?")
    write_private(chosen, text.encode())
    output.say(f"wrote the passwords of {source} {'encoded' if encode else 'in clear'} to {chosen}")
