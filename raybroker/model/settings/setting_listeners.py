"""Limits of listeners: what somebody may hold who has not logged in, sends slowly, or does not read.

``raybroker.service.*`` hold for each connection service by itself and, as far as they are about connections, for each
host; clients that have logged in are bounded by imq.<service>.max_threads.
"""

from __future__ import annotations

from typing import Final

from raybroker.model.settings.setting import Setting
from raybroker.model.sizes import KIB, MIB

COUNT_MAX: Final = 1 << 20
ARRIVING_MAX: Final = 512
ARRIVING_OF_ADDRESS_MAX: Final = 64
UNREAD_S: Final = 120
KEEPALIVE_S: Final = 120

ANSWER_BYTES_MAX: Final = 16 * MIB
ANSWERS_BYTES_MAX: Final = 512 * MIB
PREFETCH_BYTES_MAX: Final = 32 * MIB
LISTENER_SETTINGS: Final[tuple[Setting, ...]] = (
    Setting("raybroker.service.arriving_max", "int", ARRIVING_MAX, "broker",
            "Connections of a service that have not logged in, TLS handshakes among them; one more is closed at once. "
            "Each has raybroker.handshake.timeout_ms, and then imq.authentication.client.response.timeout.",
            unit="connections", low=1, high=COUNT_MAX),
    Setting("raybroker.service.address_arriving_max", "int", ARRIVING_OF_ADDRESS_MAX, "broker",
            "The same from one address, so that one machine keeps no other one out.",
            unit="connections", low=1, high=COUNT_MAX),
    Setting("raybroker.service.unread_timeout", "seconds", UNREAD_S, "broker",
            "A client that takes nothing of what it is sent for so long is closed, and messages that it holds go to "
            "others. Less than WRITE_BYTES_HIGH, 1 MiB, waits for it meanwhile, and nothing is read from it.",
            unit="s", low=1, high=86_400, unlimited=True),
    Setting("raybroker.service.frames_bytes_max", "size", 512 * MIB, "broker",
            "Frames of more than 1 MiB of all clients from outside of one host that have begun and not ended. Where "
            "there would be more the one that began first is given up, and its client closed.",
            unit="bytes", low=128 * MIB, high=65_536 * MIB),
    Setting("raybroker.service.answer_bytes_max", "size", ANSWER_BYTES_MAX, "broker",
            "Bodies of the messages that one answer over HTTP has, as they are when they are decompressed. An answer "
            "ends before the message that would be too much, and has one at least; what it does not have is received, "
            "or looked at, with the next request.", unit="bytes", low=64 * KIB, high=1024 * MIB),
    Setting("raybroker.service.prefetch_bytes_max", "size", PREFETCH_BYTES_MAX, "broker",
            "Bodies that wait in the memory of a gateway (HTTP, STOMP) for one client, besides those being written to "
            "it. All its subscriptions, or receives under way, share it; each may have one message at least, of which "
            "those of more than 1 MiB come one after another where there is no room. What was written to the client is "
            "not kept, acknowledged or not.", unit="bytes", low=MIB, high=65_536 * MIB),
    Setting("raybroker.service.answers_bytes_max", "size", ANSWERS_BYTES_MAX, "broker",
            "Memory for large answers (HTTP) and large messages (STOMP) of all clients of a gateway that are being "
            "made or sent: a message of more than 256 KiB counts fourfold. Further ones wait; of one user at most half "
            "of it, or one. Over HTTP that is answered 503 after 20 s.", unit="bytes", low=16 * MIB, high=65_536 * MIB),
    Setting("raybroker.service.keepalive", "seconds", KEEPALIVE_S, "broker",
            "After so long without a byte the system asks whether the client's machine is still there, four times "
            "within the same time again; then the connection is closed. So it is when bytes are not acknowledged for "
            "twice that, or for raybroker.service.unread_timeout where that is longer; with -1 there the system's own "
            "time holds for them, a quarter of an hour.",
            unit="s", low=1, high=32_767),
    Setting("raybroker.portmapper.connections_max", "int", 256, "broker",
            "Connections that the port mapper answers at once; one more is closed without an answer.",
            unit="connections", low=1, high=COUNT_MAX),
    Setting("raybroker.portmapper.address_connections_max", "int", 64, "broker",
            "The same from one address.", unit="connections", low=1, high=COUNT_MAX),
    Setting("raybroker.http.connections_max", "int", 2048, "broker",
            "Connections of each service over HTTP, WebSockets not counted. When there is no room, the one whose "
            "request is longest in coming makes some.", unit="connections", low=1, high=COUNT_MAX),
    Setting("raybroker.http.address_connections_max", "int", 1024, "broker",
            "The same from one address; behind a proxy all clients have the proxy's.",
            unit="connections", low=1, high=COUNT_MAX),
    Setting("raybroker.http.websockets_max", "int", 2048, "broker",
            "WebSockets of httpjms, and of httpsjms: a client has one for itself and one for each host that it uses.",
            unit="connections", low=1, high=COUNT_MAX),
    Setting("raybroker.http.websocket_bytes_max", "size", 4 * MIB, "broker",
            "Largest message of a WebSocket; larger messages of the broker travel in several.",
            unit="bytes", low=64 * KIB, high=64 * MIB),
    Setting("raybroker.http.headers_bytes_max", "size", 16 * KIB, "broker",
            "The first line and the headers of a request; more is answered 431.",
            unit="bytes", low=1024, high=MIB),
    Setting("raybroker.http.headers_timeout", "seconds", 10, "broker",
            "How long the headers of a request may take to come.", unit="s", low=1, high=3600),
    Setting("raybroker.http.body_timeout", "seconds", 20, "broker",
            "How long the body of a request may take to come; a slower one is answered 408.",
            unit="s", low=1, high=3600),
    Setting("raybroker.http.requests_max", "int", 512, "broker",
            "Requests that are answered at once; three quarters of them may wait for messages. One more is answered "
            "503.", unit="requests", low=4, high=COUNT_MAX),
    Setting("raybroker.http.bodies_bytes_max", "size", 64 * MIB, "broker",
            "Bodies of all requests that are being handled; one more is answered 503.",
            unit="bytes", low=MIB, high=4096 * MIB),
    Setting("raybroker.http.cors.origins", "string", "", "broker",
            "Origins of other sites whose pages may use the services over HTTP, such as https://app.example, with "
            "commas between: browsers let them read answers, and their changes are taken. Empty: no page of another "
            "site may change anything, and browsers show it no answer."),
    Setting("raybroker.console.enabled", "bool", True, "broker",
            "Whether the services httpadmin and httpsadmin have the console, pages for a browser at /console/."),
    Setting("raybroker.console.history_destinations_max", "int", 2000, "broker",
            "Destinations whose history the console shows, 5,760 bytes of memory each; 0: only the sums of all.",
            unit="destinations", low=0, high=100_000),
    Setting("raybroker.console.history_interval", "seconds", 15, "broker",
            "Destinations are sampled for plots of the console each so long, whether or not anybody looks. There are "
            "240 samples: 15 s give the last hour.", unit="s", low=1, high=3600),
    Setting("raybroker.console.session_timeout", "seconds", 1800, "broker",
            "A session of the console in which nobody has done anything for so long ends; 12 hours after the login it "
            "ends in any case.", unit="s", low=60, high=43_200),
    Setting("raybroker.stomp.login_bytes_max", "size", 8 * KIB, "broker",
            "The frame CONNECT; a larger one is answered by ERROR.", unit="bytes", low=512, high=64 * KIB),
    Setting("raybroker.stomp.headers_bytes_max", "size", 64 * KIB, "broker",
            "Command and headers of a frame of STOMP; more is answered by ERROR.", unit="bytes", low=1024, high=MIB),
    Setting("raybroker.stomp.frames_bytes_max", "size", 128 * MIB, "broker",
            "Frames of all clients of stomp, and of sslstomp, that have begun and not ended. Where there would be more "
            "the one that began first is given up, and its client closed.", unit="bytes", low=MIB, high=4096 * MIB),
    Setting("raybroker.amqp.login_bytes_max", "size", 64 * KIB, "broker",
            "What is kept of an AMQP client that has not opened its connection; with more it is closed.", unit="bytes",
            low=16 * KIB, high=MIB),
    Setting("raybroker.amqp.frame_bytes_max", "size", 128 * KIB, "broker",
            "Largest frame of AMQP, which clients are told as max-frame-size; a message may have many. A larger one "
            "ends the connection.", unit="bytes", low=512, high=16 * MIB),
    Setting("raybroker.amqp.sessions_max", "int", 1024, "broker",
            "Sessions of one AMQP connection; one more ends it.", unit="sessions", low=1, high=65_536),
    Setting("raybroker.amqp.links_max", "int", 1024, "broker",
            "Links of one AMQP session; one more ends it.", unit="links", low=1, high=65_536),
    Setting("raybroker.amqp.unsettled_max", "int", 10_000, "broker",
            "Messages of one AMQP link that the client has and has not settled; further ones are sent when there are "
            "fewer.", unit="messages", low=1, high=COUNT_MAX),
    Setting("raybroker.amqp.frames_bytes_max", "size", 128 * MIB, "broker",
            "Frames and messages of all clients of amqp, and of amqps, that have begun and not ended. Where there "
            "would be more the one that began first is given up, and its client closed.", unit="bytes", low=MIB,
            high=4096 * MIB),
    Setting("raybroker.amqp.idle_timeout_ms", "int", 60_000, "broker",
            "AMQP clients are told to send something within this time, and are closed after twice of it without a "
            "byte; 0: never.", unit="ms", low=0, high=86_400_000),
    Setting("raybroker.amqp.redirect", "bool", True, "broker",
            "AMQP clients of a service that takes no new ones, since it was paused or quiesced, are told of another "
            "broker whose service does (amqp:connection:redirect) once they have logged in; false: they are refused."),
    Setting("raybroker.metrics.connections_max", "int", 512, "broker",
            "Connections of the endpoint for Prometheus.", unit="connections", low=1, high=COUNT_MAX),
    Setting("raybroker.metrics.address_connections_max", "int", 128, "broker",
            "The same from one address.", unit="connections", low=1, high=COUNT_MAX),
)  # fmt: skip
