"""Kill studies at random moments, while another process lists them, and check what is left.

A study of the engine `fake` in a shared results folder is killed (SIGKILL) some time
after one of its first stages; so is a process that lists the folder again and again and updates the index.
Then everything that the study reported as finished must be in its document, every document must be readable, and the
index must match the documents. Prints the findings; ends with 1 if something was lost.

    python benchmarks/kill_recovery.py [--times 100] [--seed 0]
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

import numpy as np

from polybench.schema.study import from_json
from polybench.storage.store import Store
from polybench.storage.study_index import StudyIndex
from polybench.storage.study_summary import summarize_study

_STUDY = (
    "compare",
    "--engines",
    "fake,fake+slow",
    "--processes",
    "3",
    "--rounds-per-process",
    "1",
    "--steps-per-round",
    "3",
)
_STUDY += ("--batch-size", "16", "--no-metrics", "--no-parity", "--verbose")
_LISTING = "import sys, time; from pathlib import Path; from polybench.storage.store import Store\n"
_LISTING += "while True: Store(Path(sys.argv[1])).listed(); time.sleep(0.02)"


def write_images(folder: Path) -> None:
    """Write a hundred images in CIFAR-10's format."""
    folder.mkdir()
    for number in range(1, 6):
        np.zeros((20, 1 + 3 * 32 * 32), np.uint8).tofile(folder / f"data_batch_{number}.bin")


def kill_one(folder: Path, draw: random.Random) -> int:
    """Return how many processes of each configuration the study reported as finished."""
    listing = subprocess.Popen([sys.executable, "-c", _LISTING, str(folder / "results")])
    command = [sys.executable, "-m", "polybench", *_STUDY, "--data", str(folder / "images")]
    command += ["--results", str(folder / "results"), "--output", os.devnull]
    finished = 0
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as study:
        assert study.stderr is not None
        for _ in range(draw.randrange(1, 12)):
            line = study.stderr.readline()
            if begun := re.match(r"process (\d+) of \d+: starting", line):
                finished = int(begun[1]) - 1
        time.sleep(draw.random() * 0.3)
        for process in draw.sample([study, listing], 2):
            process.send_signal(signal.SIGKILL)
        listing.wait()
    return finished


def lost(folder: Path, finished: int, known: set[Path]) -> list[str]:
    """Return the findings."""
    found = []
    paths = set((folder / "results").glob("*.json"))
    for path in paths - known:
        document = from_json(path.read_bytes())
        saved = [len(result.nested_step_times) for result in document.results]
        if any(number < finished for number in saved):
            found.append(f"{path.name}: {finished} processes were finished, {saved} are saved")
    if finished and not paths - known:
        found.append(f"{finished} processes were finished, nothing is saved")
    as_read = [summarize_study(path.stem, path.read_bytes(), path.stat().st_mtime) for path in paths]
    found += [f"{one.file}: {one.unreadable_reason}" for one in as_read if one.unreadable_reason]
    if sorted(as_read, key=lambda one: (one.started_at, one.file)) != Store(folder / "results").summaries():
        found.append("the index contradicts the documents")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    problems: list[str] = []
    saved = rebuilt = 0
    with tempfile.TemporaryDirectory(prefix="polybench-benchmark-") as name:
        folder = Path(name)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        write_images(folder / "images")
        (folder / "results").mkdir()
        for number in range(options.times):
            known = set((folder / "results").glob("*.json"))
            finished = kill_one(folder, draw)
            saved += finished
            index = StudyIndex(folder / "results").path
            if index.exists() and number % 10 == 9:  # sometimes corrupt the index as well
                index.write_bytes(index.read_bytes()[: draw.randrange(5000)])
                rebuilt += 1
            problems += lost(folder, finished, known)
            print(f"{number + 1} of {options.times}: {len(problems)} lost", file=sys.stderr)
        documents = len(list((folder / "results").glob("*.json")))
    print(f"killed {options.times} times: {documents} documents, {saved} finished processes of two configurations")
    print(f"the index was damaged {rebuilt} times besides; lost: {len(problems)}")
    print("\n".join(problems), end="\n" * bool(problems))
    result = {"benchmark": "killed", "times": options.times, "documents": documents, "lost": problems}
    print(json.dumps(result), flush=True)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
