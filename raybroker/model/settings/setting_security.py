"""Properties of logins, the repository of users, and the audit log.

There is no property for a password: properties are shown by ``query bkr --explain``. Passwords are in the passfile.
"""

from __future__ import annotations

from typing import Final

from raybroker.model.settings.setting import INT_MAX, Setting
from raybroker.model.settings.setting_services import SERVICE_KINDS
from raybroker.model.sizes import KIB, MIB

MAX_BYTES: Final = 1 << 40
_LDAP: Final = "imq.user_repository.ldap."

SECURITY_SETTINGS: Final[tuple[Setting, ...]] = (
    Setting("imq.authentication.type", "string", "digest", "broker",
            "How clients of the services may log in; several with commas between. digest: SCRAM-SHA-256, sends no "
            "password (MQ's digest is MD5); needs the file of users. basic: the password is sent, over TLS or from the "
            "same machine. token: a signed token (JWT) is sent, over TLS or from the same machine."),
    *(
        Setting(f"imq.{name}.authentication.type", "string", "inherit", "broker",
                f"imq.authentication.type for the service {name} alone; inherit: as there.")
        for name in SERVICE_KINDS
    ),
    Setting("imq.authentication.basic.user_repository", "enum", "file", "broker",
            "Where basic looks passwords up: the file of users, or a directory server (ldap). Services do not listen "
            "with ldap where none of them takes logins by basic.",
            choices=("file", "ldap")),
    Setting("raybroker.authentication.unencrypted", "bool", False, "broker",
            "Take passwords of basic, and tokens, and what STOMP and HTTP clients send, also over connections that are "
            "not encrypted and come from other machines, where others may read them."),
    Setting("raybroker.authentication.threads", "int", 2, "broker",
            "Threads that check password hashes and tokens; they have a lower priority than messages.",
            unit="threads", low=1, high=64),
    Setting("raybroker.authentication.token.keys", "string", "jwks.json", "broker",
            "File in raybroker.security.dir with the public keys of the identity provider (JWKS). Edits take effect at "
            "once."),
    Setting("raybroker.authentication.token.algorithms", "string", "RS256,EdDSA", "broker",
            "Algorithms that tokens may be signed with: RS256, EdDSA, with a comma between."),
    Setting("raybroker.authentication.token.audience", "string", "", "broker",
            "What a token's claim aud has to name; empty: anything."),
    Setting("raybroker.authentication.token.issuer", "string", "", "broker",
            "What a token's claim iss has to be; empty: anything."),
    Setting("raybroker.authentication.token.leeway", "seconds", 30, "broker",
            "How far the clocks of the identity provider and of the broker may be apart.", unit="s", low=0, high=600),
    Setting("raybroker.authentication.token.user_claim", "string", "sub", "broker",
            "The claim that names the user."),
    Setting("raybroker.authentication.token.groups_claim", "string", "groups", "broker",
            "The claim that lists the user's groups; a token without it is of no group."),
    Setting(f"{_LDAP}server", "string", "", "broker",
            "Directory servers, host:port with spaces between; the first that answers is asked."),
    Setting(f"{_LDAP}principal", "string", "", "broker",
            "Name of the entry as which users and groups are searched; empty: without a name. Its password is "
            "imq.user_repository.ldap.password in the passfile."),
    Setting(f"{_LDAP}base", "string", "", "broker", "The entry below which the users are."),
    Setting(f"{_LDAP}uidattr", "string", "uid", "broker", "The attribute that has the user's name."),
    Setting(f"{_LDAP}usrformat", "enum", "name", "broker",
            "What clients send: the user's name, or (dn) the whole name of the entry.", choices=("name", "dn")),
    Setting(f"{_LDAP}usrfilter", "string", "", "broker",
            "A search filter that entries of users have to match besides."),
    Setting(f"{_LDAP}grpsearch", "bool", False, "broker",
            "Search the user's groups, for rules about groups and for the group admin. Groups of groups do not count."),
    Setting(f"{_LDAP}grpbase", "string", "", "broker", "The entry below which the groups are."),
    Setting(f"{_LDAP}gidattr", "string", "cn", "broker", "The attribute that has the group's name."),
    Setting(f"{_LDAP}memattr", "string", "member", "broker",
            "The attribute of a group that has the names of its members' entries."),
    Setting(f"{_LDAP}grpfilter", "string", "", "broker",
            "A search filter that entries of groups have to match besides."),
    Setting(f"{_LDAP}timeout", "seconds", 280, "broker",
            "How long the directory server may take for an answer.", unit="s", low=1, high=3600),
    Setting(f"{_LDAP}ssl.enabled", "bool", False, "broker",
            "Ask the directory server over TLS; its certificate has to be of an authority that the machine trusts."),
    Setting("raybroker.user_repository.ldap.connections", "int", 8, "broker",
            "Logins that are checked at the directory server at once, each over a connection of its own.",
            unit="connections", low=1, high=256),
    Setting("imq.audit.enabled", "bool", False, "broker",
            "Write the audit log: a line (JSON) for each login, refusal, lock-out, denial, end of a connection and "
            "administrative change, with who, when, from where, what and how it went."),
    Setting("raybroker.audit.dir", "string", "", "broker",
            "Directory of the audit logs, one for each process: the broker's name with .log, and the broker's and the "
            "host's; empty: audit in raybroker.security.dir."),
    Setting("raybroker.audit.rolloverbytes", "size", 16 * MIB, "broker",
            "Size at which the audit log becomes an archive, of which nine are kept.", unit="bytes", low=64 * KIB,
            high=MAX_BYTES),
    Setting("raybroker.service.address_connections_max", "int", -1, "broker",
            "Clients of one address that a service has at most.", unit="connections", low=1, high=INT_MAX,
            unlimited=True),
    Setting("raybroker.service.user_connections_max", "int", -1, "broker",
            "Clients of one user that a service has at most.", unit="connections", low=1, high=INT_MAX,
            unlimited=True),
    Setting("raybroker.service.user_destinations_max", "int", 10_000, "broker",
            "Destinations that one user of a broker's services may make there by using them, of those that are still "
            "there; each broker counts its own, also over restarts.",
            unit="destinations", low=1, high=INT_MAX, unlimited=True),
    Setting("raybroker.service.user_temporary_max", "int", 10_000, "broker",
            "Temporary destinations that the connections of one user of a broker's services have there at most; each "
            "broker counts its own, also over restarts.",
            unit="destinations", low=1, high=INT_MAX, unlimited=True),
    Setting("raybroker.service.user_subscriptions_max", "int", 10_000, "broker",
            "Durable subscriptions that one user of a broker's services may make there, of those that are still there; "
            "each broker counts its own, also over restarts.",
            unit="subscriptions", low=1, high=INT_MAX, unlimited=True),
    Setting("raybroker.service.user_consumers_max", "int", 100_000, "broker",
            "Consumers that the connections of one user of the services have at each host at most; a destination with "
            "hosting=dedicated is a host of its own.",
            unit="consumers", low=1, high=INT_MAX, unlimited=True),
)  # fmt: skip
