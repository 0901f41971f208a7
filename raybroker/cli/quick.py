"""The options of a command of the grid, read without typer where nothing about them has to be explained.

Typer checks what is written by models of pydantic, whose import takes as long as all that such a command does itself.
Here the same declarations are read, and only what is plain: each option is one that the command has, written as it is
declared, with a value of its type. For anything else, such as a help, an option that is missing or one that is wrong,
there is no answer, and typer reads the line from its beginning.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any, Final, NamedTuple, get_args, get_origin

from typer.models import OptionInfo

from raybroker.cli.command import texts
from raybroker.cli.exits import with_seconds
from raybroker.cli.groups import HELP, made, words_of

CONTEXT: Final = "--context"


class QuickLine(NamedTuple):
    """A command line that was understood. ``context``: of --context."""

    verb: str
    context: str | None
    function: Callable[..., Any]
    options: dict[str, Any]


class _NotPlainError(Exception):
    """Something is left to typer."""


def read(words: Sequence[str]) -> QuickLine | None:
    """The line of a command of the grid, all of it; None where typer has to read it."""
    context = None
    if len(words) > 1 and words[0] == CONTEXT:
        context, words = words[1], words[2:]
    if len(words) < 2 or words[0] not in HELP or words[1] not in words_of(words[0]):
        return None
    verb, word, *rest = words
    function = made(verb, word).function
    options = options_of(function, rest)
    return None if options is None else QuickLine(verb, context, function, options)


def options_of(function: Callable[..., Any], words: Sequence[str]) -> dict[str, Any] | None:
    """The arguments that typer would call ``function`` with; None where it has to say."""
    try:
        declared = [
            _DeclaredOption.from_parameter(one)
            for one in inspect.signature(function, eval_str=True).parameters.values()
        ]
        given = _given({text: one for one in declared for text in one.texts}, with_seconds(words))
        return {one.name: one.value(given.get(one.name)) for one in declared}
    except _NotPlainError:
        return None


class _DeclaredOption(NamedTuple):
    """An option as it is declared. ``base``: the type of a value; ``many``: it is repeatable."""

    name: str
    texts: frozenset[str]
    info: OptionInfo
    base: Any
    many: bool
    default: Any

    @classmethod
    def from_parameter(cls, parameter: inspect.Parameter) -> _DeclaredOption:
        kind, *more = get_args(parameter.annotation) or (None,)
        info = next((one for one in more if isinstance(one, OptionInfo)), None)
        if info is None:
            raise _NotPlainError
        kinds = [one for one in get_args(kind) if one is not NoneType] if NoneType in get_args(kind) else [kind]
        base, many = kinds[0], get_origin(kinds[0]) is list
        names = texts(parameter.annotation) or {f"--{parameter.name.replace('_', '-')}"}
        if many:
            (base,) = get_args(base)
        return cls(parameter.name, frozenset(names), info, base, many, parameter.default)

    def value(self, given: list[str] | None) -> Any:
        """What the function gets; ``given``: the values that are written."""
        if given is None:
            if self.default is inspect.Parameter.empty:
                raise _NotPlainError
            return self.default if not isinstance(self.default, str) else self._one(self.default)
        if self.base is bool:
            return True
        return [self._one(text) for text in given] if self.many else self._one(given[0])

    def _one(self, text: str) -> Any:
        if self.info.parser is not None:
            try:
                return self.info.parser(text)
            except Exception:  # noqa: BLE001 - typer calls it again, and says what is wrong
                raise _NotPlainError from None
        if isinstance(self.base, type) and issubclass(self.base, Enum):
            found = [one for one in self.base if one.value == text]
            if not found:
                raise _NotPlainError
            return found[0]
        if self.base is int or self.base is float:
            return self._number(text)
        if self.base is Path:
            return Path(text)
        if self.base is not str:
            raise _NotPlainError
        return text

    def _number(self, text: str) -> Any:
        """A number that is written in digits alone, within its bounds."""
        whole, _, part = text.partition(".")
        if not (whole.isdecimal() and text.isascii()) or (part and not part.isdecimal()) or text.endswith("."):
            raise _NotPlainError
        if self.base is int and part:
            raise _NotPlainError
        number = self.base(text)
        least, most = self.info.min, self.info.max
        if (least is not None and number < least) or (most is not None and number > most):
            raise _NotPlainError
        return number


def _given(known: dict[str, _DeclaredOption], words: Sequence[str]) -> dict[str, list[str]]:
    """Name of an option → its values as they are written."""
    given: dict[str, list[str]] = {}
    left = iter(words)
    for word in left:
        text, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        option = known.get(text)
        if option is None or option.info.callback is not None or option.info.prompt or "/" in text:
            raise _NotPlainError
        if option.base is bool:
            if equals:
                raise _NotPlainError
        elif not equals:
            value = next(left, "-")
            if value.startswith("-"):
                raise _NotPlainError
        if option.name in given and not option.many:
            raise _NotPlainError
        given.setdefault(option.name, []).append(value)
    return given
