"""What is left of studies that are killed at random moments, while another process lists them.

A study of the engine `fake` in a folder of results that all of them share is killed (SIGKILL) some time
after one of its first stages; so is a process that lists the folder again and again, which keeps the index.
Then all that the study said it had finished must be in its document, every document must be readable, and the
index must say what the documents say. Prints what was found, and ends with 1 where something was lost.

    python benchmarks/killed.py [--times 100] [--seed 0]
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

from polybench.core.document.study import from_json
from polybench.report.listed import listed
from polybench.report.saved_studies import Store
from polybench.report.study_index import StudyIndex

_STUDY = ("compare", "--engines", "fake,fake+slow", "--processes", "3", "--rounds", "1", "--steps", "3")
_STUDY += ("--batch-size", "16", "--no-metrics", "--no-parity", "--verbose")
_LISTING = "import sys, time; from pathlib import Path; from polybench.report.saved_studies import Store\n"
_LISTING += "while True: Store(Path(sys.argv[1])).listed(); time.sleep(0.02)"


def write_images(folder: Path) -> None:
    """A hundred, as CIFAR-10's own files."""
    folder.mkdir()
    for number in range(1, 6):
        np.zeros((20, 1 + 3 * 32 * 32), np.uint8).tofile(folder / f"data_batch_{number}.bin")


def kill_one(folder: Path, draw: random.Random) -> int:
    """Returns how many processes of each cell the study had finished, as far as it said so."""
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
    """What is not as it should be."""
    found = []
    paths = set((folder / "results").glob("*.json"))
    for path in paths - known:
        document = from_json(path.read_bytes())
        saved = [len(result.steps) for result in document.results]
        if any(number < finished for number in saved):
            found.append(f"{path.name}: {finished} processes were finished, {saved} are saved")
    if finished and not paths - known:
        found.append(f"{finished} processes were finished, nothing is saved")
    as_read = [listed(path.stem, path.read_bytes(), path.stat().st_mtime) for path in paths]
    found += [f"{one.file}: {one.unreadable}" for one in as_read if one.unreadable]
    if sorted(as_read, key=lambda one: (one.when, one.file)) != Store(folder / "results").listed():
        found.append("the index does not say what the documents say")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
            if index.exists() and number % 10 == 9:  # and now and then it is damaged besides
                index.write_bytes(index.read_bytes()[: draw.randrange(5000)])
                rebuilt += 1
            problems += lost(folder, finished, known)
            print(f"{number + 1} of {options.times}: {len(problems)} lost", file=sys.stderr)
        documents = len(list((folder / "results").glob("*.json")))
    print(f"killed {options.times} times: {documents} documents, {saved} finished processes of two cells")
    print(f"the index was damaged {rebuilt} times besides; lost: {len(problems)}")
    print("\n".join(problems), end="\n" * bool(problems))
    result = {"benchmark": "killed", "times": options.times, "documents": documents, "lost": problems}
    print(json.dumps(result), flush=True)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
