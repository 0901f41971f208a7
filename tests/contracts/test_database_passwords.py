"""The passwords of a PostgreSQL that asks for them: in the passfile, for stores, for the shared record, and nowhere
else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import raybroker as rb
from raybroker.errors import ConfigError, StoreError
from raybroker.security.passfile import DATABASE, SHARED_RECORD, encoded
from tests.contracts import postgres
from tests.unit.cli.conftest import Program

SECRET = "ge heim=ü"
pytestmark = pytest.mark.xdist_group("postgres")


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    with postgres.server(SECRET) as found:
        yield found


def passfile(folder: Path, *lines: str) -> dict[str, object]:
    path = folder / "passfile"
    path.write_text("".join(f"{line}\n" for line in lines))
    path.chmod(0o600)
    return {"imq.passfile.enabled": True, "imq.passfile.dirpath": str(folder)}


def flags(properties: dict[str, object]) -> str:
    return "".join(
        f'"{name}" = {str(value).lower() if value is True else repr(value)}\n' for name, value in properties.items()
    )


def store(server: postgres.Server) -> dict[str, object]:
    return {
        "imq.persist.store": "sql",
        "imq.persist.jdbc.dbVendor": "postgresql",
        "imq.persist.jdbc.postgresql.opendburl": server.url,
        "imq.persist.jdbc.connection.retry.max": 0,
    }


def test_a_store_is_opened_with_the_password_of_the_passfile(
    server: postgres.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))
    given = {**store(server), **passfile(tmp_path, f"{DATABASE}={encoded(SECRET)}"), "imq.brokerid": "loopback"}
    config = tmp_path / "c.toml"
    config.write_text(flags(given))
    made = Program()("dbmgr", "create", "tbl", "--config", str(config), "--cluster", "loopback", "--broker", "loopback")
    assert (made.exit_code, "created tables" in made.stdout) == (0, True), made.output + made.stderr
    with rb.loopback(properties=given) as connection:
        connection.session().producer("q").send("kept")
        explained = connection.admin().query_broker()
    assert SECRET not in repr(explained)
    with rb.loopback(properties=given) as connection:
        assert connection.session().receive("q", timeout=30).body == "kept"


@pytest.mark.parametrize("line", [f"{DATABASE}=wrong", f"{SHARED_RECORD}={SECRET}"])
def test_a_wrong_password_or_none_opens_nothing_and_is_not_told(
    server: postgres.Server, tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))
    with pytest.raises(StoreError, match="password") as caught:
        rb.loopback(properties={**store(server), **passfile(tmp_path, line)})
    assert "wrong" not in str(caught.value)
    assert SECRET not in str(caught.value)


def test_two_files_of_passwords_contradict_each_other(server: postgres.Server, tmp_path: Path) -> None:
    given = {**store(server), **passfile(tmp_path, f"{DATABASE}={SECRET}")}
    with pytest.raises(ConfigError, match="leave one out"):
        rb.loopback(properties={**given, "imq.persist.jdbc.postgresql.passfile": str(tmp_path / "pgpass")})


def test_the_shared_record_has_a_password_of_its_own(
    server: postgres.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))
    config = tmp_path / "c.toml"

    def create(*lines: str) -> tuple[int, str]:
        config.write_text(
            flags(
                {
                    "imq.cluster.nomasterbroker": True,
                    "imq.cluster.sharecc.persist.jdbc.url": server.url,
                    **passfile(tmp_path, *lines),
                }
            )
        )
        done = Program()("dbmgr", "create", "sharecc_tbl", "--config", str(config))
        return done.exit_code, done.stdout + done.stderr

    code, told = create(f"{DATABASE}={SECRET}")
    assert (code, "password" in told, SECRET in told) == (1, True, False), told
    code, told = create(f"{SHARED_RECORD}={SECRET}")
    assert (code, told.startswith("created table")) == (0, True), told
