"""Measure the cost of many and large saved studies: listing thousands, and memory for one of a thousand configurations.

Logs are copies of one of a small study of the engine `fake` with other IDs and times. The large ones have
a thousand configurations and as many step times as a default study. Listing is timed in fresh
processes, minus the listing of an empty folder. Memory is the peak resident set of a process
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
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from _report import Figure, report

if TYPE_CHECKING:
    from polybench.log import AnyEvent

_REPEATS = 5
_MEBIBYTE = 1 << 20
_SAMPLES = (5, 5, 29)
"""Processes, rounds, steps of a default study of `lenet`."""
_IDS = {"before": 1.0, "after": 1.1}
"""IDs of the two large studies, and factors of their step times."""
_FIGURES = ("speed", "step_times", "distributions", "startup", "allocations")
"""Figures that these studies have."""


def write_studies(folder: Path, studies: int, configurations: int) -> int:
    """Write both folders, `many` and `large`; return the peak resident bytes of this process."""
    import msgspec

    from polybench.log import Header, encode_line

    header, *events = measure(folder / "own", 2, 2, 5)
    assert isinstance(header, Header)
    rest = b"".join(map(encode_line, events))
    (folder / "many").mkdir()
    for copy in range(studies):
        day, minute = divmod(copy, 1440)
        created = f"2026-{1 + day // 28:02d}-{1 + day % 28:02d}T{minute // 60:02d}:{minute % 60:02d}:00Z"
        again = msgspec.structs.replace(header, id=f"{created[:10]}-{copy:05d}", created=created)
        (folder / "many" / f"{again.id}.jsonl").write_bytes(encode_line(again) + rest)
    header, *events = measure(folder / "own", *_SAMPLES)
    assert isinstance(header, Header)
    (folder / "large").mkdir()
    for id, factor in _IDS.items():
        with (folder / "large" / f"{id}.jsonl").open("wb") as file:
            file.write(encode_line(msgspec.structs.replace(header, id=id)))
            for event in events:
                file.writelines(map(encode_line, repeat(event, configurations, factor)))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(folder: Path, processes: int, rounds: int, steps: int) -> list[AnyEvent]:
    """Measure the engine `fake`, and return the events of its log."""
    from polybench.log import read_log
    from polybench.run import run_study
    from polybench.runner.progress import NullProgress
    from polybench.schema.options import Study
    from polybench.storage.store import Store

    blocks = {"processes": processes, "rounds_per_process": rounds, "steps_per_round": steps}
    study = Study(("fake",), ("cpu",), data="synthetic", batch_size=16, **blocks)
    document = run_study(study, NullProgress(), store=Store(folder))
    return read_log(Store(folder).log_path(document.id))


def repeat(event: AnyEvent, configurations: int, factor: float) -> Iterator[AnyEvent]:
    """Yield the event of each of as many configurations, whose steps take longer by a factor."""
    from msgspec.structs import replace

    from polybench.log import BlockTimed, OfConfiguration, SettingsChosen, StudyEnded

    numbers = range(2, configurations + 2)
    match event:
        case SettingsChosen(configurations=[one]):
            repeated = [replace(one, configuration=replace(one.configuration, repeat=number)) for number in numbers]
            yield replace(event, configurations=repeated)
        case StudyEnded():
            seconds, result = factor * event.step_seconds["fake/cpu"], event.results["fake/cpu"]
            names = [f"fake/cpu#{number}" for number in numbers]
            yield replace(event, step_seconds=dict.fromkeys(names, seconds), results=dict.fromkeys(names, result))
        case BlockTimed():
            seconds = [factor * one for one in event.step_seconds]
            yield from (replace(event, configuration=f"fake/cpu#{number}", step_seconds=seconds) for number in numbers)
        case _ if isinstance(event, OfConfiguration):
            yield from (replace(event, configuration=f"fake/cpu#{number}") for number in numbers)
        case _:
            yield event


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
