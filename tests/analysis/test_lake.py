"""The lake on disk: frames, writing, what a crash and damage leave, compaction, copying from Prometheus' API."""

from __future__ import annotations

import gzip
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.analysis.lake import lake as layout
from raybroker.analysis.lake.export import Collector, LakeWriter, collecting, compact, exposition_of, from_prometheus
from raybroker.analysis.lake.lake import LakeFault, ScrapeFrame
from raybroker.analysis.lake.plan import PlanWindow, Walk, parts, within

T = 1_789_948_800_000
FOREVER = PlanWindow(0, 1 << 52, 1 << 51)


def bodies_of(lake: Path, broker: str = "b1") -> list[tuple[int, bytes]]:
    files, faults = layout.files(lake)
    assert faults == []
    found = [one for file in files if file.broker == broker for one in layout.read(file.path)]
    assert all(isinstance(one, ScrapeFrame) for one in found), found
    return [(one.ts, one.body) for one in found if isinstance(one, ScrapeFrame)]


def write(lake: Path, stamps: list[int], broker: str = "b1", **options: int) -> LakeWriter:
    writer = LakeWriter(lake, broker, **options)
    for ts in stamps:
        writer.write(ts, b"a %d\n" % ts)
    return writer


def test_what_is_written_is_read_and_a_file_appears_only_when_it_is_whole(tmp_path: Path) -> None:
    writer = write(tmp_path, [T, T + 5000], rotate_ms=60_000)
    assert layout.files(tmp_path) == ([], [])
    writer.close()
    assert bodies_of(tmp_path) == [(T, b"a %d\n" % T), (T + 5000, b"a %d\n" % (T + 5000))]
    (file,) = layout.files(tmp_path)[0]
    assert (file.date, file.broker, file.first, file.last) == ("2026-09-21", "b1", T, T + 5000)


def test_files_roll_by_age_size_and_day_and_names_may_have_any_letters(tmp_path: Path) -> None:
    write(tmp_path, [T, T + 60_000, T + 61_000], broker="b/1 ä", rotate_ms=60_000).close()
    write(tmp_path, [T + layout.DAY_MS - 1, T + layout.DAY_MS], rotate_ms=layout.DAY_MS).close()
    write(tmp_path, [T, T + 1, T + 2], broker="b2", rotate_bytes=1).close()
    files = layout.files(tmp_path)[0]
    assert [(file.broker, file.date) for file in files] == [
        ("b/1 ä", "2026-09-21"),
        ("b/1 ä", "2026-09-21"),
        ("b1", "2026-09-21"),
        ("b1", "2026-09-22"),
        *[("b2", "2026-09-21")] * 3,
    ]


def test_what_a_crashed_writer_left_open_comes_into_the_lake_with_the_next_one(tmp_path: Path) -> None:
    write(tmp_path, [T, T + 1000])
    hidden = next(tmp_path.glob("date=*/broker=*/.open.prom"))
    hidden.write_bytes(hidden.read_bytes()[:-3])
    write(tmp_path, [T + 2000]).close()
    found = [one for file in layout.files(tmp_path)[0] for one in layout.read(file.path)]
    assert [one.ts if isinstance(one, ScrapeFrame) else one.what for one in found] == [T, "torn", T + 2000]


def test_keys_rise_also_when_the_clock_steps_back(tmp_path: Path) -> None:
    write(tmp_path, [T + 9000, T]).close()
    write(tmp_path, [T + 1000]).close()
    found = [one for file in layout.files(tmp_path)[0] for one in layout.read(file.path)]
    assert [(one.key, one.ts) for one in found if isinstance(one, ScrapeFrame)] == [
        (T + 9000, T + 9000),
        (T + 9001, T),
        (T + 9002, T + 1000),
    ]


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=5), st.data())
def test_damage_anywhere_costs_only_the_scrapes_it_touches(texts: list[bytes], data: st.DataObject) -> None:
    made = [layout.frame(T + at, T + at, text) for at, text in enumerate(texts)]
    whole = b"".join(made)
    at = data.draw(st.integers(0, len(whole) - 1))
    spoilt = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    start, touched = 0, 0
    for number, one in enumerate(made):
        if start <= at < start + len(one):
            touched = number
        start += len(one)
    got = [one for one in layout.frames(spoilt, "x") if isinstance(one, ScrapeFrame)]
    expected = [one for n, one in enumerate(f for f in layout.frames(whole, "x")) if n != touched]
    assert [one for one in got if one in expected] == got
    # The line end of a frame is what the next one is found by: damage there costs both.
    assert len(got) >= len(expected) - (whole[at : at + 1] == b"\n")
    assert any(isinstance(one, LakeFault) for one in layout.frames(spoilt, "x"))


def test_a_torn_archive_gives_what_it_still_has(tmp_path: Path) -> None:
    path = tmp_path / "date=2026-09-21" / "broker=b1" / layout.file_name(T, T + 99)
    path.parent.mkdir(parents=True)
    import random

    noise = random.Random(1)
    text = b"".join(layout.frame(T + at, T + at, b"a %d\n" % noise.getrandbits(4000)) for at in range(100))
    path.write_bytes(gzip.compress(text)[:-9000])
    found = list(layout.read(str(path)))
    assert len(found) > 10
    assert all(isinstance(one, ScrapeFrame) for one in found[:-1])
    assert found[-1] == LakeFault("torn", f"date=2026-09-21/broker=b1/{path.name}")


def test_strange_and_empty_files_are_named(tmp_path: Path) -> None:
    write(tmp_path, [T]).close()
    folder = tmp_path / "date=2026-09-21" / "broker=b1"
    (folder / "notes.txt").write_text("x")
    (folder / layout.file_name(T + 1, T + 1)).write_bytes(b"")
    files, faults = layout.files(tmp_path)
    assert [fault.what for fault in faults] == ["strange file"]
    assert [one.what for one in layout.read(files[1].path) if isinstance(one, LakeFault)] == ["empty file"]


def test_compaction_keeps_every_scrape_and_a_reader_of_the_old_files_finds_them(tmp_path: Path) -> None:
    stamps = [T + 1000 * at for at in range(20)]
    write(tmp_path, stamps, rotate_ms=0).close()
    before = bodies_of(tmp_path)
    old = layout.files(tmp_path)[0]
    assert compact(tmp_path, before="2026-09-21") == 0
    assert compact(tmp_path) == 19
    assert bodies_of(tmp_path) == before
    again = [one for file in old for one in layout.read(file.path)]
    assert [one.ts for one in again if isinstance(one, ScrapeFrame)] == stamps
    assert not list(tmp_path.glob("date=*/broker=*/.*"))


def test_damaged_files_are_not_compacted(tmp_path: Path) -> None:
    write(tmp_path, [T + at for at in range(4)], rotate_ms=0).close()
    spoilt = Path(layout.files(tmp_path)[0][2].path)
    spoilt.write_bytes(spoilt.read_bytes()[:-4])
    assert compact(tmp_path) == 1
    assert len(layout.files(tmp_path)[0]) == 3


def walked(lake: Path, window: PlanWindow = FOREVER) -> tuple[list[int], list[LakeFault]]:
    stamps: list[int] = []
    faults: list[LakeFault] = []
    for part in parts(within(layout.files(lake)[0], window)[0] if window is not FOREVER else layout.files(lake)[0]):
        walk = Walk(part, window)
        stamps += [ts for piece in walk.pieces() if not piece.baseline for ts in piece.stamps_ms]
        faults += walk.faults
    return stamps, faults


def test_scrapes_come_once_in_order_and_late_future_and_missing_ones_are_named(tmp_path: Path) -> None:
    usual = [T + 1000 * at for at in range(20)]
    write(tmp_path, [*usual[:5], usual[3], *usual[5:10]], rotate_ms=0).close()
    write(tmp_path, [*usual[10:12], usual[9] + 500, T + 900_000_000], rotate_ms=layout.DAY_MS).close()
    write(tmp_path, [T + 60_000]).close()
    stamps, faults = walked(tmp_path, PlanWindow(0, 1 << 52, T + 100_000))
    assert stamps == [*usual[:10], usual[9] + 500, *usual[10:12], T + 60_000]
    assert sorted(fault.what for fault in faults) == ["duplicate", "gap"]
    assert within(layout.files(tmp_path)[0], PlanWindow(0, 1 << 52, T + 100_000))[1][0].what == "impossible time"


@pytest.mark.parametrize("rotate_ms", [0, 20_000, layout.DAY_MS])
def test_a_large_day_is_cut_at_steps_and_nothing_is_read_twice_or_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rotate_ms: int
) -> None:
    usual = [T + 1000 * at for at in range(100) if not 40 <= at < 50]
    write(tmp_path, [*usual[:30], usual[29], *usual[30:60], T + 10_500, *usual[60:]], rotate_ms=rotate_ms).close()
    write(tmp_path, [T + layout.DAY_MS + 1000], rotate_ms=0).close()
    files = layout.files(tmp_path)[0]
    whole = walked(tmp_path)
    monkeypatch.setattr("raybroker.analysis.lake.plan.PART_BYTES_MIN", 1)
    cut = parts(files, 1, step_ms=10_000)
    assert len(cut) > 3
    assert all(part.since_ms % 10_000 == 0 for part in cut)
    stamps: list[int] = []
    faults: list[LakeFault] = []
    for part in cut:
        walk = Walk(part, FOREVER)
        pieces = list(walk.pieces())
        stamps += [ts for piece in pieces if not piece.baseline for ts in piece.stamps_ms]
        faults += walk.faults
        if part.since_ms and pieces:
            assert pieces[0].baseline
            assert pieces[0].stamps_ms == [max(ts for ts in whole[0] if ts < pieces[1].stamps_ms[0])]
    assert stamps == sorted(usual + ([T + 10_500] if T + 10_500 in whole[0] else []) + [T + layout.DAY_MS + 1000])
    assert sorted(one.what for one in faults if one.what != "gap") == sorted(
        one.what for one in whole[1] if one.what != "gap"
    )


def test_a_window_has_the_scrape_before_it_as_its_baseline(tmp_path: Path) -> None:
    day = layout.DAY_MS
    write(tmp_path, [T - 2000, T - 1000, T + 1000, T + 2000], rotate_ms=day).close()
    (part,) = parts(layout.files(tmp_path)[0])
    pieces = list(Walk(part, PlanWindow(T, T + 2000, T + day)).pieces())
    assert [(piece.stamps_ms, piece.baseline) for piece in pieces] == [([T - 1000], True), ([T + 1000], False)]


class _Endpoint(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        good = self.path == "/metrics"
        self.send_response(200 if good else 500)
        self.end_headers()
        self.wfile.write(b"raybroker_messages 7\n" if good else b"no")

    def do_POST(self) -> None:
        asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        start, end, step = (float(asked[key][0]) for key in ("start", "end", "step"))
        seconds = [start + step * at for at in range(int((end - start) / step) + 1)]
        rows = [
            {
                "metric": {"__name__": name, "broker": broker, "instance": "x", "job": "y"},
                "values": [[second, str(second)] for second in seconds],
            }
            for name in ("raybroker_a_total", "raybroker_b_bucket")
            for broker in ("b1", "b2")
        ]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"data": {"result": rows}}).encode())

    def log_message(self, *args: object) -> None:
        """Nothing on standard error."""


class _Api(_Endpoint):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        data = {"raybroker_a_total": [{"type": "counter"}], "raybroker_b": [{"type": "histogram"}]}
        self.wfile.write(json.dumps({"data": data}).encode())


@pytest.fixture(params=[_Endpoint])
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), request.param) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{made.server_address[1]}"
        made.shutdown()
        thread.join()


def test_a_collector_writes_what_endpoints_say_and_tells_which_do_not_answer(tmp_path: Path, server: str) -> None:
    targets = {"b1": f"{server}/metrics", "b2": f"{server}/broken", "b3": "http://127.0.0.1:9/metrics"}
    moments = iter([T, T + 1000])
    collector = Collector(tmp_path, lambda: targets, lambda: next(moments))
    stop = threading.Event()
    rounds: list[list[bool]] = []

    def seen(scrapes: list[object]) -> None:
        rounds.append([getattr(one, "error", None) is None for one in scrapes])
        if len(rounds) == 2:
            stop.set()

    collector.run(0.0, stop, seen)
    assert rounds == [[True, False, False]] * 2
    assert bodies_of(tmp_path) == [(T, b"raybroker_messages 7\n"), (T + 1000, b"raybroker_messages 7\n")]


def test_collecting_beside_other_work_ends_with_everything_in_the_lake(tmp_path: Path, server: str) -> None:
    came = threading.Event()
    ticks = iter(range(T, T + 10**9, 1000))
    with collecting(
        tmp_path,
        lambda: {"b1": f"{server}/metrics"},
        lambda: next(ticks),
        interval_s=0.01,
        seen=lambda some: came.set(),
    ):
        assert came.wait(10)
    stamps = [ts for ts, _ in bodies_of(tmp_path)]
    assert stamps == list(range(T, T + 1000 * len(stamps), 1000))
    assert len(stamps) >= 2


@pytest.mark.parametrize("server", [_Api], indirect=True)
def test_a_prometheus_server_is_copied_broker_by_broker_with_its_types(tmp_path: Path, server: str) -> None:
    assert from_prometheus(tmp_path, server, T, T + 20_000, 10_000) == 6
    stamps, text = zip(*bodies_of(tmp_path, "b2"), strict=True)
    assert stamps == (T, T + 10_000, T + 20_000)
    assert text[0].decode().splitlines() == [
        "# TYPE raybroker_a_total counter",
        f'raybroker_a_total{{broker="b2"}} {T / 1000}',
        "# TYPE raybroker_b histogram",
        f'raybroker_b_bucket{{broker="b2"}} {T / 1000}',
    ]


def test_labels_are_escaped_in_made_exposition() -> None:
    made = exposition_of([({"__name__": "a", "x": 'say "hi"\n\\'}, "1")], {})
    assert made == b'# TYPE a untyped\na{x="say \\"hi\\"\\n\\\\"} 1\n'
