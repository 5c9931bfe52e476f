"""Jobs, networks that are hard to write, and checks of a text, for the tests of all emitters."""

from __future__ import annotations

import difflib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st

from polybench.engines.job import Job
from polybench.networks.layers import BatchNorm, Conv, Layer, ReLU, Residual
from polybench.networks.lenet import LENET
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer
from polybench.schema.options import Workload
from tests.example_networks import EVERYTHING, PADDED, PATCHED, SEQUENCES, TEXT

EXAMPLES = {model.name: model for model in (EVERYTHING, PADDED, PATCHED, SEQUENCES, TEXT)}

_ODD = (
    "class end x self __init__ train F torch np keras layers Network block1.conv block1.0 0 a.b a_b blocks NAMES name"
    " query_key_value running_variance my_running_var re_lu flatten_1 input_layer add number functional sequential_1"
    " path1.a 3d1.a DTYPE1.a load1.a"
)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12) | st.sampled_from(_ODD.split())
"""Names of layers, also those that a program or its framework uses itself."""


def job(model: Model = LENET, optimizer: Optimizer | None = None, device: str = "cpu", **fields: Any) -> Job:
    """Return a job of batch 8 with 3 threads; `fields` are those of the job, the precision and the replicas."""
    precision, replicas = fields.pop("precision", "fp32"), fields.pop("replicas", 1)
    workload = Workload(model.name, "noise", 8, optimizer or model.optimizer, precision, 3, replicas=replicas)
    return Job(model, workload, device, fields.pop("dtype", "float32"), **fields)


def changes(before: str, after: str) -> list[str]:
    """Return the lines that differ between two programs, with their signs."""
    found = difflib.ndiff(before.splitlines(), after.splitlines())
    return [line for line in found if line.startswith(("+ ", "- "))]


def check_format(folder: Path, *ignored: str) -> None:
    """Check that ruff would change nothing in these programs, and finds nothing but the ignored rules."""
    ruff = Path(sys.executable).with_name("ruff")
    if not ruff.exists():
        pytest.skip("ruff is not installed")
    rules = ["--select=E4,E7,E9,F,W,I,B,UP", f"--ignore={','.join(ignored)}"]
    for command in (["format", "--diff"], ["check", *rules]):
        run = subprocess.run([ruff, *command, "--isolated", folder], capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout


def small(*layers: Layer) -> Model:
    """Return a network of images of 3 x 4 x 4."""
    return msgspec.structs.replace(LENET, layers=layers, input_shape=(3, 4, 4), published_parameters=None)


_RELU = st.just(ReLU())


def trees(depth: int) -> st.SearchStrategy[tuple[Any, ...]]:
    """Draw layers without names that keep 3 channels: "conv" and "norm" get their names later."""
    leaf = st.sampled_from(["conv", "norm"]) | _RELU
    if not depth:
        return st.lists(leaf, max_size=3).map(tuple)
    inner = st.tuples(trees(depth - 1), trees(depth - 1))
    return st.lists(leaf | inner, min_size=1, max_size=4).map(tuple)


def named(tree: tuple[Any, ...], numbers: Iterator[int]) -> tuple[Layer, ...]:
    """Return the layers of a tree, with the next numbers in their names."""
    layers: list[Layer] = []
    for node in tree:
        if isinstance(node, tuple):
            body, shortcut = (named(branch, numbers) for branch in node)
            layers.append(Residual(body, shortcut))
        elif node == "conv":
            layers.append(Conv(f"conv{next(numbers)}", 3, 3, 1))
        else:
            layers.append(BatchNorm(f"norm{next(numbers)}", 3) if node == "norm" else node)
    return tuple(layers)
