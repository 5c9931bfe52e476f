"""The independent programs train polybench's networks, with equally many weights."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from polybench.networks import find_model

NETWORKS = ("lenet", "resnet32", "dlframeworks-cnn")
PROGRAMS = Path(__file__).parents[2] / "benchmarks" / "programs"
COUNTS = {
    "torch": "import independent_torch as p;"
    " count = lambda name: sum(w.numel() for w in getattr(p, name)().parameters())",
    "tensorflow": "import independent_tf as p, math;"
    " count = lambda name: sum(math.prod(w.shape) for w in getattr(p, name)().trainable_weights)",
    "jax": "import independent_jax as p, jax;"
    " count = lambda name: sum(w.size for w in jax.tree.leaves(getattr(p, f'init_{name}')(jax.random.key(0))[0]))",
}


@pytest.mark.parametrize(
    "framework", ["torch", *(pytest.param(name, marks=pytest.mark.wide) for name in ("tensorflow", "jax"))]
)
def test_networks_have_equally_many_weights(framework: str) -> None:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    program = COUNTS[framework] + f"\nfor name in {NETWORKS}: print(count(name.replace('-', '_')))"
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}
    outputs = subprocess.check_output(
        [sys.executable, "-c", program], cwd=PROGRAMS, env={**os.environ, **quiet}, text=True
    )
    assert [int(line) for line in outputs.splitlines()] == [find_model(name).parameters() for name in NETWORKS]
