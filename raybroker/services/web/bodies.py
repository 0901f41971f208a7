"""Bodies of requests: bounded one by one and all together.

A body has at most ``bytes_max`` bytes and ``timeout_s`` to come; all that are being handled have ``all_bytes_max``.
Bodies are never decompressed: one with a Content-Encoding is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from starlette.requests import Request

from raybroker.model.errors import ResourceAllocationError
from raybroker.services.web.problems import RefusedError

BODIES_BYTES_MAX: Final = 64 << 20
BODY_TIMEOUT_S: Final = 20.0
JSON: Final = "application/json"


class Bodies:
    """``bytes_max``: of one that is JSON. ``held``: bytes of those that are being handled."""

    def __init__(
        self, bytes_max: int, all_bytes_max: int = BODIES_BYTES_MAX, timeout_s: float = BODY_TIMEOUT_S
    ) -> None:
        self.bytes_max = bytes_max
        self._all_bytes_max = all_bytes_max
        self._timeout_s = timeout_s
        self.held = 0

    def require_json(self, request: Request) -> None:
        """Raises RefusedError, 415, for a body that does not say that it is JSON."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != JSON:
            raise RefusedError(f"a body of type {kind!r:.80}; it is {JSON}", 415)

    @asynccontextmanager
    async def json(self, request: Request) -> AsyncIterator[bytes]:
        """Do what :meth:`read` does, of a body that says that it is JSON."""
        self.require_json(request)
        async with self.read(request, self.bytes_max) as data:
            yield data

    @asynccontextmanager
    async def read(self, request: Request, most: int) -> AsyncIterator[bytes]:
        """The body of a request, whose bytes count for as long as it is handled."""
        data = await self._read(request, most)
        try:
            yield data
        finally:
            self.held -= len(data)

    async def _read(self, request: Request, most: int) -> bytes:
        """A body of at most so many bytes, which count from now on."""
        encoding = request.headers.get("content-encoding", "identity")
        if encoding.strip().lower() not in ("identity", ""):
            raise RefusedError(
                f"a body with Content-Encoding {encoding!r:.80}; send it as it is", 415, {"Accept-Encoding": "identity"}
            )
        length = request.headers.get("content-length", "0")
        if length.isdecimal() and int(length[:20]) > most:
            raise _too_large(most)
        came = 0
        try:
            chunks: list[bytes] = []
            async with asyncio.timeout(self._timeout_s):
                async for chunk in request.stream():
                    came += len(chunk)
                    self.held += len(chunk)
                    if came > most:
                        raise _too_large(most)
                    if self.held > self._all_bytes_max:
                        raise ResourceAllocationError(
                            f"bodies of {self._all_bytes_max} bytes are being handled; try again"
                        )
                    chunks.append(chunk)
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
        except TimeoutError:
            self.held -= came
            raise RefusedError(
                f"the body has not come in {self._timeout_s:g} s", 408, {"Connection": "close"}, retryable=True
            ) from None
        except BaseException:
            self.held -= came
            raise


def _too_large(most: int) -> RefusedError:
    return RefusedError(
        f"the body has more than {most} bytes (raybroker.http.body_bytes_max says how many one may have); send it"
        " in several requests, or raise that",
        413,
        {"Connection": "close"},
    )
