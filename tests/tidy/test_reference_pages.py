"""The reference pages of the manual are what the tables of the source say."""

from __future__ import annotations

import typer

from raybroker.admin.verbs import VERBS
from raybroker.cli.main import app
from raybroker.metrics.catalogue import QUANTITIES
from raybroker.model.settings.setting_table import ALL
from tests.tidy.reference_pages import FOLDER, PAGES, commands_of, generated
from tests.tidy.source import ROOT


def test_the_reference_pages_are_up_to_date() -> None:
    stale = [path for path, text in generated() if (ROOT / path).read_text(encoding="utf-8") != text]
    assert stale == [], "run: python -m tests.tidy.reference_pages"


def test_the_folder_has_no_other_pages() -> None:
    assert {path.name for path in (ROOT / FOLDER).iterdir()} == set(PAGES)


def test_every_row_of_the_tables_is_on_its_page() -> None:
    pages = {path.rpartition("/")[2]: text for path, text in generated()}
    for setting in ALL:
        page = "attributes.md" if setting.scope == "destination" else "settings.md"
        assert f"\n### {setting.name}\n" in pages[page]
    assert [name for name in VERBS if f"\n### {name}(" not in pages["verbs.md"]] == []
    assert [key for key in QUANTITIES if f"| `{key}` |" not in pages["metrics.md"]] == []
    commands = [words for words, _ in commands_of(typer.main.get_command(app))]
    assert len(commands) > 80
    assert [words for words in commands if f"\n## {words}\n" not in pages["commands.md"]] == []
