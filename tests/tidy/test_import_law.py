"""Which way imports run: the table of the architecture, as a test.

A layer is a folder of the package; ``root`` is the files beside them.  An import counts wherever it stands, also inside
a function or under TYPE_CHECKING: what a layer knows of by type it depends on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple

from tests.tidy.source import Sources, imports, package


class Law(NamedTuple):
    """What a layer may import: other layers of the package, and third-party libraries."""

    layers: frozenset[str]
    libraries: frozenset[str] = frozenset()


def law(layers: str = "", libraries: str = "") -> Law:
    return Law(frozenset(layers.split()), frozenset(libraries.split()))


_BELOW_ACTORS = (
    "model core cluster replication copies content wire engine store transport system config metrics logs security"
    " admin client services hosting broker"
)
LAWS: dict[str, Law] = {
    "model": law(),
    # The table of administrative verbs, which the client offers and the broker carries out.
    "admin": law("model"),
    "core": law("model"),
    "cluster": law("model"),
    # Decides what copies of a log do; its entries are what a store writes.
    "replication": law("model"),
    # Messages of AMQP are kept as they came, and read as the wire reads them.
    "content": law("model wire", "msgpack"),
    "wire": law("model", "msgpack"),
    "engine": law("core cluster model"),
    "store": law("model"),
    "transport": law("wire model", "uvloop"),
    "system": law("model"),
    "config": law("model"),
    "metrics": law("model", "prometheus_client"),
    "security": law("model system wire", "cryptography"),
    # The client has attributes (config), the trust of TLS (security), and needs the clock and unpredictable ids of the
    # one place that may make them.
    # It makes connection factories and destinations of administered objects.
    "client": law("admin transport wire content model config security system objects"),
    # The store of an object may be a folder, a directory server or a database; what is stored is checked by model.
    "objects": law("model config security system"),
    # Servers that listen: they speak the commands of the core where the engine only passes them on.
    # Administration over HTTP is made from the table of verbs.
    "services": law("admin core engine transport wire content security model system config metrics logs"),
    # A host is composed of an engine and the services that listen for it.
    "hosting": law("core engine services transport wire content security model system config metrics logs"),
    # A broker tells what the catalogue of metrics names, and has the log.
    "broker": law(
        "admin core cluster engine hosting services transport content security model system config metrics logs"
    ),
    # The shell of copies of a log: their folders are made of journals, and their sockets are their own.
    "copies": law("model replication store system"),
    # Lines, channels and files of the log: orjson for the structured form.
    "logs": law("model system", "orjson"),
    "actors": law(_BELOW_ACTORS, "ray"),
    # Sources and sinks of Ray Data: its tasks use the handles, and Ray Data is made of Arrow tables.
    "data": law("client model system tabular", "ray pyarrow"),
    # What Ray Data and Spark have alike, and so without either. Columns are made of blocks, by what is inside of them.
    "tabular": law("client content model system", "pyarrow"),
    # Ray Serve's task processors: its classes, over the handles. Replicas are Serve's own, and no actor is made here.
    "serve": law("client content model system transport", "ray"),
    # The source and the sink of Spark, for pipelines outside Ray.
    "spark": law("client model system tabular", "pyspark"),
    # Programs for readers of the manual, on public names alone.
    "examples": law("root serve", "ray starlette numpy"),
    "cli": law(
        "client config metrics model admin actors bench boards demo verify analysis system security wire objects root",
        "typer click rich orjson ray",
    ),
    # Loads a cluster and checks its promises, as a program would; its clients are actors.
    "verify": law("model actors system root", "rich"),
    # A program on top of the public names; its producers are actors.
    "demo": law("client config model actors analysis system root", "rich"),
    # numpy comes with pandas and pyarrow, which are no use without it.
    "analysis": law("model system", "pyspark pandas pyarrow numpy"),
    # Asks a Prometheus as the analysis does.
    "boards": law("analysis"),
    # Not part of the broker: measures it and its peers through whatever they offer.
    "bench": law(
        f"{_BELOW_ACTORS} actors admin cli root",
        "ray msgpack orjson uvloop rich hdrh matplotlib psutil pika redis nats stomp typer click",
    ),
    # Public names only; the actors are looked up lazily, so that `import raybroker` does not import Ray.
    "root": law("client model config actors admin cli data serve"),
}
PURE = frozenset({"model", "admin", "core", "cluster", "replication", "content", "wire"})
IMPURE_MODULES = frozenset(
    {
        "concurrent",
        "ctypes",
        "fcntl",
        "http",
        "logging",
        "mmap",
        "os",
        "pathlib",
        "queue",
        "select",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "ssl",
        "subprocess",
        "tempfile",
        "threading",
    }
)
"""Standard modules that act on the world; a pure layer decides and leaves acting to others."""

FILES: dict[str, tuple[Law, str]] = {
    "raybroker/client/cluster/ray_seam.py": (law("actors", "ray"), "the few lines that look an actor up"),
    "raybroker/client/listener/deployment.py": (law("actors"), "rb.deploy makes the pool of actors, when it is called"),
    "raybroker/client/loopback.py": (law("engine store services hosting broker"), "a whole broker in one process"),
    "raybroker/client/producer/bodies/body_encoding.py": (law("", "msgpack"), "bodies are msgpack types"),
    "raybroker/content/arrays.py": (law("", "numpy"), "arrays come back as arrays, where numpy is installed"),
    "raybroker/content/arrow_tables.py": (
        law("", "numpy pyarrow"),
        "tables of Arrow come back as such, where pyarrow is installed",
    ),
    "raybroker/services/rest/models.py": (law("", "pydantic typing_extensions"), "models check and describe"),
    "raybroker/services/rest/openapi.py": (law("", "pydantic"), "the description is made from the models"),
    "raybroker/services/administration/application.py": (law("", "starlette"), "requests of HTTP"),
    "raybroker/services/administration/shapes.py": (
        law("", "orjson pydantic typing_extensions"),
        "models are made from the declarations of verbs",
    ),
    "raybroker/services/console/console.py": (law("", "pydantic starlette typing_extensions"), "requests of HTTP"),
    "raybroker/services/web/application.py": (law("", "pydantic starlette"), "requests of HTTP"),
    "raybroker/services/web/bodies.py": (law("", "starlette"), "bodies of requests of HTTP"),
    "raybroker/services/gateways/json_form.py": (law("", "orjson"), "bodies for protocols without types of Python"),
    "raybroker/services/web/json_text.py": (law("", "orjson pydantic typing_extensions"), "JSON in and out"),
    "raybroker/services/web/operations.py": (law("", "pydantic"), "the description is made from the models"),
    "raybroker/services/rest/application.py": (law("", "pydantic starlette"), "requests of HTTP"),
    "raybroker/services/rest/long_poll.py": (law("", "starlette"), "the native protocol by requests of HTTP"),
    "raybroker/services/rest/relay.py": (law("", "starlette"), "WebSockets"),
    "raybroker/client/ways/http_requests.py": (law("", "h11"), "requests of clients, where no WebSocket passes"),
    "raybroker/client/ways/web_socket.py": (law("", "websockets"), "WebSockets of clients"),
    "raybroker/services/http/http_server.py": (law("", "h11 starlette"), "the server of HTTP"),
    "raybroker/services/http/web_socket.py": (law("", "starlette websockets"), "WebSockets of HTTP"),
    "raybroker/services/metrics/metrics_http.py": (law("", "starlette"), "requests of HTTP"),
    "raybroker/client/producer/bodies/xml_validation.py": (
        law("", "lxml"),
        "XML is checked by lxml, where it is installed",
    ),
    "raybroker/services/rest/opening.py": (law("client"), "messages are received with the handles of the client"),
    "raybroker/services/gateways/gateway.py": (law("client"), "a client of a gateway is a client of its own broker"),
    "raybroker/services/amqp/addresses.py": (law("client"), "an address is that of a destination of the client"),
    "raybroker/services/amqp/broker.py": (law("client"), "an AMQP client has a connection of the client"),
    "raybroker/services/amqp/client.py": (law("client"), "AMQP is carried out with the handles of the client"),
    "raybroker/services/amqp/connection.py": (law("client"), "an AMQP client has a connection of the client"),
    "raybroker/services/amqp/incoming.py": (law("client"), "a link on which clients send is a producer"),
    "raybroker/services/amqp/link_writing.py": (law("client"), "what a link writes are messages of a consumer"),
    "raybroker/services/amqp/login.py": (law("client"), "a login is one of the client"),
    "raybroker/services/amqp/messages.py": (law("client"), "messages are those of the client"),
    "raybroker/services/amqp/outgoing.py": (law("client"), "a link on which clients receive is a consumer"),
    "raybroker/services/amqp/session.py": (law("client"), "links are producers and consumers"),
    "raybroker/services/amqp/supply.py": (law("client"), "a link on which clients receive is a consumer"),
    "raybroker/services/amqp/transaction.py": (law("client"), "a transaction is that of a session"),
    "raybroker/services/stomp/broker.py": (law("client"), "a STOMP client has a connection of the client"),
    "raybroker/services/stomp/session.py": (law("client"), "STOMP is carried out with the handles of the client"),
    "raybroker/services/stomp/subscription.py": (law("client"), "a subscription is a consumer"),
    "raybroker/services/stomp/transaction.py": (law("client"), "a transaction is that of a session"),
    "raybroker/security/file_repository.py": (law("", "argon2"), "password hashes, where basic is wanted"),
    "raybroker/security/ldap_repository.py": (law("", "ldap3"), "a directory server has the users, where it is wanted"),
    "raybroker/objects/database.py": (law("", "sqlalchemy"), "objects in a table, where that is wanted"),
    "raybroker/objects/ldap.py": (law("", "ldap3"), "objects in a directory server, where that is wanted"),
    "raybroker/security/token.py": (law("", "jwt"), "logins by token, where they are wanted"),
    "raybroker/store/sql/address.py": (law("", "sqlalchemy"), "imq.persist.store=sql"),
    "raybroker/store/record_table.py": (law("", "sqlalchemy"), "the record in a table of an SQL database"),
    "raybroker/engine/schedules/recurrence.py": (
        law("", "cronsim"),
        "cron expressions are read by cronsim, which is pure",
    ),
    "raybroker/analysis/names.py": (law("metrics"), "metrics stand once, in the catalogue, which is data"),
    "raybroker/analysis/reports/plots.py": (law("", "matplotlib"), "plots are drawn in one file"),
    "raybroker/boards/drawing.py": (law("", "matplotlib"), "boards are drawn in one file"),
    "raybroker/core/selector/grammar.py": (law("", "lark"), "the grammar of selectors is read by lark, which is pure"),
}
"""What single files may import beyond their layer, with the reason."""


def layer_of(path: str) -> str:
    parts = path.split("/")
    return parts[1] if len(parts) > 2 else "root"


def violations(sources: Sources) -> Iterator[str]:
    for path, source in sources.items():
        layer = layer_of(path)
        if layer not in LAWS:
            yield f"{path}: layer {layer!r} is not in the table"
            continue
        extra = FILES.get(path, (law(), ""))[0]
        layers = LAWS[layer].layers | extra.layers | {layer}
        libraries = LAWS[layer].libraries | extra.libraries
        for line, name in imports(source):
            top = name.partition(".")[0]
            if not top:
                yield f"{path}:{line}: imports relatively; write the whole name"
            elif top == "raybroker":
                other = _layer_imported(name, sources)
                if other not in layers:
                    yield f"{path}:{line}: {layer} may not import {other} ({name})"
            elif top in sys.stdlib_module_names:
                if layer in PURE and top in IMPURE_MODULES:
                    yield f"{path}:{line}: {layer} is pure and may not import {top}"
            elif top not in libraries:
                yield f"{path}:{line}: {layer} may not import the library {top}"


def _layer_imported(name: str, sources: Sources) -> str:
    parts = name.split(".")
    if len(parts) == 1:
        return "root"
    folder = f"raybroker/{parts[1]}/"
    return parts[1] if parts[1] in LAWS or any(path.startswith(folder) for path in sources) else "root"


def test_imports_run_the_way_of_the_architecture() -> None:
    assert list(violations(package())) == []


def test_a_core_that_imports_the_engine_is_found() -> None:
    bad = {"raybroker/core/queue.py": "def f():\n    from raybroker.engine.path import runner\n"}
    assert list(violations(bad)) == [
        "raybroker/core/queue.py:2: core may not import engine (raybroker.engine.path.runner)"
    ]


def test_ray_outside_the_actors_and_the_seam_is_found() -> None:
    bad = {
        "raybroker/client/session/session.py": "import ray\n",
        "raybroker/engine/path/runner.py": "from ray import get\n",
    }
    assert list(violations(bad)) == [
        "raybroker/client/session/session.py:1: client may not import the library ray",
        "raybroker/engine/path/runner.py:1: engine may not import the library ray",
    ]
    seam = "raybroker/client/cluster/ray_seam.py"
    good = {seam: "import ray\n", "raybroker/actors/runtime.py": "import ray.actor\n"}
    assert list(violations(good)) == []


def test_pyspark_outside_the_analysis_is_found() -> None:
    bad = {"raybroker/metrics/exporter.py": "import pyspark.sql\n"}
    assert list(violations(bad)) == ["raybroker/metrics/exporter.py:1: metrics may not import the library pyspark"]


def test_a_pure_layer_that_opens_files_or_threads_is_found() -> None:
    protocol = "raybroker/wire/native/connection.py"
    bad = {"raybroker/core/queue.py": "import threading\n", protocol: "from socket import socket\n"}
    assert len(list(violations(bad))) == 2


def test_an_unknown_layer_and_a_relative_import_are_found() -> None:
    bad = {"raybroker/utils/misc.py": "", "raybroker/core/queue.py": "from . import window\n"}
    assert list(violations(bad)) == [
        "raybroker/utils/misc.py: layer 'utils' is not in the table",
        "raybroker/core/queue.py:1: imports relatively; write the whole name",
    ]
