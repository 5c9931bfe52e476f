"""`polybench export`: plain code of each framework computes the network, and round trips change no weight."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from polybench.engines.reference import network as reference
from polybench.engines.reference.network import loss_and_gradients
from polybench.importer import translate_model
from polybench.networks import find_model
from polybench.networks.initial_weights import initial_weights
from polybench.networks.layers import AveragePool, Conv, MaxPool, ReLU
from polybench.networks.network_file import network_toml
from polybench.planning.study_file import read_network
from polybench.scripts.network_code import export
from tests.commands import printed, printed_json, refused
from tests.configured_julia import configured_julia
from tests.engine_workers import fast_compilation
from tests.engines.flux.flux_programs import with_libraries
from tests.example_networks import FEATURES, PADDED
from tests.lazy import needs

MY_NET = str(Path(__file__).parents[2] / "examples" / "my_net.toml")
INPUTS = {
    "lenet": "3x32x32",
    "imdb-bilstm": "100",
    "vit-cifar": "3x32x32",
    "char-gpt": "64",
    "mobile-cifar": "3x32x32",
    "padded": "3x16x16",
}


def imported(file: Path, network: str, name: str) -> Path:
    """Import an exported program; return the network file."""
    net = file.parent / f"{name}.toml"
    shape = () if "keras" in file.name else ("--input", INPUTS[network])
    document = printed_json("import", f"{file}:network", *shape, "-o", net, "--format", "json")
    assert document["proof"]["failure"] is None
    return net


def weights_of(net: Path) -> list[bytes]:
    """Return the bytes of each tensor, in the order of the network."""
    with np.load(net.with_suffix(".npz")) as arrays:
        return [arrays[name].tobytes() for name in arrays]


_SIDES = msgspec.structs.replace(
    PADDED,
    layers=(
        Conv("strided", 3, 4, 3, 2, ((0, 1), (0, 1))),
        ReLU(),
        MaxPool(3, 2, 1),
        Conv("even", 4, 4, 2, 1, ((1, 0), (0, 1))),
        AveragePool(3, 1, 1, count_padding=False),
        AveragePool(2, 1, ((1, 0), (0, 1))),
        *PADDED.layers[-2:],
    ),
    input_shape=(3, 16, 16),
)


@needs("torch", "tensorflow")
def test_a_round_trip_changes_no_padding(tmp_path: Path) -> None:
    source = tmp_path / "net.toml"
    source.write_text(network_toml(_SIDES), "utf-8")
    padding = [getattr(layer, "padding", None) for layer in _SIDES.layers]
    for number, framework in enumerate(("torch", "keras")):
        file = tmp_path / f"{framework}{number}.py"
        printed("export", source, "--framework", framework, "-o", file)
        network, shape = runpy.run_path(str(file))["network"], _SIDES.input_shape if framework == "torch" else None
        (proof := tmp_path / f"proof{number}").mkdir()
        document, _ = translate_model(network, shape, proof, file, "network")
        assert document.proof.failure is None
        source = tmp_path / f"net{number}.toml"
        source.write_text(document.network, "utf-8")
        assert [getattr(layer, "padding", None) for layer in read_network(str(source)).layers] == padding


@needs("torch", "tensorflow")
@pytest.mark.parametrize("network", ["lenet", "imdb-bilstm", "mobile-cifar"])
def test_a_round_trip_from_torch_to_keras_and_back_changes_no_bit(network: str, tmp_path: Path) -> None:
    model = find_model(network)
    nets = []
    source: object = network
    for number, framework in enumerate(("torch", "keras", "torch")):
        file = tmp_path / f"{framework}{number}.py"
        printed("export", source, "--framework", framework, "-o", file)
        source = imported(file, network, f"net{number}")
        nets.append(source)
    expected = [value.tobytes() for value in initial_weights(model, 0).values()]
    assert [weights_of(net) for net in nets] == [expected] * 3


@needs("torch")
@pytest.mark.parametrize("network", ["vit-cifar", "char-gpt"])
def test_transformers_in_torch_are_proven(network: str, tmp_path: Path) -> None:
    printed("export", network, "--framework", "torch", "-o", tmp_path / "net.py")
    net = imported(tmp_path / "net.py", network, "again")
    assert weights_of(net) == [value.tobytes() for value in initial_weights(find_model(network), 0).values()]


_LOGITS = """
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from net import DEVICE, jax, network, state

inputs = jax.device_put(np.load(sys.argv[1] + "/inputs.npy"), DEVICE)
variables = [state[name] for name in ("params", "buffers") if name in state]
logits = network(*variables, inputs)
np.save(sys.argv[1] + "/logits.npy", logits[0] if len(variables) > 1 else logits)
"""


@needs("jax")
@pytest.mark.parametrize(
    "network", ["lenet", "resnet32", "mobile-cifar", "vit-cifar", "char-gpt", "imdb-bilstm", "padded"]
)
def test_plain_jax_has_the_logits_of_the_reference(network: str, tmp_path: Path) -> None:
    """The program's losses and gradients are those of the engine, which the parity check compares."""
    model, random = PADDED if network == "padded" else find_model(network), np.random.default_rng(0)
    shape = (2, *model.input_shape)
    inputs = random.integers(model.vocabulary_size, size=shape) if model.vocabulary_size else random.random(shape)
    weights = {name: value + np.float32(0.01) for name, value in initial_weights(model, 0).items()}
    np.save(tmp_path / "inputs.npy", inputs if model.vocabulary_size else inputs.astype(np.float32))
    export(model, weights, "jax", tmp_path / "net.py")
    environment = os.environ | fast_compilation("jax")
    subprocess.run([sys.executable, "-c", _LOGITS, str(tmp_path)], env=environment, check=True)
    expected = reference.logits(model, weights, inputs)
    scale = float(np.abs(expected).max())
    np.testing.assert_allclose(np.load(tmp_path / "logits.npy"), expected, rtol=1e-4, atol=1e-4 * scale)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_plain_code_pads_each_side_as_the_reference(framework: str, tmp_path: Path) -> None:
    pytest.importorskip("torch" if framework == "torch" else "tensorflow")
    weights = {name: value + np.float32(0.1) for name, value in initial_weights(PADDED, 0).items()}
    export(PADDED, weights, framework, tmp_path / "net.py")
    images = np.random.default_rng(0).random((2, *PADDED.input_shape), np.float32)
    network = runpy.run_path(str(tmp_path / "net.py"))["network"]
    if framework == "torch":
        import torch

        logits = network(torch.from_numpy(images)).detach().numpy()
    else:
        logits = np.asarray(network(images.transpose(0, 2, 3, 1)))
    np.testing.assert_allclose(logits, reference.logits(PADDED, weights, images.astype(np.float64)), rtol=1e-4)


_LUX = """
include(joinpath(ARGS[1], "net.jl"))
batch = npzread(joinpath(ARGS[1], "batch.npz"))
inputs = permutedims(batch["inputs"], ndims(batch["inputs"]):-1:1)
loss_function = CrossEntropyLoss(; logits = Val(true))
function loss(parameters)
    logits, new_states = model(inputs, parameters, states)
    return loss_function(logits, onehotbatch(batch["labels"], 0:9)), new_states
end
(value, new_states), back = Zygote.pullback(loss, parameters)
gradients = only(back((1.0f0, nothing)))
squares(tree::NamedTuple) = sum(squares, values(tree); init = 0.0)
squares(array::AbstractArray) = sum(abs2, Float64.(array))
squares(_) = 0.0
println(value, ' ', sqrt(squares(gradients)), ' ', squares(new_states) - squares(states))
"""


@pytest.mark.parametrize("network", ["lenet", MY_NET, "vit-cifar"])
@pytest.mark.timeout(300)
def test_plain_lux_has_the_loss_and_gradients_of_the_reference(network: str, tmp_path: Path) -> None:
    julia = configured_julia("Lux", "NPZ")
    named = read_network(network) if network.endswith(".toml") else find_model(network)
    model, random = msgspec.structs.replace(named, label_smoothing=0.0), np.random.default_rng(0)
    inputs, labels = random.random((8, *model.input_shape), np.float32), random.integers(model.classes, size=8)
    np.savez(tmp_path / "batch.npz", inputs=inputs, labels=labels)
    printed("export", network, "--framework", "lux", "-o", tmp_path / "net.jl")
    (tmp_path / "run.jl").write_text(_LUX, "utf-8")
    options = [f"--project={julia.project}", "--startup-file=no", "-O1"]
    command = [julia.executable, *options, str(tmp_path / "run.jl"), str(tmp_path)]
    environment = with_libraries(tmp_path)
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280, env=environment)
    assert run.returncode == 0, run.stderr
    weights = {name: value.astype(np.float64) for name, value in initial_weights(model, 0).items()}
    loss, gradients, statistics = loss_and_gradients(model, weights, inputs.astype(np.float64), labels)
    norm = np.sqrt(sum(float((one**2).sum()) for one in gradients.values()))
    before = sum(float((weights[name] ** 2).sum()) for name in statistics)
    change = sum(float((one**2).sum()) for one in statistics.values()) - before
    assert [float(one) for one in run.stdout.split()] == pytest.approx([loss, norm, change], rel=1e-3, abs=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("imdb-bilstm", "--framework", "lux", "-o", "net.jl"), "Lux.jl has no lstm in polybench"),
        (("lenet", "--framework", "flux", "-o", "net.py"), "expected a name that ends in .jl"),
        (("lenet", "--framework", "pytorch", "-o", "net.py"), "did you mean 'torch'"),
        (("lenet", "--framework", "torch", "-o", "net.txt"), "expected a name that ends in .py"),
        (("--model", "imdb-bilstm", "--framework", "lux", "-o", "net.jl"), "Lux.jl has no lstm in polybench"),
    ],
)
def test_what_cannot_be_written_is_refused(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in refused("export", *arguments)
    assert not list(tmp_path.iterdir())


def test_options_of_an_lstm_that_flux_lacks_are_refused(tmp_path: Path) -> None:
    (net := tmp_path / "net.toml").write_text(network_toml(FEATURES), "utf-8")
    message = refused("export", net, "--framework", "flux", "-o", tmp_path / "code.jl")
    assert "Flux.jl has no lstm with biases = 2 and recurrent_activation" in message


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    net = tmp_path / "net.toml"
    net.write_text(printed("models", "lenet", "--format", "toml"), "utf-8")
    np.savez(net.with_suffix(".npz"), **{"conv1.weight": np.zeros((2, 3))})
    command = ("export", net, "--framework", "torch", "-o", tmp_path / "code.py")
    assert "expected" in refused(*command)
    for content in (b"no archive", b"PK\x03\x04 a zip archive that is cut off"):
        net.with_suffix(".npz").write_bytes(content)
        assert "not a file of weights" in refused(*command)
