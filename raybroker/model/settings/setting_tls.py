"""Properties of TLS: the broker's keystore, certificates of clients, and the file of passwords.

There is no property for a password: properties are shown by ``query bkr --explain`` and told to clients.  Passwords are
in the passfile alone.
"""

from __future__ import annotations

from typing import Final

from raybroker.model.settings.setting import Setting

TLS_SETTINGS: Final[tuple[Setting, ...]] = (
    Setting("imq.keystore.file.dirpath", "string", "", "broker",
            "Directory of the keystore; empty: that of the users and access rules (raybroker.security.dir)."),
    Setting("imq.keystore.file.name", "string", "keystore", "broker",
            "File of the broker's private key and certificate chain for all TLS services, as PEM, readable by its "
            "owner alone; raybroker keytool makes it. It is read again when it has changed. MQ's is a Java keystore."),
    Setting("raybroker.keystore.chain.name", "string", "", "broker",
            "File of the certificate chain beside the keystore; empty: the keystore has the key and the chain."),
    Setting("raybroker.tls.min_version", "enum", "TLSv1.2", "broker",
            "The oldest version of TLS that the services speak.", choices=("TLSv1.2", "TLSv1.3")),
    Setting("raybroker.tls.client_auth", "enum", "none", "broker",
            "Certificates of clients of TLS services. none: not asked for. want: taken from who has one, in place of a "
            "password. need: who has none is not let in; with username and password or without.",
            choices=("none", "want", "need")),
    Setting("raybroker.tls.trust.name", "string", "truststore", "broker",
            "File in the keystore's directory with the certificates of the authorities, as PEM, whose certificates "
            "clients may show."),
    Setting("raybroker.tls.users.name", "string", "certificates", "broker",
            "File in raybroker.security.dir that says which user a client's certificate stands for: lines of user: and "
            "its subject (CN=ann,O=Example) or SHA-256 fingerprint. Without the file it is the user that the common "
            "name (CN) names. Edits take effect at once."),
    Setting("imq.passfile.enabled", "bool", False, "broker",
            "Read passwords from the passfile: imq.keystore.password, imq.user_repository.ldap.password, "
            "imq.persist.jdbc.postgresql.password, imq.cluster.sharecc.persist.jdbc.postgresql.password."),
    Setting("imq.passfile.dirpath", "string", "", "broker",
            "Directory of the passfile; empty: raybroker.security.dir."),
    Setting("imq.passfile.name", "string", "passfile", "broker",
            "Name of the passfile: lines of name=password, readable by its owner alone."),
)  # fmt: skip
