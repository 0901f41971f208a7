"""Layers of configuration: which wins, where a value came from, and how a mistake is named."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from raybroker.config import Config, instance_of, store_directory
from raybroker.config.layers import state_home, variable_names
from raybroker.model.errors import ConfigError
from raybroker.model.settings.setting_table import ALL

NAME = "raybroker.connections_max"


@pytest.fixture
def cluster_file(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.toml"
    path.write_text("[raybroker]\nconnections_max = 1\nhandshake.timeout_ms = 77\n\n[imq.autocreate]\nreaptime = 5\n")
    return path


@pytest.fixture
def instance_file(tmp_path: Path) -> Path:
    path = tmp_path / "instance.toml"
    path.write_text('# this broker\nraybroker.connections_max = 2\n"imq.autocreate.queue" = false\n')
    return path


def test_without_any_layer_everything_has_its_default() -> None:
    config = Config.load(environ={})
    assert config["imq.message.max_size"] == 70 * 1024 * 1024
    assert config.origin("imq.message.max_size") == "default"


def test_each_layer_wins_over_the_ones_before_it(cluster_file: Path, instance_file: Path) -> None:
    variable = {"RAYBROKER_CONNECTIONS_MAX": "3"}
    assert Config.load(cluster_file=cluster_file, environ={})[NAME] == 1
    assert Config.load(cluster_file=cluster_file, instance_file=instance_file, environ={})[NAME] == 2
    assert Config.load(cluster_file=cluster_file, instance_file=instance_file, environ=variable)[NAME] == 3
    config = Config.load(cluster_file=cluster_file, instance_file=instance_file, environ=variable, flags=[f"{NAME}=4"])
    assert config[NAME] == 4
    assert (config["raybroker.handshake.timeout_ms"], config["imq.autocreate.reaptime"]) == (77, 5)


def test_explain_lists_every_property_with_its_value_and_origin(cluster_file: Path, instance_file: Path) -> None:
    config = Config.load(
        cluster_file=cluster_file,
        instance_file=instance_file,
        environ={"RAYBROKER_STORE__SEGMENT_BYTES": "4m"},
        flags={"imqConsumerFlowLimit": 20},
    )
    explained = {name: (value, origin) for name, value, origin in config.explain()}
    assert explained["raybroker.handshake.timeout_ms"] == (77, f"cluster file {cluster_file}, line 3")
    assert explained[NAME] == (2, f"instance file {instance_file}, line 2")
    assert explained["imq.autocreate.queue"] == (False, f"instance file {instance_file}, line 3")
    assert explained["raybroker.store.segment_bytes"] == (
        4 * 1024 * 1024,
        "environment variable RAYBROKER_STORE__SEGMENT_BYTES",
    )
    assert explained["imqConsumerFlowLimit"] == (20, "-DimqConsumerFlowLimit")
    assert explained["imqAckTimeout"] == (0, "default")
    shown = [setting.name for setting in ALL if setting.scope != "destination" and not setting.secret]
    assert list(explained) == shown


def test_a_misspelled_name_in_a_file_is_named_with_file_line_and_nearest_name(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[raybroker]\nhandshake.timeout_ms = 5\nconnections_mxa = 1\n")
    with pytest.raises(ConfigError) as caught:
        Config.load(cluster_file=path, environ={})
    assert f"cluster file {path}, line 3" in str(caught.value)
    assert "nearest is 'raybroker.connections_max'" in str(caught.value)


def test_a_value_out_of_bounds_is_named_with_its_origin(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('"imq.autocreate.queue.maxNumActiveConsumers" = 0\n')
    with pytest.raises(ConfigError, match=r"line 1: imq\.autocreate\.queue\.maxNumActiveConsumers = 0 is too small"):
        Config.load(instance_file=path, environ={})
    with pytest.raises(ConfigError, match=r"^-Dimq\.ping\.interval: .*not an integer"):
        Config.load(environ={}, flags=["-Dimq.ping.interval=soon"])
    with pytest.raises(ConfigError, match=r"^environment variable RAYBROKER_IMQ__PERSIST__STORE: .*not one of"):
        Config.load(environ={"RAYBROKER_IMQ__PERSIST__STORE": "tape"})


def test_an_unknown_variable_with_our_prefix_is_refused_and_others_are_not_looked_at() -> None:
    assert Config.load(environ={"PATH": "x", "RAY_ADDRESS": "y"}) == Config()
    with pytest.raises(ConfigError, match="environment variable RAYBROKER_STORE__DRI"):
        Config.load(environ={"RAYBROKER_STORE__DRI": "x"})


def test_every_property_has_a_variable_of_its_own() -> None:
    names = [setting.name for setting in ALL if setting.scope != "destination"]
    variables = variable_names(names)
    assert set(variables.values()) == set(names)
    assert variables["RAYBROKER_RAYBROKER__STORE__DIR"] == variables["RAYBROKER_STORE__DIR"] == "raybroker.store.dir"
    assert variables["RAYBROKER_IMQACKTIMEOUT"] == "imqAckTimeout"


def test_the_environment_of_the_process_is_read_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYBROKER_CONNECTIONS_MAX", "9")
    assert Config.load()[NAME] == 9


def test_a_file_that_is_missing_or_no_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cluster file .*gone\.toml cannot be read"):
        Config.load(cluster_file=tmp_path / "gone.toml", environ={})
    path = tmp_path / "bad.toml"
    path.write_text("imq.autocreate.queue = true\nimq.autocreate.queue.consumerFlowLimit = 3\n")
    with pytest.raises(ConfigError, match=r"is not TOML.*quoted keys"):
        Config.load(cluster_file=path, environ={})


def test_a_table_or_a_list_is_no_value(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("raybroker.connections_max = [1]\n")
    with pytest.raises(ConfigError, match="not an integer"):
        Config.load(cluster_file=path, environ={})


def test_a_flag_without_a_value_is_refused() -> None:
    for flag in ("imq.ping.interval", "=5", "-D"):
        with pytest.raises(ConfigError, match="write -Dname=value"):
            Config.load(environ={}, flags=[flag])


def test_a_configuration_is_a_value_that_travels() -> None:
    config = Config.from_values({NAME: "7"})
    assert pickle.loads(pickle.dumps(config)) == config
    assert hash(config) == hash(Config.from_values({NAME: 7}))
    changed = config.with_values({NAME: 8}, origin="update bkr")
    assert (config[NAME], changed[NAME], changed.origin(NAME)) == (7, 8, "update bkr")


def test_asking_for_an_unknown_property_is_an_error() -> None:
    for ask in (Config().__getitem__, Config().origin):
        with pytest.raises(ConfigError, match=r"nearest is 'imq\.message\.max_size'"):
            ask("imq.message.max_sice")


def test_stores_lie_apart_for_each_cluster_and_broker() -> None:
    assert store_directory(Config.from_values({"raybroker.store.dir": "/data"}), "c1", "b2") == Path("/data/c1/b2")
    assert store_directory(Config(), "c1", "b2", {"XDG_STATE_HOME": "/state"}) == Path("/state/raybroker/c1/b2")
    assert state_home({}) == Path.home() / ".local" / "state"
    with pytest.raises(ConfigError):
        store_directory(Config(), "..", "b2", {})


def test_the_name_of_the_instance_is_an_option_or_a_property_and_not_two_names() -> None:
    unnamed, named = Config.from_values({}), Config.from_values({"imq.instancename": "shop"})
    assert (instance_of(unnamed, None), instance_of(unnamed, "x"), instance_of(named, None)) == ("default", "x", "shop")
    assert instance_of(named, "shop") == "shop"
    for other in ("default", "office"):
        with pytest.raises(ConfigError, match=f"named twice: '{other}', and imq.instancename = 'shop' .argument."):
            instance_of(named, other)
    with pytest.raises(ConfigError, match="is not allowed"):
        instance_of(Config.from_values({"imq.instancename": "../up"}), None)


def test_the_common_cluster_file_comes_before_all_layers(cluster_file: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(f'imq.cluster.url = "{cluster_file.as_uri()}"\nraybroker.connections_max = 9\n')
    config = Config.load(cluster_file=own, environ={})
    assert (config[NAME], config["imq.autocreate.reaptime"]) == (9, 5)
    assert config.origin("imq.autocreate.reaptime").startswith(f"common cluster file {cluster_file}, line ")
    variable = {"RAYBROKER_IMQ__CLUSTER__URL": str(cluster_file)}
    by_variable = Config.load(environ=variable, flags=["imq.message.max_size=1k"])
    assert (by_variable[NAME], by_variable["imq.message.max_size"]) == (1, 1024)
    assert Config.load(values={"imq.cluster.url": str(cluster_file)}, environ={})[NAME] == 1
    assert Config.load(cluster_file=own, environ={}, flags=["imq.cluster.url="])["imq.autocreate.reaptime"] != 5


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://there/cluster.toml", "no path and no file:///path"),
        ("file://other/c.toml", "on another machine"),
        ("c.toml", "is not absolute"),
        ("/no/such/file.toml", "cannot be read"),
    ],
)
def test_a_common_cluster_file_that_cannot_be_read_is_refused(url: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Config.load(flags=[f"imq.cluster.url={url}"], environ={})


def test_a_common_cluster_file_names_no_other(tmp_path: Path) -> None:
    first = tmp_path / "first.toml"
    first.write_text(f'imq.cluster.url = "{first}"\n')
    with pytest.raises(ConfigError, match="names no other; leave it out"):
        Config.load(flags=[f"imq.cluster.url={first}"], environ={})
