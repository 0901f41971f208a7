"""The settings of the adapter: ``TaskProcessorConfig.adapter_config``."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from raybroker.model.errors import ConfigError
from raybroker.model.naming.names import check_cluster_name

RESULTS_MAX: Final = 1_000_000
TTL_S_MAX: Final = 366 * 86_400
BACKOFF_S_MAX: Final = 86_400
LOST_ATTEMPTS_MAX: Final = 1_000


@dataclass(frozen=True, kw_only=True)
class RaybrokerAdapterConfig:
    """Settings of RaybrokerTaskProcessor; a dict with the same names does as well, as in YAML of Serve.

    cluster        the cluster of brokers in this Ray
    loopback       name of a broker in this process, for tests without brokers in Ray (``rb.loopback(broker=…)``)
    serializer     "pickle": arguments and results may be any objects; else what a message's body may be
    prefetch       as of ``session.consumer``, also "auto"; None: the queue's limit, and what no replica has begun is
                   shared
    backoff_s      pause before the second attempt, doubled for each further one, and the longest pause
    lost_attempts  so many times the replica that runs a task may die before the task has failed
    result_ttl_s   how long the result of a task can be asked for
    results_max    about how many results are kept; the oldest go first
    """

    cluster: str = "default"
    loopback: str | None = None
    serializer: Literal["pickle"] | None = None
    prefetch: int | str | None = None
    backoff_s: tuple[float, float] = (1.0, 60.0)
    lost_attempts: int = 10
    result_ttl_s: float = 86_400.0
    results_max: int = 50_000

    @classmethod
    def checked(cls, given: object) -> RaybrokerAdapterConfig:
        """Raises ConfigError for what cannot be, naming it."""
        if isinstance(given, dict):
            names = [field.name for field in fields(cls)]
            if unknown := sorted(set(given) - set(names)):
                raise ConfigError(f"adapter_config has {unknown[0]!r}; there are {', '.join(names)}")
            given = cls(**given)
        if not isinstance(given, cls):
            raise ConfigError(
                f"adapter_config={given!r:.80}; for raybroker it is a RaybrokerAdapterConfig(…), or a dict of its names"
            )
        given._check()
        return given

    def _check(self) -> None:
        if self.loopback is None:
            check_cluster_name(self.cluster)
        if self.serializer not in (None, "pickle"):
            raise ConfigError(f"serializer={self.serializer!r}; leave it out, or use 'pickle'")
        first, longest = _pair(self.backoff_s)
        if not 0 <= first <= longest <= BACKOFF_S_MAX:
            raise ConfigError(
                f"backoff_s={self.backoff_s!r}; it is the first and the longest pause in seconds, 0 to {BACKOFF_S_MAX}"
            )
        _whole("lost_attempts", self.lost_attempts, 1, LOST_ATTEMPTS_MAX)
        _whole("results_max", self.results_max, 1, RESULTS_MAX)
        if not _is_number(self.result_ttl_s) or not 1 <= self.result_ttl_s <= TTL_S_MAX:
            raise ConfigError(f"result_ttl_s={self.result_ttl_s!r}; it is a number of seconds, 1 to {TTL_S_MAX}")


def _pair(value: Any) -> tuple[float, float]:
    """The first and the longest pause; (1, 0), which is none, for what is no pair of numbers."""
    if not isinstance(value, tuple | list) or len(value) != 2 or not all(map(_is_number, value)):
        return 1, 0
    return float(value[0]), float(value[1])


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(name: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ConfigError(f"{name}={value!r}; it is a whole number from {least} to {most}")
