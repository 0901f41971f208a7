"""The shells: what they load, and what they are told each time that somebody presses the key."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, suppress
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer

from raybroker.cli import output
from raybroker.cli.completion.line import quoted, split
from raybroker.cli.completion.words import Fitting, found
from raybroker.cli.exits import UsageError

SCRIPTS: Final = {
    "bash": r"""# Completion of raybroker in bash: source <(raybroker completion bash)
_raybroker() {
    local line mode=
    COMPREPLY=()
    while IFS= read -r line; do
        if [ -z "$mode" ]; then mode=$line; else COMPREPLY+=("$line"); fi
    done < <(PROGRAM completion words bash "${COMP_LINE:0:COMP_POINT}" "$COMP_WORDBREAKS" 2>/dev/null)
    case $mode in
        files) compopt -o default 2>/dev/null ;;
        open) compopt -o nospace 2>/dev/null ;;
    esac
}
complete -F _raybroker raybroker
""",
    "zsh": r"""#compdef raybroker
# Completion of raybroker in zsh: source <(raybroker completion zsh), after compinit
_raybroker() {
    local line mode=
    local -a names shown
    while IFS= read -r line; do
        if [[ -z $mode ]]; then mode=$line; else
            names+=("${line%%$'\t'*}")
            shown+=("${line/$'\t'/  -- }")
        fi
    done < <(PROGRAM completion words zsh "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)
    [[ $PREFIX == --*=* ]] && compset -P '*='
    case $mode in
        files) _files ;;
        open) compadd -S '' -l -d shown -a names ;;
        named) compadd -a names ;;
        words) compadd -l -d shown -a names ;;
    esac
}
if [[ ${funcstack[1]-} == _raybroker ]]; then _raybroker "$@"; else compdef _raybroker raybroker; fi
""",
    "fish": r"""# Completion of raybroker in fish: raybroker completion fish | source
function __raybroker_words
    set -l words (commandline -opc)
    set -l lines (PROGRAM completion words fish $words[2..-1] (commandline -ct) 2>/dev/null)
    if test "$lines[1]" = files
        __fish_complete_path (commandline -ct)
    else if set -q lines[2]
        printf '%s\n' $lines[2..-1]
    end
end
complete -c raybroker -f -a '(__raybroker_words)'
""",
}
"""Shell → what it loads. Its function gives the words of the line, and gets a mode in the first line and what may come
next in the others, for zsh and fish each with what it is behind a tab."""


def completion(
    shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", help="The shell.")],
) -> None:
    """Print what a shell loads to complete command lines, with the names of what there is at the broker.

    \b
      source <(raybroker completion bash)      in ~/.bashrc
      source <(raybroker completion zsh)       in ~/.zshrc, after compinit
      raybroker completion fish | source       in ~/.config/fish/config.fish

    Names come from the broker of the line (-b, -u, --passfile), of --context, or of the context in use, with the
    rights of that user. A broker that does not answer within a second (RAYBROKER_COMPLETION_S) gives none, and one
    inside the Ray cluster is not asked: to join it takes longer.
    """
    if shell not in SCRIPTS:
        raise UsageError(f"completion {shell}: there are {', '.join(SCRIPTS)}")
    output.say(SCRIPTS[shell].replace("PROGRAM", shlex.join(_program())).rstrip())


def _program() -> list[str]:
    """The words that run this program, wherever the shell is then."""
    path = Path(sys.argv[0]).absolute()
    return [sys.executable, "-m", "raybroker"] if path.name == "__main__.py" else [str(path)]


def answer(root: Any, words: Sequence[str]) -> NoReturn:
    """Print what may come next, and end. Nothing else is printed whatever happens, and nothing is waited for that
    goes on."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stderr(nowhere), suppress(Exception):
        shell, *line = words
        text = "\n".join(_lines(root, shell, line))
        sys.stdout.buffer.write(f"{text}\n".encode())
        sys.stdout.buffer.flush()
    os._exit(0)


def _lines(root: Any, shell: str, line: list[str]) -> Iterator[str]:
    """The mode, and what may come next."""
    if shell == "bash":
        yield from _bash(root, *line)
        return
    *before, last = line
    if shell == "fish":  # The word at the cursor comes with its quotes.
        last = split(last)[1].text
    what = found(root, before, last)
    yield _mode(what)
    prefix = last[: last.find("=") + 1] if shell == "fish" and last.startswith("--") else ""
    for word, about in what.words.items():
        yield f"{prefix}{word}\t{about}".rstrip("\t")


def _mode(what: Fitting) -> str:
    if what.files:
        return "files"
    if what.open:
        return "open"
    return "words" if any(what.words.values()) else "named"


def _bash(root: Any, line: str, breaks: str) -> Iterator[str]:
    """What comes in the place of the part of the word that bash replaces: behind the last of ``breaks`` in it."""
    words, last = split(line, breaks)
    if last.start is None or not words:
        return
    what = found(root, words[1:], last.text)
    yield _mode(what)
    prefix = last.text[: last.text.find("=") + 1] if last.text.startswith("--") else ""
    for word in what.words:
        text = quoted(f"{prefix}{word}"[last.start :], last.quote)
        if text is not None:
            yield text
