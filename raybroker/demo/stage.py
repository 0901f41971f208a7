"""Stage of the demo: the Ray and the cluster that are there, or ones of its own that go when it goes."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from raybroker.config import Config
from raybroker.config.layers import set_variables, variable
from raybroker.model.errors import ConfigError
from raybroker.system.entropy import token

OBJECT_STORE_BYTES: Final = 100_000_000
"""The messages do not go through Ray's object store: the smallest will do."""


@contextmanager
def stage(
    cluster: str, *, join: bool, store: Path | None, brokers: int = 1, note: Callable[[str], None]
) -> Iterator[None]:
    """A running cluster of that name, for as long as the context lasts.

    join     use the Ray that the environment names; without it, one is started in this process
    store    where a broker that is started here keeps its messages; None: a temporary folder
    brokers  how many are started here
    """
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="rbdemo"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        if not join and "ray" not in sys.modules:
            _own_secret(folder / "token")
        from raybroker.actors import cluster as clusters
        from raybroker.actors import runtime

        runtime.keep_quiet()
        if join:
            runtime.join_ray()
        elif not runtime.initialized():
            note("starting Ray")
            stack.callback(runtime.leave_ray)
            runtime.start_local_ray(address="local", object_store_memory=OBJECT_STORE_BYTES)
        if clusters.find(cluster) is not None:
            if store is not None:
                raise ConfigError(f"--store: cluster {cluster!r} runs already and has its own store")
            note(f"using cluster {cluster}, which runs in the Ray at {runtime.address()}")
        else:
            note("starting a broker" if brokers == 1 else f"starting {brokers} brokers")
            config = Config.load().with_values({"raybroker.store.dir": str(store or folder / "store")}, origin="demo")
            stack.enter_context(clusters.start(cluster, brokers, config))
        yield


def _own_secret(path: Path) -> None:
    """Ray's own default is a secret in the user's home directory; a Ray of minutes needs none that stays."""
    if variable("RAY_AUTH_MODE") is None:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(token(32).hex())
        set_variables({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(path)})
    if variable("RAY_USAGE_STATS_ENABLED") is None:
        set_variables({"RAY_USAGE_STATS_ENABLED": "0"})
