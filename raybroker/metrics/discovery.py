"""Target groups for Prometheus: the endpoints of brokers, as its file and HTTP service discovery read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit


def target_groups(cluster: str, urls: Mapping[str, str]) -> list[dict[str, Any]]:
    """One group for each broker with an endpoint; ``urls``: broker → address of its /metrics, "" without one. The label
    __scheme__ has Prometheus ask those with TLS by https."""
    return [
        {
            "targets": [urlsplit(url).netloc],
            "labels": {
                "__meta_raybroker_cluster": cluster,
                "__meta_raybroker_broker": name,
                **({"__scheme__": "https"} if urlsplit(url).scheme == "https" else {}),
            },
        }
        for name, url in sorted(urls.items())
        if url
    ]
