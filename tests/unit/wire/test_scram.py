"""SCRAM-SHA-256, both sides: the example of RFC 7677, and everything that a wrong peer could say."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from raybroker.errors import ProtocolError, SecurityError
from raybroker.wire import scram
from raybroker.wire.scram import (
    ALGORITHMS,
    ITERATIONS_MAX,
    SHA256,
    SHA512,
    ScramClient,
    ScramServer,
    Verifier,
    has_verifier,
    verifiers_of,
)

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
PENCIL = Verifier.from_password("pencil", SALT, 4096)
OURS, THEIRS = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"


def log_in(password: str, verifier: Verifier = PENCIL) -> str:
    client, server = ScramClient("user", password, OURS), ScramServer(THEIRS)
    name = server.read_first(client.first())
    client.check(server.finish(client.final(server.challenge(verifier))))
    return name


def test_the_example_of_the_rfc() -> None:
    client, server = ScramClient("user", "pencil", OURS), ScramServer(THEIRS)
    assert client.first() == f"n,,n=user,r={OURS}"
    assert server.read_first(client.first()) == "user"
    challenge = server.challenge(PENCIL)
    assert challenge == f"r={OURS}{THEIRS},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = client.final(challenge)
    assert final == f"c=biws,r={OURS}{THEIRS},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    signature = server.finish(final)
    assert signature == "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    client.check(signature)


def test_names_keep_their_commas() -> None:
    server = ScramServer(THEIRS)
    assert server.read_first(ScramClient("a=,b=2C", "x", OURS).first()) == "a=,b=2C"


def test_a_wrong_password_is_refused_by_the_server() -> None:
    assert log_in("pencil") == "user"
    with pytest.raises(SecurityError, match="wrong user or password"):
        log_in("pen")


def test_a_client_does_the_rounds_of_a_password_once(monkeypatch: pytest.MonkeyPatch) -> None:
    done = []
    real = scram._salted
    monkeypatch.setattr(scram, "_salted", lambda *given: done.append(given) or real(*given))
    other = Verifier.from_password("pencil", b"another salt", 4096)
    scram._remembered.cache_clear()
    done.clear()
    assert [log_in("pencil", verifier) for verifier in (PENCIL, PENCIL, other, PENCIL)] == ["user"] * 4
    assert done == [("pencil", SALT, 4096, SHA256), ("pencil", b"another salt", 4096, SHA256)]


def test_a_server_that_does_not_know_the_password_is_refused_by_the_client() -> None:
    client = ScramClient("user", "pencil", OURS)
    client.final(f"r={OURS}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1")
    for said in ("v=AAAA", "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="):
        with pytest.raises(SecurityError, match="could not show"):
            client.check(said)
    with pytest.raises(SecurityError, match="could not show"):
        ScramClient("user", "pencil", OURS).check("v=AAAA")


@pytest.mark.parametrize(
    ("challenge", "error"),
    [
        ("r=other,s=AAAA,i=1", SecurityError),
        (f"r={OURS},s=AAAA,i=1", SecurityError),
        (f"r={OURS}x,s=AAAA,i=0", SecurityError),
        (f"r={OURS}x,s=AAAA,i={ITERATIONS_MAX + 1}", SecurityError),
        (f"r={OURS}x,s=AAAA,i=" + "9" * 500, SecurityError),
        (f"r={OURS}x,s=?,i=1", ProtocolError),
        (f"r={OURS}x,i=1", ProtocolError),
        ("", ProtocolError),
        ("x" * 5000, ProtocolError),
    ],
)
def test_a_challenge_that_is_not_for_this_login_is_refused(challenge: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        ScramClient("user", "pencil", OURS).final(challenge)


@pytest.mark.parametrize("first", ["", "n,,", "y,,n=a,r=b", "n,,n=a", "n,,r=b,n=a", "n,,n=a,r=", "n,,n=" + "a" * 3000])
def test_a_first_message_that_is_malformed_is_refused(first: str) -> None:
    with pytest.raises(ProtocolError):
        ScramServer(THEIRS).read_first(first)


@pytest.mark.parametrize("final", ["", "c=biws,r=x,p=AAAA", f"c=eSws,r={OURS}{THEIRS},p=AAAA", "c=biws,p=AAAA"])
def test_a_proof_that_is_malformed_is_refused(final: str) -> None:
    server = ScramServer(THEIRS)
    server.read_first(ScramClient("user", "x", OURS).first())
    server.challenge(PENCIL)
    with pytest.raises(ProtocolError):
        server.finish(final)


def test_a_proof_before_the_challenge_is_refused() -> None:
    with pytest.raises(ProtocolError):
        ScramServer(THEIRS).finish(f"c=biws,r={OURS}{THEIRS},p=AAAA")


def test_verifiers_are_stored_as_text_and_show_nothing_else() -> None:
    assert Verifier.parse(str(PENCIL)) == PENCIL
    assert "pencil" not in str(PENCIL)
    assert "SCRAM" not in repr(PENCIL)
    for damaged in ("", "x", "SCRAM-SHA-1$1:AAAA$AAAA:AAAA", "SCRAM-SHA-256$x:AAAA$AAAA:AAAA", "SCRAM-SHA-256$1$2"):
        with pytest.raises(ProtocolError):
            Verifier.parse(damaged)


def test_a_name_that_is_not_there_is_answered_like_one_that_is() -> None:
    nobody = Verifier.nobody("eve", b"s" * 32)
    assert nobody == Verifier.nobody("eve", b"s" * 32) != Verifier.nobody("adam", b"s" * 32)
    assert (len(nobody.salt), len(nobody.stored_key)) == (len(SALT), 32)
    with pytest.raises(SecurityError):
        log_in("pencil", Verifier(SALT, 1, nobody.stored_key, nobody.server_key))


def test_sha_512_proves_as_hashlib_says() -> None:
    """RFC 5802 with another hash: what each side sends, worked out here step by step."""
    verifier = Verifier.from_password("pencil", SALT, 4096, SHA512)
    client, server = ScramClient("user", "pencil", OURS, SHA512), ScramServer(THEIRS)
    server.read_first(client.first())
    challenge = server.challenge(verifier)
    final = client.final(challenge)
    salted = hashlib.pbkdf2_hmac("sha512", b"pencil", SALT, 4096)
    signed = f"n=user,r={OURS},{challenge},c=biws,r={OURS}{THEIRS}".encode()
    key = hmac.digest(salted, b"Client Key", "sha512")
    mask = hmac.digest(hashlib.sha512(key).digest(), signed, "sha512")
    proof = bytes(a ^ b for a, b in zip(key, mask, strict=True))
    assert final == f"c=biws,r={OURS}{THEIRS},p={base64.b64encode(proof).decode()}"
    signature = hmac.digest(hmac.digest(salted, b"Server Key", "sha512"), signed, "sha512")
    assert server.finish(final) == f"v={base64.b64encode(signature).decode()}"
    client.check(f"v={base64.b64encode(signature).decode()}")


def test_what_is_kept_of_a_password_has_a_verifier_of_each_algorithm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scram, "ITERATIONS", dict.fromkeys(ALGORITHMS, 4096))
    kept = verifiers_of("pencil", lambda: SALT)
    assert Verifier.parse(kept) == PENCIL
    assert Verifier.parse(kept, SHA512) == Verifier.from_password("pencil", SALT, 4096, SHA512)
    assert [has_verifier(kept, one) for one in ALGORITHMS] == [True, True]
    assert [has_verifier(str(PENCIL), one) for one in ALGORITHMS] == [True, False]
    with pytest.raises(ProtocolError, match="SCRAM-SHA-512"):
        Verifier.parse(str(PENCIL), SHA512)
