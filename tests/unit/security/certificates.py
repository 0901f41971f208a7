"""Certificates for tests: an authority, and what it signs."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


def subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def pem_of(key: Any, password: str | None = None) -> bytes:
    lock: Any = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)


def private(path: Path, *parts: bytes) -> Path:
    path.touch(0o600)
    path.write_bytes(b"".join(parts))
    path.chmod(0o600)
    return path


class Authority:
    """``file``: its certificate, for who trusts it."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = subject(name)
        self.certificate = self._signed(self.name, self.key.public_key(), -1, 100, ca=True, names=())
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def _signed(self, name: x509.Name, public: Any, first: int, last: int, *, ca: bool, names: Any) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self.name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + first * DAY)
            .not_valid_after(now + last * DAY)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def issue(
        self,
        file: str,
        name: str = "localhost",
        *,
        first: int = -2,
        last: int = 30,
        password: str | None = None,
        addresses: tuple[str, ...] = ("127.0.0.1",),
        cn: str | None = None,
    ) -> Path:
        """A file with a key and its certificate, good from ``first`` to ``last`` days from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName(name), *(x509.IPAddress(ipaddress.ip_address(address)) for address in addresses)]
        made = self._signed(subject(cn or name), key.public_key(), first, last, ca=False, names=names)
        return private(self.folder / file, pem_of(key, password), made.public_bytes(serialization.Encoding.PEM))
