"""SCRAM-SHA-256, both sides: the example of RFC 7677, and everything that a wrong peer could say."""

from __future__ import annotations

import base64

import pytest

from raybroker.errors import ProtocolError, SecurityError
from raybroker.wire import scram
from raybroker.wire.scram import ITERATIONS_MAX, ScramClient, ScramServer, Verifier

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
    assert done == [("pencil", SALT, 4096), ("pencil", b"another salt", 4096)]


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
