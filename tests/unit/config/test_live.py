"""What changes while a broker runs, and for how long that holds (A-17)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from raybroker.config import Config
from raybroker.config.live import LIVE, LiveConfig, live
from raybroker.errors import ConfigError
from raybroker.model.settings.settings import SETTINGS

LEVEL, BYTES = "imq.log.level", "imq.log.file.rolloverbytes"


def changed(config: LiveConfig, **properties: Any) -> LiveConfig:
    config.replace(config.with_changes({name.replace("__", "."): value for name, value in properties.items()}))
    return config


def test_a_change_wins_over_every_layer_and_the_rest_stays() -> None:
    config = changed(live(Config.load(environ={}, flags={LEVEL: "ERROR", BYTES: "1m"})), imq__log__level="warning")
    assert (config[LEVEL], config[BYTES], config.changed) == ("WARNING", 1 << 20, {LEVEL: "WARNING"})
    assert live(config) is config
    rows = {row[0]: row[1:] for row in config.explained(Config.from_values({BYTES: "1m"}).explain())}
    assert (rows[LEVEL], rows[BYTES]) == (("WARNING", "update bkr"), (1 << 20, "argument"))


def test_what_the_configuration_says_anyway_is_no_change() -> None:
    config = changed(
        live(Config.from_values({LEVEL: "ERROR"})), imq__log__level="NONE", imq__log__file__rolloverbytes="64k"
    )
    changed(config, imq__log__level="ERROR")
    assert config.changed == {BYTES: 65536}
    changed(config, imq__log__file__rolloverbytes=-1)
    assert config.changed == {}


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("imq.log.level", "LOUD", "allowed: one of ERROR, WARNING, INFO, NONE"),
        ("imq.log.file.rolloversecs", "0", "too small"),
        ("imq.log.filelevel", "INFO", "imq.log.level"),
        ("imq.persist.store", "memory", "read when a broker starts"),
        ("raybroker.data.ports", "0", "read when a broker starts"),
        ("imqAckTimeout", "5", "connection factories"),
        ("imq.cluster.url", "file:///c.toml", "reload cls --config FILE"),
        ("imq.cluster.hostname", "true", "through Ray"),
        ("consumerFlowLimit", "5", "consumerFlowLimit"),
    ],
)
def test_all_or_nothing_is_changed(name: str, value: str, why: str) -> None:
    config = live(Config.from_values())
    with pytest.raises(ConfigError, match=why):
        config.with_changes({LEVEL: "ERROR", name: value})
    assert config.changed == {}


def test_every_property_that_says_live_can_be_changed_to_what_it_is() -> None:
    config = live(Config.from_values())
    for name in LIVE:
        text = SETTINGS["broker", name].format(config[name])
        assert config.with_changes({name: text}) == {}
    row_a17 = (
        "imq.autocreate.queue",
        "imq.autocreate.topic",
        "imq.autocreate.queue.maxNumActiveConsumers",
        "imq.autocreate.queue.maxNumBackupConsumers",
        "imq.autocreate.destination.useDMQ",
        "imq.destination.DMQ.truncateBody",
        "imq.destination.logDeadMsgs",
        LEVEL,
        BYTES,
        "imq.log.file.rolloversecs",
        "imq.message.max_size",
        "imq.system.max_count",
        "imq.system.max_size",
        "imq.portmapper.port",
    )
    assert set(row_a17) <= set(LIVE)


def test_a_change_holds_until_the_configuration_says_something_else() -> None:
    before = changed(
        live(Config.from_values({LEVEL: "ERROR"})), imq__log__level="WARNING", imq__log__file__rolloverbytes="1m"
    )
    saved = json.loads(json.dumps(before.saved(before.changed)))
    same = LiveConfig(Config.from_values({LEVEL: "error"}), saved)
    assert (same.changed, same.forgotten) == ({LEVEL: "WARNING", BYTES: 1 << 20}, [])
    other = LiveConfig(Config.from_values({LEVEL: "NONE"}), saved)
    assert (other[LEVEL], other[BYTES], other.forgotten) == ("NONE", 1 << 20, [LEVEL])


@pytest.mark.parametrize("name", ["imq.gone", "imq.persist.store"])
def test_what_another_version_has_saved_and_this_one_cannot_use_is_forgotten(name: str) -> None:
    config = LiveConfig(Config.from_values(), {name: ["x", "file"], LEVEL: ["LOUD", "INFO"], BYTES: [4096, "-1"]})
    assert (config.changed, config.forgotten) == ({BYTES: 4096}, [name, LEVEL])
