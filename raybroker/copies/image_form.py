"""The description of a log's image, as it goes between copies; the files themselves go before it, in parts."""

from __future__ import annotations

import json

from raybroker.model.errors import StoreError
from raybroker.store.journal.image import ImageFile, LogEnd, LogImage
from raybroker.store.journal.segment import slot_of


def image_bytes(image: LogImage, number: int) -> bytes:
    """Return what is sent of an image; ``number``: of its transfer."""
    fields = {
        "number": number,
        "end": list(image.end),
        "manifest": image.manifest.hex(),
        "files": [list(file) for file in image.files],
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def image_of_bytes(data: bytes) -> tuple[LogImage, int]:
    """Return the image and its number; raises StoreError."""
    try:
        fields = json.loads(data)
        files = tuple(ImageFile(*file) for file in fields["files"])
        if any(slot_of(file.name) is None for file in files):
            raise ValueError("a file is no segment")
        return LogImage(LogEnd(*fields["end"]), bytes.fromhex(fields["manifest"]), files), int(fields["number"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"the description of an image does not decode: {error!r}") from None
