"""The failure of a consumer to process a message, as one text: type and text of an exception, then its traceback.

The text travels as the reason of an outcome (``wire.native.frames.SettleFrame``) and is taken apart where it is written
onto a dead message, so that the summary can be read and searched by itself.
"""

from __future__ import annotations

import traceback
from typing import Final

SUMMARY_CHARS_MAX: Final = 1_024
TRACEBACK_CHARS_MAX: Final = 4_096
"""Of a longer traceback the beginning is left out: the innermost calls stand last."""
CUT: Final = "…\n"
_BEGINNING: Final = "Traceback (most recent call last):\n"
_MARK: Final = f"\n{_BEGINNING}"
REASON_CHARS_MAX: Final = SUMMARY_CHARS_MAX + TRACEBACK_CHARS_MAX + len(_MARK) + len(CUT)


def summary_of(error: BaseException) -> str:
    """Type and text of an exception in one line: ``ValueError: no such customer``."""
    kind = type(error)
    local = kind.__module__ in ("builtins", "__main__")
    name = kind.__qualname__ if local else f"{kind.__module__}.{kind.__qualname__}"
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - an exception of the application may have a faulty __str__
        text = "<its text cannot be made>"
    return _encodable((f"{name}: {text}" if text else name)[:SUMMARY_CHARS_MAX])


def describe(error: BaseException, *, skip: int = 0) -> str:
    """Summary and traceback of an exception, of at most REASON_CHARS_MAX characters.

    ``skip``: outermost calls to leave out, those of the caller's own machinery.
    """
    frames = error.__traceback__
    for _ in range(skip):
        frames = frames.tb_next if frames is not None else None
    if frames is None:
        return summary_of(error)
    lines = "".join(traceback.format_tb(frames)) + summary_of(error)
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        lines = f"{lines}\nafter {summary_of(cause)}"
    if len(lines) > TRACEBACK_CHARS_MAX:
        lines = CUT + lines[-TRACEBACK_CHARS_MAX:]
    return _encodable(f"{summary_of(error)}{_MARK}{lines}")


def _encodable(text: str) -> str:
    """Return the text without characters that UTF-8 does not have, such as lone surrogates."""
    return text.encode("utf-8", "replace").decode()


def parted(reason: str) -> tuple[str, str]:
    """(summary, traceback) of a reason; one that is no exception's is all summary."""
    summary, mark, rest = reason.partition(_MARK)
    return (summary, _BEGINNING + rest) if mark else (reason, "")
