"""Runs the steps in order within a time limit, and updates the summary after each."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from polybench.engines import ENGINES
from tests.gpu.steps import Here, Step, steps
from tests.gpu.subprocesses import Command, Done, beside, run
from tests.gpu.summary import Line, counted, markdown

LEAST_SECONDS = 15.0
"""Minimum seconds for another step."""

MODULES = {"torch": "torch", "jax": "jax", "tf": "tensorflow", "flux": "juliacall"}


def tell(gpus: Sequence[str], folder: Path, seconds: float, *, rehearse: bool, only: Collection[str] = ()) -> int:
    """Run all steps that fit into the time, or only the given ones; write `folder`/summary.md; return the exit code."""
    deadline = time.monotonic() + seconds
    missing = [engine for engine, module in MODULES.items() if importlib.util.find_spec(module) is None]
    present = tuple(engine for engine in MODULES if engine not in missing)
    documents = str(folder / "documents")
    here = Here(("fake",), "cpu", ("fp32",), documents) if rehearse else Here(present, documents=documents)
    chapters = {"Frameworks": list(_frameworks(present, missing))}
    for step in steps(here):
        if only and step.name not in only:
            continue
        began = time.monotonic()
        lines = list(_lines(step, folder / step.name, min(step.seconds, deadline - began)))
        chapters[f"{step.title} ({time.monotonic() - began:.0f} s)"] = lines
        summary = markdown(() if rehearse else gpus, _facts(), chapters)
        (folder / "summary.md").write_text(summary, "utf-8")
        print(f"{step.title}: {counted(lines)}", flush=True)
    print(f"{counted(line for lines in chapters.values() for line in lines)} {folder / 'summary.md'}")
    return int(any(line.verdict == "failed" for lines in chapters.values() for line in lines))


def _lines(step: Step, folder: Path, seconds: float) -> Iterator[Line]:
    """Run a step; yield its results and errors."""
    began = time.monotonic()
    if seconds < LEAST_SECONDS:
        yield Line(step.title, "could not be tried", "no time was left")
        return
    environment = os.environ | {
        "XDG_CACHE_HOME": str(folder.parent / "cache"),
        "POLYBENCH_RESULTS": str(folder.parent / "documents"),
        "NO_COLOR": "1",
    }
    commands = [_placed(command, folder) for command in step.commands]
    with contextlib.ExitStack() as stack:
        if step.load:
            load = Command("background load", ("tests.gpu.gpu_load", *step.load))
            ready = stack.enter_context(beside(load, folder, environment))
            if not ready:
                yield Line(step.title, "could not be tried", Done(load, None, 0, folder).last_words())
                return
        left = max(0.0, seconds - (time.monotonic() - began))
        for done in run(commands, folder, left, environment):
            yield from _found(step, done)


def _placed(command: Command, folder: Path) -> Command:
    arguments = (one.format(folder=folder, name=command.name) for one in command.arguments)
    return Command(command.name, tuple(arguments))


def _found(step: Step, done: Done) -> Iterator[Line]:
    what = f"{step.title}: {done.command.name}"
    if done.code is None:
        yield Line(what, "could not be tried", f"stopped after {done.seconds:.0f} s: {done.last_words()}")
    try:
        lines = list(step.finds(done))
    except (OSError, ValueError, SyntaxError) as error:  # msgspec raises ValueErrors, XML SyntaxErrors
        if done.code is not None:
            yield Line(what, "failed", f"code {done.code}, {done.last_words()} ({type(error).__name__})")
        return
    yield from lines


def _frameworks(present: Sequence[str], missing: Sequence[str]) -> Iterator[Line]:
    for engine in (*present, *missing):
        found = engine in present
        detail = "" if found else f"its framework is not installed: {', '.join(ENGINES[engine].packages)}"
        yield Line(f"{engine} is installed", "passed" if found else "could not be tried", detail)


def _facts() -> Mapping[str, str]:
    return {"Python": platform.python_version(), "system": f"{platform.system()} {platform.release()}"}
