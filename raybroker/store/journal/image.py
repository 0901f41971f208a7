"""An image of a log: which bytes of which files are the log up to some place, and the anchors of a store of just those.

Whoever copies the bytes of an image into a new directory, and then writes its anchors, has a journal that ends there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from raybroker.store.fileio import FileIO
from raybroker.store.journal.anchors import Manifest, ManifestFiles, Mark, MarkFile, SegmentRecord
from raybroker.store.journal.segment import Segment, segment_name


class LogEnd(NamedTuple):
    """A place where a batch has ended: the segment, the byte in its file, and the number of the next entry."""

    segment: int
    offset: int
    seq: int


class ImageFile(NamedTuple):
    """``nbytes`` from the start of the file count; ``size_bytes``: how long it is."""

    name: str
    number: int
    nbytes: int
    size_bytes: int


class LogImage(NamedTuple):
    """``manifest``: encoded, of the files alone."""

    end: LogEnd
    manifest: bytes
    files: tuple[ImageFile, ...]


def image_of(manifest: Manifest, segments: Iterable[Segment], end: LogEnd) -> LogImage:
    """The image of a log up to ``end``."""
    records, files = list[SegmentRecord](), list[ImageFile]()
    for segment in sorted(segments, key=lambda segment: segment.number):
        if segment.number > end.segment:
            break
        record, nbytes = segment.record(), segment.used_end
        if segment.number == end.segment:
            record = SegmentRecord(segment.number, segment.slot, segment.size_bytes, segment.first_seq, record.chain)
            nbytes = end.offset
        records.append(record)
        files.append(ImageFile(segment_name(segment.slot), segment.number, nbytes, segment.size_bytes))
    whole = replace(manifest, generation=1, relaxed=False, segments=tuple(records))
    return LogImage(end, whole.encode(), tuple(files))


def write_anchors(io: FileIO, directory: Path, image: LogImage) -> None:
    """Make a store of the files of an image, which are there and synced; durable on return. Raises OSError."""
    manifest = Manifest.decode(image.manifest)
    manifests, mark = ManifestFiles(io, directory), MarkFile(io, directory)
    try:
        manifests.create(manifest)
        mark.create(Mark(manifest.store, 1, manifest.incarnation, True, image.end.seq, *image.end[:2]))
        io.fsync_dir(directory)
    finally:
        manifests.close()
        mark.close()
