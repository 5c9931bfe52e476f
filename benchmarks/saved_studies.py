"""What many and large saved studies cost: listing thousands, and the memory for one of a thousand cells.

Documents are those of a small study of the engine `fake`, copied with other IDs and times, and the same with
its cell a thousand times over, with as many samples as a default study has. Listing is timed in fresh
processes, with the index made before, less the listing of an empty folder. Memory is the most that a process
of the program had resident: of `view` while it made a page of each kind. Nothing is trained.

    python benchmarks/saved_studies.py [--studies 10000] [--cells 1000]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from _report import Figure, report

_REPEATS = 5
_MEBIBYTE = 1 << 20
_SAMPLES = (5, 5, 29)
"""Processes, rounds, steps of a default study of `lenet`."""
_IDS = ("before", "after")
"""Of the two large studies."""
_FIGURES = ("speed", "steps", "distributions", "startup", "allocations")
"""Those of a study that these have something for."""
_INTERRUPTED = 130
"""With which `view` ends."""


def write_studies(folder: Path, studies: int, cells: int) -> int:
    """Both folders, `many` and `large`; returns the most bytes that this process had resident."""
    import msgspec

    from polybench.core.document.study import to_json
    from polybench.core.document.times import Samples
    from polybench.core.spec import Study
    from polybench.measuring.progress import Silent
    from polybench.measuring.study import run_study
    from polybench.report.saved_studies import Store

    study = Study(("fake",), ("cpu",), data="synthetic", batch_size=16, processes=2, rounds=2, steps=5)
    document = run_study(study, Silent(), store=None)
    (folder / "many").mkdir()
    for copy in range(studies):
        day, minute = divmod(copy, 1440)
        created = f"2026-{1 + day // 28:02d}-{1 + day % 28:02d}T{minute // 60:02d}:{minute % 60:02d}:00Z"
        again = msgspec.structs.replace(document, id=f"{created[:10]}-{copy:05d}", created=created)
        # Not through the store, which waits for the disk each time.
        (folder / "many" / f"{again.id}.json").write_bytes(to_json(again))
    processes, rounds, steps = _SAMPLES
    (cell,) = document.results
    for id, step in zip(_IDS, (0.01, 0.011), strict=True):
        results = []
        for number in range(2, cells + 2):
            seconds = [
                [[step * (1 + 0.01 * p + 1e-6 * (r + s)) for s in range(steps)] for r in range(rounds)]
                for p in range(processes)
            ]
            samples = Samples("step", 1, seconds)
            results.append(msgspec.structs.replace(cell, cell=f"fake/cpu#{number}", samples=samples))
        Store(folder / "large").save(msgspec.structs.replace(document, id=id, results=results))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def started(*arguments: str, cache: Path, stdout: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    """The program in a fresh process."""
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    command = [sys.executable, "-m", "polybench", *arguments]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, env=environment, text=True)


def ended(process: subprocess.Popen[str], code: int = 0) -> tuple[float, int]:
    """Its CPU seconds, and the most bytes that it had resident; exits where it ended with another code."""
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != code:
        sys.exit(f"{process.args} ended with {process.returncode}: {said}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def cpu_seconds(*arguments: str, cache: Path) -> tuple[float, int]:
    """Of the program in a fresh process, with the most bytes that it had resident."""
    return ended(started(*arguments, cache=cache))


def viewing_peak(pages: Sequence[str], *where: str, cache: Path) -> int:
    """The most bytes that `polybench view` had resident when it had made these pages, one after the other."""
    process = started("view", "--no-browser", *where, cache=cache, stdout=subprocess.PIPE)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    try:
        for page in pages:
            with urllib.request.urlopen(f"{address}{page}") as answer:  # raises for what is not OK
                answer.read()
    finally:
        process.send_signal(signal.SIGINT)
    _, peak = ended(process, code=_INTERRUPTED)
    return peak


def _memory(what: str, peak: int) -> Figure:
    return Figure(f"{what}: MiB", peak / _MEBIBYTE, "at most 500", peak <= 500 * _MEBIBYTE)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=10_000)
    parser.add_argument("--cells", type=int, default=1000)
    options = parser.parse_args()
    figures = []
    # A process of its own: what this one has resident would count in each of its children.
    with (
        tempfile.TemporaryDirectory(prefix="polybench-benchmark-") as name,
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool,
    ):
        folder, cache = Path(name), Path(name) / "cache"
        own = pool.submit(write_studies, folder, options.studies, options.cells).result()
        figures.append(_memory(f"making and storing {options.cells} cells", own))
        many, large, none = (("--results", str(folder / part)) for part in ("many", "large", "none"))
        first, _ = cpu_seconds("list", *many, cache=cache)
        figures.append(Figure(f"first list of {options.studies}: CPU seconds", first))
        for format in ("table", "json"):
            pairs = [
                [cpu_seconds("list", "--format", format, *where, cache=cache)[0] for where in (many, none)]
                for _ in range(_REPEATS)
            ]
            value = statistics.median(listing - start for listing, start in pairs)
            figures.append(
                Figure(f"list, {format}: CPU seconds beside the start", value, "below 1", value < 1)
            )
        (_, after), csv = _IDS, ("--format", "csv")
        for what in (("list",), ("show", after), ("show", after, *csv), ("diff", *_IDS)):
            _, peak = cpu_seconds(*what, *large, cache=cache)
            figures.append(_memory(f"{' '.join(what)}, {options.cells} cells", peak))
        page = ("-o", str(folder / "page.html"))
        drawn = [("plot", after, "--figure", name) for name in _FIGURES]
        for shown in (("report", after), ("report", *_IDS), *drawn):
            _, peak = cpu_seconds(*shown, *page, *large, cache=cache)
            figures.append(_memory(f"{' '.join(shown)}, {options.cells} cells", peak))
        pages = ("", f"report?id={after}", "diff?a=before&b=after", "history")
        peak = viewing_peak(pages, *large, cache=cache)
        figures.append(_memory(f"view, a page of each kind, {options.cells} cells", peak))
    report("saved_studies", figures, studies=options.studies, cells=options.cells)


if __name__ == "__main__":
    main()
