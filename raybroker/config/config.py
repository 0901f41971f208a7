"""The configuration of a broker or a client as one frozen value.

Layers, each winning over the ones before it: defaults < cluster file < instance file < environment < ``-D`` flags.  The
file that imq.cluster.url names in any of them comes before them all.
A name that does not exist or a value out of bounds is an error that names the file and line, variable or flag, unlike
in MQ, which ignores it: a misspelled limit would not be in force.

A configuration holds the properties of brokers and of connection factories, so that one file can serve both sides.  It
is built once, passed down as a value, and can be pickled for actors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from raybroker.config.layers import LayerValue, common_file, environment_layer, file_layer, flag_layer, state_home
from raybroker.model.errors import ConfigError
from raybroker.model.naming.names import check_broker_name, check_cluster_name
from raybroker.model.settings.setting_memory import check_memory_levels
from raybroker.model.settings.setting_thresholds import check_system_thresholds
from raybroker.model.settings.settings import SETTINGS, Scope, Setting, Value, lookup, settings_of

DEFAULT_ORIGIN: Final = "default"
INSTANCE: Final = "imq.instancename"
DEFAULT_INSTANCE: Final = "default"
COMMON: Final = "imq.cluster.url"
_SCOPES: Final[tuple[Scope, ...]] = ("broker", "factory")


@dataclass(frozen=True, slots=True)
class Config:
    """Values by property name, ``config["imq.message.max_size"]``; an unset one has its default.

    ``given`` holds the properties that are set: (name, typed value, origin).  Built by :meth:`load` or
    :meth:`from_values`.
    """

    given: tuple[tuple[str, Value, str], ...] = ()

    @classmethod
    def load(
        cls,
        *,
        cluster_file: str | Path | None = None,
        instance_file: str | Path | None = None,
        environ: Mapping[str, str] | None = None,
        flags: Mapping[str, object] | Iterable[str] = (),
        values: Mapping[str, object] | None = None,
        origin: str = "argument",
    ) -> Config:
        """Build the configuration from all its layers; ``environ`` stands in for the process's environment, ``values``
        are those of a program, from ``origin``, and win over all.

        Raises ConfigError naming the origin of the first name or value that is not allowed.
        """
        layers: list[LayerValue] = []
        if cluster_file is not None:
            layers += file_layer(Path(cluster_file), "cluster file")
        if instance_file is not None:
            layers += file_layer(Path(instance_file), "instance file")
        layers += environment_layer((setting.name for setting in _settings()), environ)
        layers += flag_layer(flags)
        layers += [LayerValue(name, value, origin) for name, value in (values or {}).items()]
        config = cls()._with(_common(layers) + layers)
        for name, _, where in config.given:
            if _find(name).secret:
                raise ConfigError(
                    f"{where}: {name} is for a ConnectionFactory alone; the properties of brokers are shown, and told"
                    " to clients"
                )
        return config

    @classmethod
    def from_values(cls, values: Mapping[str, object] | None = None) -> Config:
        """The defaults with ``values``, without looking at files or the environment; for tests and loopbacks."""
        return cls().with_values(values or {}, origin="argument")

    def with_values(self, values: Mapping[str, object], *, origin: str) -> Config:
        """This configuration with ``values`` on top; raises ConfigError as :meth:`load` does."""
        return self._with([LayerValue(name, value, origin) for name, value in values.items()])

    def __getitem__(self, name: str) -> Any:
        """The typed value of a property; raises ConfigError naming the nearest valid name."""
        for known, value, _ in self.given:
            if known == name:
                return value
        return _find(name).default

    def __iter__(self) -> Iterator[str]:
        return (setting.name for setting in _settings())

    def origin(self, name: str) -> str:
        """The origin of a property's value: 'default', a file and line, a variable or a flag."""
        for known, _, origin in self.given:
            if known == name:
                return origin
        _find(name)
        return DEFAULT_ORIGIN

    def explain(self) -> list[tuple[str, Value, str]]:
        """(name, value, origin) of every property, in the order of the table (``raybroker query bkr --explain``)."""
        return [(name, self[name], self.origin(name)) for name in self if not _find(name).secret]

    def _with(self, layers: Iterable[LayerValue]) -> Config:
        given = {name: (value, origin) for name, value, origin in self.given}
        for name, value, origin in layers:
            try:
                given[name] = (_find(name).parse(value), origin)
            except ConfigError as error:
                raise ConfigError(f"{origin}: {error}") from None
        config = replace(self, given=tuple((name, *found) for name, found in given.items()))
        check_system_thresholds(config.__getitem__)
        check_memory_levels(config.__getitem__)
        return config


def _common(layers: list[LayerValue]) -> list[LayerValue]:
    """The layer of the file that imq.cluster.url names, by its last value; none without it."""
    for given in reversed(layers):
        if given.name == COMMON:
            path = common_file(given)
            return [] if path is None else file_layer(path, "common cluster file", never=COMMON)
    return []


def instance_of(config: Config, name: str | None) -> str:
    """The name of the instance, which is that of the cluster. ``name``: as an option or an argument says it, None: it
    does not. Raises ConfigError where that and imq.instancename differ, and for a bad name."""
    configured: str = config[INSTANCE].strip()
    if name is not None and configured and name != configured:
        raise ConfigError(
            f"the instance is named twice: {name!r}, and {INSTANCE} = {configured!r} ({config.origin(INSTANCE)});"
            " leave one out"
        )
    return check_cluster_name(configured or DEFAULT_INSTANCE if name is None else name)


def store_directory(config: Config, cluster: str, broker: str, environ: Mapping[str, str] | None = None) -> Path:
    """The directory of one broker's stores: <raybroker.store.dir>/<broker>; nothing is created.

    Without ``raybroker.store.dir`` it is below the user's state directory, apart for each cluster.
    """
    check_cluster_name(cluster)
    check_broker_name(broker)
    configured = config["raybroker.store.dir"]
    base = Path(configured).expanduser() if configured else state_home(environ) / "raybroker"
    return base / cluster / broker


def _settings() -> tuple[Setting, ...]:
    return settings_of("broker") + settings_of("factory")


def _find(name: str) -> Setting:
    for scope in _SCOPES:
        if (scope, name) in SETTINGS:
            return SETTINGS[scope, name]
    return lookup(name, "factory" if name.startswith("imq") and "." not in name else "broker")
