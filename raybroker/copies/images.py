"""Images of a log between copies: the leader's files go to a copy that is too far behind, and are its journal then.

The leader sends what its files have up to an entry that is committed, then what has come since, until that is little;
only then is the image an entry's, and the copy takes it.  Meanwhile no file of the leader's journal is used again.  The
copy writes the files into a folder of their own and syncs them as they come, so that there is little to do at the end.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from raybroker.copies.image_form import image_bytes, image_of_bytes
from raybroker.copies.message_form import ImageBegins, ImageEnds, ImagePart, ImageTaken, ShellMessage
from raybroker.model.errors import StoreError
from raybroker.store.fileio import FileIO, RoomIO, write_all
from raybroker.store.journal.image import LogImage
from raybroker.store.journal.segment import slot_of

PART_BYTES: Final = 1 << 20
UNSENT_BYTES: Final = 4 << 20
"""The sender waits while the link has so much to send."""
WAIT_S: Final = 0.002
REST_SHARE: Final = 8.0
"""After each part the sender rests for so many times as long as that took: those who send messages meanwhile have the
disk, the link and the processor. Of 1,000,000 messages of 1 KiB an image takes 12 s so, and they keep 0.74 of their
speed; without rests it takes 2 s, and they keep 0.58."""
REST_S_MAX: Final = 0.05
ROUNDS_MAX: Final = 32
"""How often the leader sends what has come meanwhile, before the image is taken as it is."""
LITTLE_BYTES: Final = 2 << 20
TAKE_S: Final = 60.0
"""How long the other copy may take to sync what it has got."""
SYNC_BYTES: Final = 32 << 20
log = logging.getLogger("raybroker.copies")


class ImageSource(NamedTuple):
    """What the sender needs of its copy; all may be called in any thread.

    image   the log up to what is committed, and its last entry's index; None without one
    wanted  the other copy still waits for an image
    send    a message to the other copy
    unsent  bytes that its link has to send; -1 without a link
    made    the other copy has the files
    now_ns  a monotonic clock
    """

    directory: Callable[[], Path]
    image: Callable[[], tuple[int, LogImage] | None]
    hold: Callable[[bool], None]
    wanted: Callable[[], bool]
    send: Callable[[ShellMessage], None]
    unsent: Callable[[], int]
    made: Callable[[int, bytes], None]
    now_ns: Callable[[], int]


class ImageSender:
    """One transfer, run in a thread of its own.  ``failed``: why it came to nothing; "": it did not."""

    def __init__(self, number: int, source: ImageSource) -> None:
        self.number = number
        self.failed = ""
        self.over = False
        self.sent_bytes = 0
        self._source = source
        self._taken = threading.Event()
        self._reason = ""
        self._sent: dict[int, int] = {}
        self._stopped = False

    def taken(self, reason: str) -> None:
        """The other copy has said that the files are there, or why not."""
        self._reason = reason
        self._taken.set()

    def give_up(self) -> None:
        self._stopped = True
        self._taken.set()

    def run(self) -> None:
        source = self._source
        source.hold(True)
        try:
            self._transfer()
        except (OSError, StoreError) as error:
            self.failed = str(error)
        finally:
            source.hold(False)
            self.over = True
            if self.failed:
                log.warning("[B2202] an image was not sent: %s", self.failed)

    def _transfer(self) -> None:
        source = self._source
        source.send(ImageBegins(self.number))
        rounds, (index, image) = 1, self._image()
        while self._send_files(image) > LITTLE_BYTES and rounds < ROUNDS_MAX:
            rounds, (index, image) = rounds + 1, self._image()
        if rounds == ROUNDS_MAX:
            self._send_files(image)
        data = image_bytes(image, self.number)
        source.send(ImageEnds(self.number, data))
        if not self._taken.wait(TAKE_S):
            raise StoreError(f"the other copy has not said within {TAKE_S:.0f} s that the files are there")
        if self._stopped or self._reason:
            raise StoreError(self._reason or "this copy ends")
        source.made(index, data)

    def _image(self) -> tuple[int, LogImage]:
        found = self._source.image()
        if found is None:
            raise StoreError("nothing is committed")
        return found

    def _send_files(self, image: LogImage) -> int:
        """Send what the image has and was not sent; returns how much that was."""
        before, source = self.sent_bytes, self._source
        for file in image.files:
            at = self._sent.get(file.number, 0)
            if at >= file.nbytes:
                continue
            fd = os.open(source.directory() / file.name, os.O_RDONLY | os.O_CLOEXEC)
            try:
                while at < file.nbytes:
                    began_ns = source.now_ns()
                    self._wait_for_room()
                    data = os.pread(fd, min(PART_BYTES, file.nbytes - at), at)
                    if not data:
                        raise StoreError(f"{file.name} ends at {at}, and not at {file.nbytes}")
                    source.send(ImagePart(self.number, file.name, at, data))
                    at += len(data)
                    self.sent_bytes += len(data)
                    self._sent[file.number] = at
                    self._rest(source.now_ns() - began_ns)
            finally:
                os.close(fd)
        return self.sent_bytes - before

    def _rest(self, took_ns: int) -> None:
        self._taken.wait(min(REST_S_MAX, REST_SHARE * took_ns / 1e9))

    def _wait_for_room(self) -> None:
        source = self._source
        while True:
            if self._stopped or not source.wanted():
                raise StoreError("the other copy does not wait for an image any more")
            unsent = source.unsent()
            if unsent < 0:
                raise StoreError("the link with the other copy has ended")
            if unsent <= UNSENT_BYTES:
                return
            self._taken.wait(WAIT_S)


class ImageTaker:
    """Files that come, at the copy that needs them.  ``directory``: the copy's."""

    def __init__(self, io: FileIO, directory: Path, prefix: str) -> None:
        self._io = io
        self._room_io: RoomIO = io
        self._directory = directory
        self._prefix = prefix
        self._number = -1
        self._path = directory
        self._reason = ""
        self._files: dict[str, int] = {}
        self._unsynced = 0

    def take_message(self, message: ImageBegins | ImagePart | ImageEnds) -> ImageTaken | None:
        """Take a message; returns the answer to the last one.  Nothing is raised: the answer has the reason."""
        try:
            if isinstance(message, ImageBegins):
                self._begin_image(message.number)
            elif message.number != self._number or self._reason:
                pass
            elif isinstance(message, ImagePart):
                self._write_part(message)
            else:
                self._finish(message)
        except (OSError, StoreError) as error:
            self._reason = f"{self._path}: {error}"
        if isinstance(message, ImageEnds):
            reason = self._reason if message.number == self._number else "it was given up"
            return ImageTaken(message.number, reason)
        return None

    def forget_files(self) -> None:
        """Close what is open, and remove what nobody will ask for."""
        for fd in self._files.values():
            with suppress(OSError):
                self._io.close(fd)
        self._files.clear()
        for name in self._io.names(self._directory):
            if name.startswith(self._prefix):
                shutil.rmtree(self._directory / name, ignore_errors=True)
        self._number = -1

    def _begin_image(self, number: int) -> None:
        self.forget_files()
        self._number, self._reason, self._unsynced = number, "", 0
        self._path = self._directory / f"{self._prefix}{number}"
        self._path.mkdir(mode=0o700)

    def _write_part(self, part: ImagePart) -> None:
        if slot_of(part.file) is None:
            raise StoreError(f"{part.file!r} is no file of a journal")
        fd = self._files.get(part.file)
        if fd is None:
            fd = self._files[part.file] = self._io.create(self._path / part.file)
        write_all(self._io, fd, [part.data], part.offset)
        self._unsynced += len(part.data)
        if self._unsynced >= SYNC_BYTES:
            self._sync_files()

    def _sync_files(self) -> None:
        for fd in self._files.values():
            self._io.fdatasync(fd)
        self._unsynced = 0

    def _finish(self, message: ImageEnds) -> None:
        """Make the files what the image says, durably."""
        image, _ = image_of_bytes(message.image)
        for file in image.files:
            fd = self._files.get(file.name)
            if fd is None:
                raise StoreError(f"{file.name} has not come")
            self._room_io.truncate(fd, file.nbytes)
            self._room_io.truncate(fd, file.size_bytes)
        if len(image.files) != len(self._files):
            raise StoreError("files have come that the image does not name")
        self._sync_files()
        self._io.fsync_dir(self._path)
        for fd in self._files.values():
            self._io.close(fd)
        self._files.clear()
