"""Writes minimal programs that reproduce one operation of one layer, for an issue in a framework's repository.

The layer is that of the framework's emitter, as an engine times it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polybench.engines.flux.network_code import NetworkCode as FluxNetwork
from polybench.engines.shared.keras_emitter import layer_program
from polybench.engines.shared.main_part import MainPart
from polybench.engines.torch.emitter import emit_layer
from polybench.engines.torch.network_code import NetworkCode as TorchNetwork
from polybench.errors import EngineUnavailable
from polybench.networks.layers import Flatten, Layer, Operation, Residual, Shape, state_shapes, weight_shapes
from polybench.networks.source_text import literal
from polybench.networks.timed_layers import TimedLayer
from polybench.schema.options import Workload

DATA = "layer.npz"
NO_PROGRAMS = "embeddings, dropout, flatten layers and sums"
"""Layers without programs: an input of tokens, a random output, and what costs next to nothing."""

_TORCH = """torch.set_num_threads(THREADS)
with np.load(Path(__file__).with_name("layer.npz")) as file:
    arrays = {name: torch.from_numpy(file[name]) for name in file}
x, dy, expected = (arrays.pop(name) for name in ("x", "dy", "expected"))
layer = Network()
tensors = STATE
for name, array in arrays.items():
    tensors[name].copy_(array)
CALL
found = FOUND
error = (found - expected).norm() / expected.norm()
TIMING
print(f"PyTorch {torch.__version__}: {milliseconds:.3f} ms, relative error {error:.1e}")"""
_IN_TORCH: Mapping[Operation, tuple[str, str]] = {
    "forward": (
        """

def operation():
    return layer(x)

""",
        "operation()",
    ),
    "input gradient": (
        """y = layer(x.requires_grad_())


def operation():
    return torch.autograd.grad(y, [x], dy, retain_graph=True)

""",
        "operation()[0]",
    ),
    "weight gradient": (
        """y = layer(x)
trained = {name: one for name, one in layer.named_parameters() if one.requires_grad}


def operation():
    return torch.autograd.grad(y, list(trained.values()), dy, retain_graph=True)


gradients = GRADIENTS""",
        "gradients[WEIGHT]",
    ),
}
"""The lines that define an operation, and the expression of its result."""

_TENSORFLOW = """tf.config.threading.set_intra_op_parallelism_threads(THREADS)
tf.config.threading.set_inter_op_parallelism_threads(THREADS)
with np.load(Path(__file__).with_name("layer.npz")) as file:
    arrays = dict(file)
x = tf.constant(arrays["x"]INPUT)
dy = tf.constant(arrays["dy"]OUTPUT)
layer = make_network()
assign(layer, arrays)
CALL


found = FOUND
error = np.linalg.norm(found - arrays["expected"]) / np.linalg.norm(arrays["expected"])
TIMING
print(f"TensorFlow {tf.__version__}: {milliseconds:.3f} ms, relative error {error:.1e}")"""
_GRADIENT = """

@tf.function
def operation():
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(SOURCES)
        y = layer(x, training=True)
    return tape.gradient(y, SOURCES, dy)"""
_TRAINED = "trained = [variable.value for variable in layer.trainable_variables]"
_IN_TENSORFLOW: Mapping[Operation, tuple[str, str]] = {
    "forward": (
        """

@tf.function
def operation():
    return layer(x, training=True)""",
        "operation().numpy()BACK",
    ),
    "input gradient": (_GRADIENT.replace("SOURCES", "x"), "operation().numpy()BACK"),
    "weight gradient": (
        f"{_TRAINED}\n{_GRADIENT.replace('SOURCES', 'trained')}",
        "variables(layer)[WEIGHT][1](operation()[0].numpy())",
    ),
}

_TIMING = """seconds = []
for _ in range(100):
    start = perf_counter()
    operation()
    seconds.append(perf_counter() - start)
milliseconds = 1e3 * median(seconds)"""

_FLUX = """# Layers in Flux.
#
USAGE

using Flux
using LinearAlgebra: BLAS, norm
using NPZ
using Statistics: median

const DTYPE = Float32

NETWORK

TENSORS

# Python's arrays with the axes reversed are the same in memory.
reversed(array) = permutedims(array, ndims(array):-1:1)

function main()
    Threads.nthreads() == THREADS || error("start julia with --threads=THREADS")
    BLAS.set_num_threads(1)
    file = npzread(joinpath(@__DIR__, "layer.npz"))
    arrays = Dict(name => reversed(array) for (name, array) in file)
    x, dy, expected = arrays["x"], arrays["dy"], arrays["expected"]
    layer = network()
    for (name, array) in tensors(layer)
        array .= arrays[name]
    end
    CALL
    seconds = [@elapsed operation() for _ in 1:100]
    milliseconds = round(1.0e3 * median(seconds); digits = 3)
    FOUND
    relative_error = norm(found .- expected) / norm(expected)
    println("Flux $(pkgversion(Flux)): $milliseconds ms, relative error $relative_error")
    return nothing
end

main()
"""
_IN_FLUX: Mapping[Operation, tuple[str, str]] = {
    "forward": ("operation() = first(Flux.Zygote.pullback(x -> layer(x), x))", "found = operation()"),
    "input gradient": (
        "_, gradient = Flux.Zygote.pullback(x -> layer(x), x)\n    operation() = only(gradient(dy))",
        "found = operation()",
    ),
    "weight gradient": (
        "_, gradient = Flux.Zygote.pullback(layer -> layer(x), layer)\n    operation() = only(gradient(dy))",
        """gradients = operation()
    # A step of gradient descent from zeros, with the rate 1, leads to minus the gradients.
    foreach(((_, array),) -> array .= 0, tensors(layer))
    Flux.update!(Flux.setup(Descent(1.0), layer), layer, gradients)
    found = -Dict(tensors(layer))[WEIGHT]""",
    ),
}


class LayerOperation(NamedTuple):
    """An operation of a layer, for inputs of `shape`, with a number of threads."""

    layer: Layer
    shape: Shape
    operation: Operation
    threads: int


def write_programs(
    folder: Path, timed_layer: TimedLayer, operation: Operation, tensors: Path, weights: Path, workload: Workload
) -> list[str]:
    """Write `layer.npz` and a program for each framework that has the layer, without its ReLU; return the files' names.

    `relu gradient` is that of the ReLU alone. `tensors` is the layer's file from `worker.layers.write_layer_tensors`,
    whose images repeat to fill the batch; `weights` has those of the whole network. A layer without programs gets no
    files.
    """
    chosen = LayerOperation(timed_layer.layer, timed_layer.input_shape, operation, workload.threads)
    if operation == "relu gradient":
        chosen = LayerOperation(timed_layer.layers[-1], timed_layer.output_shape(), "input gradient", workload.threads)
    programs = layer_programs(chosen)
    if programs:
        folder.mkdir(parents=True, exist_ok=True)
        arrays = _weights(chosen.layer, weights) | _arrays(operation, tensors, workload.batch_size)
        np.savez(folder / DATA, **arrays)
    for file, program in programs.items():
        (folder / file).write_text(program, "utf-8")
    return [DATA, *programs] if programs else []


def layer_programs(chosen: LayerOperation) -> dict[str, str]:
    """Return the programs by the names of their files; without a framework that does not have the layer."""
    programs: dict[str, str] = {}
    if chosen.layer.is_random or chosen.layer.is_lookup or isinstance(chosen.layer, Flatten | Residual):
        return programs
    for file, write in _WRITERS.items():
        try:
            programs[file] = write(chosen)
        except EngineUnavailable:
            continue
    return programs


def _torch(chosen: LayerOperation) -> str:
    network = TorchNetwork([chosen.layer], chosen.shape)
    gradients = network.named("dict(zip(trained, operation(), strict=True))")
    code = {"STATE": network.named("layer.state_dict()"), "GRADIENTS": gradients, "TIMING": _TIMING}
    main = MainPart(_filled(_TORCH, _IN_TORCH, chosen, code), _usage(chosen, "python"))
    return emit_layer([chosen.layer], chosen.shape, main)


def _tensorflow(chosen: LayerOperation) -> str:
    inputs, outputs = (
        ".transpose(0, 2, 3, 1)" if len(shape) == 3 else ""
        for shape in (chosen.shape, chosen.layer.output_shape(chosen.shape))
    )
    back = (outputs if chosen.operation == "forward" else inputs).replace("2, 3, 1", "3, 1, 2")
    code = {"INPUT": inputs, "OUTPUT": outputs, "BACK": back, "TIMING": _TIMING}
    main = MainPart(_filled(_TENSORFLOW, _IN_TENSORFLOW, chosen, code), _usage(chosen, "python"))
    return layer_program([chosen.layer], chosen.shape, "float32", main=main)


def _flux(chosen: LayerOperation) -> str:
    network = FluxNetwork([chosen.layer], chosen.shape)
    usage = _usage(chosen, f"julia --threads={chosen.threads}").splitlines()
    lines = "\n".join(f"# {line}".rstrip() for line in usage)
    code = {"USAGE": lines, "NETWORK": network.text(), "TENSORS": network.tensors()}
    return _filled(_FLUX, _IN_FLUX, chosen, code)


_WRITERS: Mapping[str, Callable[[LayerOperation], str]] = {
    "layer_torch.py": _torch, "layer_tf.py": _tensorflow, "layer_flux.jl": _flux,
}  # fmt: skip


def _usage(chosen: LayerOperation, command: str) -> str:
    return f"""Times an operation of a layer, "{chosen.operation}", as `polybench layers` does:

    {command} THIS_FILE

{DATA} beside it has the layer's weights, its input x, the gradient dy of its output,
and the expected result; images are channels first."""


def _filled(
    text: str, operations: Mapping[Operation, tuple[str, str]], chosen: LayerOperation, code: dict[str, str]
) -> str:
    """Return the text with this code, and that of the operation, in place of words in capital letters."""
    code |= {"THREADS": str(chosen.threads), "WEIGHT": literal(next(iter(weight_shapes([chosen.layer])), ""))}
    call, found = (_replaced(one, code) for one in operations[chosen.operation])
    return _replaced(text, code | {"CALL": call, "FOUND": found})


def _replaced(text: str, values: Mapping[str, str]) -> str:
    return re.sub(rf"\b(?:{'|'.join(values)})\b", lambda word: values[word[0]], text)


def _weights(layer: Layer, weights: Path) -> dict[str, Any]:
    names = weight_shapes([layer]) | state_shapes([layer])
    with np.load(weights) as file:
        return {name: file[name] for name in names}


def _arrays(operation: Operation, tensors: Path, batch_size: int) -> dict[str, Any]:
    """Return input, output gradient and expected result, in the canonical layout and C order."""
    with np.load(tensors) as file:
        seen = dict(file)
    times = max(1, batch_size // len(seen["x"]))

    def repeat_batch(name: str) -> NDArray[np.float32]:
        return np.concatenate([seen[name]] * times)

    match operation:
        case "relu gradient":
            return {"x": repeat_batch("z"), "dy": repeat_batch("dy"), "expected": repeat_batch("dz")}
        case "weight gradient":
            expected = times * next(value for name, value in seen.items() if name.startswith("gradient."))
        case _:
            expected = repeat_batch("z" if operation == "forward" else "dx")
    return {"x": repeat_batch("x"), "dy": repeat_batch("dz"), "expected": expected}
