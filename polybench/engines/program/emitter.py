"""Writes the script that starts a user's program alone, with a clock: its cold start is that of this script.

The script has the text that the worker runs, in a module of its own: a change of the file during the study has no
effect, and the program's own main part does not run.
"""

from __future__ import annotations

from collections.abc import Iterator

from polybench.engines.job import Job
from polybench.engines.shared import main_part
from polybench.engines.source import Source
from polybench.networks.source_text import comment, literal


def emit_start(source: Source, job: Job, steps: int) -> str:
    """Return the script that trains the first steps with a program and prints when each phase of its start has ended.

    Its arguments are those of the scripts of engines.
    """
    return "\n".join(_lines(source, job, steps)) + "\n"


def _lines(source: Source, job: Job, steps: int) -> Iterator[str]:
    main = main_part.training(job, steps, (), "", clock=True)
    path = source.path
    yield comment(f"Starts {path.name} alone, with a clock.")
    yield from main.first
    yield "import json, sys"
    yield "from pathlib import Path"
    yield "from types import ModuleType"
    yield "import numpy as np"
    yield f"program = ModuleType({literal(f'{path.stem} (program)')})"
    yield f"program.__file__ = {literal(str(path))}"
    yield "sys.modules[program.__name__] = program"
    yield f"sys.path.insert(0, {literal(str(path.parent))})"
    text = source.adapted(job.dtype, job.device)
    yield f'exec(compile({literal(text)}, program.__file__, "exec"), program.__dict__)'
    yield "load, train_step = program.load, program.train_step"
    yield "def setup(weights):"
    yield f"    return program.setup({'weights' if source.takes_weights else ''})"
    yield main.text
