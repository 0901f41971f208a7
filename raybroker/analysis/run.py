"""Analyses a lake: the table, every job, the report. ``analyze`` is what the command line and the demo call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from raybroker.analysis import masters, report, session, tables
from raybroker.analysis.answer import Answer, Finding, by_harm
from raybroker.analysis.plan import Window
from raybroker.model.errors import ConfigError

FOREVER_MS: Final = 1 << 52
JOBS_AT_ONCE: Final = 3
BRIEF_BYTES: Final = 256 << 20
"""Queries over a smaller lake are over before optimized code would pay."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """What is asked for. ``tables`` keeps the Parquet there; ``step_ms`` None: as the time asked for suggests."""

    lake: Path
    out: Path
    now_ms: int
    master: str = session.LOCAL
    since_ms: int = 0
    until_ms: int = FOREVER_MS
    tables: Path | None = None
    step_ms: int | None = None
    memory: str = "2g"
    conf: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """The files written, and the answers."""

    files: list[Path]
    answers: list[Answer]
    facts: report.Facts

    @property
    def findings(self) -> list[Finding]:
        """All findings, the worst first."""
        return by_harm(found for answer in self.answers for found in answer.findings)


Progress = Callable[[str, int, int], None]
"""Called with what is being done, steps done and steps in all."""


def analyze(
    plan: Analysis, clock_s: Callable[[], float], progress: Progress | None = None, spark: Any = None
) -> Result:
    """Analyse a lake and write the report. ``clock_s`` measures; ``spark``: a session to use instead of an own one.

    Raises ConfigError when Java, Spark, the master, the lake or its content is missing, or workers of a cluster do not
    share the folders.
    """
    say = progress or (lambda what, done, of: None)
    jobs = _jobs()
    here = spark is not None or masters.is_here(plan.master)
    if not here and plan.tables is None:
        raise ConfigError(f"workers of {plan.master} write tables where they run: name a folder that all of them, and "
                          "this machine, share with --tables DIR")  # fmt: skip
    window = Window(plan.since_ms, plan.until_ms, plan.now_ms)
    brief = sum(file.size for file in tables.files_of(plan.lake, window)[0]) < BRIEF_BYTES
    took: dict[str, float] = {}
    steps = len(jobs) + 3
    start = clock_s()

    def lap(what: str) -> None:
        took[what] = clock_s() - start - sum(took.values())

    say("starting Spark", 0, steps)
    own_spark = nullcontext(spark) if spark is not None else _spark(plan, brief)
    kept = plan.tables
    own_folder = TemporaryDirectory(prefix="raybroker-tables-") if kept is None else nullcontext(str(kept))
    with own_spark as own, own_folder as folder:
        if not here:
            masters.check_workers(own, plan.lake.absolute(), Path(folder).absolute(), "--tables")
        lap("start of Spark")
        say("reading the lake", 1, steps)
        cores = own.sparkContext.defaultParallelism
        made = tables.build(own, plan.lake, Path(folder), window, step_ms=plan.step_ms, tasks=cores,
                            kept=kept is not None)  # fmt: skip
        lap("reading")
        answers = _answers(jobs, made, say, steps)
        made.asked.unpersist()
        lap("jobs")
        say("writing the report", steps - 1, steps)
        ingest = answers[-1].figures["ingest"]
        facts = report.Facts(
            str(plan.lake), made.window.since_ms, made.window.until_ms, len(made.brokers), ingest.get("samples", 0.0),
            ingest.get("scrapes", 0.0), made.step_s, took,
        )  # fmt: skip
        files = report.write(plan.out, facts, answers)
        say("done", steps, steps)
    return Result(files, answers, facts)


def _answers(
    jobs: tuple[Callable[[tables.Tables], Answer], ...], made: tables.Tables, say: Progress, steps: int
) -> list[Answer]:
    """Ask some jobs at a time: while one query is planned another one runs."""
    with ThreadPoolExecutor(JOBS_AT_ONCE, thread_name_prefix="analysis") as pool:
        asked = [pool.submit(job, made) for job in jobs]
        answers = []
        for number, (job, one) in enumerate(zip(jobs, asked, strict=True)):
            say(job.__name__.replace("_", " "), 2 + number, steps)
            answers.append(one.result())
    return answers


def _spark(plan: Analysis, brief: bool) -> AbstractContextManager[Any]:
    return session.spark(plan.master, memory=plan.memory, conf=dict(plan.conf or {}), brief=brief)


def _jobs() -> tuple[Callable[[tables.Tables], Answer], ...]:
    from raybroker.analysis.jobs import JOBS

    return JOBS
