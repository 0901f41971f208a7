"""Properties of the connection services, by which programs outside the Ray cluster come in; the table has them all.

One difference from MQ: no service is active unless the configuration says so, because what is not asked for should not
listen.
"""

from __future__ import annotations

from typing import Final

from raybroker.model.settings.setting import INT_MAX, Setting

INSIDE: Final = "inside"
"""Stands for a service where clients inside the Ray cluster are listed, and the program of a loopback."""
SERVICE_KINDS: Final = {
    "jms": "NORMAL",
    "ssljms": "NORMAL",
    "httpjms": "NORMAL",
    "httpsjms": "NORMAL",
    "admin": "ADMIN",
    "ssladmin": "ADMIN",
    "httpadmin": "ADMIN",
    "httpsadmin": "ADMIN",
    "stomp": "NORMAL",
    "sslstomp": "NORMAL",
    "amqp": "NORMAL",
    "amqps": "NORMAL",
}
"""Service → NORMAL, which carries messages, or ADMIN, which carries administration alone."""
SERVICE_PROTOCOLS: Final = {
    "jms": "tcp",
    "ssljms": "tls",
    "httpjms": "http",
    "httpsjms": "https",
    "admin": "tcp",
    "ssladmin": "tls",
    "httpadmin": "http",
    "httpsadmin": "https",
    "stomp": "stomp",
    "sslstomp": "stomps",
    "amqp": "amqp",
    "amqps": "amqps",
}
_TRANSPORTS: Final = {**SERVICE_PROTOCOLS, "stomp": "tcp", "sslstomp": "tls", "amqp": "tcp", "amqps": "tls"}
"""Service → the word in the names of its properties: imq.jms.tcp.port, imq.httpjms.http.port."""
TLS: Final = "tls"
WITH_TLS: Final = frozenset({TLS, "https", "stomps", "amqps"})
"""Protocols whose connections are encrypted."""
NATIVE: Final = frozenset({"tcp", TLS})
"""Protocols that carry the broker's own; the others are served by gateways."""
_THREADS: Final = {
    "jms": (10, 1000),
    "ssljms": (10, 500),
    "httpjms": (10, 500),
    "httpsjms": (10, 500),
    "admin": (4, 10),
    "ssladmin": (4, 10),
    "httpadmin": (4, 10),
    "httpsadmin": (4, 10),
    "stomp": (10, 1000),
    "sslstomp": (10, 500),
    "amqp": (10, 1000),
    "amqps": (10, 500),
}
"""Service → MQ's least and most threads."""
SERVICES: Final = tuple(SERVICE_KINDS)
PORT_MAX: Final = 65_535
PORT_MAPPER: Final = "imq.portmapper.port"
"""A property of one broker: no other one of its machine can have the same value."""


def address_property(service: str, what: str) -> str:
    """The name of the property for the ``port`` or ``hostname`` of a service."""
    return f"imq.{service}.{_TRANSPORTS[service]}.{what}"


def pull_property(service: str) -> str:
    """The name of the property for the time between polls of httpjms or httpsjms."""
    return f"imq.{service}.{_TRANSPORTS[service]}.pullPeriod"


SERVICE_SETTINGS: Final[tuple[Setting, ...]] = (
    Setting("imq.service.activelist", "string", "", "broker",
            "Connection services that listen for programs outside the Ray cluster: jms, admin, stomp, amqp, httpjms "
            "and httpadmin, ssljms, ssladmin, sslstomp, amqps, httpsjms and httpsadmin with TLS, with commas between. "
            "MQ's default is jms,admin; here nothing listens unless it is asked for."),
    Setting("imq.hostname", "string", "", "broker",
            "Address that the port mapper and the services listen at; empty: all addresses of the machine. Gateways of "
            "brokers on other machines dial it too: check svc warns of one that this machine alone reaches."),
    Setting(PORT_MAPPER, "int", 7676, "broker",
            "Port of the port mapper, which tells the ports of the services; 0: any free port. Where it changes while "
            "the broker runs, the new port is listened at before the old one is given up.",
            unit="port", low=0, high=PORT_MAX, reload="live"),
    Setting("imq.portmapper.hostname", "string", "", "broker",
            "Address of the port mapper alone; empty: imq.hostname."),
    Setting("imq.portmapper.backlog", "int", 50, "broker",
            "Connections to the port mapper that the system may hold until they are accepted; further ones are refused "
            "by the system.", unit="connections", low=1, high=65_535),
    Setting("raybroker.service.advertised", "string", "", "broker",
            "Name or address by which clients outside reach this broker's services, which other brokers tell their "
            "clients; empty: the address that the port mapper listens at, and where that is all of the machine's the "
            "one that it has in the Ray cluster. The gateways of other brokers (STOMP, AMQP, HTTP) do not go by it: "
            "they come to the address that the service jms listens at."),
    Setting("raybroker.shutdown.delivery", "seconds", 10, "broker",
            "How long consumers have to acknowledge what they were given before a broker that is shut down by "
            "raybroker shutdown bkr or restart bkr ends.", unit="s", low=0, high=3600, reload="live"),
    Setting("imq.authentication.client.response.timeout", "seconds", 180, "broker",
            "How long a client may take to prove its password.", unit="s", low=1, high=3600),
    Setting("imq.accesscontrol.enabled", "bool", True, "broker",
            "Check what clients of the services do against the access rules. false: every user may do everything, but "
            "the admin service is for the group admin all the same."),
    Setting("imq.accesscontrol.file.filename", "string", "accesscontrol.properties", "broker",
            "File of the access rules in raybroker.security.dir; without it MQ's default rules hold. Edits take effect "
            "at once."),
    Setting("imq.user_repository.file.filename", "string", "passwd", "broker",
            "File of the users in raybroker.security.dir, written by raybroker usermgr. Edits take effect at once."),
    Setting("raybroker.security.dir", "string", "", "broker",
            "Directory of the users and access rules; empty: security, beside the stores of the cluster's brokers."),
    Setting("raybroker.http.body_bytes_max", "size", 4 << 20, "broker",
            "Largest body of a request to the services over HTTP.", unit="bytes", low=1024, high=64 << 20),
    *(
        Setting(pull_property(name), "int", -1, "broker",
                "Seconds between polls of clients whose way lets no WebSocket pass, while they get nothing and send "
                "nothing. -1: they poll again at once, and the answer waits until there is something, for 20 s at "
                "most. A longer period saves requests, and messages come later; it has to be shorter than "
                "imq.ping.interval.", unit="s", low=1, high=3600, unlimited=True)
        for name in ("httpjms", "httpsjms")
    ),
    *(
        setting
        for name, (least, most) in _THREADS.items()
        for setting in (
            Setting(address_property(name, "port"), "int", 0, "broker",
                    f"Port of the service {name}; 0: any free one, which the port mapper tells.",
                    unit="port", low=0, high=PORT_MAX),
            Setting(address_property(name, "hostname"), "string", "", "broker",
                    f"Address of the service {name} alone; empty: imq.hostname."),
            Setting(f"imq.{name}.min_threads", "int", least, "broker",
                    "Taken for MQ's sake: connections are served by event loops, which need no idle threads.",
                    unit="threads", low=1, high=INT_MAX),
            Setting(f"imq.{name}.max_threads", "int", most, "broker",
                    f"Half of it is how many clients the service {name} has at most, as in MQ's dedicated model with "
                    "two threads a connection. Here connections are served by event loops; the bound is what is left "
                    "of the model.", unit="threads", low=2, high=INT_MAX),
            Setting(f"imq.{name}.accesscontrol.enabled", "enum", "inherit", "broker",
                    f"imq.accesscontrol.enabled for the service {name} alone.", choices=("inherit", "true", "false")),
        )
    ),
)  # fmt: skip
