"""imqobjmgr: connection factories and destinations in an object store."""

from __future__ import annotations

from typing import Final

from raybroker.cli.mq.options import Form, Line, Option, form_of

NAME: Final = "imqobjmgr"
ABOUT: Final = "imqobjmgr: connection factories and destinations that programs look up. It needs no broker."
GENERAL: Final = {
    "-f": Option("Do not ask."),
    "-s": Option("Print nothing; errors and the exit status stay."),
    "-pre": Option("Show what would be done, and do nothing."),
    "-i": Option("Command file, which may be a part of a command.", "FILE"),
    "-j": Option("Attribute of the object store, such as java.naming.provider.url=….", "ATTR=VALUE"),
}
OPTIONS: Final = {
    **GENERAL,
    "-t": Option("Type: q, t, cf, qf, tf, xcf, xqf or xtf.", "TYPE"),
    "-l": Option("Lookup name.", "NAME"),
    "-o": Option("Attribute of the object.", "ATTR=VALUE"),
    "-r": Option("Whether the object is read-only.", "true|false"),
}
FORMS: Final = {
    form.words: form
    for form in (
        Form("add", "", "-t -l -o -r", "Put an object into a store."),
        Form("delete", "", "-l -t", "Remove an object."),
        Form("list", "", "-t", "List all objects, or those of one type."),
        Form("query", "", "-l -t", "Show the attributes of an object."),
        Form("update", "", "-l -t -o -r", "Change attributes of an object."),
        Form("", "-i", "-t -l -o -r", "Do what a command file says."),
    )
}


def commands(line: Line) -> list[list[str]]:
    """The command of raybroker that an imqobjmgr is; raises UsageError."""
    form = form_of(NAME, FORMS, line, GENERAL)
    taken = line.passed("-t", "-l", "-o", "-j", "-r", "-i", "-pre", "-f", "--json")
    return [["objmgr", *form.words.split(), *taken]]
