"""What type checkers say about programs of users: nothing about right ones, and where it is wrong about wrong ones."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import raybroker

ROOT = Path(raybroker.__file__).parents[1]
RIGHT = """
import asyncio

import raybroker as rb
from raybroker import aio, errors


def handle(message: rb.Message) -> None:
    print(message.id, message.properties, message.delivery_count + 1)


def work(connection: rb.Connection) -> None:
    session: rb.Session = connection.session(ack="client", ack_window=1)
    producer: rb.Producer = session.producer(session.queue("orders"), priority=4, serializer="pickle")
    identity: str = producer.send({"id": 1}, ttl_ms=1_000)
    options: rb.SendOptions = {"priority": 9, "type": "order"}
    identity = producer.send({"id": 2}, {"color": "red"}, **options)
    consumer: rb.Consumer = session.consumer("orders", selector="a = 1")
    message: rb.Message | None = consumer.receive(timeout=1.0)
    if message is not None:
        message.acknowledge()
    for one in consumer:
        print(one.body, identity)
    browser: rb.Browser = session.browser("orders")
    print([m.priority for m in browser])
    session.consumer("r").on_message(handle)
    admin: rb.Admin = connection.admin()
    admin.create_destination("queue", "orders", if_exists="keep", maxNumMsgs=10)
    found = admin.query_destination("queue", "orders")
    print(found["messages"])


@rb.listener(queue="orders")
def listening(message: rb.Message) -> None:
    handle(message)


async def main() -> None:
    async with await aio.loopback() as connection:
        session = await connection.session(ack="dups_ok")
        await (await session.producer("q")).send("x")
        message = await (await session.consumer("q")).receive(5)
        assert message is None or message.body == "x"


with rb.loopback() as connection:
    work(connection)
with rb.connect("mq://host:7676", username="ann", password="x") as outside:
    work(outside)
try:
    pool: rb.Pool = rb.deploy(listening, instances=2, loopback="test")
    pool.scale(3)
except errors.ConfigError as error:
    print(error.code, rb.__version__)
xa: rb.XaConnection = rb.connect_xa()
asyncio.run(main())
"""
WRONG = (
    "rb.conect()",
    "rb.loopback().sesion()",
    'rb.loopback().session(ack="cleint")',
    'rb.loopback().session(ack_window="10")',
    'rb.loopback().session().producer("q", serializer="marshal")',
    'rb.loopback().session().producer("q").send("x", prio=3)',
    'rb.loopback().session().producer("q").send("x", priority="high")',
    'rb.loopback().session().producer("q").send_async("x", schedule="@daily")',
    'rb.loopback().session().request("q", "x", dedup_id="1")',
    'options: rb.SendOptions = {"prio": 3}',
    'rb.loopback().session().consumer("q").receive(timeout="soon")',
    'rb.loopback().session().consumer("q").receive().body',
    'rb.loopback().admin().create_destination("quue", "q")',
    'rb.loopback().admin().create_destination("queue", "q", if_exists="replace")',
    "rb.loopback().admin().list_destinatons()",
    "rb.Sesion",
    "rb.errors.ConfgError",
)
HEAD = "import raybroker as rb\n"


def mypy(folder: Path) -> dict[str, list[str]]:
    """File → what is wrong in it."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--follow-imports=silent"]
    command.append("--no-site-packages")  # Ray and what it needs would be read for a quarter of a minute.
    files = map(str, sorted(folder.glob("*.py")))
    done = subprocess.run(  # noqa: PLW1510 - what it returns is looked at below
        [*command, "--cache-dir", str(folder / "cache"), *files],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(ROOT)},
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        if match := re.match(r"(?:.*/)?(\w+\.py):\d+: (error: .*)", line):
            found.setdefault(match[1], []).append(match[2])
    return found


def pyright(folder: Path) -> dict[str, list[str]]:
    (folder / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "standard", "extraPaths": [str(ROOT)]}))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, str(folder)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: dict[str, list[str]] = {}
    for row in json.loads(done.stdout)["generalDiagnostics"]:
        if row["severity"] == "error":
            found.setdefault(Path(row["file"]).name, []).append(row["message"])
    return found


CHECKERS = {"mypy": ("mypy", mypy), "pyright": ("basedpyright", pyright)}


@pytest.mark.parametrize("checker", CHECKERS)
def test_programs_of_users(checker: str, tmp_path: Path) -> None:
    package, check = CHECKERS[checker]
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed (pip install 'raybroker[test]')")
    (tmp_path / "right.py").write_text(RIGHT)
    for number, line in enumerate(WRONG):
        (tmp_path / f"wrong{number}.py").write_text(f"{HEAD}{line}\n")
    found = check(tmp_path)
    assert found.pop("right.py", []) == []
    passed = [line for number, line in enumerate(WRONG) if f"wrong{number}.py" not in found]
    assert passed == [], "these are wrong, and nothing is said about them"
