"""mypy is strict in every package, and a line that it shall not check says why."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

from tests.tidy.source import ROOT, Sources, package

_IGNORE = re.compile(r"# type: ignore(?P<codes>\[[a-z, -]+\])?(?P<why>.*)")


def violations(sources: Sources) -> Iterator[str]:
    for path, source in sources.items():
        for number, line in enumerate(source.splitlines(), 1):
            found = _IGNORE.search(line)
            if found is not None and not (found["codes"] and found["why"].lstrip(" #-").strip()):
                yield f"{path}:{number}: `type: ignore` names what is ignored, and behind it why"


def test_each_ignored_line_says_why() -> None:
    assert list(violations(package())) == []


def test_no_package_is_loosened() -> None:
    mypy = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    assert mypy["strict"]
    assert [one["module"] for one in mypy["overrides"] if set(one) != {"module", "ignore_missing_imports"}] == []


def test_an_ignore_without_a_reason_is_found() -> None:
    ignore = "x = f()  # type: " + "ignore"
    assert list(violations({"a.py": f"{ignore}[misc]  # f says so\n"})) == []
    assert len(list(violations({"a.py": f"{ignore}[misc]\n{ignore}  # why\n"}))) == 2
