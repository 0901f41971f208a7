"""Services that listen at the machine's own loopback, in a cluster that spans machines: checks warn, and name the
property."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raybroker.security.user_file import UserFile
from tests.contracts.cluster_rig import ClusterRig

ELSEWHERE = "10.9.8.7"


def rig_of(folder: Path, **more: object) -> ClusterRig:
    (folder / "security").mkdir()
    UserFile(folder / "security" / "passwd")
    properties: dict[str, object] = {"imq.service.activelist": "jms,admin", "imq.portmapper.port": 0, **more}
    return ClusterRig(folder, 2, **properties)  # type: ignore[arg-type]


def warned(rig: ClusterRig, verb: str) -> dict[str, str]:
    """Broker → what is said of its addresses."""
    admin: Any = rig.connect("b1").admin()
    rows = [row for row in getattr(admin, verb)() if row["check"] == "addresses"]
    assert all(row["grade"] == "warning" for row in rows)
    return {row["broker"]: row["text"] for row in rows}


@pytest.mark.parametrize(
    "given",
    [{"imq.hostname": "127.0.0.1"}, {"imq.hostname": "localhost"}, {"imq.jms.tcp.hostname": "127.0.0.1"}],
    ids=["all", "by name", "one service"],
)
def test_a_check_warns_and_names_the_property(tmp_path: Path, given: dict[str, str]) -> None:
    with rig_of(tmp_path, **given) as rig:
        for verb in ("check_broker", "check_services"):
            assert warned(rig, verb) == {}, "all run on one machine"
        rig.nodes["b2"] = ELSEWHERE
        for verb in ("check_broker", "check_services"):
            found = warned(rig, verb)
            assert set(found) == {"b1", "b2"}
            ((name, value),) = given.items()
            assert f"{name}={value}" in found["b1"]
            assert f"b2 ({ELSEWHERE})" in found["b1"]
        rig.stop("b2")
        assert warned(rig, "check_broker") == {}


def test_addresses_that_others_reach_are_well(tmp_path: Path) -> None:
    with rig_of(tmp_path, **{"imq.hostname": "127.0.0.1", "imq.service.activelist": ""}) as rig:
        rig.nodes["b2"] = ELSEWHERE
        assert warned(rig, "check_services") == {}, "there are no services"
    (tmp_path / "more").mkdir()
    with rig_of(tmp_path / "more") as rig:
        rig.nodes["b2"] = ELSEWHERE
        assert warned(rig, "check_services") == warned(rig, "check_broker") == {}
