"""What a driver of many machines takes: its time and memory for a cell, and how long the table takes.

One machine group is measured for real, with cells of the engine `fake`, and all that its node program said is
kept. Then that many machines say the same again to a driver with a store on disk, as fast as it listens: so
what is measured is the driver's own part, and no network. Each size is a process of its own.

    python benchmarks/fleet_scale.py [--machines 1,10,100,1000] [--cells 10]
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from killed import write_images

from polybench.core.document.study import from_json, to_json
from polybench.core.machines import MachineGroup
from polybench.core.spec import Study
from polybench.export.merge import render
from polybench.fleet import run as fleet_run
from polybench.fleet.executor import Event, Place
from polybench.fleet.messages import Message, Saved, Task, line_of, message_decoder
from polybench.fleet.node import run
from polybench.fleet.program import this_program
from polybench.fleet.run import run_fleet
from polybench.measuring.fleet_checkpoint import Fleet
from polybench.measuring.progress import Silent
from polybench.report.merge import merge
from polybench.report.saved_studies import Store

_PROCESSES = 2


def study(folder: Path, cells: int) -> Study:
    return Study(
        engines=("fake",) * cells,
        devices=("cpu",),
        data=str(folder / "images"),
        batch_size=16,
        processes=_PROCESSES,
        rounds=5,
        steps=5,
        parity=False,
        metrics=False,
    )


def recorded(folder: Path, cells: int) -> tuple[list[bytes], float]:
    """What a node program says of one machine group, line by line, and how long that took."""
    lines: list[bytes] = []
    task = Task(id="20260101-000000-0000", created="2026-01-01T00:00:00+00:00",
                study=study(folder, cells), program=this_program())  # fmt: skip
    began = time.monotonic()
    run(task, lambda message: lines.append(line_of(message)))
    return lines, time.monotonic() - began


class Replayed:
    """An Executor: every machine says what was recorded, a line of each in turn."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines, self._tasks, self._next = lines, {}, 0  # type: ignore[var-annotated]

    def check(self, groups: Sequence[MachineGroup]) -> list[str]:  # noqa: ARG002
        """Nothing."""
        return []

    def machines(self) -> list[Place]:
        """Nobody asks."""
        return []

    def start(self, group: MachineGroup, task: Task, near: str | None = None) -> None:  # noqa: ARG002
        """It talks from now on."""
        self._tasks[group.label] = task

    def events(self, seconds: float) -> list[Event]:  # noqa: ARG002
        """The next line of every machine."""
        line = self._lines[self._next]
        self._next += 1
        return [Event(label, self._said(line, task)) for label, task in self._tasks.items()]

    def _said(self, line: bytes, task: Task) -> Message:
        """Read for each machine anew, as what comes from a network is."""
        message = message_decoder.decode(line)
        if isinstance(message, Saved):
            document = from_json(message.document)
            document.id = task.id
            message = msgspec.structs.replace(message, document=to_json(document))
        return message

    def stop(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


def one_size(folder: Path, machines: int, cells: int) -> None:
    """Print a line of JSON."""
    lines = (folder / "lines").read_bytes().splitlines(keepends=True)
    fleet_run.executor = lambda *_, **__: Replayed(lines)  # type: ignore[assignment]
    groups = [MachineGroup(label=f"m{number}", price=1.0) for number in range(machines)]
    fleet = Fleet(study=study(folder, cells), groups=groups, on="replayed")
    before = resource.getrusage(resource.RUSAGE_SELF)
    began = time.monotonic()
    measured = run_fleet(fleet, Silent(), store=Store(folder / f"results-{machines}"))
    driven = time.monotonic() - began
    used = resource.getrusage(resource.RUSAGE_SELF)
    documents = [one.document for one in measured.machines if one.document is not None]
    assert len(documents) == machines
    began = time.process_time()
    rows = 0
    if machines > 1:
        rows = len(render(merge(documents, {}), "table").splitlines())
    table = time.process_time() - began
    stored = sum(path.stat().st_size for path in (folder / f"results-{machines}").glob("*.json"))
    print(json.dumps({
        "machines": machines,
        "cells": machines * cells,
        "cpu_seconds": used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime,
        "seconds": driven,
        "table_seconds": table,
        "table_lines": rows,
        "peak_bytes": peak_bytes(),
        "stored_bytes": stored,
    }))  # fmt: skip


def peak_bytes() -> int:
    """Of this process alone: what getrusage says may be of the one that it was forked from."""
    found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--machines", default="1,10,100,1000")
    parser.add_argument("--cells", type=int, default=10)
    parser.add_argument("--one", nargs=2, metavar=("FOLDER", "MACHINES"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one_size(Path(options.one[0]), int(options.one[1]), options.cells)
        return
    sizes = []
    with tempfile.TemporaryDirectory(prefix="polybench-benchmark-") as name:
        folder = Path(name)
        write_images(folder / "images")
        lines, seconds = recorded(folder, options.cells)
        (folder / "lines").write_bytes(b"".join(lines))
        said = sum(map(len, lines))
        print(f"one machine, {options.cells} cells: {seconds:.1f} s, {len(lines)} lines, {said / 1e6:.2f} MB")
        for machines in options.machines.split(","):
            command = [sys.executable, __file__, "--one", name, machines, "--cells", str(options.cells)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            sizes.append(json.loads(done.stdout))
            one = sizes[-1]
            print(
                f"{one['machines']:>5} machines, {one['cells']:>6} cells: {one['cpu_seconds']:.2f} s of CPU,"
                f" {one['peak_bytes'] / 2**20:.0f} MiB, table {one['table_seconds']:.2f} s,"
                f" {one['stored_bytes'] / 1e6:.1f} MB stored"
            )
    print(json.dumps({"benchmark": "fleet_scale", "line_bytes": said, "lines": len(lines), "sizes": sizes}))


if __name__ == "__main__":
    main()
