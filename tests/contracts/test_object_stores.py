"""Administered objects over every object store: a folder, a real directory server, and a database."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy

from raybroker.errors import BrokerError, ConfigError, ForeignObjectError, NoObjectError, ObjectExistsError
from raybroker.objects import operations
from raybroker.objects.addresses import ObjectStore
from raybroker.objects.administered import AdministeredObject
from raybroker.objects.folder import FolderStore, file_name
from raybroker.objects.ldap import LdapStore
from raybroker.objects.stores import open_store
from tests.contracts import postgres
from tests.contracts.slapd import BASE, OBJECTS, PRINCIPAL, PRINCIPAL_PASSWORD, Directory, directory
from tests.unit.security.certificates import Authority

pytestmark = pytest.mark.xdist_group("object_stores")
HOSTILE = [
    "../../etc/passwd",
    "/etc/passwd",
    "..",
    ".",
    ".lock",
    "a/b/../c",
    "con",
    "Orders",
    "ORDERS",
    "注文キュー",
    "é",
    "*)(cn=*",
    "a,ou=people",
    "a+b=c",
    '"quoted" <x>;#\\',
    "#hash",
    "'; DROP TABLE raybroker_objects; --",
    "%2e%2e",
    "%41",
    "長" * 200,
    "x" * 255,
]


PASSWORD = "ge heim=ü"
"""Of the database."""
WAYS = {"ldap": {}, "ldaps": {}, "starttls": {"raybroker.objects.tls.start": "true"}}
"""To the directory server."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Directory]:
    with directory(tmp_path_factory.mktemp("slapd"), authority.issue("slapd.pem")) as found:
        yield found


@pytest.fixture(scope="module")
def slapd(server: Directory) -> str:
    return server.address


@pytest.fixture(scope="module")
def database() -> Iterator[postgres.Server]:
    with postgres.server(PASSWORD) as found:
        yield found


def in_directory(server: Directory, authority: Authority, way: str) -> dict[str, str]:
    scheme, address = ("ldaps", server.secure) if way == "ldaps" else ("ldap", server.address)
    return {
        "java.naming.factory.initial": "com.sun.jndi.ldap.LdapCtxFactory",
        "java.naming.provider.url": f"{scheme}://{address}/{OBJECTS}",
        "java.naming.security.authentication": "simple",
        "java.naming.security.principal": PRINCIPAL,
        "java.naming.security.credentials": PRINCIPAL_PASSWORD,
        **({"raybroker.objects.tls.trust": str(authority.file)} if way != "ldap" else {}),
        **WAYS[way],
    }


def in_database(database: postgres.Server) -> dict[str, str]:
    return {"java.naming.provider.url": database.url, "java.naming.security.credentials": PASSWORD}


def as_owner(database: postgres.Server, *statements: str) -> None:
    engine = sqlalchemy.create_engine(
        sqlalchemy.make_url(database.url).set(drivername="postgresql+psycopg", password=PASSWORD),
        poolclass=sqlalchemy.pool.NullPool,
    )
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sqlalchemy.text(statement))


@pytest.fixture(params=["folder", *WAYS, "sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The attributes of an empty store."""
    if request.param == "folder":
        yield {"java.naming.provider.url": f"file://{tmp_path}/objects"}
    elif request.param == "sqlite":
        yield {"java.naming.provider.url": f"sqlite:///{tmp_path}/objects.db"}
    elif request.param == "postgresql":
        server = request.getfixturevalue("database")
        yield in_database(server)
        as_owner(server, "DROP TABLE IF EXISTS raybroker_objects")
    else:
        where = in_directory(
            request.getfixturevalue("server"), request.getfixturevalue("authority"), str(request.param)
        )
        yield where
        with open_store(where) as store:
            for one in operations.list_objects(store):
                operations.delete(store, one.name)


@pytest.fixture
def store(place: dict[str, str]) -> Iterator[ObjectStore]:
    with open_store(place) as opened:
        yield opened


def test_objects_are_added_found_listed_changed_and_deleted(store: ObjectStore) -> None:
    assert operations.list_objects(store) == []
    operations.add(store, "cf/orders", "cf", {"imqAckTimeout": 5000, "imqDefaultPassword": "p"}, read_only=True)
    operations.add(store, "queues/orders", "q", {"imqDestinationName": "orders", "imqDestinationDescription": "注文"})
    assert operations.query(store, "cf/orders").attributes["imqAckTimeout"] == "5000"
    assert operations.query(store, "cf/orders", "cf").read_only
    assert [one.name for one in operations.list_objects(store)] == ["cf/orders", "queues/orders"]
    assert [one.name for one in operations.list_objects(store, "q")] == ["queues/orders"]
    changed = operations.update(store, "cf/orders", {"imqAckTimeout": "", "imqJMSPriority": 7}, read_only=False)
    assert operations.query(store, "cf/orders") == changed
    assert (changed.attributes, changed.read_only) == ({"imqDefaultPassword": "p", "imqJMSPriority": "7"}, False)
    assert operations.update(store, "cf/orders", read_only=False) == changed
    assert operations.delete(store, "cf/orders").kind == "cf"
    with pytest.raises(NoObjectError):
        operations.query(store, "cf/orders")
    with pytest.raises(NoObjectError):
        operations.delete(store, "cf/orders")


def test_an_object_that_is_there_is_replaced_only_when_that_is_said(store: ObjectStore) -> None:
    operations.add(store, "a", "q")
    with pytest.raises(ObjectExistsError):
        operations.add(store, "a", "t")
    assert operations.query(store, "a").kind == "q"
    operations.add(store, "a", "t", replace=True)
    assert operations.query(store, "a").kind == "t"
    with pytest.raises(NoObjectError, match=r"Topic \(t\), and no q"):
        operations.delete(store, "a", "q")


def test_names_are_names_and_nothing_else(store: ObjectStore, tmp_path: Path) -> None:
    before = set(os.listdir(tmp_path))
    taken = []
    for number, name in enumerate(HOSTILE):
        if name.isupper() and isinstance(store, LdapStore):  # A directory does not tell capitals apart.
            with pytest.raises(ForeignObjectError, match="takes 'ORDERS' for the name of 'Orders'"):
                operations.add(store, name, "cf")
            continue
        operations.add(store, name, "cf", {"imqConsumerFlowLimit": number})
        taken.append((name, str(number)))
    for name, number in taken:
        assert operations.query(store, name).attributes == {"imqConsumerFlowLimit": number}
    assert {one.name for one in operations.list_objects(store)} == {name for name, _ in taken}
    assert set(os.listdir(tmp_path)) - before <= {"objects", "objects.db"}
    for name, _ in taken:
        operations.delete(store, name)
    assert operations.list_objects(store) == []


def test_two_writers_at_once_lose_nothing(place: dict[str, str]) -> None:
    """Each adds to another attribute of one object, again and again."""
    with open_store(place) as store:
        operations.add(store, "shared", "cf")
    names = ("imqAckTimeout", "imqReconnectInterval")
    faults: list[BaseException] = []

    def write(name: str) -> None:
        try:
            with open_store(place) as store:
                for value in range(1, 16):
                    operations.update(store, "shared", {name: value})
                    assert operations.query(store, "shared").attributes[name] == str(value)
        except (AssertionError, BrokerError) as error:
            faults.append(error)

    writers = [threading.Thread(target=write, args=(name,)) for name in names]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert faults == []
    with open_store(place) as store:
        assert operations.query(store, "shared").attributes == dict.fromkeys(names, "15")


def test_of_two_that_add_the_same_name_one_is_told(place: dict[str, str]) -> None:
    told: list[bool] = []
    barrier = threading.Barrier(2, timeout=30)

    def write() -> None:
        with open_store(place) as store:
            barrier.wait()
            try:
                operations.add(store, "one", "q")
                told.append(True)
            except ObjectExistsError:
                told.append(False)

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert sorted(told) == [False, True]


@contextmanager
def _folder(path: Path) -> Iterator[FolderStore]:
    with FolderStore(path) as opened:
        yield opened


def test_files_are_their_owners_alone(tmp_path: Path) -> None:
    with _folder(tmp_path / "objects") as store:
        operations.add(store, "a", "cf", {"imqDefaultPassword": "p"})
        path = tmp_path / "objects" / file_name("a")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        path.chmod(0o644)
        with pytest.raises(ConfigError, match="chmod 600"):
            operations.query(store, "a")


def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    with _folder(tmp_path) as store:
        for data in (b"something else", b"\xff\xfe", b"{}", b"x" * 100_000):
            (tmp_path / file_name("a")).write_bytes(data)
            for call in (
                lambda: operations.add(store, "a", "q", replace=True),
                lambda: operations.delete(store, "a"),
                lambda: operations.update(store, "a", read_only=True),
            ):
                with pytest.raises(ForeignObjectError):
                    call()
            assert (tmp_path / file_name("a")).read_bytes() == data
        (tmp_path / file_name("a")).write_text("something else")
        assert operations.list_objects(store) == []


def test_a_file_under_another_name_is_no_object(tmp_path: Path) -> None:
    with _folder(tmp_path) as store:
        operations.add(store, "a", "q")
        (tmp_path / file_name("a")).rename(tmp_path / file_name("b"))
        assert operations.list_objects(store) == []
        with pytest.raises(ForeignObjectError):
            operations.query(store, "b")


def test_a_power_cut_before_the_new_file_takes_its_place_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class CutError(BaseException):
        pass

    def cut(*_: object) -> None:
        raise CutError

    with _folder(tmp_path) as store:
        operations.add(store, "a", "cf", {"imqAckTimeout": 1})
        with monkeypatch.context() as patched:
            patched.setattr("raybroker.security.private_files.os.replace", cut)
            with pytest.raises(CutError):
                operations.update(store, "a", {"imqAckTimeout": 2})
            with pytest.raises(CutError):
                operations.add(store, "b", "q")
    assert len(list(tmp_path.glob("*.new"))) == 1, "the second writer has removed what the first one left"
    with _folder(tmp_path) as store:
        assert [one.name for one in operations.list_objects(store)] == ["a"]
        assert operations.query(store, "a").attributes == {"imqAckTimeout": "1"}
        operations.update(store, "a", {"imqAckTimeout": 3})
        assert list(tmp_path.glob("*.new")) == []
        assert operations.query(store, "a").attributes == {"imqAckTimeout": "3"}


def test_in_a_directory_cn_is_part_of_no_name(slapd: str) -> None:
    where = {
        "java.naming.provider.url": f"ldap://{slapd}/{OBJECTS}",
        "java.naming.security.principal": PRINCIPAL,
        "java.naming.security.credentials": PRINCIPAL_PASSWORD,
    }
    with open_store(where) as store:
        operations.add(store, "cn=orders", "q", {"imqDestinationDescription": "of the shop"})
        assert operations.query(store, "orders").name == "orders"
        assert operations.delete(store, "CN=orders").description == "of the shop"


def test_an_entry_of_another_program_is_left_alone(slapd: str) -> None:
    where = {
        "java.naming.provider.url": f"ldap://{slapd}/ou=groups,{BASE}",
        "java.naming.security.principal": PRINCIPAL,
        "java.naming.security.credentials": PRINCIPAL_PASSWORD,
    }
    with open_store(where) as store:
        for call in (
            lambda: operations.add(store, "admin", "q", replace=True),
            lambda: operations.delete(store, "cn=admin"),
        ):
            with pytest.raises(ForeignObjectError):
                call()
        assert operations.list_objects(store) == []


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"java.naming.security.principal": PRINCIPAL, "java.naming.security.credentials": "wrong"}, "is not let in"),
        ({"java.naming.security.principal": PRINCIPAL}, "has no password"),
        ({"java.naming.provider.url": "ldap://127.0.0.1:9/ou=objects"}, "does not answer"),
        ({"java.naming.provider.url": "ldap://127.0.0.1:9"}, "BASE"),
    ],
)
def test_a_directory_that_cannot_be_asked_says_why(slapd: str, more: dict[str, str], says: str) -> None:
    with (
        pytest.raises(ConfigError, match=says),
        open_store({"java.naming.provider.url": f"ldap://{slapd}/{OBJECTS}", **more}),
    ):
        pass


def test_who_may_not_write_changes_nothing_and_is_told(slapd: str) -> None:
    with (
        open_store(f"ldap://{slapd}/{OBJECTS}") as store,
        pytest.raises(ConfigError, match=r"noSuchObject|insufficient|strongerAuth"),
    ):
        operations.add(store, "a", "q")


@pytest.mark.parametrize(
    ("store", "says"),
    [
        (None, "RAYBROKER_OBJECTS"),
        ("", "is missing"),
        ("http://host/objects", "it is a folder"),
        ("postgresql://user:hidden@host/db", "has a password in it"),
        ("postgresql://host/db?user=u&password=hidden", "has a password in it"),
        ("ldap://user:hidden@host/ou=o", "has a password in it"),
        ("sqlite://", "has to name a file"),
        ("file://other/objects", "of this machine"),
        ("/a\0b", "is missing"),
    ],
)
def test_a_store_that_cannot_be_is_refused(store: str | None, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAYBROKER_OBJECTS", raising=False)
    with pytest.raises(ConfigError, match=says) as raised, open_store(store):
        pass
    assert "hidden" not in str(raised.value)


def test_a_database_keeps_its_objects_for_its_owner_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/objects.db"
    with open_store(url) as store:
        assert operations.list_objects(store) == []
        assert not (tmp_path / "objects.db").exists()
        operations.add(store, "a", "q")
    assert stat.S_IMODE((tmp_path / "objects.db").stat().st_mode) == 0o600
    with open_store(url) as store:
        assert operations.query(store, "a") == AdministeredObject("a", "q")


def test_a_directory_without_a_certificate_that_is_trusted_hears_no_password(
    server: Directory, authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other")
    for way in ("ldaps", "starttls"):
        good = in_directory(server, authority, way)
        url = good["java.naming.provider.url"]
        for more, says in (
            ({"raybroker.objects.tls.trust": str(other.file)}, "certificate verify failed"),
            ({"raybroker.objects.tls.trust": ""}, "certificate verify failed"),
            ({"java.naming.provider.url": url.replace("127.0.0.1", "127.0.0.2")}, "127.0.0.2|does not answer"),
            ({"raybroker.objects.tls.trust": str(tmp_path / "none")}, "there is no such file"),
        ):
            with pytest.raises(ConfigError, match=says) as raised, open_store({**good, **more}):
                pass
            assert PRINCIPAL_PASSWORD not in str(raised.value)


def test_a_certificate_of_another_host_is_refused(authority: Authority, tmp_path: Path) -> None:
    key = authority.issue("elsewhere.pem", "elsewhere.example", addresses=("10.0.0.1",))
    with directory(tmp_path, key) as server:
        for way in ("ldaps", "starttls"):
            with (
                pytest.raises(ConfigError, match="certificate is of another host than 127"),
                open_store(in_directory(server, authority, way)),
            ):
                pass


def test_a_directory_that_starts_no_tls_is_not_asked_in_clear(authority: Authority, tmp_path: Path) -> None:
    with directory(tmp_path) as server:
        with (
            pytest.raises(ConfigError, match="startTLS failed"),
            open_store(in_directory(server, authority, "starttls")),
        ):
            pass
        with open_store(in_directory(server, authority, "ldap")) as store:
            assert operations.list_objects(store) == []


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"raybroker.objects.tls.start": "yes"}, "true or false"),
        ({"raybroker.objects.tls.start": "true", "java.naming.provider.url": "ldaps://h/ou=o"}, "for ldap:// alone"),
        ({"raybroker.objects.tls.trust": "/some.pem"}, "is for TLS"),
        ({"raybroker.objects.tls.trusted": "/some.pem"}, "did you mean raybroker.objects.tls.trust"),
    ],
)
def test_attributes_of_tls_that_contradict_each_other_are_refused(more: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says), open_store({"java.naming.provider.url": "ldap://h/ou=o", **more}):
        pass


def test_a_database_lets_in_who_may_and_shows_no_password(
    database: postgres.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = in_database(database)
    for more, says in (
        ({"java.naming.security.credentials": "wrong!"}, "password authentication failed"),
        ({"java.naming.security.credentials": ""}, "no password supplied"),
        ({"java.naming.security.principal": "stranger"}, "password authentication failed"),
        ({"java.naming.provider.url": "postgresql://broker@127.0.0.1:9/postgres"}, "refused"),
        ({"java.naming.provider.url": database.url.replace("/postgres", "/none")}, "does not exist"),
    ):
        with pytest.raises(ConfigError, match=says) as raised, open_store({**owner, **more}) as store:
            operations.add(store, "a", "q")
        assert "wrong!" not in str(raised.value)
        assert PASSWORD not in str(raised.value)
    passfile = tmp_path / "passfile"
    passfile.touch(0o600)
    passfile.write_text(f"raybroker.objects.password={PASSWORD}\n")
    with open_store({"java.naming.provider.url": database.url, "raybroker.objects.passfile": passfile}) as store:
        assert store.shown == database.url
        operations.add(store, "a", "q", {"imqDestinationDescription": "'; DROP TABLE raybroker_objects; --"})
    try:
        as_owner(
            database, f"CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'", "GRANT SELECT ON raybroker_objects TO reader"
        )
        with open_store({**owner, "java.naming.security.principal": "reader"}) as store:
            assert operations.query(store, "a").description.startswith("';")
            with pytest.raises(ConfigError, match="permission denied"):
                operations.add(store, "b", "q")
        monkeypatch.setattr("raybroker.objects.database.TIMEOUT_S", 1)
        with lock(database), open_store(owner) as store, pytest.raises(ConfigError, match="timeout"):
            operations.delete(store, "a")
        with open_store(owner) as store:
            assert [one.name for one in operations.list_objects(store)] == ["a"]
    finally:
        as_owner(database, "DROP TABLE raybroker_objects", "DROP ROLE IF EXISTS reader")


@contextmanager
def lock(database: postgres.Server) -> Iterator[None]:
    """Somebody else is at the table."""
    engine = sqlalchemy.create_engine(
        sqlalchemy.make_url(database.url).set(drivername="postgresql+psycopg", password=PASSWORD)
    )
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text("LOCK TABLE raybroker_objects"))
        yield
        connection.rollback()
    engine.dispose()
