"""Measure a driver of many machines: its time and memory per configuration, and the time of the table.

One machine group is measured for real, with configurations of the engine `fake`, and all messages of its node program
are recorded. Then many machines replay them to a driver with a store on disk, as fast as it reads. So
this measures the driver's own work, without a network. Each size runs in a process of its own.

    python benchmarks/cluster_scale.py [--machines 1,10,100,1000] [--configurations 10]
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
from _faults import write_images

from polybench.analysis.merge import merge
from polybench.cluster import run as run_module
from polybench.cluster.executor import Event, Node
from polybench.cluster.messages import Lines, Message, Task, current_fingerprint, encode_line, message_decoder
from polybench.cluster.node import run_task
from polybench.cluster.run import run_on_cluster
from polybench.log import Header
from polybench.render import render
from polybench.runner.checkpoint import ClusterRun
from polybench.runner.prepare import new_header
from polybench.runner.progress import NullProgress
from polybench.schema.options import MachineGroup, Study
from polybench.storage.store import Store

_PROCESSES = 2


def study(folder: Path, configurations: int) -> Study:
    return Study(
        engines=("fake",) * configurations,
        devices=("cpu",),
        data=str(folder / "images"),
        batch_size=16,
        processes=_PROCESSES,
        rounds_per_process=5,
        steps_per_round=5,
        parity=False,
        metrics=False,
    )


def recorded(folder: Path, configurations: int) -> tuple[list[bytes], float]:
    """Record a node program's messages for one machine group, and their duration."""
    lines: list[bytes] = []
    task = Task(header=new_header(), study=study(folder, configurations), fingerprint=current_fingerprint())
    began = time.monotonic()
    run_task(task, lambda message: lines.append(encode_line(message)))
    return lines, time.monotonic() - began


class Replayed:
    """Executor whose machines replay the recorded messages, a line of each in turn."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines, self._tasks, self._next = lines, {}, 0  # type: ignore[var-annotated]

    def check(self, groups: Sequence[MachineGroup]) -> list[str]:  # noqa: ARG002
        """Do nothing."""
        return []

    def nodes(self) -> list[Node]:
        """Do nothing; benchmarks have no other tasks."""
        return []

    def start(self, group: MachineGroup, task: Task, preferred_host: str | None = None) -> None:  # noqa: ARG002
        """Start replaying for this machine."""
        self._tasks[group.label] = task

    def events(self, seconds: float) -> list[Event]:  # noqa: ARG002
        """Return the next line of every machine."""
        line = self._lines[self._next]
        self._next += 1
        return [Event(label, self._said(line, task)) for label, task in self._tasks.items()]

    def _said(self, line: bytes, task: Task) -> Message:
        """Decode for each machine again, like messages from a network."""
        message = message_decoder.decode(line)
        if isinstance(message, Lines) and isinstance(message.events[0], Header):
            header = msgspec.structs.replace(message.events[0], id=task.header.id)
            message = Lines(message.first, [header, *message.events[1:]])
        return message

    def stop(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def one_size(folder: Path, machines: int, configurations: int) -> None:
    """Print a line of JSON."""
    lines = (folder / "lines").read_bytes().splitlines(keepends=True)
    run_module.make_executor = lambda *_, **__: Replayed(lines)  # type: ignore[assignment]
    groups = [MachineGroup(label=f"m{number}", price=1.0) for number in range(machines)]
    fleet = ClusterRun(study=study(folder, configurations), groups=groups, on="replayed")
    before = resource.getrusage(resource.RUSAGE_SELF)
    began = time.monotonic()
    measured = run_on_cluster(fleet, NullProgress(), store=Store(folder / f"results-{machines}"))
    driven = time.monotonic() - began
    used = resource.getrusage(resource.RUSAGE_SELF)
    documents = [one.document for one in measured.machines if one.document is not None]
    assert len(documents) == machines
    began = time.process_time()
    rows = 0
    if machines > 1:
        rows = len(render(merge(documents, {}), "table").splitlines())
    table = time.process_time() - began
    stored = sum(path.stat().st_size for path in (folder / f"results-{machines}").glob("*.jsonl"))
    print(json.dumps({
        "machines": machines,
        "configurations": machines * configurations,
        "cpu_seconds": used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime,
        "seconds": driven,
        "table_seconds": table,
        "table_lines": rows,
        "peak_bytes": peak_bytes(),
        "stored_bytes": stored,
    }))  # fmt: skip


def peak_bytes() -> int:
    """Return the peak memory of this process alone; getrusage may report that of the parent."""
    found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", default="1,10,100,1000")
    parser.add_argument("--configurations", type=int, default=10)
    parser.add_argument("--one", nargs=2, metavar=("FOLDER", "MACHINES"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one_size(Path(options.one[0]), int(options.one[1]), options.configurations)
        return
    sizes = []
    with tempfile.TemporaryDirectory(prefix="polybench-benchmark-") as name:
        folder = Path(name)
        write_images(folder / "images")
        lines, seconds = recorded(folder, options.configurations)
        (folder / "lines").write_bytes(b"".join(lines))
        sent_bytes = sum(map(len, lines))
        print(
            f"one machine, {options.configurations} configurations: {seconds:.1f} s, {len(lines)} lines,"
            f" {sent_bytes / 1e6:.2f} MB"
        )
        for machines in options.machines.split(","):
            command = [
                sys.executable,
                __file__,
                "--one",
                name,
                machines,
                "--configurations",
                str(options.configurations),
            ]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            sizes.append(json.loads(done.stdout))
            one = sizes[-1]
            print(
                f"{one['machines']:>5} machines, {one['configurations']:>6} configurations:"
                f" {one['cpu_seconds']:.2f} s of CPU,"
                f" {one['peak_bytes'] / 2**20:.0f} MiB, table {one['table_seconds']:.2f} s,"
                f" {one['stored_bytes'] / 1e6:.1f} MB stored"
            )
    print(json.dumps({"benchmark": "cluster_scale", "line_bytes": sent_bytes, "lines": len(lines), "sizes": sizes}))


if __name__ == "__main__":
    main()
