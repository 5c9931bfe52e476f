"""The program of Flux in Julia: losses, gradients and weights of a few steps are those of the reference."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.engines.flux.emitter import emit
from polybench.engines.job import Job
from polybench.networks import MODELS
from polybench.networks.layers import (
    GELU,
    LSTM,
    Attention,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    GroupNorm,
    LayerNorm,
    MeanOverTime,
    Positions,
    ReLU,
    ReLU6,
    Residual,
    SiLU,
)
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer
from tests.engine_matrix import NETWORKS
from tests.engines.emitted_programs import EXAMPLES, job, small
from tests.engines.flux.flux_programs import check_programs

TINY = small(Conv("conv", 3, 4, 3, bias=False), BatchNorm("norm", 4), ReLU(), Flatten(), Dense("dense", 16, 10))
SMOOTHED = msgspec.structs.replace(TINY, label_smoothing=0.1)
_SCHEDULE: dict[str, Any] = {"lr_schedule": ((1, 0.02), (3, 0.005))}
_COSINE: dict[str, Any] = {"warmup_steps": 2, "cosine_steps": 6, "min_learning_rate": 0.001}
SCHEDULED = Optimizer("momentum", 0.1, 0.8, **_SCHEDULE)
OPTIMIZERS = {
    "sgd": Optimizer("sgd", 0.1, weight_decay=0.1, **_SCHEDULE),
    "momentum": Optimizer("momentum", 0.1, 0.8, gradient_clip=0.3),
    "momentum-scheduled": SCHEDULED,
    "momentum-decay-scheduled": Optimizer("momentum", 0.1, 0.8, weight_decay=0.1, **_SCHEDULE),
    "nesterov": Optimizer("nesterov", 0.1, 0.8, weight_decay=0.1, **_COSINE),
    "adam": Optimizer("adam", 0.01, weight_decay=0.1, betas=(0.8, 0.9), warmup_steps=2),
    "adamw": Optimizer("adamw", 0.01, weight_decay=0.1, gradient_clip=0.1, **_COSINE),
    "rmsprop": Optimizer("rmsprop", 0.01, weight_decay=0.1, gradient_clip=0.1, **_SCHEDULE),
}
TIED = msgspec.structs.replace(
    TINY,
    name="tied",
    input_shape=(5, 4),
    classes=4,
    layers=(
        Residual((LSTM("lstm", 4, 4, sequence=True), Dense("one", 4, 4)), (Attention("causal", 4, 2, causal=True),)),
        Attention("attention", 4, 2, bias=False),
        Residual((), (Dense("two", 4, 4, bias=False),)),
        Residual(()),
        ReLU(),
        GELU(),
        LayerNorm("norm1", 4, bias=False),
        LayerNorm("norm2", 4, epsilon=1e-3),
        Dense("of_lstm", 4, 16, bias=False, tied="lstm"),
        ReLU(),
        Dense("three", 16, 4),
        Positions("positions", 8, 4),
        Dense("of_positions", 4, 8, bias=False, tied="positions"),
        SiLU(),
        Dense("four", 8, 4, bias=False),
        Dense("of_one", 4, 4, bias=False, tied="one"),
        GELU("tanh"),
        MeanOverTime(),
    ),
)
"""Every kind of layer whose weight another one uses, attention with both masks, and residual blocks of nothing."""
BLOCKS = msgspec.structs.replace(
    TINY,
    layers=(
        *(
            layer
            for number in range(3)
            for layer in (
                Dropout(f"x{number}.dropout", 0.25),
                Conv(f"x{number}.conv", 3, 3, 3, padding=1),
                GroupNorm(f"x{number}.norm", 3, 3),
                ReLU6(),
            )
        ),
        *(Residual((Conv(f"sum{n}.conv", 3, 3, 1), BatchNorm(f"sum{n}.norm", 3))) for n in range(2, 4)),
        Flatten(),
        Dense("dense", 48, 10),
    ),
)
TIED_IN_BLOCK = msgspec.structs.replace(
    TINY,
    input_shape=(4,),
    layers=(
        Embedding("tokens", 9, 4),
        *(Dense(f"b{number}.x", 4, 4) for number in range(1, 4)),
        Dense("last", 4, 4, bias=False, tied="b2.x"),
        LSTM("lstm", 4, 3, bidirectional=True),
        Dense("head", 6, 10),
    ),
)


def of(model: Model, optimizer: Optimizer | None = None, size: int = 4, **fields: Any) -> Job:
    """Return a job with small batches."""
    found = job(model, optimizer, **fields)
    return msgspec.structs.replace(found, workload=msgspec.structs.replace(found.workload, batch_size=size))


def forward_pass(model: Model) -> Job:
    """Return the job of a forward pass."""
    found = of(model)
    return msgspec.structs.replace(found, workload=msgspec.structs.replace(found.workload, pass_="forward"))


def test_every_optimizer_and_schedule_computes_what_the_reference_computes(tmp_path: Path) -> None:
    jobs = {name: of(TINY, optimizer) for name, optimizer in OPTIMIZERS.items()}
    jobs |= {"train": of(TINY, variants=("train",)), "train-scheduled": of(SMOOTHED, SCHEDULED, variants=("train",))}
    check_programs(jobs, tmp_path)


@pytest.mark.timeout(1800)  # compiles each layer
def test_every_layer_computes_what_the_reference_computes(tmp_path: Path) -> None:
    jobs = {name: of(model) for name, model in EXAMPLES.items()}
    # An array that two layers use has one velocity and one gradient.
    shared = Optimizer("momentum", 0.1, 0.8, gradient_clip=0.3, **_SCHEDULE)
    jobs["text"] = of(EXAMPLES["text"], shared)
    jobs |= {"tied": of(TIED), "tied-in-block": of(TIED_IN_BLOCK)}
    jobs["blocks"] = of(BLOCKS, SCHEDULED, variants=("train",))  # whose masks and rates change in the loop of Flux
    jobs["text-forward"] = forward_pass(EXAMPLES["text"])  # test_forward_pass has the network of images
    check_programs(jobs, tmp_path)


_STAND_INS = {
    "using Enzyme: Duplicated": """using Flux: EnzymeCore, Flux
using Flux.EnzymeCore: Duplicated

EnzymeCore.make_zero(model::Flux.Chain) = Flux.f64(model)
function Flux.withgradient(f, ::Flux.AutoEnzyme, model::Duplicated; zero = true)
    loss, gradients = Flux.withgradient(f, model.val)
    return (; val = loss, grad = gradients)
end""",
    "using Mooncake": """using Flux: Flux
Flux.withgradient(f, ::Flux.AutoMooncake, model) = Flux.withgradient(f, model)""",
    "using Reactant": """using Flux: Flux

module Newer
    using Flux: Flux
    function trainstep!(loss, model, batch, state)
        value, gradients = Flux.withgradient(model -> loss(model, batch...), model)
        Flux.update!(state, model, gradients[1])
        return value
    end
end""",
    "Flux.trainstep!": "Newer.trainstep!",
    "MLDataDevices.reactant_device(nothing; force = true)": "deepcopy",
    "gpu_device(nothing, nothing; force = true)": "deepcopy",
    "cpu(state.model)": "deepcopy(state.model)",
}
"""What the tests lack, in place of it: the gradients are Zygote's, and another device is a copy."""


def emit_with_stand_ins(job: Job) -> str:
    """Return a program without GPU, Enzyme, Mooncake and Reactant."""
    text = re.sub(r"^(using (CUDA|cuDNN)|CUDA\..*)\n| +CUDA\.seed!\(SEED\)\n", "", emit(job), flags=re.MULTILINE)
    for real, stand_in in _STAND_INS.items():
        text = text.replace(real, stand_in)
    return text


@pytest.mark.wide  # test_emitter has the texts, which differ from that of Zygote on the CPU in a few lines
def test_every_backend_and_device_computes_what_the_reference_computes(tmp_path: Path) -> None:
    """Backends that detect no gradients, as Zygote's are detected, train in the mode that the program has set."""
    model = small(
        *(Conv("conv", 3, 4, 3, bias=False), GroupNorm("group", 4, 2), ReLU(), Flatten()),
        *(Dropout("dropout", 0.5), Dense("dense", 16, 10)),
    )
    normalized = msgspec.structs.replace(SMOOTHED, layers=(*model.layers[:1], BatchNorm("norm", 4), *model.layers[1:]))
    shared = Optimizer("momentum", 0.1, 0.8, gradient_clip=0.3, **_SCHEDULE)
    jobs = {
        "enzyme": of(normalized, shared, variants=("enzyme",)),
        "mooncake": of(model, shared, variants=("mooncake",)),
        "reactant": of(normalized, Optimizer("momentum", 0.1, 0.8), variants=("reactant",)),
        "cuda": of(normalized, shared, device="cuda:1"),
        "cuda-forward": msgspec.structs.replace(forward_pass(normalized), device="cuda"),
    }
    check_programs(jobs, tmp_path, emit_with_stand_ins)


@pytest.mark.wide
@pytest.mark.timeout(3600)
def test_every_network_computes_what_the_reference_computes(tmp_path: Path) -> None:
    jobs = {name: of(row.model, size=row.batch_size) for name, row in NETWORKS.items() if name in MODELS}
    check_programs(jobs, tmp_path)
