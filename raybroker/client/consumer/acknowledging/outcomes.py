"""Arguments of an outcome (a delay and a reason), checked when the application gives them."""

from __future__ import annotations

from raybroker.model.errors import MessageFormatError
from raybroker.model.failure import describe
from raybroker.model.settings.setting import OVERRIDE_MS_MAX


def reason_text(reason: object) -> str:
    """A reason as text: an exception's type, text and traceback; raises MessageFormatError for another type."""
    if reason is None:
        return ""
    if isinstance(reason, str):
        return reason
    if isinstance(reason, BaseException):
        return describe(reason)
    raise MessageFormatError(f"a reason is text or an exception, not {type(reason).__name__}")


def check_delay_ms(delay_ms: object) -> None:
    """Raises MessageFormatError for a delay that is neither None nor a whole number from 0 to OVERRIDE_MS_MAX."""
    if delay_ms is None:
        return
    if not isinstance(delay_ms, int) or isinstance(delay_ms, bool) or not 0 <= delay_ms <= OVERRIDE_MS_MAX:
        raise MessageFormatError(
            f"delay_ms={delay_ms!r:.80}; it is a whole number of milliseconds, 0 to {OVERRIDE_MS_MAX}, or None"
        )
