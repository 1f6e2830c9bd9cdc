"""`python -m bench`: run the scenarios, print the report, write the results.

Reads the arguments, finds out which servers are installed, and cleans up after all of them. Warns
about everything that makes the figures less reliable: a plain build, a missing rival, a busy
machine.
"""

import argparse
import dataclasses
import shutil
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench.clients.exports import Exports
from bench.floors import Floors, build_floors
from bench.goals import judge
from bench.load import BenchError, Load, compile_load
from bench.machine import Quiet, YardBuild, core_split, machine_facts, probe_yard
from bench.redis_benchmark import (
    RedisBenchmark,
    find_redis_benchmark,
    redis_benchmark_version,
)
from bench.report import document, render, write_document
from bench.rivals import Bunqueue, find_bunqueue
from bench.run import Run, Settings, say
from bench.scenarios import SCENARIOS
from bench.servers import KINDS, Rivals, Stable
from bench.spark_worker import find_spark
from bench.streams import Streams, compile_streams
from bench.valkey import Valkey, find_valkey
from bench.wrk import Wrk, find_wrk, wrk_version

ROOT = Path(__file__).parent.parent
WORKSHOP = ROOT / "build" / "bench"  # on the same disk as the project, and not in git
RESULTS = ROOT / "bench" / "results"

QUICK = Settings(
    rounds=1,
    seconds=0.15,
    warm_seconds=0.05,
    warm_slow_seconds=0.05,
    jobs=10_000,
    jobs_few=100,
    tubes=1_000,
    topic_records=5_000,
    stream_seconds=0.3,
    triggers=6,
    warm_rounds=0,
)
# Above this share of a core used by other programs, the figures are distorted.
OTHERS_CORES_MAX = 0.05
# They take minutes to build, so only for a scenario that measures them.
FLOORS_OF = {"floor": ("bare", "echo"), "http": ("httpecho",)}
# Where each comes from, when it is missing.
RIVALS = {
    "beanstalkd": "Debian package beanstalkd",
    "bunqueue": "tools/bootstrap.sh bunqueue, needs npm",
    "valkey": "tools/bootstrap.sh valkey",
}
MEMORY_FILESYSTEMS = ("tmpfs", "ramfs")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit code."""
    asked = _parse(arguments)
    WORKSHOP.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=WORKSHOP))
    try:
        return _measure(asked, folder)
    except BenchError as error:
        say(f"bench: {error}")
        return 1
    finally:
        shutil.rmtree(folder)


def _measure(asked: argparse.Namespace, folder: Path) -> int:
    settings = _settings(asked)
    yard = probe_yard(ROOT)
    facts = machine_facts(ROOT, folder)
    cores = core_split() if asked.pin else None
    floors = _floors(asked)
    bunqueue = find_bunqueue(ROOT)
    valkey = find_valkey(ROOT)
    wrk = find_wrk()
    redis_benchmark = find_redis_benchmark()
    spark = find_spark(ROOT, yard.python_path if yard else None)
    load_cores = cores[1] if cores else None
    run = Run(
        settings,
        Stable(
            folder,
            python_path=yard.python_path if yard else None,
            cores=cores[0] if cores else None,
            floors=str(floors.folder) if floors else None,
            rivals=Rivals(bunqueue, valkey),
            doors=yard.doors if yard else (),
        ),
        Load(compile_load(WORKSHOP), load_cores),
        available=_available(
            yard,
            asked.servers,
            {"floor": floors, "bunqueue": bunqueue, "valkey": valkey},
        ),
        wrk=Wrk(wrk, load_cores) if wrk else None,
        streams=Streams(compile_streams(WORKSHOP), load_cores),
        redis_benchmark=RedisBenchmark(redis_benchmark, load_cores) if redis_benchmark else None,
        exports=Exports(load_cores),
        spark=spark,
    )
    facts |= {
        "jobyard": f"{yard.version} {yard.build}" if yard else None,
        "bunqueue": bunqueue.version() if bunqueue else None,
        "valkey": valkey.version() if valkey else None,
        "wrk": wrk_version(wrk) if wrk else None,
        "redis_benchmark": redis_benchmark_version(redis_benchmark) if redis_benchmark else None,
        "spark": spark.version() if spark else None,
        "pinned": cores is not None,
    }
    _note_doubts(run, asked, yard, floors, facts)
    quiet = Quiet()
    for name in asked.scenarios:
        SCENARIOS[name](run)
    facts["others_cores"] = round(quiet.others_cores(), 3)
    if quiet.others_cores() > OTHERS_CORES_MAX:
        run.note(f"NOT QUIET: other programs used {facts['others_cores']} cores during this run")
    verdicts = judge(run.figures)
    print(render(facts, run.figures, verdicts, run.notes))
    asked_for = dataclasses.asdict(settings) | {"quick": asked.quick, "scenarios": asked.scenarios}
    found = document(facts, asked_for, run.figures, verdicts, run.notes)
    results = asked.results or (WORKSHOP / "results" if asked.quick else RESULTS)
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    say(f"written: {write_document(found, facts, results, date)}")
    return 0


def _floors(asked: argparse.Namespace) -> Floors | None:
    wanted = {name for scenario in asked.scenarios for name in FLOORS_OF.get(scenario, ())}
    if wanted.isdisjoint(asked.servers):
        return None
    say("building the floors")
    return build_floors(WORKSHOP / "floors", ROOT)


def _note_doubts(
    run: Run,
    asked: argparse.Namespace,
    yard: YardBuild | None,
    floors: Floors | None,
    facts: dict[str, object],
) -> None:
    """Report everything that makes this run less reliable, before the measurements start."""
    if asked.quick:
        run.note("QUICK RUN: a test that everything runs; its figures mean nothing")
    if yard is None:
        run.note("NO YARD: jobyard cannot be imported, only rivals are measured")
    elif not yard.is_compiled:
        run.note(f"NOT COMPILED: this is the {yard.build} build, which is much slower")
    for door in sorted({"bunqueue", "glidemq", "http"}.difference(yard.doors) if yard else ()):
        run.note(f"NO DOOR: this build does not speak {door}; only other servers are measured")
    if floors is not None and floors.doubt:
        run.note(f"NO FLOOR: {floors.doubt}")
    for name, where in RIVALS.items():
        if facts[name] is None:
            run.note(f"NO RIVAL: {name} is not installed ({where})")
    if not facts["pinned"]:
        run.note("NOT PINNED: server and load may share a core, which changes 1x1 threefold")
    if facts["filesystem"] in MEMORY_FILESYSTEMS:
        run.note(f"NO DISK: {facts['filesystem']} is in memory; durable figures mean nothing")


def _available(
    yard: YardBuild | None,
    wanted: list[str],
    found: dict[str, Floors | Bunqueue | Valkey | None],
) -> frozenset[str]:
    programs = {name for name, program in found.items() if program is not None}
    if shutil.which("beanstalkd"):
        programs.add("beanstalkd")
    if yard is not None:
        programs.add("jobyard")
    doors = (*yard.doors, "all") if yard else ()
    return frozenset(
        name
        for name in wanted
        if KINDS[name].program in programs
        and (KINDS[name].program != "jobyard" or KINDS[name].door in doors)
    )


def _settings(asked: argparse.Namespace) -> Settings:
    given = {"rounds": asked.rounds, "seconds": asked.seconds, "jobs": asked.jobs}
    changes = {name: value for name, value in given.items() if value is not None}
    return dataclasses.replace(QUICK if asked.quick else Settings(), **changes)


def _names(known: Sequence[str], text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}")
    return names


def _at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="only check that everything runs, in seconds")
    add(
        "--scenarios",
        type=lambda text: _names(list(SCENARIOS), text),
        default=list(SCENARIOS),
        metavar="NAME,...",
        help=f"comma-separated list of {', '.join(SCENARIOS)}",
    )
    add(
        "--servers",
        type=lambda text: _names(list(KINDS), text),
        default=list(KINDS),
        metavar="NAME,...",
        help=f"comma-separated list of {', '.join(KINDS)}",
    )
    add("--rounds", type=_at_least_one, help="measurements per server (default 3)")
    add("--seconds", type=float, help="length of each measurement in seconds (default 1.2)")
    add("--jobs", type=_at_least_one, help="waiting jobs in the large scenarios (default 1000000)")
    add("--results", type=Path, metavar="DIR", help="folder for the JSON (default bench/results)")
    add(
        "--no-pin",
        dest="pin",
        action="store_false",
        help="let the kernel choose the cores for server and load",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
