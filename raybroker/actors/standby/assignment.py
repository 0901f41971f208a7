"""Assignments: which lost broker or host a standby process becomes.

Ray gives an actor its name when it is made, and keeps a dead actor's name for up to a minute.  The name of a standby
therefore says who has started it, and whom it becomes is a further name (:func:`raybroker.actors.runtime.also_name`):
whoever looks for a lost broker's next tenure finds it by that.  What it was told is kept with that name, because Ray
starts its process again after a crash.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from raybroker.actors import runtime
from raybroker.actors.broker_spec import BrokerSpec
from raybroker.actors.hosts.host_spec import HostSpec
from raybroker.config import Config
from raybroker.model.errors import BrokerError
from raybroker.store.sql.opening import is_sql


def of_broker(spec: BrokerSpec) -> str:
    """Return the assignment of a broker."""
    return _text(broker=spec.broker, directory=spec.directory, tenure=spec.tenure, after=spec.after)


def of_host(spec: HostSpec) -> str:
    """Return the assignment of a host."""
    return _text(
        broker=spec.broker,
        host=spec.host,
        hosting=spec.hosting,
        directory=spec.directory,
        token=spec.token.hex(),
        tenure=spec.tenure,
    )


def _text(**fields: str | int) -> str:
    return json.dumps(fields)


def broker_spec(spec: BrokerSpec, told: str) -> BrokerSpec:
    """Return whom the standby with ``spec`` becomes."""
    return replace(spec, **json.loads(told), moved=True)


def host_spec(spec: HostSpec, told: str) -> HostSpec:
    """Return which host the standby with ``spec`` becomes."""
    fields: Mapping[str, Any] = json.loads(told)
    return replace(spec, **{**fields, "token": bytes.fromhex(fields["token"])})


def told(name: str) -> str | None:
    """Return the assignment of the standby of that name; None for one that stands by."""
    return runtime.told(name) if name else None


def warm_up(config: Config, beside: Path, cluster: str) -> None:
    """Have what is loaded at the first use of a database loaded, whether it can be reached now or not."""
    if is_sql(config):
        from raybroker.actors.stores.store_tables import shared_brokers  # Few brokers share a database.

        with contextlib.suppress(BrokerError):
            shared_brokers(config, beside, cluster).view()
