"""A store under a name that is not its own is not served: the start says whose it is, and changes nothing in it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import raybroker as rb
from raybroker.actors import cluster as clusters
from raybroker.actors.hosts.host import DataPlane, KeptState
from raybroker.actors.hosts.host_spec import HostSpec
from raybroker.config import Config
from raybroker.config.live import LiveConfig
from raybroker.errors import BrokerError, StoreError
from raybroker.logs.messages import MessagesLog
from tests.cluster.rays import small_store
from tests.contracts.handles import WAIT_S


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_stores_that_were_copied_to_another_cluster_are_refused_with_the_reason(
    own_ray: str, tmp_path: Path
) -> None:  # P-06
    config = small_store(tmp_path)
    with rb.start("one", config=config), rb.connect(cluster="one") as connection:
        connection.session().producer("orders").send("of one")
    (broker,) = (path.parent for path in tmp_path.rglob("owner") if path.read_text() == "one/b1\n")
    other = Path(str(broker).replace("/one/", "/two/"))
    shutil.copytree(broker, other)
    before = files(other)
    with pytest.raises(BrokerError, match="belongs to one/b1, and this is two/b1"):
        rb.start("two", config=config)
    assert files(other) == before


def test_a_host_that_refuses_its_store_fails_the_start_with_its_own_error_and_leaves_nothing(
    own_ray: str, tmp_path: Path
) -> None:
    config = small_store(tmp_path)
    with rb.start("one", config=config), rb.connect(cluster="one") as connection:
        connection.session().producer("orders").send("kept")
    owner = next(path for path in tmp_path.rglob("owner") if path.read_text() == "one/b1/h1\n")
    owner.write_text("other/b9/h1\n")
    for _ in range(2):
        with pytest.raises(StoreError, match=r"host b1/h1 does not start: .*belongs to other/b9/h1"):
            rb.start("one", config=config)
        assert clusters.find("one") is None
    owner.write_text("one/b1/h1\n")
    with rb.start("one", config=config), rb.connect(cluster="one") as connection:
        message = connection.session().receive("orders", timeout=WAIT_S)
        assert message is not None
        assert message.body == "kept"


def test_a_host_does_not_open_the_store_of_another_one(tmp_path: Path) -> None:  # P-06
    def host(broker: str, name: str) -> DataPlane:
        spec = HostSpec("c", broker, name, "shared", str(tmp_path / "h1"), b"", Config.from_values({}))
        kept = KeptState(LiveConfig(spec.config, {}), {}, {})
        log = MessagesLog(tmp_path, kept.config.__getitem__)
        return DataPlane(spec, kept, "127.0.0.1", lambda kind, name: None, log)

    host("b1", "h1")._open_journal().close()
    before = files(tmp_path)
    for broker, name in (("b2", "h1"), ("b1", "h2")):
        with pytest.raises(StoreError, match=f"belongs to c/b1/h1, and this is c/{broker}/{name}"):
            host(broker, name)._open_journal()
    assert files(tmp_path) == before
    journal = host("b1", "h1")._open_journal()
    assert list(journal.recover()) == []
    journal.close()
