"""README, manual and the other pages: links lead to files that are there, names are those of the tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from raybroker.model.settings.setting_table import ALL, INSTEAD
from raybroker.objects.addresses import ATTRIBUTES
from raybroker.objects.administered import DESTINATION_DEFAULTS
from raybroker.security.passfile import OBJECT_STORE
from tests.tidy.source import ROOT, Sources, read

FILES = ("raybroker.env",)
"""Files whose names look like settings."""
OTHERS = frozenset({"BytesMaximum", "MessagesMaximum", "port", *DESTINATION_DEFAULTS, *INSTEAD})
"""Attributes of quotas, services and destination objects, and those that are refused."""
OF_OBJECTS = frozenset({*ATTRIBUTES, OBJECT_STORE})
"""Attributes of object stores, and their password."""
README_BYTES_MAX = 8000
"""Somebody who meets the project reads it in a few minutes; the rest is the manual's."""
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_SETTING = re.compile(r"(?<![\w./[-])((?:imq|raybroker)(?:\.[A-Za-z_]+)+)(\.\*)?")
_ATTRIBUTE = re.compile(r"`([a-z]+[A-Z][A-Za-z]+)`|-o ([A-Za-z]+)=")
_ELSEWHERE = ("http://", "https://", "mailto:")


def links(path: str, text: str) -> Iterator[str]:
    """What a page links to in this repository: paths from its root."""
    for target in _LINK.findall(text):
        if not target.startswith((*_ELSEWHERE, "#")):
            parts: list[str] = []
            for part in (PurePosixPath(path).parent / target.partition("#")[0]).parts:
                if part == ".." and parts:
                    parts.pop()
                else:
                    parts.append(part)
            yield "/".join(parts)


def missing(pages: Sources) -> list[str]:
    return [
        f"{path}: {target}"
        for path, text in pages.items()
        for target in links(path, text)
        if not (ROOT / target).exists()
    ]


def written_by_hand() -> dict[str, str]:
    pages = read("README.md", "raybroker/manual", "dashboards", "deploy", suffixes=(".md",))
    return {path: text for path, text in pages.items() if "/reference/" not in path}


def unknown_names(pages: Sources) -> Iterator[str]:
    """Settings and attributes that pages name and that no table has; a name may stand for all that begin with it."""
    settings = {setting.name for setting in ALL} | OF_OBJECTS
    modules = {path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in read("raybroker")}
    for path, text in pages.items():
        for name, all_of_them in _SETTING.findall(text):
            whole = name in settings or name in modules or name.startswith(FILES)
            if not whole and not (all_of_them and any(each.startswith(f"{name}.") for each in settings)):
                yield f"{path}: {name}"
        for name in (first or second for first, second in _ATTRIBUTE.findall(text)):
            if name not in settings and name not in OTHERS:
                yield f"{path}: {name}"


def test_settings_and_attributes_that_pages_name_are_there() -> None:
    assert list(unknown_names(written_by_hand())) == []


def test_links_lead_to_files_that_are_there() -> None:
    pages = read("README.md", "raybroker", "tests", "deploy", "dashboards", "benchmarks", suffixes=(".md",))
    assert missing(pages) == []


def test_the_readme_leads_to_every_page() -> None:
    readme = read("README.md", suffixes=(".md",))["README.md"]
    assert set(read("raybroker", suffixes=(".md",))) - set(links("README.md", readme)) == set()
    assert len(readme.encode()) <= README_BYTES_MAX


def test_a_name_that_is_in_no_table_is_found() -> None:
    text = (
        "`imq.ping.interval`, `imq.log.*`, `raybroker.aio`, imq.pong.interval, `imq.lag.*`, `maxNumMsg`, -o hosting=b"
    )
    assert list(unknown_names({"a.md": text})) == ["a.md: imq.pong.interval", "a.md: imq.lag", "a.md: maxNumMsg"]


def test_a_link_that_leads_nowhere_is_found() -> None:
    text = "[a](b.md) [c](../../README.md#x) [d](https://a.example/b) [e](#f)"
    assert missing({"raybroker/manual/a.md": text}) == ["raybroker/manual/a.md: raybroker/manual/b.md"]
