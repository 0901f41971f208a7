"""Administered objects on the command line; no broker is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def here(tmp_path: Path) -> tuple[str, str]:
    return "-j", f"java.naming.provider.url=file://{tmp_path}/objects"


def test_an_object_is_added_listed_shown_changed_and_deleted(raybroker: Any, here: tuple[str, str]) -> None:
    given = ("-t", "cf", "-l", "cf/orders", "-o", "imqAddressList=mq://a:7676/jms", "-o", "imqDefaultPassword=hidden")
    assert raybroker.output("objmgr", "add", *given, "-r", "true", *here).startswith(
        "added ConnectionFactory cf/orders"
    )
    assert raybroker.json("objmgr", "list", *here) == [
        {"name": "cf/orders", "type": "cf", "class": "ConnectionFactory", "read_only": True}
    ]
    assert raybroker.json("objmgr", "list", "-t", "q", *here) == []
    shown = raybroker.output("objmgr", "query", "-l", "cf/orders", *here)
    assert "mq://a:7676/jms" in shown
    assert "hidden" not in shown
    raybroker.output("objmgr", "update", "-l", "cf/orders", "-o", "imqAckTimeout=5000", "-r", "false", "-f", *here)
    found = raybroker.json("objmgr", "query", "-t", "cf", "-l", "cf/orders", *here)
    assert (found["attributes"]["imqAckTimeout"], found["read_only"]) == ("5000", False)
    assert raybroker.output("objmgr", "delete", "-s", "-f", "-l", "cf/orders", *here) == ""
    assert raybroker.json("objmgr", "list", *here) == []


def test_an_object_that_is_there_is_replaced_with_f_alone(raybroker: Any, here: tuple[str, str]) -> None:
    raybroker.output("objmgr", "add", "-t", "q", "-l", "a", "-o", "imqDestinationName=one", *here)
    refused = raybroker("objmgr", "add", "-t", "q", "-l", "a", "-o", "imqDestinationName=two", *here)
    assert refused.exit_code == 1
    assert "already" in refused.stderr
    raybroker.output("objmgr", "add", "-t", "q", "-l", "a", "-o", "imqDestinationName=two", "-f", *here)
    assert raybroker.json("objmgr", "query", "-l", "a", *here)["attributes"]["imqDestinationName"] == "two"


def test_a_store_may_be_its_address_alone_or_in_the_environment(
    raybroker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raybroker.output("objmgr", "add", "-t", "t", "-l", "a", "-j", str(tmp_path / "objects"))
    monkeypatch.setenv("RAYBROKER_OBJECTS", str(tmp_path / "objects"))
    assert [one["name"] for one in raybroker.json("objmgr", "list")] == ["a"]


def test_a_file_is_a_command_or_a_part_of_one(raybroker: Any, here: tuple[str, str], tmp_path: Path) -> None:
    file = tmp_path / "command"
    file.write_text("version=2.0\ncmdtype=add\nobj.type=q\nobj.attrs.imqDestinationName=orders\n")
    raybroker.output("objmgr", "-i", str(file), "-l", "queues/orders", *here)
    file.write_text("obj.attrs.imqDestinationDescription=of the shop\n")
    raybroker.output("objmgr", "update", "-i", str(file), "-l", "queues/orders", "-f", *here)
    assert raybroker.json("objmgr", "query", "-l", "queues/orders", *here)["attributes"] == {
        "imqDestinationName": "orders",
        "imqDestinationDescription": "of the shop",
    }


def test_a_preview_does_nothing(raybroker: Any, here: tuple[str, str], tmp_path: Path) -> None:
    shown = raybroker.output("objmgr", "add", "-t", "cf", "-l", "a", "-o", "imqDefaultPassword=hidden", "-pre", *here)
    assert "would be done" in shown
    assert "hidden" not in shown
    assert not (tmp_path / "objects").exists()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("add", "-l", "a"), "needs a type"),
        (
            ("add", "-t", "cf", "-l", "a", "-o", "imqAddressList=host:7676"),
            "'host:7676' is neither the name of a broker",
        ),
        (("update", "-l", "a", "-f", "-o", "imqAddressList=mq://host:x"), "a port is a number"),
        (("add", "-t", "q"), "needs a lookup name"),
        (("add", "-t", "x", "-l", "a"), "one of q, t, cf"),
        (("add", "-t", "cf", "-l", "a", "-o", "imqAckTimeot=1"), "imqAckTimeout"),
        (("add", "-t", "cf", "-l", "a", "-o", "imqAckTimeout"), "write attribute=value"),
        (("update", "-l", "a"), "say what changes"),
        (("update", "-l", "a", "-r", "maybe"), "true or false"),
        (("delete", "-l", "a"), "no terminal to ask at"),
        (("query",), "needs a lookup name"),
        ((), "Usage"),
        (("-l", "a"), "name a command"),
        (("-f", "delete", "-l", "a"), "behind the command"),
    ],
)
def test_what_cannot_be_is_a_usage_error(
    raybroker: Any, here: tuple[str, str], args: tuple[str, ...], says: str
) -> None:
    more = here if args and args[0] in ("add", "update", "delete", "query") else ()
    refused = raybroker("objmgr", *args, *more)
    assert refused.exit_code == 2
    assert says in refused.stderr + refused.stdout


def test_imqobjmgr_is_the_same_with_options_in_any_order(raybroker: Any, here: tuple[str, str], tmp_path: Path) -> None:
    more = ("-t", "q", "-l", "cn=a", "-o", "imqDestinationName=one", "-r", "true")
    raybroker.output("mq", "imqobjmgr", "-f", "add", "-javahome", "/java", *more, *here)
    file = tmp_path / "command"
    file.write_text("version=2.0\ncmdtype=update\nobj.lookupName=cn=a\nobj.attrs.imqDestinationName=two\n")
    raybroker.output("mq", "imqobjmgr", "-i", str(file), "-f", *here)
    shown = raybroker.output("mq", "imqobjmgr", "query", "-l", "cn=a", *here)
    assert "two" in shown
    assert raybroker.output("mq", "imqobjmgr", "-s", "delete", "-f", "-l", "cn=a", *here) == ""
    assert raybroker("mq", "imqobjmgr", "query", "-l", "cn=a", *here).exit_code == 1
    assert raybroker("mq", "imqobjmgr", "delete", "-o", "a=b", "-l", "a").exit_code == 2


def test_what_is_not_there_is_refused(raybroker: Any, here: tuple[str, str]) -> None:
    refused = raybroker("objmgr", "query", "-l", "a", *here)
    assert refused.exit_code == 1
    assert "there is no object 'a'" in refused.stderr


def test_objects_are_written_for_java_programs(raybroker: Any, here: tuple[str, str], tmp_path: Path) -> None:
    addresses = "imqAddressList=mq://one:7676/jms,mqssl://two:7677/ssljms"
    raybroker.output("objmgr", "add", "-t", "cf", "-l", "cf/orders", "-o", addresses, *here)
    raybroker.output("objmgr", "add", "-t", "q", "-l", "queues/orders", "-o", "imqDestinationName=orders", *here)
    file = tmp_path / "jndi.properties"
    assert raybroker.output("objmgr", "jndi", str(file), *here) == f"wrote {file}\n"
    assert "connectionfactory.cf/orders = failover:(amqp://one:5672,amqps://two:5671)\n" in file.read_text()
    refused = raybroker("objmgr", "jndi", str(file), *here)
    assert "already" in refused.stderr
    raybroker.output("objmgr", "jndi", str(file), "-f", "-a", "amqp://three:7000", *here)
    assert "connectionfactory.cf/orders = failover:(amqp://three:7000)\n" in file.read_text()
    printed = raybroker.output("objmgr", "jndi", "-", "--port", "6000", "--tls-port", "6001", *here)
    assert "failover:(amqp://one:6000,amqps://two:6001)\nqueue.queues/orders = orders\n" in printed


def test_factories_without_a_host_want_an_address(raybroker: Any, here: tuple[str, str], tmp_path: Path) -> None:
    raybroker.output("objmgr", "add", "-t", "cf", "-l", "inside", "-o", "imqAddressList=b1,b2", *here)
    refused = raybroker("objmgr", "jndi", str(tmp_path / "jndi.properties"), *here)
    assert "factory 'inside' has no address" in refused.stderr
    assert not (tmp_path / "jndi.properties").exists()
    refused = raybroker("objmgr", "jndi", "-", "-a", "mq://host", *here)
    assert "amqp://HOST:PORT" in refused.stderr
