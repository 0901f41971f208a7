"""The tables of figures in README and manual are those of the results file, and nobody edits them by hand."""

from __future__ import annotations

from benchmarks import figure_pages


def test_the_pages_say_what_the_results_file_does() -> None:
    assert figure_pages.differing(figure_pages.load()) == [], f"write them with: {figure_pages.COMMAND} --pages"
