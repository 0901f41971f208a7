"""Lists of more than a frame of the protocol, by every way in from outside."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest

from raybroker.errors import ConfigError
from tests.contracts.test_services import Outside

pytestmark = pytest.mark.xdist_group("long_lists")  # One worker makes what they share.

COUNT = 1500


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    with ExitStack() as opened:
        made = Outside(
            tmp_path_factory.mktemp("lists"),
            opened,
            **{
                "imq.service.activelist": "jms,admin,httpadmin",
                "imq.autocreate.queue": True,
            },
        )
        session = made.inside.session()
        for number in range(COUNT):
            session.producer(f"{'long.name.' * 20}{number}")
        yield made


def test_handles_list_them_all(outside: Outside) -> None:
    admin = outside.connect("root", "admin").admin()
    rows = admin.list_destinations()
    assert len([row for row in rows if row["name"].startswith("long.name.")]) == COUNT
    assert rows.missing == {}
    assert len(json.dumps(rows)) > 2 << 20, "it is longer than a frame"
    assert [len(admin.list_destinations()) for _ in range(3)] == [len(rows)] * 3
    assert outside.admin.list_connections(user="root"), "the connection goes on"


def test_a_request_that_is_too_long_says_so_and_what_to_do(outside: Outside) -> None:
    admin = outside.connect("root", "admin").admin()
    block = bytes(600 << 10)
    asked: dict[str, Callable[[], object]] = {
        "import_messages": lambda: admin.import_messages("queue", "q", [block, block]),
        "create_template": lambda: admin.create_template("t", JMSXUserID="x" * (2 << 20)),
    }
    for verb, ask in asked.items():
        told = rf"the request {verb} is too long: .* allowed are 1048576 .*less at a time"
        with pytest.raises(ConfigError, match=told):
            ask()
        assert admin.list_services(), "the connection goes on"


def test_administration_over_http_lists_them_all(outside: Outside) -> None:
    url = f"http://127.0.0.1:{outside.ports['httpadmin']}/destinations"
    answer = httpx.get(url, auth=("root", "secret"), timeout=60)
    assert (answer.status_code, answer.text.count('"long.name.')) == (200, COUNT)
