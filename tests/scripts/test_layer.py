"""The programs of single layers, run like users run them, compared with the reference."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from polybench.engines.job import Job
from polybench.engines.reference.engine import ReferenceEngine
from polybench.networks.initial_weights import initial_weights
from polybench.networks.layers import AveragePool, BatchNorm, Conv, MaxPool, Operation
from polybench.networks.lenet import LENET
from polybench.networks.model import Model
from polybench.networks.resnet32 import RESNET32
from polybench.networks.timed_layers import TimedLayer, split_layers
from polybench.schema.options import Workload
from polybench.scripts.layer import layer_expressions, write_programs
from polybench.worker.layers import write_layer_tensors
from tests.configured_julia import configured_julia

WORKLOAD = Workload("lenet", "noise", 8, LENET.optimizer, "fp32", 1)
PRINTED = re.compile(r"(PyTorch|TensorFlow|Flux) \S+: (-?[\d.]+) ms, relative error ([\d.e+-]+)")


@pytest.fixture(scope="module")
def lenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tensors_of(LENET, tmp_path_factory.mktemp("lenet"))


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


ONE_AFTER_THE_OTHER = "import runpy, sys; [runpy.run_path(one, run_name='__main__') for one in sys.argv[1:]]"
"""Code that runs all programs in one process, because importing the framework takes time."""


@pytest.mark.parametrize(("framework", "script"), [("torch", "layer_torch.py"), ("tensorflow", "layer_tf.py")])
def test_a_program_computes_the_expected_result(lenet: Path, tmp_path: Path, framework: str, script: str) -> None:
    if find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    folders = [tmp_path / str(number) for number in range(len(CASES))]
    for folder, (name, part) in zip(folders, CASES, strict=True):
        assert script in written(lenet, folder, name, part)
    programs = [str(folder / script) for folder in folders]
    run(tmp_path, [sys.executable, "-c", ONE_AFTER_THE_OTHER, *programs], len(CASES))


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
            expressions = layer_expressions(piece.layer, piece.input_shape)
            assert {"layer_torch.py", "layer_flux.jl"} <= expressions.keys(), piece.name


def test_expressions_have_the_options_of_the_layer() -> None:
    layer = Conv("conv", 3, 16, 5, stride=2, padding=1, bias=False)
    assert layer_expressions(layer, (3, 32, 32)) == {  # Keras does not have this padding
        "layer_torch.py": "nn.Conv2d(3, 16, 5, stride=2, padding=1, groups=1, bias=False)",
        "layer_flux.jl": "Conv((5, 5), 3 => 16; stride = 2, pad = 1, groups = 1, bias = false)",
    }
    ends = Conv("conv", 3, 16, 3, stride=2, padding=((0, 1), (0, 1)), bias=False)
    assert layer_expressions(ends, (3, 32, 32)) == {  # PyTorch does not have this padding
        "layer_tf.py": 'keras.layers.Conv2D(16, 3, 2, "same", groups=1, use_bias=False)',
        "layer_flux.jl": "Conv((3, 3), 3 => 16; stride = 2, pad = (0, 1, 0, 1), groups = 1, bias = false)",
    }
    assert layer_expressions(MaxPool(3, 2, 1), (3, 32, 32)) == {
        "layer_torch.py": "nn.MaxPool2d(3, 2, 1)",
        "layer_flux.jl": "MaxPool((3, 3); stride = 2, pad = 1)",
    }
    assert layer_expressions(AveragePool(3, 1, 1, count_padding=False), (3, 32, 32)) == {
        "layer_torch.py": "nn.AvgPool2d(3, 1, 1, count_include_pad=False)",
        "layer_tf.py": 'keras.layers.AveragePooling2D(3, 1, "same")',
    }
    same = msgspec.structs.replace(layer, stride=1, padding="same")
    in_keras = layer_expressions(same, (3, 32, 32))["layer_tf.py"]
    assert in_keras == 'keras.layers.Conv2D(16, 5, 1, "same", groups=1, use_bias=False)'
    assert layer_expressions(BatchNorm("norm", 16), (16,))["layer_torch.py"] == "nn.BatchNorm1d(16, eps=1e-05)"
