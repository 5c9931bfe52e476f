"""The programs of single layers, run like users run them, compared with the reference."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polybench.engines.job import Job
from polybench.engines.reference.engine import ReferenceEngine
from polybench.networks.initial_weights import initial_weights
from polybench.networks.layers import (
    LSTM,
    Attention,
    BatchNorm,
    Conv,
    Dense,
    Layer,
    Operation,
    ReLU,
    Shape,
    weight_shapes,
)
from polybench.networks.lenet import LENET
from polybench.networks.model import Model
from polybench.networks.resnet32 import RESNET32
from polybench.networks.timed_layers import TimedLayer, split_layers
from polybench.schema.options import Workload
from polybench.scripts.layer import LayerOperation, layer_programs, write_programs
from polybench.worker.layers import write_layer_tensors
from tests.configured_julia import configured_julia
from tests.engines.emitted_programs import check_format
from tests.example_networks import PATCHED

WORKLOAD = Workload("lenet", "noise", 8, LENET.optimizer, "fp32", 1)
PRINTED = re.compile(r"(PyTorch|TensorFlow|Flux) \S+: (-?[\d.]+) ms, relative error ([\d.e+-]+)")


@pytest.fixture(scope="module")
def lenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tensors_of(LENET, tmp_path_factory.mktemp("lenet"))


@pytest.fixture(scope="module")
def patched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tensors_of(PATCHED, tmp_path_factory.mktemp("patched"))


def tensors_of(model: Model, folder: Path) -> Path:
    """Write the tensors of the model's layers for four inputs of noise, and its weights; return the folder."""
    random = np.random.default_rng(0)
    weights: dict[str, Any] = dict(initial_weights(model, 0))
    np.savez(folder / "weights.npz", **weights)
    reference, job = ReferenceEngine(), Job(model, WORKLOAD, "cpu", "float64")
    reference.build(job, weights)
    noise = random.random((1, 4, *model.input_shape), np.float32)
    reference.load(noise, random.integers(0, model.classes, (1, 4)))
    write_layer_tensors(reference, job, folder)
    return folder


def written(tensors: Path, folder: Path, name: str, part: Operation, model: Model = LENET) -> list[str]:
    index, piece = next(one for one in enumerate(split_layers(model)) if one[1].name == name)
    return write_programs(folder, piece, part, tensors / f"{index}.npz", tensors / "weights.npz", WORKLOAD)


CASES: list[tuple[str, Operation]] = [
    ("conv2 + relu", "forward"),
    ("conv2 + relu", "input gradient"),
    ("conv2 + relu", "weight gradient"),
    ("conv2 + relu", "relu gradient"),
    ("max_pool1", "input gradient"),
    ("dense1", "weight gradient"),
]
OTHER_CASES: list[tuple[str, Operation]] = [
    ("norm1", "input gradient"),
    ("patches", "weight gradient"),
    ("class_token", "forward"),
    ("attention", "weight gradient"),
]
"""Layers of PATCHED."""


ONE_AFTER_THE_OTHER = "import runpy, sys; [runpy.run_path(one, run_name='__main__') for one in sys.argv[1:]]"
"""Code that runs all programs in one process, because importing the framework takes time."""


@pytest.mark.parametrize(("framework", "script"), [("torch", "layer_torch.py"), ("tensorflow", "layer_tf.py")])
def test_a_program_computes_the_expected_result(
    lenet: Path, patched: Path, tmp_path: Path, framework: str, script: str
) -> None:
    if find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    programs: list[str] = []
    for model, tensors, cases in ((LENET, lenet, CASES), (PATCHED, patched, OTHER_CASES)):
        for name, part in cases:
            folder = tmp_path / str(len(programs))
            assert script in written(tensors, folder, name, part, model)
            programs.append(str(folder / script))
    run(tmp_path, [sys.executable, "-c", ONE_AFTER_THE_OTHER, *programs], len(programs))


def test_the_flux_program_computes_the_expected_result(lenet: Path, tmp_path: Path) -> None:
    julia = configured_julia()
    name, part = CASES[2]  # one, because Julia takes half a minute
    assert "layer_flux.jl" in written(lenet, tmp_path, name, part)
    options = [f"--project={julia.project}", "--startup-file=no", "--threads=1"]
    run(tmp_path, [julia.executable, *options, str(tmp_path / "layer_flux.jl")])


def run(folder: Path, command: list[str], times: int = 1) -> None:
    """Run programs and check their output."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    printed = PRINTED.findall(done.stdout)
    assert len(printed) == times, done.stdout + done.stderr
    for _, milliseconds, error in printed:
        assert float(milliseconds) > 0
        assert float(error) < 1e-5, printed


def test_repeated_images_multiply_the_weight_gradient(lenet: Path, tmp_path: Path) -> None:
    written(lenet, tmp_path, "dense1", "weight gradient")
    with np.load(tmp_path / "layer.npz") as file:
        assert file["x"].shape == (8, 200)
        np.testing.assert_allclose(file["expected"], file["dy"].T @ file["x"], rtol=1e-4, atol=1e-7)


def test_an_addition_has_no_program(tmp_path: Path) -> None:
    piece: TimedLayer = next(piece for piece in split_layers(RESNET32) if piece.name.endswith("(sum)"))
    assert write_programs(tmp_path / "none", piece, "forward", tmp_path, tmp_path, WORKLOAD) == []
    assert not (tmp_path / "none").exists()


def test_every_layer_with_weights_has_a_program_in_each_language() -> None:
    for piece in split_layers(RESNET32):
        if piece.weight_shapes():
            assert len(layer_programs(LayerOperation(piece.layer, piece.input_shape, "forward", 1))) == 3, piece.name


def test_the_layer_is_that_of_the_emitter() -> None:
    layer = Conv("conv", 3, 16, 3, stride=2, padding=((0, 1), (0, 1)), bias=False)
    programs = layer_programs(LayerOperation(layer, (3, 32, 32), "weight gradient", 3))
    assert "nn.Conv2d(3, 16, 3, stride=2, bias=False)" in programs["layer_torch.py"]
    assert "F.pad(x, (0, 1, 0, 1))" in programs["layer_torch.py"]
    assert re.search(r'Conv2D\(\s+16, 3, strides=2, padding="same", use_bias=False,', programs["layer_tf.py"])
    assert "Conv((3, 3), 3 => 16; stride = 2, pad = (0, 1, 0, 1), bias = false)" in programs["layer_flux.jl"]
    for program in programs.values():
        assert 'Times an operation of a layer, "weight gradient", as' in program
        assert re.search(r"(set_num_threads|parallelism_threads|nthreads)\W+(== )?3", program)


def test_a_framework_without_the_layer_has_no_program() -> None:
    layer = LSTM("lstm", 4, 6, biases=2)
    assert layer_programs(LayerOperation(layer, (5, 4), "forward", 1)).keys() == {"layer_torch.py"}


def test_programs_in_python_are_formatted(tmp_path: Path) -> None:
    cases: list[tuple[Layer, Shape]] = [
        (BatchNorm("norm", 3), (3, 4, 4)),
        (Dense("dense", 4, 3), (4,)),
        (Attention("attention", 4, 2), (5, 4)),
        (ReLU(), (3, 4, 4)),
    ]
    operations: list[Operation] = ["forward", "input gradient", "weight gradient"]
    for number, (layer, shape) in enumerate(cases):
        for operation in operations[: 3 if weight_shapes([layer]) else 2]:
            for name, text in layer_programs(LayerOperation(layer, shape, operation, 1)).items():
                (tmp_path / f"{number} {operation} {name}").write_text(text, "utf-8")
    check_format(tmp_path, "B905")
