"""A port whose connections all have TLS: who does not begin with it is refused, and nothing is read of what he says.

Handshakes are bounded: SHAKING_MAX at once, and as many from one address, since the programs of a whole node may start
at the same time. Without room for another one, the one that came first makes some, unless all are from the address of
the other one. Whoever is refused for that tries again.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Final

from raybroker.services.listening.accepting import accepting, take_over
from raybroker.services.listening.arrivals import MAKES_ROOM, Arrivals
from raybroker.system.supervision import Supervisor
from raybroker.transport.link import Link

SHAKING_MAX: Final = 512


class SecurePort:
    """Accepts connections at a socket that listens, which is its own from now on; on the running loop.

    context      for the next connection
    accept       makes its end
    handshake_s  how long a handshake may take
    refused      is told of the address of who is not let in, and why
    """

    def __init__(
        self,
        bound: socket.socket,
        context: Callable[[], ssl.SSLContext],
        accept: Callable[[], Link],
        *,
        handshake_s: float,
        refused: Callable[[str, str], None],
    ) -> None:
        bound.setblocking(False)
        self._bound = bound
        self._context = context
        self._accept = accept
        self._handshake_s = handshake_s
        self._refused = refused
        self._arriving = Arrivals(SHAKING_MAX, SHAKING_MAX)
        self._loops = Supervisor("the port of a host")
        self._loops.keep("accepting", lambda: accepting(bound, self._arrived))

    def _arrived(self, taken: socket.socket, peer: str) -> None:
        def refuse(why: str) -> None:
            taken.close()
            self._refused(peer, why)

        address = peer.rpartition(":")[0]
        if not self._arriving.start(address, lambda: self._take_socket(taken, peer), lambda: refuse(MAKES_ROOM)):
            refuse(f"{len(self._arriving)} TLS handshakes are under way")

    async def _take_socket(self, taken: socket.socket, peer: str) -> None:
        try:
            await take_over(self._accept, taken, self._context(), self._handshake_s)
        except OSError as error:
            taken.close()
            self._refused(peer, f"it does not begin with TLS, or breaks it off (imq.cluster.transport=ssl): {error}")
        except BaseException:
            taken.close()
            raise

    def close(self) -> None:
        """Accept nothing any more; connections that have come in stay."""
        self._loops.close()
        self._arriving.cancel()
        self._bound.close()
