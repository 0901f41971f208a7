"""Runs the Python blocks of one page, one after the other, as one program."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

import raybroker as rb
from raybroker.admin.checks import EXIT_CODES, Grade
from tests.manual.blocks import Block
from tests.manual.shell import commands
from tests.program import invoke


def run_page(blocks: Iterable[Block], names: dict[str, Any], changed: Sequence[tuple[str, str]] = ()) -> None:
    """``names``: what is there before the first; ``changed``: words that stand for those of this machine."""
    names["__name__"] = "__main__"  # As in a program: Ray sends its functions by value.
    try:
        for block in blocks:
            text = block.text
            for word, ours in changed:
                text = text.replace(word, ours)
            program = "\n" * block.line + text  # Lines of tracebacks are those of the page.
            exec(compile(program, block.page, "exec", dont_inherit=True), names)
    finally:
        for value in list(names.values()):
            if isinstance(value, rb.Connection):
                value.close()


def run_commands(blocks: Iterable[Block]) -> None:
    """The commands of these blocks, each of which has to succeed; a check has to find something out."""
    for block in blocks:
        for name, *words in commands(block.text):
            assert name == "raybroker", f"{block.place}: {name}"
            done = invoke(*words)
            asked = words[0] == "check" and done.exit_code != EXIT_CODES[Grade.UNKNOWN]
            assert asked or done.exit_code == 0, f"{block.place}: {shlex.join(words)}: {done.output}"
