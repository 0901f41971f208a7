"""The message selector language of JMS 2.0: a condition over the headers and properties of a message.

A selector is read, checked and compiled once (``compile_selector``, cached by its text) and is then a pure function of
a message's headers; bodies are never looked at.  How the text becomes the function, each step a file:

    text ─ tokens ─→ words ─ grammar ─→ tree ─ check ─→ tree that fits together ─ compile ─→ Selector

Where JMS leaves something open, or a program in Python differs from one in Java:

* A missing value, or None, is *unknown*; so is arithmetic with a value that is no number, a division by zero, an
  integer result that does not fit 64 bits (never one that wrapped around), and a value that is no truth value in the
  place of a condition.  An unknown condition selects nothing, and NOT leaves it unknown.
* Comparing unlike types is false, for ``<>`` too.  Bytes, and types that JMS does not know, are unlike everything.
* ``NOT IN`` and ``NOT LIKE`` are NOT of the plain form, so a number is NOT IN every list of texts; ``x NOT BETWEEN a
  AND b`` is ``x < a OR x > b``, as JMS says, so it is false for what is no number.
* Integers and floats are compared exactly, without rounding the integer first.  ``f`` and ``d`` after a literal change
  nothing, nor does ``l``: a float is a double, an integer a long.  Hexadecimal, octal and binary ones are positive.
* What cannot be right whatever the message is (``'a' < 5``, ``TRUE + 1``) is refused when the selector is compiled.
* A comparison is no operand without parentheses: ``(a > 1) = flag``.
* JMSXDeliveryCount and JMSRedelivered tell of the delivery that would come next; JMSRedelivered goes beyond JMS.
"""

from raybroker.core.selector.limits import IN_LIST_MAX, NESTING_MAX, SELECTOR_CHARS_MAX
from raybroker.core.selector.selector import SELECTOR_CACHE_MAX, Selector, compile_selector, normalised

__all__ = [
    "IN_LIST_MAX",
    "NESTING_MAX",
    "SELECTOR_CACHE_MAX",
    "SELECTOR_CHARS_MAX",
    "Selector",
    "compile_selector",
    "normalised",
]
