"""`qpid-ha pipeline`: from the files that clients and brokers wrote to a verdict, with Spark or
without.

Exit codes are those of verdicts: 0 valid, 1 invalid, 2 unknown, 3 bad input or usage. Spark is
imported by the commands that need it and only then; `--engine python` needs neither Spark nor Java.
"""

from __future__ import annotations

import math
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from qpidha.cli.app import add_group, settings_of
from qpidha.cli.verification.interrupts import Interrupts
from qpidha.client.command.arguments import Options
from qpidha.client.command.exits import Failure
from qpidha.client.command.output import print_json, print_table, talk
from qpidha.model.duration import SECOND
from qpidha.pipeline.checks import CHECK, Settings
from qpidha.pipeline.generate.histories import EFFECTS, Plan, expected, write
from qpidha.pipeline.oracle.engine import check_paths
from qpidha.pipeline.segments import BadInput
from qpidha.pipeline.verdict import BAD_INPUT, UNKNOWN, Verdict, clear_offenders, word

ENGINES = ("spark", "python")
LARGEST_ERROR = 86400
"""Seconds that clocks may be apart by --clock-error."""


def seconds(value: float) -> float:
    """Return a number of seconds. Raises BadParameter if it is none."""
    if not math.isfinite(value) or value < 0:
        raise typer.BadParameter(f"{value} is no number of seconds")
    return value


Paths = Annotated[
    list[Path],
    typer.Argument(metavar="PATH...", help="segments, or directories with them at any depth"),
]
Journals = Annotated[
    list[Path],
    typer.Argument(metavar="DIR...", help="where the segments of a running cluster appear"),
]
Lake = Annotated[
    str,
    typer.Option(
        "--lake", metavar="DIR", help="folder of tables; a path or URL that every worker can see"
    ),
]
Master = Annotated[
    str,
    typer.Option(
        "--master", metavar="URL", help="local[N], spark://host:port, yarn, ...; default local[*]"
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="a setting of Spark; may be given again"),
]
Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="ENGINE",
        help="spark, or python: for a million operations or so, without Java",
    ),
]
Run = Annotated[str, typer.Option("--run", help="the run to judge; default: the only one")]
Checks = Annotated[str, typer.Option("--checks", metavar="A,B", help="only these checks")]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="where verdict.json goes")]
ExactlyOnce = Annotated[bool, typer.Option("--exactly-once", help="duplicates are invalid")]
StrictAck = Annotated[
    bool,
    typer.Option("--strict-ack", help="a delivery after its confirmed acknowledgement is invalid"),
]
StrictOrder = Annotated[
    bool, typer.Option("--strict-order", help="neither redelivery nor a fault excuses disorder")
]
Mutex = Annotated[
    str,
    typer.Option(
        "--mutex", help="overlapping holds that are invalid: strict, lease, report (none)"
    ),
]
Pause = Annotated[
    float,
    typer.Option(
        "--unavailable", metavar="SECONDS", help="a shorter pause is none", callback=seconds
    ),
]
LongestPause = Annotated[
    float,
    typer.Option(
        "--max-unavailable",
        metavar="SECONDS",
        help="a longer one is invalid; 0: none is",
        callback=seconds,
    ),
]
ClockError = Annotated[
    float | None,
    typer.Option(
        "--clock-error",
        metavar="SECONDS",
        help="how far clocks of two hosts may be apart; default: as files say",
    ),
]
Every = Annotated[
    float, typer.Option("--every", metavar="SECONDS", min=0.1, help="time between checks")
]
Trigger = Annotated[
    float | None,
    typer.Option(
        "--trigger",
        metavar="SECONDS",
        min=0.1,
        help="how often new segments are looked for; default 2",
    ),
]
AllOffenders = Annotated[
    bool, typer.Option("--all-offenders", help="write every offender into --out")
]
WithReport = Annotated[bool, typer.Option("--report", help="write a report into --out, too")]


def refuse_wrong_values(engine: str, mutex: str) -> None:
    """Raise Failure for an engine or a kind of overlap that there is not."""
    if engine not in ENGINES:
        raise Failure(
            BAD_INPUT, f"no such engine: {engine}", hint="--engine spark or --engine python"
        )
    if mutex not in ("strict", "lease", "report"):
        raise Failure(BAD_INPUT, f"--mutex cannot be {mutex!r}", hint="strict, lease or report")


def refuse_words_for_spark(engine: str, words: dict[str, object]) -> None:
    """Raise Failure if one of the words, which are for Spark, is given to the Python engine."""
    if engine == "python" and any(value not in (None, "", []) for value in words.values()):
        *names, last = words
        raise Failure(
            BAD_INPUT,
            f"{', '.join(names)} and {last} are for Spark",
            hint="--engine spark, or leave them out",
        )


def refuse_no_lake(engine: str, lake: str) -> None:
    """Raise Failure if Spark, which follows a cluster in tables, gets no place for them."""
    if engine == "spark" and not lake:
        raise Failure(
            BAD_INPUT,
            "watch needs a lake, or the Python engine",
            hint="--lake DIR, or --engine python",
        )


def refuse_wrong_words(
    engine: str,
    mutex: str,
    history: list[Path] | None,
    lake: str,
    out: Path | None,
    *,
    all_offenders: bool,
    report: bool,
) -> None:
    """Raise Failure for words of `check` that cannot be, or not together."""
    refuse_wrong_values(engine, mutex)
    if not history and (engine == "python" or not lake):
        raise Failure(
            BAD_INPUT,
            "nothing to judge",
            hint="directories with segments, or --lake with the Spark engine",
        )
    if engine == "spark" and not lake and out is None:
        raise Failure(
            BAD_INPUT, "tables need a place", hint="--lake DIR, or --out DIR for tables below it"
        )
    if report and (engine == "python" or out is None):
        raise Failure(
            BAD_INPUT,
            "--report needs a place, and the tables of the Spark engine",
            hint="--out DIR --engine spark",
        )
    if all_offenders and out is None:
        raise Failure(BAD_INPUT, "--all-offenders needs a place", hint="--out DIR")


def _settings(
    run: str,
    exactly_once: bool,
    strict_ack: bool,
    strict_order: bool,
    mutex: str,
    pause: float,
    longest_pause: float,
    clock_error: float | None,
) -> Settings:
    """Return what is asked of the checks, from options in seconds. Raises Failure for an error of
    clocks that cannot be.
    """
    if clock_error is not None and not 0 <= clock_error <= LARGEST_ERROR:
        raise Failure(
            BAD_INPUT,
            f"--clock-error cannot be {clock_error:g}",
            hint=f"seconds, 0 to {LARGEST_ERROR}",
        )
    return Settings(
        run,
        exactly_once,
        strict_ack,
        strict_order,
        mutex,
        round(pause * SECOND),
        round(longest_pause * SECOND),
        clock_error_ns=None if clock_error is None else round(clock_error * SECOND),
    )


ENTRY = Path(__file__).parents[1] / "main.py"
"""What spark-submit runs."""


def add(app: typer.Typer) -> None:
    """Put the commands into the tree."""
    add_group(
        app,
        "pipeline",
        "Judge and report what clients and brokers wrote.",
        {
            "doctor": _doctor,
            "generate": _generate,
            "ingest": _ingest,
            "check": _check,
            "report": _report,
            "watch": _watch,
            "submit": _submit,
        },
    )


@contextmanager
def _judging() -> Iterator[None]:
    """Turn everything that keeps a verdict from being given into exit code 3: 1 would say
    invalid.
    """
    try:
        yield
    except BadInput as error:
        raise Failure(BAD_INPUT, str(error)) from error
    except (OSError, ValueError) as error:
        raise Failure(BAD_INPUT, str(error), hint="qpid-ha pipeline --help") from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        first = next(
            (
                line
                for line in str(error).splitlines()
                if line.strip() and not line.startswith("An error occurred")
            ),
            "",
        )
        raise Failure(
            BAD_INPUT, f"Spark: {first or type(error).__name__}", hint="qpid-ha pipeline doctor"
        ) from error


def _spark(master: str, conf: list[str] | None) -> Any:
    """Return a session, or say why there is none."""
    try:
        from qpidha.pipeline.spark.session import session
    except ImportError as error:
        raise Failure(
            BAD_INPUT, f"no Spark: {error}", hint="pip install 'qpidha[data]', or --engine python"
        ) from error
    settings = dict(each.partition("=")[::2] for each in conf or [])
    try:
        return session(master, settings)
    except Exception as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Failure(
            BAD_INPUT, f"no Spark session: {first}", hint="qpid-ha pipeline doctor"
        ) from error


def _doctor(context: typer.Context, master: Master = "") -> None:
    """Print the versions of Java, Spark, pyarrow and of the workers, and run a small job. Exit
    code 3 if that fails.

    Example: qpid-ha pipeline doctor
    """
    options = settings_of(context)
    _spark(master, None)
    from qpidha.pipeline.spark.session import doctor

    with _judging():
        report = doctor(master)
    if options.as_json:
        print_json({"schema_version": 1, **report})
    else:
        print_table(["WHAT", "FOUND"], list(report.items()))


def _generate(
    context: typer.Context,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="where the segments go")],
    messages: Annotated[
        int, typer.Option("--messages", min=1, help="twice as many operations")
    ] = 1000,
    seed: Annotated[int, typer.Option("--seed", help="the same seed gives the same history")] = 1,
    plant: Annotated[
        str, typer.Option("--plant", metavar="A=N,B=M", help=f"anomalies: {', '.join(EFFECTS)}")
    ] = "",
    brokers: Annotated[
        bool, typer.Option("--brokers", help="three brokers write event logs, too")
    ] = False,
    locks: Annotated[int, typer.Option("--locks", help="locks, of 100 holds each")] = 0,
    overlaps: Annotated[
        int, typer.Option("--overlaps", help="holds that begin while another lasts")
    ] = 0,
) -> None:
    """Write a synthetic history with planted anomalies, and print the numbers that the checks
    must find.

    Example: qpid-ha pipeline generate --out history
    """
    with _judging():
        planted = _planted(plant)
        plan = Plan(
            messages=messages,
            seed=seed,
            plant=planted,
            brokers=brokers,
            locks=locks,
            overlaps=overlaps,
        )
        events = write(plan, out)
    print_json({"schema_version": 1, "events": events, "expected": expected(plan)})
    talk(settings_of(context), f"{events} events in {out}")


def _planted(words: str) -> dict[str, int]:
    planted = {}
    for each in filter(None, words.split(",")):
        name, _, number = each.partition("=")
        if not number.isdecimal():
            raise BadInput(
                f"--plant {each}: how many {name or 'of what'}? NAME=NUMBER, such as lost=3"
            )
        planted[name] = int(number)
    return planted


def _ingest(
    context: typer.Context,
    paths: Paths,
    lake: Lake,
    stream: Annotated[
        bool, typer.Option("--stream", help="go on as segments are closed, until interrupted")
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="as a stream that ends when it has all that is there now")
    ] = False,
    trigger: Annotated[
        float | None,
        typer.Option("--trigger", metavar="SECONDS", help="how often a stream looks; default 2"),
    ] = None,
    master: Master = "",
    conf: Conf = None,
) -> None:
    """Read segments into the tables of a lake; leave out those that were read before and have
    not changed.

    Without --stream and --once, open segments are read too.

    Example: qpid-ha pipeline ingest run --lake lake
    """
    options = settings_of(context)
    if once and stream:
        raise Failure(BAD_INPUT, "both --once and --stream given", hint="one of them")
    if trigger is not None and (not stream or not 0 < trigger < math.inf):
        raise Failure(
            BAD_INPUT, "--trigger is for --stream, in seconds above 0", hint="--stream --trigger 2"
        )
    spark = _spark(master, conf)
    from qpidha.pipeline.spark.ingest import follow, ingest, summary
    from qpidha.pipeline.spark.lake import Lake as Tables

    with _judging():
        tables = Tables(spark, lake)
        if not (stream or once):
            done = ingest(tables, paths)
        else:
            before = set(tables.batches())
            query = follow(tables, paths, seconds=(trigger or 2.0) if stream else 0)
            _until_interrupted(query)
            done = summary(
                tables, [batch for batch in tables.batches() if batch not in before] or ["none"]
            )
    _print_ingested(options, done.as_json())


def _until_interrupted(query: Any) -> None:
    stopped = Interrupts()
    while query.isActive and not stopped.wait(0.2):
        pass
    if query.isActive:
        query.processAllAvailable()
        query.stop()
    if query.exception() is not None:
        raise BadInput(f"the stream failed: {str(query.exception()).splitlines()[0]}")


def _print_ingested(options: Options, done: dict[str, Any]) -> None:
    if options.as_json:
        print_json({"schema_version": 1, **done})
        return
    print(
        f"{done['files']} files, {done['events']} events, {done['quarantined']} lines or "
        "files set aside"
    )
    for problem in done["problems"]:
        print(f"problem: {problem}")


def _check(
    context: typer.Context,
    history: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[PATH...]", help="segments, or directories; read first"),
    ] = None,
    lake: Lake = "",
    out: Out = None,
    run: Run = "",
    checks: Checks = "",
    exactly_once: ExactlyOnce = False,
    strict_ack: StrictAck = False,
    strict_order: StrictOrder = False,
    mutex: Mutex = "strict",
    pause: Pause = 1.0,
    longest_pause: LongestPause = 0.0,
    clock_error: ClockError = None,
    all_offenders: AllOffenders = False,
    report: WithReport = False,
    engine: Engine = "spark",
    master: Master = "",
    conf: Conf = None,
) -> None:
    """Judge a run. Exit code: 0 valid, 1 invalid, 2 unknown, 3 bad input or usage.

    Example: qpid-ha pipeline check run --out checked --report
    """
    options = settings_of(context)
    settings = _settings(
        run, exactly_once, strict_ack, strict_order, mutex, pause, longest_pause, clock_error
    )
    names = [name for name in checks.split(",") if name]
    refuse_wrong_words(
        engine, mutex, history, lake, out, all_offenders=all_offenders, report=report
    )
    refuse_words_for_spark(engine, {"--lake": lake, "--master": master, "--conf": conf})
    with _judging():
        if all_offenders and out is not None:
            clear_offenders(out, CHECK)
        if engine == "python":
            verdict = check_paths(history or [], settings, names=names)
            if out is not None:
                verdict.write(out, all_offenders=all_offenders)
        else:
            spark = _spark(master, conf)
            verdict = _by_spark(
                options,
                spark,
                history or [],
                lake,
                out,
                settings,
                names,
                all_offenders=all_offenders,
            )
        page = _written(out, lake, None)[0] if report and out is not None else None
    _print_verdict(options, verdict)
    if page is not None:
        talk(options, f"report: {page}")
    raise typer.Exit(verdict.exit_code)


def _report(
    context: typer.Context,
    check: Annotated[
        Path, typer.Option("--check", metavar="DIR", help="the --out of a check, with verdict.json")
    ],
    lake: Annotated[
        str,
        typer.Option(
            "--lake", metavar="DIR", help="the lake of that check; default: lake below --check"
        ),
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="where the report goes; default: --check"),
    ] = None,
) -> None:
    """Write a report on a judged run: one HTML file, and its charts as PNG. Neither Spark nor
    Java is needed.

    Exit code: 0 the report is written, whatever the verdict; 3 bad input or usage.

    Example: qpid-ha pipeline report --check checked
    """
    options = settings_of(context)
    with _judging():
        _print_files(options, _written(check, lake, out))


def _written(check: Path, lake: str, out: Path | None) -> list[Path]:
    """Write a report, or say what is not installed."""
    try:
        from qpidha.pipeline.report.page import write_report
    except ImportError as error:
        raise Failure(
            BAD_INPUT, f"no report: {error}", hint="pip install 'qpidha[data]'"
        ) from error
    return write_report(check, lake or str(check / "lake"), out or check)


def _print_files(options: Options, files: list[Path]) -> None:
    if options.as_json:
        print_json(
            {
                "schema_version": 1,
                "report": str(files[0]),
                "pictures": [str(file) for file in files[1:]],
            }
        )
    else:
        print(f"report: {files[0]}, and {len(files) - 1} pictures beside it")


def _by_spark(
    options: Options,
    spark: Any,
    history: list[Path],
    lake: str,
    out: Path | None,
    settings: Settings,
    names: list[str],
    *,
    all_offenders: bool,
) -> Verdict:
    from qpidha.pipeline.spark.engine import Asked, check_lake
    from qpidha.pipeline.spark.ingest import ingest
    from qpidha.pipeline.spark.lake import Lake as Tables

    tables = Tables(spark, lake or str((out or Path()).absolute() / "lake"))
    if history:
        done = ingest(tables, history)
        talk(options, f"read {done.files} files, {done.events} events")
    asked = Asked(names, directory=out if all_offenders else None)
    if options.verbose:
        asked.noticed = lambda what: talk(options, what)
    verdict = check_lake(tables, settings, asked)
    if out is not None:
        verdict.write(out)
    return verdict


def _print_verdict(options: Options, verdict: Verdict) -> None:
    if options.as_json:
        print_json(verdict.as_json())
        return
    rows = [
        [
            check.name,
            _word(check.valid, applies=check.applies),
            "; ".join(check.reasons) or _numbers(check.counts),
        ]
        for check in verdict.checks
    ]
    print_table(["CHECK", "VERDICT", "WHY"], rows)
    print(f"verdict on {verdict.run}: {_word(verdict.valid, applies=True)}")


def _word(valid: bool | None, *, applies: bool) -> str:
    return {True: "valid", False: "invalid", None: "unknown"}[valid] if applies else "-"


def _numbers(counts: dict[str, int]) -> str:
    return ", ".join(_number(name, number) for name, number in counts.items() if number)


def _number(name: str, number: int) -> str:
    return (
        f"{name.removesuffix('_ns')} {number / SECOND:.3f} s"
        if name.endswith("_ns")
        else f"{name} {number}"
    )


def _watch(
    context: typer.Context,
    journals: Journals,
    lake: Lake = "",
    every: Every = 10.0,
    trigger: Trigger = None,
    run: Run = "",
    checks: Checks = "",
    exactly_once: ExactlyOnce = False,
    strict_ack: StrictAck = False,
    strict_order: StrictOrder = False,
    mutex: Mutex = "strict",
    pause: Pause = 1.0,
    longest_pause: LongestPause = 0.0,
    clock_error: ClockError = None,
    engine: Engine = "spark",
    master: Master = "",
    conf: Conf = None,
) -> None:
    """Follow a running cluster: ingest what its writers close, and judge it again and again, one
    line each, until interrupted.

    While the cluster runs, a missing message may still come: the verdict on it is unknown, not
    invalid. A last look takes open segments too; its verdict is the exit code, and calls
    missing messages invalid only if all clients have ended their histories.

    Example: qpid-ha pipeline watch run --lake lake
    """
    options = settings_of(context)
    settings = _settings(
        run, exactly_once, strict_ack, strict_order, mutex, pause, longest_pause, clock_error
    )
    names = [name for name in checks.split(",") if name]
    refuse_wrong_values(engine, mutex)
    refuse_words_for_spark(
        engine, {"--lake": lake, "--master": master, "--conf": conf, "--trigger": trigger}
    )
    refuse_no_lake(engine, lake)
    with _judging():
        if engine == "python":
            code = _looks(
                options,
                every,
                lambda is_last: check_paths(journals, _in_progress(settings, is_last), names=names),
            )
        else:
            code = _watch_with_spark(
                options,
                _spark(master, conf),
                journals,
                lake,
                every,
                trigger or 2.0,
                settings,
                names,
            )
    raise typer.Exit(code)


def _in_progress(settings: Settings, is_last: bool) -> Settings:
    return replace(settings, progress="ending" if is_last else "running")


def _watch_with_spark(
    options: Options,
    spark: Any,
    journals: list[Path],
    lake: str,
    every: float,
    trigger: float,
    settings: Settings,
    names: list[str],
) -> int:
    from qpidha.pipeline.spark.engine import Asked, check_lake
    from qpidha.pipeline.spark.ingest import follow, ingest
    from qpidha.pipeline.spark.lake import Lake as Tables

    tables = Tables(spark, lake)
    query = follow(tables, journals, seconds=trigger)

    def look(is_last: bool) -> Verdict:
        if query.exception() is not None:
            raise BadInput(f"the stream failed: {str(query.exception()).splitlines()[0]}")
        if is_last:
            query.processAllAvailable()
            query.stop()
            ingest(tables, journals)
        return check_lake(tables, _in_progress(settings, is_last), Asked(names, charts=is_last))

    try:
        return _looks(options, every, look)
    finally:
        if query.isActive:
            query.stop()


def _looks(options: Options, every: float, look: Callable[[bool], Verdict]) -> int:
    """Look until interrupted, and once more; return the exit code of the last verdict."""
    stopped = Interrupts()
    code = UNKNOWN
    while True:
        is_last = stopped.wait(every)
        begun = time.monotonic()
        try:
            verdict = look(is_last)
        except BadInput as error:
            # At first there is nothing; a stream that broke stays broken.
            if is_last or "stream failed" in str(error):
                raise
            talk(options, f"{time.strftime('%H:%M:%S')} nothing to judge yet: {error}")
            continue
        code = verdict.exit_code
        _print_line(options, verdict, time.monotonic() - begun)
        if is_last:
            return code


def _print_line(options: Options, verdict: Verdict, took: float) -> None:
    reasons = [
        f"{check.name}: {reason}"
        for check in verdict.checks
        if check.applies
        for reason in check.reasons
    ]
    if options.as_json:
        print_json(
            {
                "schema_version": 1,
                "t": int(time.time()),
                "valid": word(verdict.valid),
                "reasons": reasons,
                "took_s": round(took, 3),
            }
        )
    else:
        events = verdict.inputs.get("events", 0)
        why = "; ".join(reasons) or "nothing is wrong"
        print(
            f"{time.strftime('%H:%M:%S')} {_word(verdict.valid, applies=True)}: {events} "
            f"events, {why} ({took:.1f} s)"
        )
    sys.stdout.flush()


def _submit(
    context: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="-- COMMAND...", help="a command of the pipeline, such as check --lake DIR"
        ),
    ],
    master: Master = "",
    conf: Conf = None,
    zip_file: Annotated[
        Path, typer.Option("--zip", metavar="FILE", help="where this package goes, for the workers")
    ] = Path("qpidha.zip"),
    python: Annotated[
        str,
        typer.Option(
            "--python",
            metavar="PROGRAM",
            help="the workers' interpreter, in cluster mode the driver's too",
        ),
    ] = "",
    execute: Annotated[
        bool, typer.Option("--exec", help="run it, and return its exit code")
    ] = False,
) -> None:
    """Print the exact spark-submit line for a command of the pipeline, or run it.

    The workers need Python of the same minor version with pyarrow, and must see the files by
    the same paths. With spark.submit.deployMode=cluster the driver runs there as well: it needs
    qpidha[data], and the verdict is in its log.

    Example: qpid-ha pipeline submit --master spark://host:7077 -- check --lake hdfs:///lake
    """
    with _judging():
        try:
            from qpidha.pipeline.spark.session import package_zip, spark_submit
        except ImportError as error:
            raise Failure(
                BAD_INPUT, f"no Spark: {error}", hint="pip install 'qpidha[data]'"
            ) from error
        package = package_zip(zip_file.absolute())
    line = [shutil.which("spark-submit") or spark_submit()]
    line += ["--master", master] if master else []
    for each in [*_interpreters(python, conf or []), *(conf or [])]:
        line += ["--conf", each]
    line += ["--py-files", str(package), str(ENTRY), "pipeline", *words]
    if not execute:
        print(shlex.join(line))
        return
    talk(settings_of(context), shlex.join(line))
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(package), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    raise typer.Exit(subprocess.run(line, check=False).returncode)


def _interpreters(python: str, conf: list[str]) -> list[str]:
    """Which interpreter driver and workers take."""
    if "spark.submit.deployMode=cluster" in conf:
        # This machine's interpreter is not where the driver is.
        return ["spark.pyspark.python=" + python] if python else []
    return [
        "spark.pyspark.driver.python=" + sys.executable,
        "spark.pyspark.python=" + (python or sys.executable),
    ]
