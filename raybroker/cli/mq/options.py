"""The syntax of the imq programs: options of whole words behind one dash, in any order among the words.

``-o name=value`` may be repeated, ``-Dname=value`` is one word or two. Options of two dashes are those of the raybroker
command behind it, as far as ``OURS`` has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from raybroker.cli import output
from raybroker.cli.exits import OTHER_WORDS, UsageError
from raybroker.model.naming.nearest import nearest


class Option(NamedTuple):
    """An option: ``value`` names what follows it, "" where nothing does.

    ``ignored``: why it is read and has no effect; ``refused``: why it is not taken, and what to do.
    """

    help: str = ""
    value: str = ""
    ignored: str = ""
    refused: str = ""


class Form(NamedTuple):
    """A form of a program: its words, the options that it needs, and those that it takes."""

    words: str
    needs: str = ""
    takes: str = ""
    help: str = ""
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A command line that was read: the words, and options in their order, a flag with the value None."""

    words: tuple[str, ...]
    options: tuple[tuple[str, str | None], ...]

    def __contains__(self, option: str) -> bool:
        return any(name == option for name, _ in self.options)

    def all(self, option: str) -> list[str]:
        return [value for name, value in self.options if name == option and value is not None]

    def last(self, option: str) -> str | None:
        """Its value, the last where it is repeated; None without it."""
        return next(reversed(self.all(option)), None)

    def passed(self, *names: str, **renamed: str) -> list[str]:
        """These options, for the command behind; ``renamed``: an option without its dash → what it is there."""
        as_there = {**{name: name for name in names}, **{f"-{name}": there for name, there in renamed.items()}}
        return [
            word
            for name, value in self.options
            if name in as_there
            for word in ((as_there[name],) if value is None else (as_there[name], value))
        ]


JAVA: Final = Option("Taken and not used.", "PATH", ignored="there is no Java here")
ASKED: Final = {
    "-h": Option("Print this and end."),
    "-H": Option("The same."),
    "-help": Option("The same."),
    "-v": Option("Print the version and end."),
    "-version": Option("The same."),
    "-javahome": JAVA,
    "-jrehome": JAVA,
    "-varhome": Option(
        "Refused.",
        "PATH",
        refused="stores, users and keys are in the folders that raybroker.store.dir and raybroker.security.dir name:"
        " set them with -D of imqbrokerd, in a cluster file (--config), or as RAYBROKER_STORE__DIR in the environment",
    ),
}
"""Options that all programs have."""
OURS: Final = {
    "--cluster": Option("Name of the cluster.", "C"),
    "--config": Option("Cluster file.", "FILE"),
    "--json": Option("Print JSON."),
    "--token-file": Option("File with a token.", "FILE"),
    "--file": Option("File of users, or keystore.", "FILE"),
}
"""Options of raybroker that are handed on."""


def parse(program: str, options: Mapping[str, Option], words: Iterable[str]) -> Line:
    """Read a command line; raises UsageError. An option that is ignored is told on standard error."""
    rest, found = list(words), list[str]()
    given: list[tuple[str, str | None]] = []
    known = {**options, **ASKED, **OURS}
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            found.append(word)
            continue
        name, value = _split(word, known)
        option = known.get(name)
        if option is None:
            raise UsageError(f"{program}: there is no option {name}{_meant(name, known)}")
        if option.refused:
            raise UsageError(f"{program} {name}: {option.refused}")
        if option.value and value is None:
            if not rest:
                raise UsageError(f"{program} {name}: {option.value} is missing behind it")
            value = rest.pop(0)
        if option.ignored:
            output.error(f"{program} {name} is ignored: {option.ignored}")
        else:
            given.append((name, value))
    return Line(tuple(found), tuple(given))


def _split(word: str, known: Mapping[str, Option]) -> tuple[str, str | None]:
    """The option, and its value where that is in the same word."""
    if word.startswith("-D") and "-D" in known and len(word) > 2:
        return "-D", word[2:]
    if word.startswith("--") and "=" in word:
        name, _, value = word.partition("=")
        return name, value
    return word, None


def _meant(name: str, options: Mapping[str, Option]) -> str:
    word = name.lstrip("-")
    near = next((other for other in (f"-{word}", f"--{word}") if other in options), nearest(name, options))
    hint = f"; did you mean {near}? There are:" if near else "; there are:"
    return f"{hint} {', '.join(name for name, one in options.items() if not one.refused)}"


def form_of(program: str, forms: Mapping[str, Form], line: Line, everywhere: Iterable[str]) -> Form:
    """The form that a line has, checked: nothing is missing and nothing is too much; raises UsageError.

    ``everywhere``: options that each form takes.
    """
    words = " ".join(line.words)
    form = forms.get(words)
    if form is None:
        near = nearest(" ".join(OTHER_WORDS.get(word.lower(), word) for word in line.words), forms)
        hint = f"did you mean {program} {near}? " if near else ""
        raise UsageError(f"{program}: there is no {words or 'command'}; {hint}{program} -h shows what there is")
    if form.refused:
        raise UsageError(f"{program} {words}: {form.refused}")
    for name in form.needs.split():
        if name not in line:
            raise UsageError(f"{program} {words}: {name} is missing; write {usage(program, form)}")
    taken = {*form.needs.split(), *form.takes.split(), *everywhere, *ASKED, *OURS}
    for name, _ in line.options:
        if name not in taken:
            raise UsageError(f"{program} {words}: it takes no {name}; write {usage(program, form)}")
    return form


def usage(program: str, form: Form) -> str:
    """A form with its options, as a manual writes it."""
    parts = [program, form.words, *form.needs.split(), *(f"[{name}]" for name in form.takes.split())]
    return " ".join(part for part in parts if part)


def help_of(program: str, about: str, forms: Iterable[Form], options: Mapping[str, Option]) -> str:
    """What -h prints."""
    lines = [about, ""]
    for form in forms:
        lines += [f"  {usage(program, form)}", f"      {form.help or 'Refused: ' + form.refused}"]
    lines += ["", "Options:"]
    for name, option in {**options, **ASKED, **OURS}.items():
        lines.append(f"  {f'{name} {option.value}'.strip():<24} {option.help}")
    return "\n".join(lines)
