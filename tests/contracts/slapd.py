"""A real directory server (OpenLDAP's slapd) of the tests' own, on a free port and with its own data."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SCHEMAS = Path("/etc/ldap/schema")
BASE = "dc=example,dc=org"
OBJECTS = f"ou=objects,{BASE}"
"""Empty, for administered objects."""
PRINCIPAL = f"cn=broker,{BASE}"
PRINCIPAL_PASSWORD = "broker's own"
TIMEOUT_S = 30
_MISSING = "OpenLDAP's server is not installed; it is in Debian's package slapd"
_CONFIG = """\
include {schemas}/core.schema
include {schemas}/cosine.schema
include {schemas}/inetorgperson.schema
include {schemas}/java.schema
pidfile {folder}/pid
modulepath /usr/lib/ldap
moduleload back_mdb
{tls}
database mdb
maxsize 10485760
suffix "{base}"
rootdn "{principal}"
rootpw "{password}"
directory {folder}/data
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="{principal}" read by * none
"""
_PEOPLE = {"ann": "secret", "bob": "secret", "eve": "x"}
_ENTRIES = f"""\
dn: {BASE}
objectClass: dcObject
objectClass: organization
dc: example
o: Example

dn: ou=people,{BASE}
objectClass: organizationalUnit
ou: people

dn: ou=former,{BASE}
objectClass: organizationalUnit
ou: former

dn: ou=groups,{BASE}
objectClass: organizationalUnit
ou: groups

dn: {OBJECTS}
objectClass: organizationalUnit
ou: objects

dn: uid=ann,ou=former,{BASE}
objectClass: inetOrgPerson
uid: ann
cn: Ann
sn: of another branch
userPassword: secret

dn: cn=admin,ou=groups,{BASE}
objectClass: groupOfNames
cn: admin
member: uid=ann,ou=people,{BASE}

dn: cn=all (really),ou=groups,{BASE}
objectClass: groupOfNames
cn: all (really)
member: cn=admin,ou=groups,{BASE}
member: uid=bob,ou=people,{BASE}
""" + "".join(
    f"\ndn: uid={name},ou=people,{BASE}\nobjectClass: inetOrgPerson\nuid: {name}\ncn: {name}\nsn: {name}\n"
    f"employeeType: {'guest' if name == 'eve' else 'staff'}\nuserPassword: {password}\n"
    for name, password in _PEOPLE.items()
)


def _program(name: str) -> str:
    """Without one the test is skipped here, and fails in CI."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None or not SCHEMAS.is_dir():
        if os.environ.get("CI"):
            pytest.fail(_MISSING)
        pytest.skip(_MISSING)
    return found


class Directory:
    """``address``: host:port; ``secure``: the one with TLS from the beginning. ``key``: file with key and certificate,
    without which there is no TLS."""

    def __init__(self, folder: Path, key: Path | None = None) -> None:
        (folder / "data").mkdir()
        self._config = folder / "slapd.conf"
        self._config.write_text(
            _CONFIG.format(
                schemas=SCHEMAS,
                folder=folder,
                tls=f"TLSCertificateFile {key}\nTLSCertificateKeyFile {key}" if key is not None else "",
                base=BASE,
                principal=PRINCIPAL,
                password=PRINCIPAL_PASSWORD,
            )
        )
        (folder / "entries.ldif").write_text(_ENTRIES)
        with socket.socket() as free, socket.socket() as other:
            for one in (free, other):
                one.bind(("127.0.0.1", 0))
            self.port, secure = free.getsockname()[1], other.getsockname()[1]
        self.address, self.secure = f"127.0.0.1:{self.port}", f"127.0.0.1:{secure}"
        self._urls = f"ldap://{self.address}" + (f" ldaps://{self.secure}" if key is not None else "")
        self._server: subprocess.Popen[bytes] | None = None
        subprocess.run(
            [_program("slapadd"), "-f", str(self._config), "-l", str(folder / "entries.ldif")],
            check=True,
            capture_output=True,
            timeout=TIMEOUT_S,
        )

    def start(self) -> None:
        self._server = subprocess.Popen(
            [_program("slapd"), "-d", "0", "-f", str(self._config), "-h", self._urls],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                assert self._server.poll() is None, "slapd has ended at its start"
                assert time.monotonic() < deadline
                time.sleep(0.02)

    def freeze(self) -> None:
        """It takes connections, and answers nothing."""
        assert self._server is not None
        self._server.send_signal(signal.SIGSTOP)

    def stop(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            self._server = None


@contextmanager
def directory(folder: Path, key: Path | None = None) -> Iterator[Directory]:
    """One that runs."""
    made = Directory(folder, key)
    made.start()
    try:
        yield made
    finally:
        made.stop()
