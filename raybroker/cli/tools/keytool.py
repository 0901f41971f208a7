"""The keystore of TLS services on the command line: raybroker keytool make, import, show, export.

The commands change the keystore on this machine, and need no broker; brokers read it again when it has changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from raybroker.cli import output
from raybroker.cli.answers import show_list, show_one
from raybroker.cli.exits import Commands, UsageError
from raybroker.cli.grid_words import Instance, Json
from raybroker.cli.objects.cluster import ClusterFile
from raybroker.cli.tools.security_files import password_in, security_files
from raybroker.model.errors import ConfigError
from raybroker.security.passfile import KEYSTORE, Passwords, passwords_of, read_passfile
from raybroker.security.private_files import read_public, write_private
from raybroker.security.tls import PEM_BYTES_MAX, keystore_directory
from raybroker.system.clock import SystemClock

KeystoreFile = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="The keystore; without it that of the cluster's brokers here."),
]
PassFile = Annotated[
    Path | None,
    typer.Option(
        "--passfile",
        metavar="FILE",
        help=f"Passfile whose {KEYSTORE} encrypts the key; without it that of the configuration, if enabled.",
    ),
]
Replace = Annotated[bool, typer.Option("--replace", help="Replace a keystore that is there.")]

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    short_help="The key and certificate of TLS services.",
    help="The private key and certificate of the services ssljms and ssladmin, as one PEM file that its owner alone "
    "may read. Brokers on several machines each have theirs.",
)


def _place(
    file: Path | None, passfile: Path | None, config: Path | None, cluster: str | None
) -> tuple[Path, str | None]:
    """The keystore, and the password that its key has or gets."""
    found, directory = security_files(config, cluster)
    passwords: Passwords = read_passfile(passfile) if passfile is not None else passwords_of(found, directory)
    path = file if file is not None else keystore_directory(found, directory) / found["imq.keystore.file.name"]
    return path, passwords.get(KEYSTORE)


def _require_free(path: Path, replace: bool) -> None:
    if path.exists() and not replace:
        raise ConfigError(f"keystore {path} is there already; --replace writes another one in its place")


def _read(path: Path, what: str) -> bytes:
    try:
        return read_public(path, what, PEM_BYTES_MAX)
    except ConfigError as error:
        more = "" if path.exists() else "; make one: raybroker keytool make --name HOST"
        raise UsageError(f"{error}{more}") from None


def _written(path: Path, pem: bytes, password: str | None, json: bool) -> None:
    write_private(path, pem)
    row = _rows(pem)[0]
    show_one({"keystore": str(path), "key_encrypted": password is not None, **row}, json=json)


def _rows(pem: bytes) -> list[dict[str, object]]:
    from raybroker.security import keystore

    now = keystore.instant(SystemClock().now_ms())
    return [keystore.described(one, now) for one in keystore.certificates(pem)]


@app.command()
def make(
    name: Annotated[
        list[str],
        typer.Option(
            "-n",
            "--name",
            metavar="HOST",
            help="Host name or address by which clients reach the broker. Repeatable; the first is the CN.",
        ),
    ],
    days: Annotated[int, typer.Option("--days", help="How long the certificate is good.")] = 365,
    organisation: Annotated[str, typer.Option("--organisation", metavar="O", help="Its organisation.")] = "",
    key: Annotated[str, typer.Option("--key", metavar="TYPE", help="ec or rsa.")] = "ec",
    replace: Replace = False,
    file: KeystoreFile = None,
    passfile: PassFile = None,
    config: ClusterFile = None,
    cluster: Instance = None,
    json: Json = False,
) -> None:
    """Make a key pair and a certificate signed by itself: raybroker keytool make -n host.example"""
    from raybroker.security import keystore

    path, password = _place(file, passfile, config, cluster)
    _require_free(path, replace)
    now = keystore.instant(SystemClock().now_ms())
    pem = keystore.self_signed(name, days=days, now=now, organisation=organisation, key_type=key, password=password)
    _written(path, pem, password, json)


@app.command("import")
def import_pem(
    key: Annotated[Path, typer.Option("--key", metavar="FILE", help="The private key as PEM.")],
    chain: Annotated[
        Path | None,
        typer.Option(
            "--chain",
            metavar="FILE",
            help="Its certificate and those of the authorities above it; without it they are beside the key.",
        ),
    ] = None,
    key_passfile: Annotated[
        Path | None,
        typer.Option("--key-passfile", metavar="FILE", help="File whose first line is the password that the key has."),
    ] = None,
    replace: Replace = False,
    file: KeystoreFile = None,
    passfile: PassFile = None,
    config: ClusterFile = None,
    cluster: Instance = None,
    json: Json = False,
) -> None:
    """Take a key and its certificate chain: raybroker keytool import --key key.pem --chain fullchain.pem"""
    from raybroker.security import keystore

    path, password = _place(file, passfile, config, cluster)
    _require_free(path, replace)
    given = password_in(key_passfile, "--key-passfile") if key_passfile is not None else None
    pem = keystore.combined(_read(key, "--key"), _read(chain or key, "--chain"), given=given, password=password)
    _written(path, pem, password, json)


@app.command()
def show(file: KeystoreFile = None, config: ClusterFile = None, cluster: Instance = None, json: Json = False) -> None:
    """Show the certificate of the keystore, and the chain above it; no password is needed."""
    path, _ = _place(file, None, config, cluster)
    rows = _rows(_read(path, "keystore"))
    if json:
        output.as_json(rows)
        return
    show_one({"keystore": str(path), **rows[0]}, json=False)
    if rows[1:]:
        show_list(rows[1:], "subject, issuer, valid_until, sha256", empty="", json=False)


@app.command()
def export(
    to: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Where the certificate goes.")],
    file: KeystoreFile = None,
    config: ClusterFile = None,
    cluster: Instance = None,
) -> None:
    """Write the certificate without its key, for clients to trust: raybroker keytool export -o trust.pem"""
    from raybroker.security import keystore

    path, _ = _place(file, None, config, cluster)
    pem = keystore.exported(_read(path, "keystore"))
    try:
        to.write_bytes(pem)
    except OSError as error:
        raise UsageError(f"-o {to}: {error.strerror}") from None
    output.say(f"wrote the certificate of {path} to {to}")
