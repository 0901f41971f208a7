"""A loopback broker that could not start leaves nothing behind: the same store opens at once."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import BrokerError
from tests.contracts.test_services import VERIFIER

TAKEN = "a port that is taken"
FAILURES: dict[str, dict[str, Any]] = {
    "a service that there is not": {"imq.service.activelist": "nope"},
    TAKEN: {"imq.service.activelist": "jms", "imq.hostname": "127.0.0.1"},
    "no keystore": {"imq.service.activelist": "ssljms"},
    "no users of LDAP": {
        "imq.service.activelist": "jms",
        "imq.authentication.type": "basic",
        "imq.authentication.basic.user_repository": "ldap",
    },
    "a bad client id": {"imqConfiguredClientID": " x "},
    "users that others may read": {"imq.service.activelist": "jms", "imq.user_repository.file.filename": "bad"},
}


@pytest.mark.parametrize("store", ["file", "sql"])
@pytest.mark.parametrize("broker", [None, "named"])
@pytest.mark.parametrize("what", FAILURES)
def test_a_store_is_free_after_a_start_that_failed(tmp_path: Path, what: str, broker: str | None, store: str) -> None:
    (tmp_path / "security").mkdir(mode=0o700)
    (tmp_path / "security" / "passwd").write_text(f"ann:{VERIFIER}:user:true\n")
    (tmp_path / "security" / "passwd").chmod(0o600)
    (tmp_path / "security" / "bad").write_text("nonsense\n")
    (tmp_path / "security" / "bad").chmod(0o644)
    kept: dict[str, Any] = {"raybroker.security.dir": str(tmp_path / "security")}
    if store == "sql":
        kept["imq.persist.store"] = "sql"
    opened: Callable[..., Any] = lambda **more: rb.loopback(
        tmp_path / "store", properties={**kept, **more}, broker=broker
    )
    with opened() as connection:
        connection.session().producer("q").send("kept")
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        more = dict(FAILURES[what])
        if what == TAKEN:
            more["imq.portmapper.port"] = taken.getsockname()[1]
        for _ in range(2):
            with pytest.raises((BrokerError, OSError)) as caught:
                opened(**more).close()
            assert "is open in process" not in str(caught.value)
    with opened() as connection:
        assert connection.session().receive("q", timeout=20).body == "kept"
