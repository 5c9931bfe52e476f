"""`polybench import` of Flux chains, also of those that `export` writes. julia/test/import.jl has what is refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from polybench.engines.flux.julia.discovery import find, package_folder
from polybench.networks.layers import Layer, walk
from polybench.planning.study_file import read_network
from tests.commands import printed, printed_json, refused
from tests.configured_julia import configured_julia

_CHAIN = """
using Flux

net() = Chain(
    Conv((5, 5), 3 => 6, relu), MaxPool((2, 2)), x -> relu.(x),
    x -> reshape(x, :, size(x, 4)), Dense(1176 => 10), softmax,
)
broken() = Chain(Conv((5, 5), 3 => 6), undefined)
"""
_EVERY_LAYER = """
using Flux

net() = Chain(
    Conv((5, 5), 3 => 6, relu), MaxPool((2, 2)), BatchNorm(6), x -> relu.(x),
    SkipConnection(Chain(Conv((3, 3), 6 => 6; pad = 1, bias = false), BatchNorm(6, relu)), +),
    Parallel(+, Conv((1, 1), 6 => 8; groups = 2), Chain(Conv((3, 3), 6 => 8; pad = SamePad()), Dropout(0.3))),
    MeanPool((2, 2)), GroupNorm(8, 4), x -> reshape(x, :, size(x, 4)), Dense(392 => 20, gelu), LayerNorm(20),
    Dense(20 => 10), softmax,
)
"""
_TRANSFORMER = """
classes = 11
input = { vocabulary = 11, length = 8 }
layers = [
    { type = "embedding", name = "tokens", features = 8 },
    { type = "positions", name = "positions" },
    { type = "residual", body = [
        { type = "layer_norm", name = "norm" },
        { type = "attention", name = "attention", heads = 2, causal = true },
    ] },
    { type = "gelu", approximate = "tanh" },
    { type = "dense", name = "head", outputs = 11, bias = false, tied = "tokens" },
]
"""


@pytest.fixture
def julia() -> None:
    configured_julia("NPZ")


def export_and_import(net: Path, *arguments: object) -> Path:
    """Write the network as code for Flux, and return the network file that this code is."""
    code, again = net.with_name("chain.jl"), net.with_name("again.toml")
    printed("export", net, "--framework", "flux", "-o", code)
    assert "identical" in printed("import", f"{code}:model", "-o", again, *arguments)
    return again


def weights(net: Path) -> list[bytes]:
    """Return the tensors in the order of the layers; a chain has no names."""
    with np.load(net.with_suffix(".npz")) as file:
        return [file[name].tobytes() for name in file]


def types(net: Path) -> list[type[Layer]]:
    return [type(layer) for layer in walk(read_network(net).layers)]


@pytest.mark.usefixtures("julia")
@pytest.mark.timeout(300)
def test_a_chain_is_proven(tmp_path: Path) -> None:
    file, net = tmp_path / "chain.jl", tmp_path / "net.toml"
    file.write_text(_CHAIN, "utf-8")
    document = printed_json("import", f"{file}:net", "--input", "3x32x32", "-o", net, "--format", "json")
    assert document["proof"]["failure"] is None
    assert document["framework"] == "flux"
    assert document["notes"][-1].startswith("the chain ends in a softmax")
    relu, flatten = (layer for layer in document["layers"] if layer["place"].startswith("chain.jl:"))
    assert (relu["type"], relu["place"]) == ("relu", "chain.jl:5")
    assert (flatten["type"], flatten["operation"]) == ("flatten", "anonymous function")
    message = refused("import", f"{file}:broken", "--input", "3x32x32", "-o", net)
    assert "chain.jl:8: UndefVarError: `undefined` not defined" in message


@pytest.mark.wide  # each layer is compiled, and julia/test/import.jl reads it
@pytest.mark.usefixtures("julia")
@pytest.mark.timeout(300)
def test_a_chain_with_every_layer_is_proven(tmp_path: Path) -> None:
    (file := tmp_path / "chain.jl").write_text(_EVERY_LAYER, "utf-8")
    assert "identical" in printed("import", f"{file}:net", "--input", "3x32x32", "-o", tmp_path / "net.toml")


@pytest.mark.wide  # the chain above has its layers
@pytest.mark.usefixtures("julia")
@pytest.mark.timeout(300)
def test_the_chain_of_the_guide_is_proven(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "own_model.md").read_text("utf-8")
    (program,) = re.findall(r"```julia\n(.+?)```", guide, re.DOTALL)
    (tmp_path / "chain.jl").write_text(program, "utf-8")
    assert "identical" in printed(
        "import", tmp_path / "chain.jl:net", "--input", "3x32x32", "-o", tmp_path / "chain.toml"
    )


@pytest.mark.wide  # julia/test/import.jl reads these layers, and the parity check trains them
@pytest.mark.usefixtures("julia")
@pytest.mark.timeout(300)
def test_code_for_flux_is_the_same_transformer(tmp_path: Path) -> None:
    net = tmp_path / "net.toml"
    net.write_text(_TRANSFORMER, "utf-8")
    again = export_and_import(net, "--input", "8")
    assert types(again) == types(net)
    assert read_network(again).parameters() == read_network(net).parameters()


@pytest.mark.usefixtures("julia")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("network", ["lenet", "resnet32", "vit-cifar", "mobile-cifar"])
def test_a_module_keeps_its_weights_through_flux(network: str, tmp_path: Path) -> None:
    torch_code, net = tmp_path / "first.py", tmp_path / "net.toml"
    printed("export", network, "--framework", "torch", "-o", torch_code)
    printed("import", f"{torch_code}:network", "--input", "3x32x32", "-o", net)
    again = export_and_import(net, "--input", "3x32x32")
    assert types(again) == types(net)
    back, last = tmp_path / "back.py", tmp_path / "last.toml"
    printed("export", again, "--framework", "torch", "-o", back)
    printed("import", f"{back}:network", "--input", "3x32x32", "-o", last)
    assert weights(last) == weights(again) == weights(net)


_AGAINST = """
using Flux, PolyBench
chain = Chain(Flux.flatten, Dense(3072 => 10, relu), Dense(10 => 10))
options = `--quick --steps-per-round 3 --budget 5 --quiet`
study = bench(chain; against = ["torch"], input = (32, 32, 3), batch = 16, command = `$ARGS -m polybench`, options)
passed(event) = event["parity"]["status"] == "pass"
print(join(keys(study), ' '), ' ', count(passed, PolyBench.events_of(study, "parity")))
"""


@pytest.mark.wide  # imports a chain and compares two engines, as other tests do from Python
@pytest.mark.usefixtures("julia")
@pytest.mark.timeout(600)
def test_a_chain_is_compared_from_julia() -> None:
    julia = find()
    command = [julia.executable, f"--project={julia.project}", "--startup-file=no", "-O0", "-e", _AGAINST]
    command.append(sys.executable)
    own = {"JULIA_LOAD_PATH": f"@:{package_folder()}:@stdlib"}
    run = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, timeout=580, check=False)
    assert run.stdout.splitlines()[-1:] == ["flux/cpu torch/cpu 2"], run.stderr


def test_a_chain_needs_a_shape(tmp_path: Path) -> None:
    (file := tmp_path / "chain.jl").write_text(_CHAIN, "utf-8")
    message = refused("import", f"{file}:net", "-o", tmp_path / "net.toml")
    assert "no input shape: use --input" in message
