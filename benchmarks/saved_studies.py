"""Measure the cost of many and large saved studies: listing thousands, and memory for one of a thousand configurations.

Documents are copies of a small study of the engine `fake` with other IDs and times. The large ones have
a thousand configurations and as many step times as a default study. Listing is timed in fresh
processes, with an existing index, minus the listing of an empty folder. Memory is the peak resident set of a process
of the program. Nothing is trained.

    python benchmarks/saved_studies.py [--studies 10000] [--configurations 1000]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from _report import Figure, report

_REPEATS = 5
_MEBIBYTE = 1 << 20
_SAMPLES = (5, 5, 29)
"""Processes, rounds, steps of a default study of `lenet`."""
_IDS = ("before", "after")
"""IDs of the two large studies."""
_FIGURES = ("speed", "step_times", "distributions", "startup", "allocations")
"""Figures that these studies have."""


def write_studies(folder: Path, studies: int, configurations: int) -> int:
    """Write both folders, `many` and `large`; return the peak resident bytes of this process."""
    import msgspec

    from polybench.run import run_study
    from polybench.runner.progress import NullProgress
    from polybench.schema.options import Study
    from polybench.schema.result import StepTimes
    from polybench.schema.study import to_json
    from polybench.storage.store import Store

    study = Study(
        ("fake",), ("cpu",), data="synthetic", batch_size=16, processes=2, rounds_per_process=2, steps_per_round=5
    )
    document = run_study(study, NullProgress(), store=None)
    (folder / "many").mkdir()
    for copy in range(studies):
        day, minute = divmod(copy, 1440)
        created = f"2026-{1 + day // 28:02d}-{1 + day % 28:02d}T{minute // 60:02d}:{minute % 60:02d}:00Z"
        again = msgspec.structs.replace(document, id=f"{created[:10]}-{copy:05d}", created=created)
        # Not through the store, which waits for the disk each time.
        (folder / "many" / f"{again.id}.json").write_bytes(to_json(again))
    processes, rounds, steps = _SAMPLES
    (configuration,) = document.results
    for id, step in zip(_IDS, (0.01, 0.011), strict=True):
        results = []
        for number in range(2, configurations + 2):
            seconds = [
                [[step * (1 + 0.01 * p + 1e-6 * (r + s)) for s in range(steps)] for r in range(rounds)]
                for p in range(processes)
            ]
            samples = StepTimes("step", 1, seconds)
            results.append(
                msgspec.structs.replace(configuration, configuration=f"fake/cpu#{number}", step_times=samples)
            )
        Store(folder / "large").save(msgspec.structs.replace(document, id=id, results=results))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def cpu_seconds(*arguments: str, cache: Path) -> tuple[float, int]:
    """Return CPU seconds and peak resident bytes of the program in a fresh process; exit if it fails."""
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    command = [sys.executable, "-m", "polybench", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, text=True)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{process.args} ended with {process.returncode}: {said}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def _memory(what: str, peak: int) -> Figure:
    return Figure(f"{what}: MiB", peak / _MEBIBYTE, "at most 500", peak <= 500 * _MEBIBYTE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=10_000)
    parser.add_argument("--configurations", type=int, default=1000)
    options = parser.parse_args()
    figures = []
    # In a process of its own, because each child would inherit this one's peak.
    with (
        tempfile.TemporaryDirectory(prefix="polybench-benchmark-") as name,
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool,
    ):
        folder, cache = Path(name), Path(name) / "cache"
        own = pool.submit(write_studies, folder, options.studies, options.configurations).result()
        figures.append(_memory(f"making and storing {options.configurations} configurations", own))
        many, large, none = (("--results", str(folder / part)) for part in ("many", "large", "none"))
        first, _ = cpu_seconds("list", *many, cache=cache)
        figures.append(Figure(f"first list of {options.studies}: CPU seconds", first))
        for format in ("table", "json"):
            pairs = [
                [cpu_seconds("list", "--format", format, *where, cache=cache)[0] for where in (many, none)]
                for _ in range(_REPEATS)
            ]
            value = statistics.median(listing - start for listing, start in pairs)
            figures.append(Figure(f"list, {format}: CPU seconds beside the start", value, "below 1", value < 1))
        (_, after), csv = _IDS, ("--format", "csv")
        for what in (("list",), ("show", after), ("show", after, *csv), ("diff", *_IDS)):
            _, peak = cpu_seconds(*what, *large, cache=cache)
            figures.append(_memory(f"{' '.join(what)}, {options.configurations} configurations", peak))
        page = ("-o", str(folder / "page.html"))
        drawn = [("plot", after, "--figure", name) for name in _FIGURES]
        for shown in (("report", after), ("report", *_IDS), *drawn):
            _, peak = cpu_seconds(*shown, *page, *large, cache=cache)
            figures.append(_memory(f"{' '.join(shown)}, {options.configurations} configurations", peak))
        _, peak = cpu_seconds("report", "--all", "-o", str(folder / "pages"), *large, cache=cache)
        figures.append(_memory(f"report --all, {options.configurations} configurations", peak))
    report("saved_studies", figures, studies=options.studies, configurations=options.configurations)


if __name__ == "__main__":
    main()
