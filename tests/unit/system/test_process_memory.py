"""Memory of processes, and the limits of control groups, version 1 and 2."""

from __future__ import annotations

import gc
import multiprocessing as mp
import os
from pathlib import Path
from typing import Any

import pytest

from raybroker.system.memory import COLLECT_AFTER, collect_seldom, give_back_memory
from raybroker.system.process_memory import (
    cgroup_limits,
    memory_limit_bytes,
    own_bytes,
    private_bytes,
    resident_bytes,
)


def test_what_is_filled_is_resident_until_it_is_given_back() -> None:
    give_back_memory(thorough=True)  # Or else what other tests have freed is filled, and is resident already.
    before = resident_bytes()
    held = bytearray(os.urandom(1 << 20)) * 64
    during = resident_bytes()
    assert during - before > 40 << 20
    assert private_bytes(os.getpid()) > 40 << 20
    del held
    give_back_memory(thorough=True)
    assert resident_bytes() < during - (30 << 20)


def test_private_memory_is_a_part_of_what_is_resident() -> None:
    resident, private = own_bytes()
    assert 0 < private < resident < memory_limit_bytes()


def test_a_process_that_has_gone_uses_nothing() -> None:
    assert private_bytes(2**22 + 1) == 0


@pytest.mark.parametrize(
    ("own", "files", "limits"),
    [
        ("0::/\n", {"memory.max": "max\n"}, []),
        ("0::/\n", {"memory.max": "1000\n"}, [1000]),
        ("0::/a/b\n", {"a/memory.max": "500\n", "a/b/memory.max": "max\n", "memory.max": "900"}, [500, 900]),
        ("0::/machine/of/its/own\n", {"memory.max": "700\n"}, [700]),
        ("5:cpu:/x\n4:memory:/docker/1\n", {"memory/docker/1/memory.limit_in_bytes": "300\n"}, [300]),
        ("4:memory:/docker/1\n", {"memory/memory.limit_in_bytes": "200\n"}, [200]),
        ("4:cpu,memory:/s\n0::/s\n", {"memory/s/memory.limit_in_bytes": "7", "s/memory.max": "8"}, [7, 8]),
        ("nonsense\n", {}, []),
    ],
)
def test_the_limits_of_all_groups_above_count(
    tmp_path: Path, own: str, files: dict[str, str], limits: list[int]
) -> None:
    for name, text in files.items():
        (tmp_path / "fs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "fs" / name).write_text(text)
    (tmp_path / "own").write_text(own)
    assert sorted(cgroup_limits(tmp_path / "fs", tmp_path / "own")) == limits
    assert list(cgroup_limits(tmp_path / "nothing", tmp_path / "missing")) == []


def _collections(pipe: Any) -> None:
    """In a process of its own: looks at young objects while 5,000 stay, and whether a later cycle is still found."""
    collect_seldom()
    looks: list[int] = []
    gc.callbacks.append(lambda phase, info: looks.append(info["generation"]) if phase == "start" else None)
    kept = [[number] for number in range(COLLECT_AFTER // 2)]
    before = len(looks)
    for _ in range(2 * COLLECT_AFTER):
        cycle: list[Any] = []
        cycle.append(cycle)
    pipe.send((gc.get_freeze_count(), before, len(looks), len(kept)))


def test_a_process_that_collects_seldom_keeps_what_is_there_out_of_it_and_still_finds_cycles() -> None:
    mine, other = mp.Pipe()
    process = mp.get_context("spawn").Process(target=_collections, args=(other,))
    process.start()
    assert mine.poll(60), "the process said nothing"
    frozen, before, after, _ = mine.recv()
    process.join(60)
    assert frozen > 1_000, "modules are left out"
    assert before == 0, "by default it would have looked seven times"
    assert 1 <= after <= 3
