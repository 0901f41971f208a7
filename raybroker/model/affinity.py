"""Affinity: labels of consumers, and the property of messages that asks for one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from raybroker.model.errors import ConfigError
from raybroker.model.naming.property_names import is_header_name, stranger

LABELS_MAX: Final = 64
"""Labels of one consumer."""
LABEL_CHARS_MAX: Final = 255
NODE: Final = "RAYBROKER_NODE"
"""The property of a message whose body lies in Ray's object store: the node where its producer has put it. Consumers in
Ray have their node among their labels."""


def check_labels(labels: Any) -> tuple[str, ...]:
    """The labels of a consumer, each once; raises ConfigError for what cannot be."""
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise ConfigError(f"labels={labels!r:.80}; it is a list of texts")
    found = tuple(dict.fromkeys(labels))
    for label in found:
        if not isinstance(label, str) or not 1 <= len(label) <= LABEL_CHARS_MAX:
            raise ConfigError(f"labels={label!r:.80}; a label is a text of 1 to {LABEL_CHARS_MAX} characters")
    if len(found) > LABELS_MAX:
        raise ConfigError(f"{len(found)} labels; a consumer has at most {LABELS_MAX}")
    return found


def check_affinity_key(name: str) -> None:
    """Raises ConfigError for what is not the name of a property."""
    if is_header_name(name) or stranger(name) >= 0:
        raise ConfigError(f"affinityKey = {name!r:.120}: it is the name of a property of messages, such as model")
