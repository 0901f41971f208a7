"""The two readers of the exposition format, against prometheus_client and against each other."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from raybroker.analysis.lake.columns import NO_STAMP, ColumnReader
from raybroker.analysis.lake.exposition import Comment, Sample, parse, parse_line

WORDS = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,8}", fullmatch=True)
LABELS = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,6}", fullmatch=True).filter(lambda name: not name.startswith("__"))
TEXTS = st.text(st.characters(exclude_characters="\r", exclude_categories=("Cs",)), max_size=8)
NUMBERS = st.one_of(
    st.integers(-(10**12), 10**12).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["+Inf", "-Inf", "NaN", "1e+06", "0.5E-3", "+7", "00012", ".5", "3.", "inf", "Infinity"]),
)
BLANKS = st.sampled_from([" ", "  ", "\t", " \t "])
TYPES = st.sampled_from(["counter", "gauge", "histogram", "summary", "untyped"])
Row = tuple[str, tuple[tuple[str, str], ...], float | str, int | None, str]


def escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


@st.composite
def sample_lines(draw: st.DrawFn, name: str) -> str:
    labels = draw(st.dictionaries(LABELS, TEXTS, max_size=3))
    comma = draw(st.sampled_from([",", ", ", " ,"]))
    inner = comma.join(f'{key}{draw(st.sampled_from(["", " "]))}="{escaped(text)}"' for key, text in labels.items())
    braces = f"{{{inner}{draw(st.sampled_from(['', ',']))}}}" if labels else draw(st.sampled_from(["", "{}"]))
    stamp = draw(st.one_of(st.just(""), st.integers(0, 2 * 10**12).map(lambda ms: f" {ms}")))
    return f"{name}{draw(st.sampled_from(['', ' ']))}{braces}{draw(BLANKS)}{draw(NUMBERS)}{stamp}"


@st.composite
def families(draw: st.DrawFn, name: str) -> list[str]:
    kind = draw(TYPES)
    suffixes = {"histogram": ["_bucket", "_sum", "_count"], "summary": ["_sum", "_count", ""]}.get(kind, [""])
    lines = []
    if draw(st.booleans()):
        lines.append(f"# HELP {name}{draw(st.sampled_from(['', ' some help', ' with # and {braces}']))}")
    if draw(st.integers(0, 4)):
        lines.append(f"# TYPE {name} {kind}")
    lines += [draw(sample_lines(name + draw(st.sampled_from(suffixes)))) for _ in range(draw(st.integers(0, 4)))]
    extra = draw(st.sampled_from(["", "   ", "# a comment", "#", "# EOF"]))
    return [*lines, extra] if draw(st.booleans()) else lines


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Texts as the format has them: each family once, its TYPE before its samples."""
    lines = [line for name in draw(st.lists(WORDS, max_size=4, unique=True)) for line in draw(families(name))]
    return "\n".join(lines) + "\n"


DOCUMENTS = documents()


def plain(value: float) -> float | str:
    return "NaN" if math.isnan(value) else value


def theirs(text: str) -> list[Row]:
    """What prometheus_client reads; it gives counters the name they have in OpenMetrics, which is undone here."""
    rows: list[Row] = []
    named = {line.split()[2]: line.split()[3] for line in text.split("\n") if line.startswith("# TYPE")}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            stamp = None if one.timestamp is None else round(float(one.timestamp) * 1000)
            name = one.name
            if family.type == "counter" and name not in named and name.removesuffix("_total") in named:
                name = name.removesuffix("_total")
            kind = "untyped" if family.type == "unknown" else family.type
            rows.append((name, tuple(sorted(one.labels.items())), plain(float(one.value)), stamp, kind))
    return rows


def exactly(text: str) -> list[Row]:
    """What the exact reader reads."""
    rows: list[Row] = []
    for got in parse(text):
        assert not isinstance(got, str), got
        one, kind = got
        rows.append((one.name, tuple(sorted(one.labels.items())), plain(one.value), one.timestamp_ms, kind))
    return rows


def fast(scrapes: list[bytes], reader: ColumnReader | None = None) -> tuple[list[list[Row]], list[tuple[int, str]]]:
    """What the fast reader reads, by scrape, and the bad lines."""
    reader = reader or ColumnReader()
    samples, bad = reader.read(scrapes)
    rows: list[list[Row]] = [[] for _ in scrapes]
    for scrape, series, kind, value, stamp in zip(*(column.tolist() for column in samples), strict=True):
        one = reader.series[series]
        rows[scrape].append(
            (one.name, one.labels, plain(value), None if stamp == NO_STAMP else stamp, reader.types[kind])
        )
    return rows, [(one.scrape, one.line) for one in bad]


@given(DOCUMENTS)
def test_the_exact_reader_reads_what_prometheus_client_reads(text: str) -> None:
    assert exactly(text) == theirs(text)


@given(st.lists(DOCUMENTS, min_size=1, max_size=3))
def test_the_fast_reader_reads_what_the_exact_one_reads_also_from_several_scrapes(texts: list[str]) -> None:
    rows, bad = fast([text.encode() for text in texts])
    assert bad == []
    assert rows == [exactly(text) for text in texts]


ANYTHING = st.lists(
    st.one_of(
        st.text(st.characters(exclude_characters="\n", exclude_categories=("Cs",)), max_size=30),
        DOCUMENTS.map(lambda text: text.split("\n")[0]),
        st.tuples(WORDS, NUMBERS).map(" ".join),
        st.tuples(WORDS, st.text("0123456789_+-.eEx ", max_size=6)).map(" ".join),
    ),
    max_size=6,
).map(lambda lines: "\n".join(lines) + "\n")


@given(st.lists(ANYTHING, min_size=1, max_size=3))
def test_the_two_readers_agree_on_anything_and_name_the_same_bad_lines(texts: list[str]) -> None:
    rows, bad = fast([text.encode() for text in texts])
    for number, text in enumerate(texts):
        good = [got for got in parse(text) if not isinstance(got, str)]
        assert rows[number] == [
            (one.name, tuple(sorted(one.labels.items())), plain(one.value), one.timestamp_ms, kind)
            for one, kind in good
        ]
        assert [line for scrape, line in bad if scrape == number] == [
            got for got in parse(text) if isinstance(got, str)
        ]


@given(DOCUMENTS, DOCUMENTS)
def test_a_reader_that_has_read_before_reads_the_same(first: str, second: str) -> None:
    reader = ColumnReader()
    fast([first.encode()], reader)
    again = ColumnReader()
    expected = fast([second.encode()], again)
    assert fast([second.encode()], reader) == expected


@pytest.mark.parametrize(
    "line",
    [
        "no_value",
        'name{a="b" 1',
        "name{a=b} 1",
        "1name 2",
        'name{a="b",a="c"} 1',
        "name 1_000",
        "name one",
        "{} 1",
        'name{="x"} 1',
        "name 1 2 3",
        "# TYPE name",
        "# TYPE 9 counter",
    ],
)
def test_lines_that_are_no_exposition_are_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"no |invalid|label|could not|metric"):
        parse_line(line)


def test_names_of_any_characters_are_read_when_quoted() -> None:
    got = parse_line('{"requests.total", "käse"="\\"gouda\\""} 3')
    assert got == Sample("requests.total", {"käse": '"gouda"'}, 3.0, None)


def test_comments_are_read() -> None:
    assert parse_line("# TYPE a counter") == Comment("TYPE", "a", "counter")
    assert parse_line("# HELP a some  words ") == Comment("HELP", "a", "some  words")
    assert parse_line("# anything") is None


def test_bytes_that_are_no_text_spoil_their_line_alone() -> None:
    rows, bad = fast([b'a 1\nb{x="\xff"} 2\nc \xff\nd 3\n'])
    assert [row[0] for row in rows[0]] == ["a", "d"]
    assert len(bad) == 2


def test_a_type_counts_only_for_what_follows_it() -> None:
    text = "a 1\n# TYPE a gauge\na 2\nb 3\na 4\n"
    kinds: list[Any] = [row[4] for row in fast([text.encode()])[0][0]]
    assert kinds == ["untyped", "gauge", "untyped", "untyped"]
