"""raybroker keytool: a keystore from nothing, from somebody else's files, shown, and exported for clients."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from raybroker.cli.tools.keytool import app


def keytool(*arguments: Any, expect: int = 0) -> str:
    done = CliRunner().invoke(app, [str(one) for one in arguments])
    assert done.exit_code == expect, done.output
    return done.output


def test_a_keystore_is_made_shown_and_exported(tmp_path: Path) -> None:
    store, passfile, trust = tmp_path / "keystore", tmp_path / "passfile", tmp_path / "trust.pem"
    passfile.touch(0o600)
    passfile.write_text("imq.keystore.password=open sesame\n")
    made = keytool(
        "make",
        "-n",
        "broker.example",
        "-n",
        "127.0.0.1",
        "--days",
        7,
        "--file",
        store,
        "--passfile",
        passfile,
        "--json",
    )
    row = json.loads(made)
    assert (row["names"], row["key_encrypted"]) == ("broker.example, 127.0.0.1", True)
    assert "open sesame" not in made
    assert store.stat().st_mode & 0o777 == 0o600
    assert b"ENCRYPTED" in store.read_bytes()
    (shown,) = json.loads(keytool("show", "--file", store, "--json"))
    assert shown["sha256"] == row["sha256"]
    keytool("export", "--file", store, "-o", trust)
    told = subprocess.run(
        ["openssl", "x509", "-in", trust, "-noout", "-fingerprint", "-sha256"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert told.strip().partition("=")[2].replace(":", "").lower() == row["sha256"]
    assert b"PRIVATE" not in trust.read_bytes()


def test_a_keystore_is_not_overwritten_unless_that_is_said(tmp_path: Path) -> None:
    store = tmp_path / "keystore"
    keytool("make", "-n", "a", "--file", store)
    before = store.read_bytes()
    assert "is there already" in keytool("make", "-n", "b", "--file", store, expect=1)
    assert store.read_bytes() == before
    keytool("make", "-n", "b", "--file", store, "--replace", "--key", "rsa")
    assert "CN=b" in keytool("show", "--file", store)


def test_keys_of_openssl_are_imported(tmp_path: Path) -> None:
    key, chain, store = tmp_path / "key.pem", tmp_path / "chain.pem", tmp_path / "keystore"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-keyout",
            key,
            "-out",
            chain,
            "-subj",
            "/CN=theirs",
            "-passout",
            "pass:theirs",
            "-days",
            "3",
        ],
        check=True,
        capture_output=True,
    )
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("theirs\n")
    keytool("import", "--key", key, "--chain", chain, "--key-passfile", secret, "--file", store)
    assert "CN=theirs" in keytool("show", "--file", store)
    assert "which is not given" in keytool(
        "import", "--key", key, "--chain", chain, "--file", tmp_path / "other", expect=1
    )
    assert not (tmp_path / "other").exists()


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    assert "keytool make --name HOST" in keytool("show", "--file", tmp_path / "none", expect=2)
    assert "'x y'" in keytool("make", "-n", "x y", "--file", tmp_path / "none", expect=1)
    assert "--name" in keytool("make", expect=2)


def test_the_place_is_the_configurations(tmp_path: Path) -> None:
    config = tmp_path / "cluster.toml"
    config.write_text(f'"raybroker.security.dir" = "{tmp_path}/security"\n"imq.keystore.file.name" = "mine"\n')
    keytool("make", "-n", "a", "--config", config)
    assert (tmp_path / "security" / "mine").exists()
