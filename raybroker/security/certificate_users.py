"""Users that clients' certificates stand for.

The file of certificates has lines of ``user: subject`` or ``user: sha256:fingerprint``::

    ann: CN=ann,O=Example
    orders: sha256:5e1f…

The subject is as ``raybroker keytool show`` writes it (RFC 4514).  Without the file the user is the one that the common
name (CN) names.  The certificate itself has been verified before: TLS takes none whose authority is not trusted.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from raybroker.model.errors import ConfigError, SecurityError

log = logging.getLogger("raybroker.security")

FILE_BYTES_MAX: Final = 16 << 20
_FINGERPRINT: Final = "sha256:"
_FINGERPRINT_CHARS: Final = 64


class CertificateUsers:
    """Blocks for the disk: a stat of the file for each :meth:`user_of`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None
        self._users: dict[str, str] | None = None

    def user_of(self, der: bytes) -> str:
        """The name of the user; raises SecurityError for a certificate that stands for nobody."""
        from cryptography import x509
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.x509.oid import NameOID

        certificate = x509.load_der_x509_certificate(der)
        subject, print_ = certificate.subject.rfc4514_string(), certificate.fingerprint(SHA256()).hex()
        users = self.users()
        if users is not None:
            found = users.get(_FINGERPRINT + print_) or users.get(subject)
            if found is None:
                raise SecurityError(f"certificate {subject!r:.200} stands for no user of {self.path.name}")
            return found
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        if len(names) != 1:
            raise SecurityError(f"certificate {subject!r:.200} has {len(names)} common names (CN); one names its user")
        return str(names[0].value)

    def users(self) -> dict[str, str] | None:
        """Subject or fingerprint → user; None without the file. Raises ConfigError for a file that cannot be right."""
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            self._seen = self._users = None
            return None
        seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        if seen != self._seen:
            self._users, self._seen = self._read(stat.st_size), seen
        return self._users

    def _read(self, size: int) -> dict[str, str]:
        if size > FILE_BYTES_MAX:
            raise ConfigError(f"{self.path} has {size} bytes; at most {FILE_BYTES_MAX} are read")
        found: dict[str, str] = {}
        try:
            text = self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.path} cannot be read: {error}") from None
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            user, _, shown = line.partition(":")
            user, shown = user.strip(), shown.strip()
            if shown.lower().startswith(_FINGERPRINT):
                digits = shown[len(_FINGERPRINT) :].replace(":", "").lower()
                right = len(digits) == _FINGERPRINT_CHARS and not digits.strip("0123456789abcdef")
                shown = _FINGERPRINT + digits
            else:
                right = "=" in shown
            if not user or not right:
                raise ConfigError(f"{self.path}, line {number}: a line is user: CN=… or user: sha256:64 hex digits")
            if shown in found:
                raise ConfigError(f"{self.path}, line {number}: {shown:.200} is there twice")
            found[shown] = user
        return found
