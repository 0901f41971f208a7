"""TLS: from files and settings to an ``ssl.SSLContext``, for services that listen and for clients that connect.

A keystore is one PEM file with the private key and the certificate chain, or one with each.  What cannot be right is a
ConfigError before anything listens: a file that is missing or that others may read, a wrong password, a key that is not
the certificate's, a certificate whose time is over.

    tls = ServerTls.from_config(config, security_directory)   # raises ConfigError
    tls.context()                                    # for each connection: a renewed keystore is read again
    tls.certificate()                                # which the client may insist on, see pinned_context
"""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal, NamedTuple, cast

from raybroker.model.errors import ConfigError
from raybroker.model.settings.settings import ConfigView
from raybroker.security.passfile import KEYSTORE, passwords_of
from raybroker.security.private_files import read_private
from raybroker.system.clock import SystemClock

log = logging.getLogger("raybroker.security")

PEM_BYTES_MAX: Final = 4 << 20
ClientAuth = Literal["none", "want", "need"]
_VERIFY: Final = {"none": ssl.CERT_NONE, "want": ssl.CERT_OPTIONAL, "need": ssl.CERT_REQUIRED}
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
PINNED_MAX: Final = 64
"""Contexts for single certificates that are kept: as many as there are brokers, in most clusters."""
_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----")
_ENCRYPTED: Final = (b"BEGIN ENCRYPTED PRIVATE KEY", b"Proc-Type: 4,ENCRYPTED")


@dataclass(frozen=True, slots=True, repr=False)
class KeyFiles:
    """A private key and its certificate. ``chain``: None where the file of the key has it too; ``password_source``:
    where a password would be, for errors."""

    key: Path
    chain: Path | None = None
    password: str | None = None
    password_source: str = "its password is not given"

    def __repr__(self) -> str:
        return f"KeyFiles({self.key}, {self.chain})"


def server_context(
    files: KeyFiles,
    *,
    trust: Path | None = None,
    client_auth: ClientAuth = "none",
    min_version: str = "TLSv1.2",
    now_ms: int | None = None,
) -> ssl.SSLContext:
    """Make the context of a service that listens. ``trust``: authorities of clients' certificates. Raises ConfigError;
    blocks."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[min_version]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_COMPRESSION
    _check_time(files, SystemClock().now_ms() if now_ms is None else now_ms)
    _load_key(context, files, "keystore")
    context.verify_mode = _VERIFY[client_auth]
    if client_auth != "none":
        if trust is None:
            raise ConfigError("certificates of clients are asked for, and no file says which authorities they are from")
        _load_trust(context, trust, "raybroker.tls.trust.name")
    return context


def client_context(
    *, trust: Path | None = None, trusted: bool = False, files: KeyFiles | None = None
) -> ssl.SSLContext:
    """Make the context of a client that connects. Raises ConfigError; blocks.

    trust    file of the authorities, or of the broker's own certificate; None: the system's authorities
    trusted  any certificate will do, and nobody knows who the broker is (imqSSLIsHostTrusted)
    files    the client's own certificate, for brokers that ask for one
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if trusted:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif trust is not None:
        _load_trust(context, trust, "trust")
    else:
        context.load_default_certs()
    if files is not None:
        _load_key(context, files, "the client's key")
    return context


@lru_cache(maxsize=PINNED_MAX)
def pinned_context(certificate: bytes) -> ssl.SSLContext:
    """Make the context of a client that accepts this one certificate (DER), of which it has heard in a way that it
    trusts, within its time, whatever names it has and whoever has issued it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=certificate)
    return context


class ServedTls(NamedTuple):
    """What a server shows: its context, and the certificate in it (DER)."""

    context: ssl.SSLContext
    certificate: bytes


class ServerTls:
    """The context of a broker's TLS services; made again when one of ``paths`` has changed."""

    def __init__(self, make: Callable[[], ServedTls], paths: tuple[Path, ...]) -> None:
        self._make = make
        self._paths = paths
        self._seen = self._stat()
        self._served = make()

    @classmethod
    def from_config(cls, config: ConfigView, directory: Path | None, *, clients: bool = True) -> ServerTls:
        """Make it from the settings. Raises ConfigError; blocks.

        directory  the broker's security directory
        clients    whether certificates of clients are asked for, as the settings say; False: they prove who they are
                   in another way
        """
        place = keystore_directory(config, directory)
        key, chain = place / config["imq.keystore.file.name"], config["raybroker.keystore.chain.name"]
        auth = cast(ClientAuth, config["raybroker.tls.client_auth"] if clients else "none")
        trust = place / config["raybroker.tls.trust.name"] if auth != "none" else None

        def make() -> ServedTls:
            passwords = passwords_of(config, directory)
            files = KeyFiles(
                key,
                place / chain if chain else None,
                passwords.get(KEYSTORE),
                f"{KEYSTORE} is not in the passfile ({passwords.source})",
            )
            context = server_context(
                files, trust=trust, client_auth=auth, min_version=config["raybroker.tls.min_version"]
            )
            return ServedTls(context, first_certificate(files.chain or files.key))

        return cls(make, tuple(path for path in (key, place / chain if chain else None, trust) if path is not None))

    def context(self) -> ssl.SSLContext:
        """What holds now. Files that have changed and cannot be right leave what held before, which the log says."""
        return self._now().context

    def certificate(self) -> bytes:
        """The certificate that :meth:`context` shows now (DER)."""
        return self._now().certificate

    def days_left(self, now_ms: int) -> int:
        """Whole days until that certificate is over, negative afterwards."""
        from cryptography import x509

        until = x509.load_der_x509_certificate(self.certificate()).not_valid_after_utc
        return (until - (datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=now_ms))).days

    def _now(self) -> ServedTls:
        seen = self._stat()
        if seen != self._seen:
            self._seen = seen
            try:
                self._served = self._make()
                log.info("[B1070] the keystore %s was read again", self._paths[0])
            except ConfigError as error:
                log.error("[B2042] TLS stays as it was: %s", error)
        return self._served

    def _stat(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_identity, self._paths))


def keystore_directory(config: ConfigView, directory: Path | None) -> Path:
    """Return where the keystore is; raises ConfigError where no directory is known."""
    named: str = config["imq.keystore.file.dirpath"]
    if named:
        return Path(named).expanduser()
    if directory is None:
        raise ConfigError("TLS needs a keystore: name imq.keystore.file.dirpath, or raybroker.security.dir")
    return directory


def first_certificate(path: Path) -> bytes:
    """The certificate of whoever has the key (DER), which is the first of a chain; raises ConfigError."""
    try:
        text = path.read_text("ascii", "replace")
    except OSError as error:
        raise ConfigError(f"keystore {path} cannot be read: {error.strerror}") from None
    found = _PEM.search(text)
    if found is None:
        raise ConfigError(f"keystore {path} has no certificate as PEM; make one: raybroker keytool make")
    return ssl.PEM_cert_to_DER_cert(found[0])


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _load_key(context: ssl.SSLContext, files: KeyFiles, what: str) -> None:
    data = read_private(files.key, what, PEM_BYTES_MAX)
    encrypted = any(mark in data for mark in _ENCRYPTED)
    if encrypted and not files.password:
        raise ConfigError(f"{what} {files.key} is encrypted, and {files.password_source}")
    chain = files.chain or files.key
    if files.chain is not None and not files.chain.is_file():
        raise ConfigError(f"certificate {files.chain} is not there")
    try:
        context.load_cert_chain(chain, files.key, files.password or "")
    except ssl.SSLError as error:
        if error.reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"):
            raise ConfigError(f"the key in {files.key} is not that of the first certificate in {chain}") from None
        if encrypted:
            raise ConfigError(f"{what} {files.key} cannot be decrypted: the password is wrong") from None
        raise ConfigError(
            f"{what} {files.key}: there is no usable private key and certificate chain as PEM"
            f"{f' (chain: {files.chain})' if files.chain else ''}: {error.reason or error}"
        ) from None
    except OSError as error:
        raise ConfigError(f"{what} {files.key} cannot be read: {error.strerror}") from None


def _load_trust(context: ssl.SSLContext, path: Path, name: str) -> None:
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise ConfigError(f"{name}: {path} has no certificates as PEM: {error.reason or error}") from None
    except OSError as error:
        raise ConfigError(f"{name}: {path} cannot be read: {error.strerror}") from None


def _check_time(files: KeyFiles, now_ms: int) -> None:
    """Check the time of the first certificate: clients would refuse it, each with an error of its own."""
    now = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=now_ms)
    try:
        from cryptography import x509
    except ImportError:
        raise ConfigError("TLS services need cryptography: pip install 'raybroker[tls]'") from None
    path = files.chain or files.key
    try:
        first = x509.load_pem_x509_certificates(path.read_bytes())[0]
    except OSError as error:
        why = "is not there" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        raise ConfigError(f"keystore {path} {why}; make one: raybroker keytool make") from None
    except (ValueError, IndexError):
        raise ConfigError(f"keystore {path} has no certificate as PEM; make one: raybroker keytool make") from None
    if first.not_valid_after_utc < now:
        raise ConfigError(f"the certificate in {path} has expired at {first.not_valid_after_utc}; renew it")
    if first.not_valid_before_utc > now:
        raise ConfigError(
            f"the certificate in {path} is not valid before {first.not_valid_before_utc}; is the clock right?"
        )
