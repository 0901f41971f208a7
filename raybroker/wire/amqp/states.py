"""States of connections, sessions and links, which both ends open and close, and of a login by SASL.

    IDLE                opened               OPENED
    IDLE                opened by the peer   PEER_OPENED
    OPENED              opened by the peer   OPEN
    PEER_OPENED         opened               OPEN
    OPENED, OPEN        closed               CLOSING
    PEER_OPENED, OPEN   closed by the peer   PEER_CLOSED
    PEER_CLOSED         opened               PEER_CLOSED
    CLOSING             opened by the peer   CLOSING
    CLOSING             closed by the peer   CLOSED
    PEER_CLOSED         closed               CLOSED

OPENED, PEER_OPENED: one side alone. CLOSING: closed here, the peer has not answered. PEER_CLOSED: the other way round.

Both ends of a login go through the same states; in brackets whose turn it is:

    MECHANISMS   offered mechanisms (by the listening side)   INIT
    INIT         begun (by the connecting side)               DECIDING
    DECIDING     challenged (by the listening side)           RESPONSE
    RESPONSE     answered (by the connecting side)            DECIDING
    DECIDING     accepted (by the listening side)             DONE
    DECIDING     refused (by the listening side)              REFUSED
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from raybroker.model.machine import Machine


class EndpointState(StrEnum):
    IDLE = "IDLE"
    OPENED = "OPENED"
    PEER_OPENED = "PEER_OPENED"
    OPEN = "OPEN"
    CLOSING = "CLOSING"
    PEER_CLOSED = "PEER_CLOSED"
    CLOSED = "CLOSED"


class EndpointEvent(StrEnum):
    OPEN = "opened"
    PEER_OPENS = "opened by the peer"
    CLOSE = "closed"
    PEER_CLOSES = "closed by the peer"


_S, _E = EndpointState, EndpointEvent
ENDPOINT: Final = Machine(
    "the endpoint",
    [
        ((_S.IDLE,), _E.OPEN, _S.OPENED),
        ((_S.IDLE,), _E.PEER_OPENS, _S.PEER_OPENED),
        ((_S.OPENED,), _E.PEER_OPENS, _S.OPEN),
        ((_S.PEER_OPENED,), _E.OPEN, _S.OPEN),
        ((_S.OPENED, _S.OPEN), _E.CLOSE, _S.CLOSING),
        ((_S.PEER_OPENED, _S.OPEN), _E.PEER_CLOSES, _S.PEER_CLOSED),
        ((_S.PEER_CLOSED,), _E.OPEN, _S.PEER_CLOSED),
        ((_S.CLOSING,), _E.PEER_OPENS, _S.CLOSING),
        ((_S.CLOSING,), _E.PEER_CLOSES, _S.CLOSED),
        ((_S.PEER_CLOSED,), _E.CLOSE, _S.CLOSED),
    ],
)


class SaslState(StrEnum):
    MECHANISMS = "MECHANISMS"
    INIT = "INIT"
    DECIDING = "DECIDING"
    RESPONSE = "RESPONSE"
    DONE = "DONE"
    REFUSED = "REFUSED"


class SaslEvent(StrEnum):
    OFFER = "offered mechanisms (by the listening side)"
    INIT = "begun (by the connecting side)"
    CHALLENGE = "challenged (by the listening side)"
    RESPOND = "answered (by the connecting side)"
    ACCEPT = "accepted (by the listening side)"
    REFUSE = "refused (by the listening side)"


_L, _V = SaslState, SaslEvent
SASL: Final = Machine(
    "the exchange of SASL",
    [
        ((_L.MECHANISMS,), _V.OFFER, _L.INIT),
        ((_L.INIT,), _V.INIT, _L.DECIDING),
        ((_L.DECIDING,), _V.CHALLENGE, _L.RESPONSE),
        ((_L.RESPONSE,), _V.RESPOND, _L.DECIDING),
        ((_L.DECIDING,), _V.ACCEPT, _L.DONE),
        ((_L.DECIDING,), _V.REFUSE, _L.REFUSED),
    ],
)
