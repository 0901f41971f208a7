"""Keystores: made, imported and described, as PEM. Nothing here touches a file but through its arguments."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from raybroker.model.errors import ConfigError

KEY_TYPES: Final = ("ec", "rsa")
RSA_BITS: Final = 3072
DAYS_MAX: Final = 3660
NAME_CHARS_MAX: Final = 64
"""Of a common name, as X.509 has it."""
NAMES_MAX: Final = 100


def self_signed(
    names: Sequence[str],
    *,
    days: int,
    now: datetime,
    organisation: str = "",
    key_type: str = "ec",
    password: str | None = None,
) -> bytes:
    """A key pair and its certificate, signed by itself. ``names``: host names and addresses, the first its common name.

    Raises ConfigError for what cannot be a name, a number of days or a type of key.
    """
    if not 1 <= len(names) <= NAMES_MAX:
        raise ConfigError(f"a certificate has 1 to {NAMES_MAX} names; these are {len(names)}")
    if not 1 <= days <= DAYS_MAX:
        raise ConfigError(f"a certificate is good for 1 to {DAYS_MAX} days, not {days}")
    others = [_alternative(name) for name in dict.fromkeys(names)]
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, names[0][:NAME_CHARS_MAX])]
    if organisation:
        if len(organisation) > NAME_CHARS_MAX:
            raise ConfigError(f"an organisation has at most {NAME_CHARS_MAX} characters")
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation))
    name = x509.Name(attributes)
    key = _new_key(key_type)
    public = key.public_key()
    rsa_key = isinstance(key, rsa.RSAPrivateKey)
    identifier = x509.SubjectKeyIdentifier.from_public_key(public)
    usage = x509.KeyUsage(
        digital_signature=True,
        key_encipherment=rsa_key,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(others), critical=False)
        .add_extension(usage, critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _key_pem(key, password) + certificate.public_bytes(Encoding.PEM)


def combined(key_pem: bytes, chain_pem: bytes, *, given: str | None = None, password: str | None = None) -> bytes:
    """A keystore of a key and a chain that somebody else has made: each certificate must have signed the one before.

    ``given``: the password that the key has; ``password``: the one that it gets. Raises ConfigError.
    """
    try:
        key: Any = serialization.load_pem_private_key(key_pem, given.encode() if given else None)
    except TypeError:
        why = "it has a password, which is not given" if not given else "it has no password, and one is given"
        raise ConfigError(f"the key cannot be read: {why}") from None
    except (ValueError, UnsupportedAlgorithm):
        why = "the password is wrong, or it is no private key as PEM" if given else "it is no private key as PEM"
        raise ConfigError(f"the key cannot be read: {why}") from None
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) and "Ed" not in type(key).__name__:
        raise ConfigError("the key is of a type that TLS does not use; RSA, EC and Ed25519 are")
    chain = certificates(chain_pem)
    if _public_bytes(key.public_key()) != _public_bytes(chain[0].public_key()):
        raise ConfigError("the key is not that of the first certificate of the chain")
    for below, above in pairwise(chain):
        try:
            below.verify_directly_issued_by(above)
        except (ValueError, TypeError, InvalidSignature):
            raise ConfigError(
                f"the chain is out of order: {above.subject.rfc4514_string()} has not issued"
                f" {below.subject.rfc4514_string()}"
            ) from None
    return _key_pem(key, password) + b"".join(one.public_bytes(Encoding.PEM) for one in chain)


def certificates(pem: bytes) -> list[x509.Certificate]:
    """Return the certificates of a PEM text, whatever else is in it; raises ConfigError when there is none."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise ConfigError("there is no certificate as PEM") from None


def exported(pem: bytes) -> bytes:
    """The certificates of a keystore without its key, for those who are to trust it."""
    return b"".join(one.public_bytes(Encoding.PEM) for one in certificates(pem))


def described(certificate: x509.Certificate, now: datetime) -> dict[str, Any]:
    """A row for people: subject, names, issuer, from, until, days left, fingerprint, key."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        shown = ", ".join(
            [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]
        )
    except x509.ExtensionNotFound:
        shown = ""
    public = certificate.public_key()
    key = type(public).__name__.lstrip("_").removesuffix("PublicKey")
    bits = getattr(public, "key_size", None)
    return {
        "subject": certificate.subject.rfc4514_string(),
        "names": shown,
        "issuer": certificate.issuer.rfc4514_string(),
        "self_signed": certificate.issuer == certificate.subject,
        "valid_from": certificate.not_valid_before_utc.isoformat(),
        "valid_until": certificate.not_valid_after_utc.isoformat(),
        "days_left": (certificate.not_valid_after_utc - now).days,
        "key": f"{key} {bits}" if bits else key,
        "sha256": certificate.fingerprint(hashes.SHA256()).hex(),
    }


def instant(now_ms: int) -> datetime:
    """A time of the clock as certificates have it."""
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=now_ms)


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    labels = name.split(".")
    if (
        not all(
            (part == "*" and at == 0 and len(labels) > 1)
            or (1 <= len(part) <= 63 and part.isascii() and part.replace("-", "").replace("_", "").isalnum())
            for at, part in enumerate(labels)
        )
        or len(name) > 253
    ):
        raise ConfigError(f"{name!r:.100} is neither an address nor a host name (such as broker.example)")
    return x509.DNSName(name)


def _new_key(key_type: str) -> rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey:
    if key_type == "ec":
        return ec.generate_private_key(ec.SECP256R1())
    if key_type == "rsa":
        return rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS)
    raise ConfigError(f"a key is one of {', '.join(KEY_TYPES)}, not {key_type!r:.40}")


def _key_pem(key: Any, password: str | None) -> bytes:
    lock = serialization.BestAvailableEncryption(password.encode()) if password else NoEncryption()
    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock)
    return pem


def _public_bytes(public: Any) -> bytes:
    found: bytes = public.public_bytes(Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return found
