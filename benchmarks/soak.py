"""Run many studies of the engine `fake` with one fault each at a random moment, and check that nothing is lost.

`FAULTS` has the possible faults. After each study: no process, scratch folder or half-written file is left;
what was measured is printed or saved, and both are complete; the list of a process that lists the studies, and is
killed as well, matches the logs; the configuration without a fault is measured;
and an interrupted study can be resumed and completed without losing anything. A finding names the study's
number: `--seed` and `--only` repeat it if the machine is similarly fast.

    python benchmarks/soak.py [--studies 200] [--seconds 1200] [--seed 0] [--only NUMBER]
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
from _faults import FAULTS, Fault, restore_signals, workers, write_images

from polybench.runner.resume import unfinished_ids
from polybench.schema.study import StudyDocument, from_json
from polybench.storage.store import Store

BATCH_SIZE = 16
PROCESSES = 2
OPTIONS = (
    f"--engines fake,fake+slow --batch-size {BATCH_SIZE} --processes {PROCESSES} --rounds-per-process 2"
    " --steps-per-round 3"
    " --epochs 1 --no-parity --format json --timeout 20s"
).split()
LISTING = "import sys, time; from pathlib import Path; from polybench.storage.store import Store\n"
LISTING += "while True: Store(Path(sys.argv[1])).summaries(); time.sleep(0.02)"
"""A program that lists the studies again and again, and updates their index; it is killed with the study."""
LONGEST_SECONDS = 120.0
"""Maximum seconds of a study with any fault: a hanging worker times out after 20 s and is killed within 6."""


class Ended(NamedTuple):
    """A finished study: its exit code and its output."""

    code: int
    out: bytes
    errors: str

    @property
    def printed(self) -> StudyDocument | None:
        """Read the document; None if the study ended before measuring; raise if the document is incomplete."""
        return from_json(self.out) if self.out else None


class Place(NamedTuple):
    """Folders of the soak test itself, so that the user's studies are not touched."""

    root: Path

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for the program."""
        own = {f"XDG_{name}_HOME": str(self.root / name.lower()) for name in ("CACHE", "DATA", "CONFIG")}
        return os.environ | own | {"NO_COLOR": "1", "TMPDIR": str(self.root / "tmp")}

    @property
    def scratch(self) -> list[Path]:
        """Scratch folders of running or ended studies."""
        return [*(self.root / "cache" / "polybench").glob("scratch-*")]

    def start(self, results: Path, *arguments: str) -> subprocess.Popen[bytes]:
        """Start the program; its progress goes to a file that nothing needs to read.

        Its output goes into a pipe, which holds a small study's document, because a file would be affected by a
        full disk.
        """
        command = [sys.executable, "-m", "polybench", *arguments, "--results", str(results)]
        with (self.root / results.name).with_suffix(".errors").open("wb") as errors:
            return subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=self.environment,
                preexec_fn=restore_signals,  # noqa: PLW1509 - no threads here
            )

    def end(self, process: subprocess.Popen[bytes], results: Path) -> Ended:
        """Wait for it; raise subprocess.TimeoutExpired if it hangs."""
        code = process.wait(LONGEST_SECONDS)
        errors = (self.root / results.name).with_suffix(".errors").read_text("utf-8", "replace")
        assert process.stdout is not None
        with process.stdout as out:
            return Ended(code, out.read(), errors)


def soak(place: Place, number: int, seed: int, seconds: float) -> tuple[str, list[str]]:
    """Run one study with a fault.

    Args:
        place: the folders.
        number: number of the study.
        seed: seed of the soak test.
        seconds: duration of a study without a fault on this machine.

    Returns:
        The fault, and the findings.
    """
    draw = random.Random(f"{seed}-{number}")
    name = draw.choice(sorted(FAULTS))
    results = place.root / f"study-{number}"
    process = place.start(results, "compare", *OPTIONS, "--data", str(place.root / "images"))
    listing = subprocess.Popen([sys.executable, "-c", LISTING, str(results)], stderr=subprocess.DEVNULL)
    errors = (place.root / results.name).with_suffix(".errors")
    _wait_for(lambda: errors.stat().st_size > 0 or process.poll() is not None)
    time.sleep(draw.uniform(0, seconds))
    fault = FAULTS[name]
    for act in draw.sample([lambda: fault.act(process.pid, results, draw), listing.kill], 2):
        act()
    listing.wait()
    try:
        ended = place.end(process, results)
        findings = [*_left(place, process.pid, results, fault), *_lost(place, ended, results, fault)]
    except (subprocess.TimeoutExpired, msgspec.MsgspecError) as error:
        process.kill()
        findings = [f"{type(error).__name__}: {error}"]
    if not findings:
        shutil.rmtree(results, ignore_errors=True)
    return name, findings


def _wait_for(ready: Callable[[], bool], seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def _left(place: Place, pid: int, results: Path, fault: Fault) -> Iterator[str]:
    if not _wait_for(lambda: not workers(pid), 15.0):
        yield f"workers are left: {workers(pid)}"
    if fault.kills_parent:
        for folder in place.scratch:
            os.utime(folder, (0, 0))  # old enough for the next study to remove it
        return
    if place.scratch:
        yield f"scratch is left: {place.scratch}"
    if half := [*results.rglob(".*")]:
        yield f"half-written files are left: {half}"


def _lost(place: Place, ended: Ended, results: Path, fault: Fault) -> Iterator[str]:
    if "Traceback" in ended.errors:
        yield f"a traceback: {ended.errors[-2000:]}"
    if not fault.kills_parent and ended.code not in (0, 1, 130):
        yield f"exit code {ended.code}: {ended.errors[-500:]}"
    saved = list(Store(results).studies())
    printed = None if fault.kills_parent else ended.printed
    if printed is not None:
        if not any(result.status == "ok" and result.is_measured for result in printed.results) and ended.code == 1:
            yield "both configurations failed, but only one had a fault"
        told = any("cannot write to" in text for text in printed.warnings)
        # If the folder vanishes after saving, the document is gone; this cannot be detected.
        told = told or (fault is FAULTS["results vanish"] and not saved)
        if not told and [document.id for document in saved if document == printed] != [printed.id]:
            yield "what is saved is not what was printed"
    if len(Store(results).summaries()) != len(saved):
        yield "the list contradicts the logs"
    unfinished = unfinished_ids(Store(results))
    if ended.code == 0 and unfinished:
        yield f"a finished study can be resumed: {unfinished}"
    for id in unfinished:
        before = next((document for document in saved if document.id == id), None)
        yield from _not_resumed(place, id, results, before)


def _not_resumed(place: Place, id: str, results: Path, before: StudyDocument | None) -> Iterator[str]:
    ended = place.end(place.start(results, "resume", id, "--format", "json"), results)
    after = ended.printed
    if ended.code not in (0, 1) or after is None:
        yield f"cannot be resumed ({ended.code}): {ended.errors[-1000:]}"
        return
    for result in after.results:
        if result.status != "failed" and [len(process) for process in result.nested_step_times] != [2] * PROCESSES:
            yield f"{result.configuration} is not complete: {[len(process) for process in result.nested_step_times]}"
        saved = before.result(result.configuration).nested_step_times[: after.resumed[-1].processes] if before else []
        if result.nested_step_times[: len(saved)] != saved:
            yield f"{result.configuration} does not have what it had"
    if unfinished_ids(Store(results)):
        yield "can be resumed again although it is complete"


def _duration_without_fault(place: Place, name: str) -> float:
    """Measure the seconds of a study without a fault."""
    start = time.monotonic()
    process = place.start(place.root / name, "compare", *OPTIONS, "--data", str(place.root / "images"))
    assert place.end(process, place.root / name).code == 0, "it does not end well"
    return time.monotonic() - start


def run(studies: int, seconds: float, seed: int, only: int | None = None) -> int:
    """Run the soak test; print counts of faults and every finding; return the number of findings."""
    happened: Counter[str] = Counter()
    found = 0
    with tempfile.TemporaryDirectory(prefix="polybench-soak-") as name:
        place = Place(Path(name))
        (place.root / "tmp").mkdir()
        write_images(place.root / "images")
        end = time.monotonic() + seconds
        length = min(_duration_without_fault(place, f"nothing-happens-{number}") for number in range(3))
        for number in range(studies) if only is None else [only]:
            if time.monotonic() > end:
                print(f"time is over after {number} studies")
                break
            fault, findings = soak(place, number, seed, length)
            happened[fault] += 1
            found += len(findings)
            for finding in findings:
                print(f"study {number}, {fault}: {finding}", flush=True)
    counts = ", ".join(f"{fault} {count}" for fault, count in sorted(happened.items()))
    print(f"{happened.total()} studies, {found} findings; seed {seed}; {counts}")
    return found


def main() -> None:
    """Parse the command line; end with 1 if there are findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=1200.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    given = parser.parse_args()
    sys.exit(bool(run(given.studies, given.seconds, given.seed, given.only)))


if __name__ == "__main__":
    main()
