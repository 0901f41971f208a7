"""What verbs take and answer over HTTP is made from their declarations."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from raybroker.admin.verbs import VERBS
from raybroker.errors import BrokerError, MessageFormatError
from raybroker.model.listing import Listing
from raybroker.services.administration.application import OPERATIONS, WORKS, about
from raybroker.services.administration.shapes import Shape
from raybroker.services.web.credentials import Offer
from raybroker.services.web.json_text import checked, written
from raybroker.services.web.operations import description


def shape(verb: str, *in_path: str, query: bool = False) -> Shape:
    return Shape(VERBS[verb], verb, in_path, query=query)


def taken(made: Shape, path: dict[str, str], given: dict[str, Any]) -> dict[str, Any]:
    return made.arguments(path, checked(made.others, given, "it"))


def test_arguments_come_from_the_path_and_the_rest_with_defaults() -> None:
    made = shape("move_messages", "type", "name")
    assert taken(made, {"type": "queue", "name": "q"}, {"target": "other", "ids": ["a"]}) == {
        "type": "queue",
        "name": "q",
        "target": "other",
        "target_type": None,
        "selector": None,
        "ids": ["a"],
    }
    assert taken(shape("create_quota"), {}, {"name": "q"}) == {"name": "q", "attributes": {}}
    assert (made.needed, shape("purge_destination", "type", "name").needed) == (True, False)


def test_an_id_of_the_path_is_a_number_where_it_is_one() -> None:
    made = shape("query_consumer", "id", query=True)
    for text, wanted in (("17", 17), ("b1/h1:17", "b1/h1:17"), ("1" * 30, "1" * 30), ("-1", "-1")):
        assert taken(made, {"id": text}, {}) == {"id": wanted}


def test_what_a_query_does_not_have_comes_as_text() -> None:
    pages = shape("browse_messages", "type", "name", query=True)
    path = {"type": "queue", "name": "q"}
    assert taken(pages, path, {"max": "7"})["max"] == 7
    for start in (5, ["b1", None], ["b1", 3]):
        told = pages.told({"messages": [], "next": start})
        assert taken(pages, path, {"start": told["next"]})["start"] == start
    assert pages.told({"messages": [], "next": None})["next"] is None
    limits = shape("check_broker", query=True)
    assert taken(limits, {}, {"warn": "memory_percent=5, disk_free_percent=6"})["warn"] == {
        "memory_percent": "5",
        "disk_free_percent": "6",
    }
    assert taken(shape("check_broker"), {}, {"warn": {"memory_percent": 5}})["warn"] == {"memory_percent": 5}
    assert taken(shape("import_messages", "type", "name"), path, {"blocks": ["AAE="]})["blocks"] == [b"\0\1"]


@pytest.mark.parametrize(
    ("verb", "query", "given"),
    [
        ("browse_messages", True, {"start": "%%"}),
        ("browse_messages", True, {"start": "eyJhIjoxfQ=="}),
        ("browse_messages", True, {"max": "0"}),
        ("browse_messages", True, {"max": "1_0"}),
        ("browse_messages", True, {"selector": "x" * 5000}),
        ("move_messages", False, {"target": 5}),
        ("move_messages", False, {}),
        ("move_messages", False, {"target": "t", "ids": "a"}),
        ("import_messages", False, {"blocks": ["%%"]}),
        ("purge_destination", False, {"sure": True}),
        ("pause_destination", False, {"until_ms": "5"}),
        ("update_destination", False, {"changes": {"a": []}}),
    ],
)
def test_what_cannot_be_right_is_refused(verb: str, query: bool, given: dict[str, Any]) -> None:
    with pytest.raises(BrokerError):
        taken(shape(verb, "type", "name", query=query), {"type": "queue", "name": "q"}, given)


def test_a_start_that_names_no_place_is_refused_however_it_is_wrapped() -> None:
    pages = shape("browse_messages", "type", "name", query=True)
    for inner in (b'"a"', b"-1", b"true", b"1.5", b'["a","b"]', b'["a",["b",1]]', b"[[1],2]", b"\xff"):
        with pytest.raises(MessageFormatError, match="next of the page before"):
            pages.arguments({}, {"start": base64.urlsafe_b64encode(inner).decode()})


def test_answers_have_one_form_for_each_kind() -> None:
    assert shape("purge_destination", "type", "name").answer is None
    assert shape("create_destination").told("created") == {"result": "created"}
    assert shape("list_templates").told([{"a": 1}]) == {"rows": [{"a": 1}], "missing": {}}
    assert shape("list_services").told(Listing([{"a": 1}], {"b2": "down"})) == {
        "rows": [{"a": 1}],
        "missing": {"b2": "down"},
    }
    assert shape("query_broker").told({"a": 1}) == {"a": 1}
    assert written(shape("backup_record").told(b"\0\1")) == b'{"result":"AAE="}'


def test_every_resource_is_described_once_and_says_what_its_verb_says() -> None:
    document = description(about("1", Offer(tokens=True)), OPERATIONS)
    names = [row["operationId"] for methods in document["paths"].values() for row in methods.values()]
    assert len(names) == len(set(names)) == len(OPERATIONS)
    for work in WORKS:
        found = document["paths"][work.resource.path][work.resource.method.lower()]
        assert found["summary"]
        assert found["security"] == [{"basic": []}, {"bearer": []}]
        given = {row["name"] for row in found["parameters"]}
        if "requestBody" in found:
            schema = found["requestBody"]["content"]["application/json"]["schema"]
            given |= set(document["components"]["schemas"][schema["$ref"].rpartition("/")[2]].get("properties", {}))
        assert given == set(work.verb.signature.parameters)
    page = document["paths"]["/destinations/{type}/{name}/messages"]["get"]["parameters"]
    (most,) = [row["schema"] for row in page if row["name"] == "max"]
    assert (most["minimum"], most["maximum"]) == (1, 1000)
    assert document["paths"]["/health"]["get"]["security"] == []
