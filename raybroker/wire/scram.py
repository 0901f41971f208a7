"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): a password is proved without being sent, and the server proves
that it knows it.

Both sides as machines without IO; messages are text. The server keeps a *verifier* of each password (RFC 5803), from
which the password cannot be read. Channel binding is not offered: the services that want encryption have TLS.

    client → server   n,,n=user,r=nonce
    server → client   r=nonce+more,s=salt,i=iterations
    client → server   c=biws,r=nonce+more,p=proof
    server → client   v=signature
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from raybroker.model.errors import ProtocolError, SecurityError

SHA256: Final = "SHA-256"
SHA512: Final = "SHA-512"
ALGORITHMS: Final = (SHA256, SHA512)
ITERATIONS: Final = {SHA256: 600_000, SHA512: 210_000}
"""Rounds of PBKDF2 for new verifiers: about a third of a second of the client for each login."""
ITERATIONS_MAX: Final = 5_000_000
"""A server that asks for more is not obeyed."""
SALT_BYTES: Final = 16
NONCE_BYTES: Final = 18
MESSAGE_CHARS_MAX: Final = 2048
REMEMBERED_MAX: Final = 16
"""Salted passwords that a client keeps, so that its further logins need no rounds (RFC 5802, section 5.1)."""
_HEADER: Final = "n,,"
_BOUND: Final = "biws"
_KEY_BYTES: Final = {SHA256: 32, SHA512: 64}
_NAMES: Final = {SHA256: "sha256", SHA512: "sha512"}
_BETWEEN: Final = ","
"""Stands between the verifiers of one password."""


def _hmac(key: bytes, text: bytes, algorithm: str) -> bytes:
    return hmac.digest(key, text, _NAMES[algorithm])


def _hash(data: bytes, algorithm: str) -> bytes:
    return hashlib.new(_NAMES[algorithm], data).digest()


def _b64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _unb64(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ProtocolError(f"{what} is not base64") from None


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _fields(message: str, keys: str) -> list[str]:
    """The values of a message with exactly these fields in this order; raises ProtocolError."""
    parts = message.split(",")
    if len(message) > MESSAGE_CHARS_MAX or [part[:2] for part in parts] != [f"{key}=" for key in keys]:
        raise ProtocolError("a message of the login is malformed")
    return [part[2:] for part in parts]


@dataclass(frozen=True, slots=True)
class Verifier:
    """What the server keeps of a password: 16 bytes of salt, rounds, and two keys of 32 or 64 bytes."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes
    algorithm: str = SHA256

    @classmethod
    def from_password(cls, password: str, salt: bytes, iterations: int = 0, algorithm: str = SHA256) -> Verifier:
        """Takes as long as ``iterations`` say; 0: those of new verifiers."""
        iterations = iterations or ITERATIONS[algorithm]
        salted = _salted(password, salt, iterations, algorithm)
        client_key = _hmac(salted, b"Client Key", algorithm)
        server_key = _hmac(salted, b"Server Key", algorithm)
        return cls(salt, iterations, _hash(client_key, algorithm), server_key, algorithm)

    @classmethod
    def nobody(cls, name: str, secret: bytes, algorithm: str = SHA256) -> Verifier:
        """Make the verifier for a user who is not there: the same each time, so that guessing names tells nothing."""
        salt = _hmac(secret, name.encode(), algorithm)[:SALT_BYTES]
        stored, server = (_hmac(secret, what + name.encode(), algorithm) for what in (b"stored", b"server"))
        return cls(salt, ITERATIONS[algorithm], stored, server, algorithm)

    def __str__(self) -> str:
        """Write it as RFC 5803 has it."""
        keys = f"{_b64(self.stored_key)}:{_b64(self.server_key)}"
        return f"SCRAM-{self.algorithm}${self.iterations}:{_b64(self.salt)}${keys}"

    def __repr__(self) -> str:
        return "Verifier(…)"

    @classmethod
    def parse(cls, text: str, algorithm: str = SHA256) -> Verifier:
        """What str() gave, or verifiers_of(), for one of ALGORITHMS; raises ProtocolError when it is not there."""
        wanted = f"SCRAM-{algorithm}"
        one = next((part for part in text.split(_BETWEEN) if part.startswith(f"{wanted}$")), text)
        try:
            scheme, first, second = one.split("$")
            iterations, salt = first.split(":")
            stored, server = second.split(":")
            keys = _unb64(stored, "key"), _unb64(server, "key")
            found = cls(_unb64(salt, "salt"), int(iterations), *keys, algorithm)
        except ValueError:
            raise ProtocolError(f"a stored password is not {wanted}$rounds:salt$key:key") from None
        if scheme != wanted or {len(key) for key in keys} != {_KEY_BYTES[algorithm]}:
            raise ProtocolError(f"a stored password is not {wanted}$rounds:salt$key:key")
        return found


def verifiers_of(password: str, salts: Callable[[], bytes]) -> str:
    """What is kept of a password for all ALGORITHMS, as one text; takes about a second. ``salts()``: a new one."""
    return _BETWEEN.join(str(Verifier.from_password(password, salts(), 0, algorithm)) for algorithm in ALGORITHMS)


def has_verifier(text: str, algorithm: str) -> bool:
    """Whether what is kept of a password has a verifier of that algorithm."""
    return any(part.startswith(f"SCRAM-{algorithm}$") for part in text.split(_BETWEEN))


def _salted(password: str, salt: bytes, iterations: int, algorithm: str) -> bytes:
    return hashlib.pbkdf2_hmac(_NAMES[algorithm], password.encode(), salt, iterations)


@lru_cache(maxsize=REMEMBERED_MAX)
def _remembered(password: str, salt: bytes, iterations: int, algorithm: str) -> bytes:
    return _salted(password, salt, iterations, algorithm)


class ScramClient:
    """``nonce``: printable text of at least 18 random bytes, without a comma."""

    def __init__(self, user: str, password: str, nonce: str, algorithm: str = SHA256) -> None:
        self._algorithm = algorithm
        self._password = password
        self._nonce = nonce
        self._bare = f"n={_escaped(user)},r={nonce}"
        self._signature = b""

    def first(self) -> str:
        return _HEADER + self._bare

    def final(self, challenge: str) -> str:
        """The proof; takes as long as the server's iterations say, once in a process. Raises SecurityError for a wrong
        server."""
        nonce, salt_text, rounds = _fields(challenge, "rsi")
        salt = _unb64(salt_text, "the salt")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise SecurityError("the broker's answer is not for this login")
        if not rounds.isdecimal() or not 1 <= int(rounds[:10]) <= ITERATIONS_MAX:
            raise SecurityError(f"the broker asks for {rounds[:20]} rounds; at most {ITERATIONS_MAX} are done")
        algorithm = self._algorithm
        salted = _remembered(self._password, salt, int(rounds), algorithm)
        client_key = _hmac(salted, b"Client Key", algorithm)
        bare = f"c={_BOUND},r={nonce}"
        signed = f"{self._bare},{challenge},{bare}".encode()
        mask = _hmac(_hash(client_key, algorithm), signed, algorithm)
        proof = bytes(a ^ b for a, b in zip(client_key, mask, strict=True))
        self._signature = _hmac(_hmac(salted, b"Server Key", algorithm), signed, algorithm)
        return f"{bare},p={_b64(proof)}"

    def check(self, last: str) -> None:
        """Raises SecurityError unless the broker knows the password too."""
        (shown,) = _fields(last, "v")
        if not self._signature or not hmac.compare_digest(_unb64(shown, "the signature"), self._signature):
            raise SecurityError("the broker could not show that it knows the password; it is not the right one")


class ScramServer:
    """One login. ``nonce``: as of ScramClient."""

    def __init__(self, nonce: str) -> None:
        self._nonce = nonce
        self._bare = self._challenge = ""
        self._verifier: Verifier | None = None
        self._expected = ""

    def read_first(self, first: str) -> str:
        """The user's name that the first message claims; raises ProtocolError."""
        if not first.startswith(_HEADER):
            raise ProtocolError("a message of the login is malformed")
        self._bare = first.removeprefix(_HEADER)
        name, theirs = _fields(self._bare, "nr")
        if not theirs:
            raise ProtocolError("a message of the login is malformed")
        self._expected = theirs + self._nonce
        return _unescaped(name)

    def challenge(self, verifier: Verifier) -> str:
        self._verifier = verifier
        self._challenge = f"r={self._expected},s={_b64(verifier.salt)},i={verifier.iterations}"
        return self._challenge

    def finish(self, final: str) -> str:
        """The server's signature; raises SecurityError for a wrong password, ProtocolError for a malformed message."""
        bound, nonce, proof_text = _fields(final, "crp")
        verifier = self._verifier
        if verifier is None or bound != _BOUND or not hmac.compare_digest(nonce.encode(), self._expected.encode()):
            raise ProtocolError("a message of the login is malformed")
        proof = _unb64(proof_text, "the proof")
        signed = f"{self._bare},{self._challenge},c={bound},r={nonce}".encode()
        algorithm = verifier.algorithm
        mask = _hmac(verifier.stored_key, signed, algorithm)
        if len(proof) != len(mask):
            raise ProtocolError("a message of the login is malformed")
        key = bytes(a ^ b for a, b in zip(proof, mask, strict=True))
        if not hmac.compare_digest(_hash(key, algorithm), verifier.stored_key):
            raise SecurityError("wrong user or password")
        return f"v={_b64(_hmac(verifier.server_key, signed, algorithm))}"
