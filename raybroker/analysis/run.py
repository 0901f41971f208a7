"""Analysis of a lake: the tables, every job, the report. ``analyze`` is what the command line and the demo call.

The lake is read, and what draws the plots is imported, while Spark starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, Final

from raybroker.analysis import tables
from raybroker.analysis.lake import reading
from raybroker.analysis.lake.plan import PlanWindow
from raybroker.analysis.reports import plots, report
from raybroker.analysis.reports.answer import Finding, JobAnswer, by_harm
from raybroker.analysis.spark import masters, session
from raybroker.model.errors import ConfigError

FOREVER_MS: Final = 1 << 52
JOBS_AT_ONCE: Final = 3
BRIEF_BYTES: Final = 256 << 20
"""Queries over a smaller lake are over before optimized code would pay."""
TINY_BYTES: Final = 1 << 20
"""Queries over a smaller lake are over before code of their own would pay."""


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
    archive: bool = True
    """With the class archive in the user's cache folder, see ``classes``."""


@dataclass(frozen=True, slots=True)
class AnalysisResult:
    """The files written, and the answers."""

    files: list[Path]
    answers: list[JobAnswer]
    facts: report.Facts

    @property
    def findings(self) -> list[Finding]:
        """All findings, the worst first."""
        return by_harm(found for answer in self.answers for found in answer.findings)


Progress = Callable[[str, int, int], None]
"""Called with what is being done, steps done and steps in all."""


def analyze(
    plan: Analysis, clock_s: Callable[[], float], progress: Progress | None = None, spark: Any = None
) -> AnalysisResult:
    """Analyse a lake and write the report. ``clock_s`` measures; ``spark``: a session to use instead of an own one.

    Raises ConfigError when Java, Spark, the master, the lake or its content is missing, or workers of a cluster do not
    share the folders.
    """
    say = progress or (lambda what, done, of: None)
    jobs = _jobs()
    master = plan.master if spark is None else spark.sparkContext.master
    if not masters.is_here(master) and plan.tables is None:
        raise ConfigError(
            f"workers of {plan.master} write tables where they run: name a folder that all of them, and "
            "this machine, share with --tables DIR"
        )
    took: dict[str, float] = {}
    steps = len(jobs) + 3
    start = clock_s()

    def lap(what: str) -> None:
        took[what] = clock_s() - start - sum(took.values())

    def started() -> None:
        lap("start of Spark")
        say("reading the lake", 1, steps)

    say("starting Spark", 0, steps)
    Thread(target=plots.prepare, name="plots", daemon=True).start()
    with ExitStack() as stack:
        kept = plan.tables
        own_folder = TemporaryDirectory(prefix="raybroker-tables-") if kept is None else nullcontext(str(kept))
        folder = Path(stack.enter_context(own_folder))
        read = _read_here if masters.is_here(master) else _read_on_workers
        own, drafted = read(stack, plan, folder, spark, started)
        made = tables.opened(own, drafted)
        lap("reading")
        answers = _answers(jobs, made, say, steps)
        lap("jobs")
        say("writing the report", steps - 1, steps)
        ingest = answers[-1].figures["ingest"]
        facts = report.Facts(
            str(plan.lake),
            made.window.since_ms,
            made.window.until_ms,
            len(made.brokers),
            ingest.get("samples", 0.0),
            ingest.get("scrapes", 0.0),
            made.step_s,
            took,
            made.clusters,
        )
        files = report.write(plan.out, facts, answers)
        say("done", steps, steps)
    return AnalysisResult(files, answers, facts)


def _read_here(
    stack: ExitStack, plan: Analysis, folder: Path, spark: Any, started: Callable[[], None]
) -> tuple[Any, tables.Draft]:
    """Spark, and tables that processes of this machine write while it starts."""
    cores = masters.cores(plan.master if spark is None else spark.sparkContext.master)
    drafted = _drafted(plan, folder, cores)
    wait = stack.enter_context(reading.begun(drafted.works, drafted.lake_bytes, cores))
    own = stack.enter_context(_spark(plan, spark))
    started()
    wait()
    return own, drafted


def _read_on_workers(
    stack: ExitStack, plan: Analysis, folder: Path, spark: Any, started: Callable[[], None]
) -> tuple[Any, tables.Draft]:
    """Spark, and tables that its workers write, when they have been checked."""
    own = stack.enter_context(_spark(plan, spark))
    masters.check_workers(own, plan.lake.absolute(), folder.absolute(), "--tables")
    started()
    drafted = _drafted(plan, folder, own.sparkContext.defaultParallelism)
    tables.through_spark(own, drafted)
    return own, drafted


def _answers(
    jobs: tuple[Callable[[tables.LakeTables], JobAnswer], ...], made: tables.LakeTables, say: Progress, steps: int
) -> list[JobAnswer]:
    """Ask some jobs at a time: while one query is planned another one runs."""
    with ThreadPoolExecutor(JOBS_AT_ONCE, thread_name_prefix="analysis") as pool:
        asked = [pool.submit(job, made) for job in jobs]
        answers = []
        for number, (job, one) in enumerate(zip(jobs, asked, strict=True)):
            say(job.__name__.replace("_", " "), 2 + number, steps)
            answers.append(one.result())
    return answers


def _window(plan: Analysis) -> PlanWindow:
    return PlanWindow(plan.since_ms, plan.until_ms, plan.now_ms)


def _drafted(plan: Analysis, folder: Path, tasks: int) -> tables.Draft:
    kept = plan.tables is not None
    return tables.draft(plan.lake, folder, _window(plan), step_ms=plan.step_ms, tasks=tasks, kept=kept)


def _spark(plan: Analysis, spark: Any) -> AbstractContextManager[Any]:
    if spark is not None:
        return nullcontext(spark)
    size = sum(file.size for file in tables.files_of(plan.lake, _window(plan))[0])
    here, brief = masters.is_here(plan.master), size < BRIEF_BYTES
    queries = session.TINY if here and size < TINY_BYTES else session.SMALL if here and brief else {}
    return session.spark(
        plan.master,
        memory=plan.memory,
        conf={**queries, **(plan.conf or {})},
        brief=brief,
        lake=False,
        archive=plan.archive,
    )


def _jobs() -> tuple[Callable[[tables.LakeTables], JobAnswer], ...]:
    from raybroker.analysis.jobs import JOBS

    return JOBS
