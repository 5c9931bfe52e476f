"""The programs that show one layer, run as their readers run them, beside what the reference computed."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polybench.core.document.layers import Part
from polybench.core.errors import Unavailable
from polybench.core.job import Job
from polybench.core.pieces import Piece, pieces
from polybench.core.spec import Workload
from polybench.engines.flux.julia.finding import check, find
from polybench.engines.reference.engine import ReferenceEngine
from polybench.models.initial_weights import initial_weights
from polybench.models.lenet import LENET
from polybench.models.resnet32 import RESNET32
from polybench.plain.layer import write_programs
from polybench.worker.layers import write_layers

WORKLOAD = Workload("lenet", "noise", 8, LENET.optimizer, "fp32", 1)
PRINTED = re.compile(r"(PyTorch|TensorFlow|Flux) \S+: ([\d.]+) ms, relative error ([\d.e+-]+)")


@pytest.fixture(scope="module")
def lenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tensors of lenet's layers for four images of noise, and its weights."""
    folder, random = tmp_path_factory.mktemp("lenet"), np.random.default_rng(0)
    weights: dict[str, Any] = dict(initial_weights(LENET, 0))
    np.savez(folder / "weights.npz", **weights)
    reference, job = ReferenceEngine(), Job(LENET, WORKLOAD, "cpu", "float64")
    reference.build(job, weights)
    reference.load(random.random((1, 4, 3, 32, 32), np.float32), random.integers(0, 10, (1, 4)))
    write_layers(reference, job, folder)
    return folder


def written(lenet: Path, folder: Path, name: str, part: Part) -> list[str]:
    index, piece = next(one for one in enumerate(pieces(LENET)) if one[1].name == name)
    return write_programs(folder, piece, part, lenet / f"{index}.npz", lenet / "weights.npz", WORKLOAD)


CASES: list[tuple[str, Part]] = [
    ("conv2 + relu", "forward"),
    ("conv2 + relu", "data gradient"),
    ("conv2 + relu", "weight gradient"),
    ("conv2 + relu", "activation"),
    ("max_pool1", "data gradient"),
    ("dense1", "weight gradient"),
]


ONE_AFTER_THE_OTHER = "import runpy, sys; [runpy.run_path(one, run_name='__main__') for one in sys.argv[1:]]"
"""In one process: what takes time is to import the framework."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "script"), [("torch", "layer_pytorch.py"), ("tensorflow", "layer_tensorflow.py")]
)
def test_a_program_computes_what_is_expected(
    lenet: Path, tmp_path: Path, framework: str, script: str
) -> None:
    if find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    folders = [tmp_path / str(number) for number in range(len(CASES))]
    for folder, (name, part) in zip(folders, CASES, strict=True):
        assert script in written(lenet, folder, name, part)
    programs = [str(folder / script) for folder in folders]
    run(tmp_path, [sys.executable, "-c", ONE_AFTER_THE_OTHER, *programs], times=len(CASES))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "part"), [CASES[2]])  # Julia takes half a minute
def test_so_does_that_of_flux(lenet: Path, tmp_path: Path, name: str, part: Part) -> None:
    try:
        check(julia := find())
    except Unavailable as missing:
        pytest.skip(missing.reason)
    assert "layer_flux.jl" in written(lenet, tmp_path, name, part)
    options = [f"--project={julia.project}", "--startup-file=no", "--threads=1"]
    run(tmp_path, [julia.executable, *options, str(tmp_path / "layer_flux.jl")])


def run(folder: Path, command: list[str], times: int = 1) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    printed = PRINTED.findall(done.stdout)
    assert len(printed) == times, done.stdout + done.stderr
    for _, milliseconds, error in printed:
        assert float(milliseconds) > 0
        assert float(error) < 1e-5, printed


def test_images_are_repeated_and_so_is_what_they_add_to_a_gradient(lenet: Path, tmp_path: Path) -> None:
    written(lenet, tmp_path, "dense1", "weight gradient")
    with np.load(tmp_path / "layer.npz") as file:
        assert file["x"].shape == (8, 200)
        np.testing.assert_allclose(file["expected"], file["dy"].T @ file["x"], rtol=1e-4, atol=1e-7)


def test_a_sum_has_no_program(tmp_path: Path) -> None:
    piece: Piece = next(piece for piece in pieces(RESNET32) if piece.name.endswith("(sum)"))
    assert write_programs(tmp_path / "none", piece, "forward", tmp_path, tmp_path, WORKLOAD) == []
    assert not (tmp_path / "none").exists()


def test_every_layer_with_weights_has_a_program_in_each_language() -> None:
    from polybench.plain.layer import _EXPRESSIONS

    for piece in pieces(RESNET32):
        if piece.weight_shapes():
            texts = {script: make(piece.layer, True) for script, make in _EXPRESSIONS.items()}
            assert texts["layer_pytorch.py"], piece.name
            assert texts["layer_flux.jl"], piece.name
