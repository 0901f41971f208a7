"""One administered object: what it may be, and the text that stores keep of it."""

from __future__ import annotations

import json

import pytest

from raybroker.errors import ConfigError, ForeignObjectError
from raybroker.objects.administered import KINDS, SECRET, AdministeredObject


@pytest.mark.parametrize("kind", KINDS)
def test_an_object_comes_back_from_its_text(kind: str) -> None:
    name = "注文/Orders ../x"
    attributes = {"imqDestinationName": "orders"} if kind in ("q", "t") else {"imqAckTimeout": 5000}
    made = AdministeredObject.checked(name, kind, attributes, read_only=True)
    assert AdministeredObject.of_text(name, made.text()) == made


@pytest.mark.parametrize(
    "name", ["", " ", " a", "a ", "a\0b", "a\nb", "\ud800", "x" * 256, "a\u202eb", None, 3], ids=repr
)
def test_a_name_that_cannot_be_looked_up_is_refused(name: object) -> None:
    with pytest.raises(ConfigError, match="lookup name"):
        AdministeredObject.checked(name, "q")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "attributes", "says"),
    [
        ("x", {}, "one of q, t, cf, qf, tf, xcf, xqf, xtf"),
        ("cf", {"imqAckTimeot": "1"}, "imqAckTimeout"),
        ("cf", {"imqAckTimeout": "long"}, "imqAckTimeout = 'long'"),
        ("cf", {"imqDestinationName": "orders"}, "imqDestinationName"),
        ("cf", {"imqSetJMSXUserID": "true"}, "no sender says of itself who it is"),
        ("cf", {"imqSetJMSXAppID": "true"}, "no sender says of itself who it is"),
        ("cf", {"imqSetJMSXProducerTXID": "true"}, "transactions have no id"),
        ("cf", {"imqSetJMSXRcvTimestamp": "true"}, "its consumer knows the time"),
        ("cf", {"imqLoadMaxToServerSession": "true"}, "rb.deploy"),
        ("q", {"imqAckTimeout": "1"}, "no attribute of a destination object"),
        ("q", {"imqDestinationName": "a b"}, "imqDestinationName"),
        ("q", {"imqDestinationName": "orders.*"}, "imqDestinationName"),
        ("t", {"imqDestinationDescription": "x" * 1025}, "more than 1024"),
    ],
)
def test_a_type_or_attribute_that_cannot_be_is_refused_by_name(
    kind: str, attributes: dict[str, object], says: str
) -> None:
    with pytest.raises(ConfigError, match=says.replace("[", r"\[")):
        AdministeredObject.checked("a", kind, attributes)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json",
        "[]",
        "{}",
        "[" * 70_000,
        '{"name": "a", "type": "q"}',
        json.dumps({"raybroker.object": 1, "name": "b", "type": "q", "attributes": {}}),
        json.dumps({"raybroker.object": 1, "name": "a", "type": "z", "attributes": {}}),
        json.dumps({"raybroker.object": 1, "name": "a", "type": "q", "attributes": {"x": 3}}),
        json.dumps({"raybroker.object": 1, "name": "a", "type": "q", "attributes": {}, "readOnly": "yes"}),
    ],
    ids=lambda text: text[:30],
)
def test_what_is_no_object_of_ours_is_foreign(text: str) -> None:
    with pytest.raises(ForeignObjectError):
        AdministeredObject.of_text("a", text)


def test_an_object_of_a_newer_version_is_refused_as_such() -> None:
    with pytest.raises(ConfigError, match="newer version"):
        AdministeredObject.of_text("a", '{"raybroker.object": 2}')


def test_an_old_object_has_the_defaults_of_what_it_lacks() -> None:
    text = json.dumps({"raybroker.object": 1, "name": "a", "type": "q", "attributes": {}})
    found = AdministeredObject.of_text("a", text)
    assert not found.read_only
    assert found.destination_name == "Untitled_Destination_Object"
    assert found.description == "A description for the destination object"
    factory = AdministeredObject.of_text("a", text.replace('"q"', '"cf"'))
    assert factory.in_full()["imqJMSPriority"] == "4"


def test_a_password_is_shown_nowhere() -> None:
    made = AdministeredObject.checked("a", "cf", {"imqDefaultUsername": "ann", "imqDefaultPassword": "hidden"})
    assert made.in_full()["imqDefaultPassword"] == SECRET
    assert "hidden" not in repr(made)
    assert AdministeredObject.checked("a", "cf").in_full()["imqDefaultPassword"] == ""


def test_a_change_leaves_the_others_and_an_empty_value_is_the_default_again() -> None:
    made = AdministeredObject.checked("a", "cf", {"imqAckTimeout": 1, "imqJMSPriority": 7})
    changed = made.changed({"imqAckTimeout": "", "imqJMSExpiration": 5}, read_only=True)
    assert changed.attributes == {"imqJMSPriority": "7", "imqJMSExpiration": "5"}
    assert changed.read_only
    with pytest.raises(ConfigError):
        made.changed({"nothing": ""})
