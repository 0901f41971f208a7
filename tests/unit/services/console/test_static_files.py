"""The files of the console: what browsers are told, libraries as they were published, and no markup from data."""

from __future__ import annotations

import hashlib
import re

import pytest

from raybroker.services.console.static_files import FOLDER, TYPES, static_files

FILES = static_files()
OWN = [name for name in FILES if "/" not in name]
VENDORED_MAX = 70_000


def test_every_file_is_served_with_its_type() -> None:
    there = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
    assert set(FILES) == there
    assert set(TYPES.values()) >= {found.kind for found in FILES.values()}
    assert len({found.tag for found in FILES.values()}) == len(FILES)


def test_vendored_libraries_are_those_of_the_table_and_have_their_licences() -> None:
    table = (FOLDER / "vendor/VERSIONS.txt").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\S+\.(?:js|css)) \| .* \| ([0-9a-f]{64}) \|$", table, flags=re.MULTILINE)
    files = {path.name: path for path in (FOLDER / "vendor").iterdir() if path.suffix in (".js", ".css")}
    assert {name for name, _ in rows} == set(files)
    for name, digest in rows:
        assert hashlib.sha256(files[name].read_bytes()).hexdigest() == digest, name
    assert sum(path.stat().st_size for path in files.values()) < VENDORED_MAX
    assert {path.stem for path in (FOLDER / "vendor").glob("*.LICENSE")} == {"htm", "preact", "uPlot"}


@pytest.mark.parametrize("name", OWN)
def test_nothing_that_a_strict_policy_forbids_and_no_markup_from_data(name: str) -> None:
    text = FILES[name].data.decode()
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "dangerously",
        "eval(",
        "new Function",
    ):
        assert word not in text, word
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), "everything comes from the broker itself"
    if name.endswith(".html"):
        assert not re.search(r"<script(?![^>]* src=)|\son\w+=|\sstyle=", text)
        for wanted in re.findall(r'(?:src|href)="([^"]+)"', text):
            assert wanted in FILES
    if name.endswith(".js"):
        for wanted in re.findall(r'^import .* from "\./([^"]+)";$', text, flags=re.MULTILINE):
            assert wanted in FILES
