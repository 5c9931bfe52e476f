"""The program of Flux as text: what its readers see, and what differs between its uses."""

from __future__ import annotations

import difflib
import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.engines.flux import emitter as flux
from polybench.engines.flux.emitter import emit, emit_training
from polybench.engines.flux.lux import emitter as lux
from polybench.engines.job import Job
from polybench.errors import EngineUnavailable
from polybench.networks import MODELS, find_model
from polybench.networks.layers import (
    LSTM,
    BatchNorm,
    Conv,
    Dense,
    Flatten,
    GroupNorm,
    Layer,
    LayerNorm,
    MeanOverTime,
    ReLU,
    Residual,
    walk,
)
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer
from tests.configured_julia import configured_julia
from tests.engines.emitted_programs import EXAMPLES, changes, job, small
from tests.example_networks import FEATURES

WIDTH = 92


def forward_pass(model: Any) -> Job:
    """Return the job of a forward pass."""
    found = job(model)
    return msgspec.structs.replace(found, workload=msgspec.structs.replace(found.workload, pass_="forward"))


def programs(name: str, framework: str = "flux") -> dict[str, str]:
    """Return the programs of a network by their use."""
    emitter = {"flux": flux, "lux": lux}[framework]
    emit, emit_training = emitter.emit, emitter.emit_training
    model = EXAMPLES.get(name) or find_model(name)
    clipped = Optimizer("nesterov", 0.1, weight_decay=0.1, gradient_clip=1.0, lr_schedule=((3, 0.2), (5, 0.1)))
    warmed_up = Optimizer("adamw", 0.1, weight_decay=1e-5, warmup_steps=3, cosine_steps=9, min_learning_rate=1e-4)
    return {
        "trained": emit_training(job(model), 3, clock=True),
        "checked": emit(job(model, dtype="float64", dropout="given")),
        "network": emitter.emit_network(job(model)),
        "forward": emit(forward_pass(model)),
        "clipped": emit_training(job(model, clipped), 3),
        "train": emit_training(job(model, warmed_up, variants=("train",)), 3),
    } | (elsewhere(model, clipped) if framework == "flux" else {})


def elsewhere(model: Model, optimizer: Optimizer) -> dict[str, str]:
    """Return the programs with gradients that are not Zygote's, and for a GPU."""
    found = {
        "enzyme": emit(job(model, optimizer, variants=("enzyme",), dropout="given")),
        "cuda": emit(job(model, optimizer, "cuda:1", precision="tf32")),
        "cuda-forward": emit(msgspec.structs.replace(forward_pass(model), device="cuda", dtype="float64")),
        "reactant": emit(job(model, Optimizer("sgd", 0.1), variants=("reactant",), dropout="given")),
    }
    if not model.has_statistics:
        found["mooncake"] = emit(job(model, optimizer, variants=("mooncake",)))
    return found


def cases() -> list[tuple[str, str]]:
    """Return each network with a framework that has its layers."""
    models = {name: EXAMPLES.get(name) or find_model(name) for name in (*MODELS, *EXAMPLES)}
    without_lstm = [name for name, one in models.items() if not any(isinstance(x, LSTM) for x in walk(one.layers))]
    return [*((name, "flux") for name in models), *((name, "lux") for name in without_lstm)]


@pytest.mark.parametrize(("name", "framework"), cases())
def test_lines_of_a_program_are_short_and_every_function_is_used(name: str, framework: str) -> None:
    public = {"weights", "setup", "reset!", "load", "train_step!", "train_steps!", "forward_pass", "set_masks!", "clip"}
    for text in programs(name, framework).values():
        assert max(map(len, text.splitlines())) <= WIDTH
        assert not re.search(r"[ \t]$|\t|\n\n\n", text, re.MULTILINE)
        for function in re.findall(r"^(?:function )?(\w+!?)\(.*?\)(?: =|$)", text, re.MULTILINE):
            assert function in public or len(re.findall(rf"\b{function}(?!\w)", text)) > 1, function


def test_runic_would_change_nothing(tmp_path: Path) -> None:
    julia = configured_julia()
    load = [julia.executable, "--startup-file=no", "--project=@runic", "-e"]
    if subprocess.run([*load, "using Runic"], capture_output=True, check=False).returncode:
        pytest.skip("Runic is not in the environment @runic of Julia")
    for name, framework in cases():
        for use, text in programs(name, framework).items():
            (tmp_path / f"{framework}_{name}_{use}.jl").write_text(text, "utf-8")
    command = [*load, "using Runic; exit(Runic.main(ARGS))", "--", "--check", "--diff", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_repeated_blocks_are_one_function_and_a_comprehension() -> None:
    text = emit(job(find_model("resnet32")))
    assert text.count("Conv((") == 6  # the first, two of a block, three of a block with a projection
    assert "    Chain([residual_block(16) for _ in 1:5]...),\n" in text
    assert "    Chain(projection_block(16, 32), [residual_block(32) for _ in 1:4]...),\n" in text
    for stage in (2, 3):
        call = f'[residual_block_tensors("stage{stage}.block$n", model[{stage + 2}][n]) for n in 2:5]...'
        assert f"    {call},\n" in text
    mobile = emit(job(find_model("mobile-cifar")))
    assert "\nblock1() = Chain(\n" in mobile
    assert "\nblock(inputs, hidden, outputs; stride) = Chain(\n" in mobile
    assert emit(job(find_model("char-gpt"))).count("SelfAttention(128, 4)") == 1


def test_a_program_has_only_the_functions_of_its_layers() -> None:
    functions = re.findall(r"^(?:function )?(\w+!?)\(", emit(job()), re.MULTILINE)
    named = ["tensors", "named", "kernel", "named"]
    step = ["setup", "reset!", "make_optimizer", "load", "compute_loss", "train_step!", "weights"]
    assert functions == ["network", *named, *step]


def test_an_activation_is_that_of_the_layer_before_it() -> None:
    text = emit(job(small(Conv("conv", 3, 4, 1), BatchNorm("norm", 4), ReLU(), ReLU(), Flatten(), Dense("d", 64, 10))))
    assert "    Conv((1, 1), 3 => 4),\n    batch_norm(4, relu),\n    x -> relu.(x),\n    Flux.flatten,\n" in text
    assert "    Dense(84 => 10),\n" in emit(job())


def test_functions_of_norms_have_the_constants_of_their_layers() -> None:
    def lines(*layers: Layer, shape: tuple[int, ...] = (3, 4, 4)) -> str:
        model = msgspec.structs.replace(
            find_model("lenet"), layers=layers, input_shape=shape, published_parameters=None
        )
        return re.sub(r"\( ", "(", re.sub(r"\s+", " ", emit(job(model))))

    head = Flatten(), Dense("dense", 48, 10)
    one = lines(BatchNorm("a", 3, epsilon=0.5, momentum=0.3), GroupNorm("b", 3, 3, epsilon=0.25), *head)
    assert " = BatchNorm(channels; eps = DTYPE(0.5), momentum = DTYPE(0.3)" in one
    assert " = GroupNorm(channels, groups; eps = DTYPE(0.25), momentum = DTYPE(0.1)" in one
    two = lines(BatchNorm("a", 3, epsilon=0.5), BatchNorm("b", 3, momentum=0.3), *head)
    assert "eps = 1.0e-5, momentum = 0.1) = BatchNorm(channels; eps = DTYPE(eps), momentum = DTYPE(m" in two
    assert "(batch_norm(3; eps = 0.5), batch_norm(3; momentum = 0.3)," in two
    # Flux adds the square of its epsilon to the variance.
    sequence = MeanOverTime(), Dense("dense", 8, 10)
    layer_norm = lines(LayerNorm("a", 8, epsilon=0.5), *sequence, shape=(5, 8))
    assert "layer_norm(features) = LayerNorm(features; eps = DTYPE(sqrt(0.5)))" in layer_norm
    several = lines(LayerNorm("a", 8, epsilon=0.5), LayerNorm("b", 8, bias=False), *sequence, shape=(5, 8))
    assert "layer_norm(features; eps = 1.0e-5, bias = true) = LayerNorm(identity," in several
    assert "DTYPE(sqrt(eps)), (features,), true" in several
    assert "(layer_norm(8; eps = 0.5), layer_norm(8; bias = false)," in several


def test_the_checked_program_differs_from_the_timed_one_in_type_and_masks_only() -> None:
    assert changes(emit(job()), emit(job(dtype="float64"))) == ["- const DTYPE = Float32", "+ const DTYPE = Float64"]
    model = find_model("mnist-mlp")
    removed = [line for line in changes(emit(job(model)), emit(job(model, dropout="given"))) if line[0] == "-"]
    assert removed == [*["-     Dropout(0.2),"] * 2, "- function train_step!(state, (inputs, targets))"]


def test_the_exported_program_is_the_timed_one_and_a_main_part() -> None:
    for name in ("lenet", "char-gpt"):
        timed, exported = (write(name).splitlines() for write in (_timed, _exported))
        assert [line for line in difflib.ndiff(timed, exported) if line.startswith("- ")] == []
        assert len(exported) - len(timed) <= 60
        text = "\n".join(exported)
        assert "const UNTIMED_STEPS = 2\nconst STEPS = 7\n" in text
        assert 'Threads.nthreads() == 3 || error("start julia with --threads=3")' in text


def _timed(name: str) -> str:
    return emit(job(find_model(name)))


def _exported(name: str) -> str:
    return emit_training(job(find_model(name)), 7)


def test_threads_are_those_of_the_variant() -> None:
    text = emit_training(job(variants=("framework_threads",)), 7)
    assert "Threads.nthreads() == 1 ||" in text
    assert "BLAS.set_num_threads(3)" in text


def test_a_clock_has_every_phase_of_a_start() -> None:
    text = emit_training(job(), 1, clock=True)
    assert text.index("const CLOCK") < text.index("using Flux")
    phases = re.findall(r'\(+"(\w+)"(?:, "(\w+)"\))?', text[text.index("const CLOCK") :])
    named = [phase for pair in phases for phase in pair if phase]
    assert {"process", "import", "data", "build", "first_step", "second_step"} <= set(named)
    assert "CLOCK" not in emit_training(job(), 1)


def test_the_seed_is_that_of_dropout() -> None:
    assert "\nconst SEED = 7\n" in emit(job(seed=7))


@pytest.mark.parametrize(
    ("optimizer", "code"),
    [
        (Optimizer("sgd", 0.5), "make_optimizer(model) = Flux.setup(Descent(0.5), model)\n"),
        (
            Optimizer("momentum", 0.5, 0.8, 0.1),
            "Flux.setup(\n    OptimiserChain(WeightDecay(0.1), Momentum(0.5, 0.8)), model,\n)\n",
        ),
        (Optimizer("nesterov", 0.5, 0.8), "Flux.setup(Nesterov(0.5, 0.8), model)"),
        (Optimizer("adam", 1e-5), "Flux.setup(Adam(1.0e-5), model)"),
        (Optimizer("adam", 0.5, betas=(0.8, 0.9)), "Flux.setup(Adam(0.5, (0.8, 0.9)), model)"),
        (Optimizer("rmsprop", 0.5), "Flux.setup(RMSProp(0.5, 0.9, 1.0e-7), model)"),
        (Optimizer("adamw", 0.5, weight_decay=0.1), "Flux.setup(AdamW(0.5, (0.9, 0.999), 0.1), model)"),
        (Optimizer(gradient_clip=0.7), "state.model, clip(state.optimizer, gradients[1]))\n"),
        (Optimizer(lr_schedule=((3, 0.2),)), "    step < 3 && return 0.01\n    return 0.2\n"),
    ],
)  # fmt: skip
def test_each_optimizer_is_as_a_user_writes_it(optimizer: Optimizer, code: str) -> None:
    text = emit(job(optimizer=optimizer))
    assert code in text
    assert text.count("Flux.update!(") == 1


def test_velocities_follow_the_rate_and_only_matrices_decay() -> None:
    schedule = {"lr_schedule": ((3, 0.2),)}
    assert "        leaf.state .*= rate / state.rate\n" in emit(job(optimizer=Optimizer(**schedule)))
    decayed = emit(job(optimizer=Optimizer(weight_decay=0.1, **schedule)))
    assert "        last(leaf.state) .*= rate / state.rate\n" in decayed
    assert "leaf" not in emit(job(optimizer=Optimizer("sgd", **schedule)))
    assert "ndims(first(leaf.state)) > 1" in emit(job(optimizer=Optimizer("adamw", weight_decay=0.1)))


def test_the_variant_train_has_the_loop_of_flux() -> None:
    text = emit(job(variants=("train",)))
    assert "    Flux.train!(state.model, batches, state.optimizer) do model, inputs, targets\n" in text
    assert "train_step!(" not in text
    with pytest.raises(EngineUnavailable, match="without a place to clip gradients"):
        emit(job(optimizer=Optimizer(gradient_clip=1.0), variants=("train",)))


@pytest.mark.parametrize(
    ("variant", "changed"),
    [
        (
            "enzyme",
            """+ using Enzyme: Duplicated
- mutable struct State{M, O}
+ mutable struct State{M, D, O}
+     # The model, and the memory of its gradient.
+     const duplicated::D
-     model = (DTYPE == Float64 ? f64 : f32)(network())
+     model = Flux.trainmode!((DTYPE == Float64 ? f64 : f32)(network()))
-     state = State(model, make_optimizer(model))
+     state = State(model, Duplicated(model), make_optimizer(model))
-     loss, gradients = Flux.withgradient(state.model) do model
+     loss, gradients = Flux.withgradient(state.duplicated) do model""",
        ),
        (
            "mooncake",
            """+ using Mooncake
-     model = (DTYPE == Float64 ? f64 : f32)(network())
+     model = Flux.trainmode!((DTYPE == Float64 ? f64 : f32)(network()))
-     loss, gradients = Flux.withgradient(state.model) do model
+     loss, gradients = Flux.withgradient(AutoMooncake(), state.model) do model""",
        ),
        (
            "reactant",
            """+ using Reactant
+
+ const to_device = MLDataDevices.reactant_device(nothing; force = true)
-     model = (DTYPE == Float64 ? f64 : f32)(network())
+     model = to_device(Flux.trainmode!((DTYPE == Float64 ? f64 : f32)(network())))
+     model = cpu(state.model)
-     for (name, array) in tensors(state.model)
+     for (name, array) in tensors(model)
+     Flux.loadmodel!(state.model, to_device(model))
+ load(images, labels) = to_device(
- load(images, labels) = convert(Array{DTYPE}, images), Flux.onehotbatch(labels, 0:9)
+     (convert(Array{DTYPE}, images), Flux.onehotbatch(labels, 0:9)),
+ )
+     # One function, which Reactant compiles.
+     batch = (inputs, targets)
+     loss = Flux.trainstep!(compute_loss, state.model, batch, state.optimizer)
-     loss, gradients = Flux.withgradient(state.model) do model
-         return compute_loss(model, inputs, targets)
-     end
-     Flux.update!(state.optimizer, state.model, gradients[1])
- weights(state) = Dict(name => Array(array) for (name, array) in tensors(state.model))
+ weights(state) = Dict(name => Array(array) for (name, array) in tensors(cpu(state.model)))""",
        ),
    ],
)
def test_a_variant_changes_the_gradients_only(variant: str, changed: str) -> None:
    found = changes(emit(job()), emit(job(variants=(variant,))))
    assert [line.rstrip() for line in found] == changed.splitlines()


def test_a_program_for_a_gpu_moves_its_arrays_there() -> None:
    text = emit(job(device="cuda:1", precision="tf32"))
    assert "using CUDA\nusing Flux\nusing Random\nusing cuDNN\n" in text
    assert "\nCUDA.device!(1)\n" in text
    assert "\nCUDA.math_mode!(CUDA.FAST_MATH; precision = :TensorFloat32)\n" in text
    assert "    Random.seed!(SEED)\n    CUDA.seed!(SEED)\n    model = to_device((DTYPE" in text
    assert "CUDA.math_mode!(CUDA.DEFAULT_MATH)\n" in emit(job(device="cuda"))
    assert "CUDA.math_mode!(CUDA.PEDANTIC_MATH)\n" in emit(job(device="cuda", dtype="float64"))
    smoothed = emit(job(find_model("vit-cifar"), device="cuda"))
    assert "    smoothed = Flux.ignore_derivatives(() -> Flux.label_smoothing(targets, DTYPE(0.1)))\n" in smoothed
    forward = emit(msgspec.structs.replace(forward_pass(find_model("lenet")), variants=("enzyme",)))
    assert "Enzyme" not in forward


def test_what_flux_lacks_is_refused() -> None:
    with pytest.raises(EngineUnavailable, match='lstm with biases = 2 and recurrent_activation = "hard_sigmoid"'):
        emit(job(FEATURES))


def test_functions_of_blocks_hide_no_other_name() -> None:
    for base, function in (("sum", "sum_block"), ("end", "end_block"), ("residual_block", "residual_block")):
        blocks = [Residual((Conv(f"{base}{number}.conv", 3, 3, 1),)) for number in range(3)]
        text = emit(job(small(*blocks, Flatten(), Dense("dense", 48, 10))))
        assert f"\n{function}() = SkipConnection(Conv((1, 1), 3 => 3), +)\n" in text
        assert f'[{function}_tensors("{base}$n", model[1][n + 1]) for n in 0:2]...' in text


def test_names_of_layers_are_only_in_literals() -> None:
    blocks = [Residual((Conv(f'"$(exit()).b{number}.c$x', 3, 3, 1),)) for number in range(1, 3)]
    text = emit(job(small(*blocks, Flatten(), Dense("$(exit())\\", 48, 10))))
    assert r'b_block_tensors("\"\u0024(exit()).b$n", model[1][n]) for n in 1:2' in text
    assert r'named("$name.c\u0024x", block.layers)' in text
    assert r'named("\u0024(exit())\\", model[3])' in text


def test_the_block_of_a_layer_whose_weight_another_one_uses_is_no_function() -> None:
    layers = [Flatten(), Dense("first", 48, 10), *(Dense(f"b{number}.x", 10, 10) for number in range(3))]
    text = emit(job(small(*layers, Dense("last", 10, 10, bias=False, tied="b1.x"))))
    assert "_block" not in text
    assert "    dense = Dense(10 => 10)\n    return Chain(\n" in text
    assert "        Dense(dense.weight, false),\n    )\n" in text
