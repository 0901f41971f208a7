"""What each way into the package imports: not more than it uses, since importing is most of what a start takes."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path

import pytest

import raybroker as rb
from raybroker.content.bodies import BYTES, TEXT

HEAVY = frozenset(
    {
        "cronsim",
        "http.server",
        "lark",
        "lxml",
        "matplotlib",
        "numpy",
        "pandas",
        "prometheus_client",
        "pyarrow",
        "pyspark",
        "ray",
        "rich",
        "sqlalchemy",
        "typer",
        "urllib.request",
    }
)
"""Modules that take long to import and that only some programs need."""
OF_FEW_HOSTS = frozenset(
    {
        "raybroker.actors.stores.store_tables",
        "raybroker.store.journal.lenient",
        "raybroker.store.sql.store",
    }
)
"""What a host needs whose messages are in a database, or whose store is damaged."""
BROKER = frozenset({"broker", "cluster", "core", "engine", "hosting", "metrics", "services", "store"})
"""Layers of a broker; a client of one has no use for them."""
CLIENT = frozenset({"client"})
OF_COPIES = frozenset({"copies", "replication"})
"""Layers of a host whose log has copies; few have any."""
OPENED = frozenset(
    {
        "raybroker.security.authentication",
        "raybroker.security.ldap_repository",
        "raybroker.services.listening.connection_services",
        "raybroker.security.tls",
        "raybroker.store.journal",
        "raybroker.store.paging",
        "raybroker.store.sql",
    }
)
"""What a broker imports when it opens such a store, or services that listen."""
ASKED_FOR = frozenset(
    {
        "raybroker.admin.verbs",
        "raybroker.broker.observing.health",
        "raybroker.broker.definitions.definition_transfer",
        "raybroker.cluster.change_record",
        "raybroker.core.selector.compile",
        "raybroker.core.selector.tokens",
        "raybroker.engine.schedules.recurrence",
        "raybroker.logs.files",
        "raybroker.metrics.catalogue",
        "raybroker.model.definitions.definitions",
        "raybroker.security.access_rules",
        "raybroker.security.user_file",
    }
)
"""What waits for the first verb, check of health, selector, schedule, export of definitions, cluster, scrape, login or
line of an audit."""
RARE = frozenset(
    {
        "ctypes",
        "decimal",
        "html",
        "orjson",
        "pickle",
        "platform",
        "tomllib",
        "unicodedata",
        "uuid",
        "zoneinfo",
    }
)
"""Libraries that some bodies, logs and files need; together they take longer than the message."""

LOOPBACK = """
import raybroker as rb
with rb.loopback() as connection:
    connection.start()
    session = connection.session()
    session.producer("q").send(b"x")
    assert session.receive("q", timeout=30).body == b"x"
"""


def modules_after(code: str) -> set[str]:
    """What a fresh interpreter has imported after it ran ``code``."""
    show = f"{code}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def imported(code: str) -> tuple[set[str], set[str]]:
    """Heavy modules, and layers of raybroker, that a fresh interpreter has after it ran ``code``."""
    modules = modules_after(code)
    layers = {name.split(".")[1] for name in modules if name.startswith("raybroker.")}
    return HEAVY.intersection(modules), layers


def test_importing_the_package_imports_none_of_its_layers() -> None:
    assert imported("import raybroker") == (set(), set())


@pytest.mark.parametrize("code", ["import raybroker; raybroker.connect", "import raybroker.aio"])
def test_a_client_imports_neither_a_broker_nor_anything_heavy(code: str) -> None:
    heavy, layers = imported(code)
    assert heavy == set()
    assert layers & BROKER == set()


def test_who_connects_without_asyncio_imports_no_handles_for_it() -> None:
    assert "raybroker.client.aio.handles" not in modules_after("import raybroker; raybroker.connect")


def test_who_finds_the_actor_of_a_broker_imports_nothing_of_the_broker() -> None:
    """Ray imports the class of an actor that is found: each client inside Ray does so."""
    heavy, layers = imported("import raybroker.actors.broker_actor")
    assert (heavy, layers) == (set(), {"actors"})


def test_a_loopback_with_a_message_needs_nothing_heavy() -> None:
    heavy, layers = imported(LOOPBACK)
    assert heavy == set()
    assert layers >= {"broker", "client", "core", "engine"}


def test_a_loopback_in_memory_imports_no_other_store_and_nothing_that_listens() -> None:
    modules = modules_after(LOOPBACK)
    assert modules & OPENED == set()
    root = Path(rb.__file__).parents[1]
    files = [name for name in modules if (root / f"{name.replace('.', '/')}.py").is_file()]
    assert len(files) <= 397  # Packages are not counted: theirs are docstrings alone.


def test_a_loopback_imports_nothing_that_its_message_does_not_ask_for() -> None:
    assert modules_after(LOOPBACK) & (ASKED_FOR | RARE) == set()


def test_a_hosts_process_imports_no_client_and_of_what_is_heavy_only_ray() -> None:
    heavy, layers = imported("import raybroker.actors.hosts.host")
    assert layers & (CLIENT | OF_COPIES) == set()
    assert modules_after("import raybroker.actors.hosts.host") & OF_FEW_HOSTS == set()
    assert heavy <= {"ray", "numpy", "pyarrow", "pandas", "urllib.request", "http.server"}  # Those come with Ray.


READER = """
import sys
from types import SimpleNamespace
from raybroker.client.consumer.message import Message, ReceivedDelivery, runs_of
from raybroker.model.blocks.block import Block, encode_block
from raybroker.tabular.arrow_table import compact, table_of
import raybroker.tabular.queue_reader
block = Block(encode_block([b"x"] * 20, producer=1, first_seq=1, timestamp_ms=1, persistent=True, kinds=%d))
delivery = ReceivedDelivery(block, SimpleNamespace(), 1, 1, 1)
runs = runs_of([Message(delivery, index) for index in range(20)])
passed = compact(table_of([*runs, *runs]))
assert passed.num_rows == 40 and passed.num_columns == 7
"""


@pytest.mark.parametrize("kind", [BYTES, TEXT])
def test_a_reader_of_bytes_or_text_imports_neither_ray_data_nor_pandas(kind: int) -> None:
    """Each task of a read has one: what it imports is most of what the beginning of the read takes."""
    pytest.importorskip("pyarrow")
    modules = modules_after(READER % kind)
    assert modules & {"pandas", "pyarrow.compute", "ray", "ray.data", "raybroker.data"} == set()


def test_a_brokers_process_imports_no_client_no_copies_and_no_writer_of_pages() -> None:
    """Agents, copies and scrapes have theirs; the thread of its own hosts is the client's, and nothing else of that."""
    modules = modules_after("import raybroker.actors.broker")
    layers = {name.split(".")[1] for name in modules if name.startswith("raybroker.")}
    assert layers & OF_COPIES == set()
    assert not any(name.startswith(("raybroker.client.connection", "raybroker.client.session")) for name in modules)
    assert "raybroker.metrics.exposition" not in modules


def test_every_public_name_is_found_where_the_package_says() -> None:
    assert {name for name in rb.__all__ if getattr(rb, name, None) is None} == set()
    assert set(rb.__all__) <= set(dir(rb))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        rb.nothing  # noqa: B018 - looking it up is the test


@pytest.mark.parametrize("collects", [True, False])
def test_the_collector_is_as_it_was_when_a_module_was_loaded_or_is_not_there(collects: bool) -> None:
    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        rb._load("raybroker.errors")
        assert gc.isenabled() == collects
        with pytest.raises(ModuleNotFoundError):
            rb._load("raybroker.nothing")
        assert gc.isenabled() == collects
    finally:
        (gc.enable if before else gc.disable)()
