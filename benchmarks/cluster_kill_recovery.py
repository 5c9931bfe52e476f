"""Kill drivers at random moments, and check what is left and whether the run is completed.

A study of the engine `fake` on two machines runs with `--on`; its driver is killed (SIGKILL) some time after
one of its first stages. Everything that it started must end, and `--resume` must complete both
studies: every row, no process run measured twice, and the document lists what was finished before.
Prints the findings; ends with 1 if something was lost, measured twice, or left running.

    python benchmarks/cluster_kill_recovery.py [--times 20] [--seed 0] [--on local]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from _faults import write_images

from polybench.schema.study import StudyDocument
from polybench.storage.store import Store

_PROCESSES = 3
_STUDY = f"""
engines = ["fake", "fake+slow"]
data = "{{data}}"
batch_size = 16
processes = {_PROCESSES}
rounds_per_process = 1
steps_per_round = 3
parity = false
wait_idle = 0
metrics = false

[[machines]]
label = "a"

[[machines]]
label = "b"
"""
_BEGINS = re.compile(r"(\w): process (\d+) of \d+: starting")


def killed_once(command: list[str], draw: random.Random) -> tuple[dict[str, int], list[str]]:
    """Process runs of each machine that had arrived, and processes that still run."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as driver:
        assert driver.stderr is not None
        finished: dict[str, int] = {}
        for _ in range(draw.randrange(1, 18)):
            if begun := _BEGINS.match(driver.stderr.readline()):
                finished[begun[1]] = int(begun[2]) - 1
        time.sleep(draw.random() * 0.3)
        started = psutil.Process(driver.pid).children(recursive=True)
        driver.send_signal(signal.SIGKILL)
        for line in driver.stderr:  # its output so far
            if begun := _BEGINS.match(line):
                finished[begun[1]] = int(begun[2]) - 1
    _, alive = psutil.wait_procs(started, timeout=15)
    return finished, [f"still runs: {' '.join(one.cmdline())}" for one in alive]


def resumed(command: list[str], results: Path, finished: dict[str, int]) -> tuple[list[str], int]:
    """Return the findings, and how many process runs had arrived before."""
    again = subprocess.run([*command, "--resume"], capture_output=True, text=True, check=False)
    nothing = "no unfinished study" in again.stderr
    if nothing and not any(finished.values()):
        again = subprocess.run(command, capture_output=True, text=True, check=False)
    found = [f"ended with {again.returncode}: {again.stderr[-300:]}"] if again.returncode else []
    begun = [(one[1], int(one[2])) for one in map(_BEGINS.match, again.stderr.splitlines()) if one]
    found += [
        f"{label}: process {number} was measured twice" for label, number in begun if number <= finished.get(label, 0)
    ]
    documents: dict[str, StudyDocument] = {}
    for document in Store(results).studies():
        documents[document.machine_label or ""] = document
    arrived = 0
    for label in "ab":
        document = documents.get(label)
        rows = [(row.status, len(row.nested_step_times)) for row in document.results] if document else []
        if rows != [("ok", _PROCESSES)] * 2 or not document or not document.finished:
            found.append(f"{label}: {rows}")
        said = document.resumed[-1].processes if document and document.resumed else None
        first = next((number for name, number in begun if name == label), None)
        if said is not None and first is not None and said != first - 1:
            found.append(f"{label}: the document says {said} processes, and process {first} was next")
        arrived += _PROCESSES if first is None else first - 1
    if (results / "unfinished").exists():
        found.append("something is still said to be unfinished")
    return found, arrived


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--on", default="local")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    problems: list[str] = []
    arrived = 0
    with tempfile.TemporaryDirectory(prefix="polybench-benchmark-") as name:
        folder = Path(name)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        write_images(folder / "images")
        study = folder / "study.toml"
        study.write_text(_STUDY.format(data=folder / "images"))
        for number in range(options.times):
            results = folder / f"results-{number}"
            command = [sys.executable, "-m", "polybench", "run", str(study), "--on", options.on, "--verbose"]
            command += ["--results", str(results)]
            finished, found = killed_once(command, draw)
            more, came = resumed(command, results, finished)
            arrived += came
            problems += [f"{number}: {text}" for text in [*found, *more]]
            print(
                f"{number + 1} of {options.times}: {came} process runs had arrived, {len(problems)} findings",
                file=sys.stderr,
            )
    print(
        f"killed {options.times} times on {options.on}: {arrived} process runs had arrived, findings: {len(problems)}"
    )
    print("\n".join(problems), end="\n" * bool(problems))
    result = {"benchmark": "cluster_kill_recovery", "times": options.times, "arrived": arrived, "wrong": problems}
    print(json.dumps(result), flush=True)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
