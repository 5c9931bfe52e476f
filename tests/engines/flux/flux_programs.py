"""Runs emitted programs of Flux or Lux in one Julia process, and compares them with the reference."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
import tomli_w

from polybench.engines.flux.emitter import emit as flux
from polybench.engines.flux.julia.program import LIBRARIES
from polybench.engines.job import Job, NumericalConventions
from polybench.engines.reference.engine import ReferenceEngine
from polybench.engines.reference.network import logits
from polybench.engines.shared.batches import dropout_masks
from polybench.networks.initial_weights import initial_weights
from polybench.networks.model import Model
from tests.configured_julia import configured_julia

Emit: TypeAlias = Callable[[Job], str]
STEPS = 4
_CONVENTIONS = NumericalConventions(max_pool_within=2.0**-26)
"""NNlib's rule in float64: the gradient of a max-pool goes to the first value within the root of the precision."""

RUNNER = r"""
using Flux, NPZ

reversed_axes(array) = ndims(array) == 0 ? array : permutedims(array, ndims(array):-1:1)
part(file, prefix) = Dict(
    chopprefix(name, prefix) => reversed_axes(array) for (name, array) in file if startswith(name, prefix)
)
arrays(prefix, pairs) = Dict{String, Any}("$prefix$name" => reversed_axes(Array(one)) for (name, one) in pairs)

# The gradient of an array that several layers share is the sum, which `Flux.update!` adds to zeros.
function gradients(program, state, inputs, targets, masks)
    hasproperty(state, :train_state) && return lux_gradients(program, state, (inputs, targets), masks)
    model = deepcopy(state.model)
    isempty(masks) || program.set_masks!((; model), masks)
    _, gradient = Flux.withgradient(one -> program.compute_loss(one, inputs, targets), model)
    sums = fmap(one -> one isa AbstractArray{<:AbstractFloat} ? zero(one) : one, model)
    Flux.update!(Flux.setup(Descent(-1.0), sums), sums, first(gradient))
    return program.tensors(sums)
end

function lux_gradients(program, state, data, masks)
    isempty(masks) || program.set_masks!(state, masks)
    (; Training, AutoZygote, Optimisers) = program
    ts = state.train_state
    gradient, _, _, _ = Training.compute_gradients(AutoZygote(), program.compute_loss, data, ts)
    sums = fmap(one -> one isa AbstractArray{<:AbstractFloat} ? zero(one) : one, ts.parameters)
    Flux.update!(Flux.setup(Descent(-1.0), sums), sums, gradient)
    return program.tensors((; parameters = sums, ts.states))
end

function train!(program, state, file, steps)
    found, losses = Dict{String, Any}(), Float64[]
    for step in 0:(steps - 1)
        masks = part(file, "masks$step/")
        batch = program.load(reversed_axes(file["inputs$step"]), reversed_axes(file["labels$step"]))
        step == 0 && merge!(found, arrays("gradient/", gradients(program, state, batch..., masks)))
        isempty(masks) || (batch = (batch..., masks))
        is_train = isdefined(program, :train_steps!)
        push!(losses, is_train ? program.train_steps!(state, [batch]) : program.train_step!(state, batch))
    end
    return merge!(found, arrays("weight/", program.weights(state)), Dict("losses" => losses))
end

function check(program, folder)
    file, weights = npzread(joinpath(folder, "case.npz")), part(npzread(joinpath(folder, "case.npz")), "weight/")
    state = program.setup(weights)
    found = arrays("initial/", program.weights(state))
    isdefined(program, :learning_rate) && (found["rates"] = program.learning_rate.(0:11))
    if isdefined(program, :forward_pass)
        batch = program.load(reversed_axes(file["inputs0"]), reversed_axes(file["labels0"]))
        found["logits"] = reversed_axes(program.forward_pass(state, batch))
    else
        kind, steps = typeof(state), count(name -> startswith(name, "inputs"), keys(file))
        merge!(found, train!(program, state, file, steps))
        program.reset!(state, weights)
        again = train!(program, state, file, steps)
        all(isapprox(again[name], found[name]; rtol = 1e-12, atol = 1e-12) for name in keys(again)) || error("reset!")
        typeof(state) == kind || error("another type: $kind, $(typeof(state))")
    end
    npzwrite(joinpath(folder, "found.npz"), found)
end

for folder in readdir(ARGS[1]; join = true)
    isdir(folder) || continue
    program = Module()
    Base.include(program, joinpath(folder, "program.jl"))
    try
        Base.invokelatest(check, program, folder)
    catch error
        write(joinpath(folder, "error.txt"), sprint(showerror, error, catch_backtrace()[1:min(end, 20)]))
    end
end
"""


def write_case(folder: Path, job: Job, emit: Emit, seed: int = 0) -> None:
    """Write the float64 program of a job with given masks, and a file with weights and batches."""
    checked = msgspec.structs.replace(job, dtype="float64", dropout="given", conventions=_CONVENTIONS)
    folder.mkdir(parents=True)
    (folder / "program.jl").write_text(emit(checked), "utf-8")
    inputs, labels = batches(job.model, job.workload.batch_size, seed)
    case: dict[str, Any] = {f"weight/{name}": one for name, one in weights_of(job.model).items()}
    for step in range(STEPS):
        case |= {f"inputs{step}": inputs[step], f"labels{step}": labels[step]}
        masks = dropout_masks(job.model, job.workload.batch_size, job.seed, step)
        case |= {f"masks{step}/{name}": mask for name, mask in masks.items()}
    np.savez(folder / "case.npz", **case)


def run_julia(folder: Path, *packages: str) -> None:
    """Run the programs of all cases in the folder."""
    julia = configured_julia("NPZ", *packages)
    (folder / "run.jl").write_text(RUNNER, "utf-8")
    options = [f"--project={julia.project}", "--startup-file=no", "-O0"]
    command = [julia.executable, *options, str(folder / "run.jl"), str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=with_libraries(folder))
    assert run.returncode == 0, run.stderr


def with_libraries(folder: Path) -> dict[str, str]:
    """Return the environment in which a program loads its packages, which a project may have only indirectly."""
    (folder / "Project.toml").write_text(tomli_w.dumps({"deps": LIBRARIES}), "utf-8")
    return {**os.environ, "JULIA_LOAD_PATH": f"@:{folder}:@stdlib"}


def compare(folder: Path, job: Job, seed: int = 0) -> None:
    """Compare what the program of a case has found with the reference."""
    if (failed := folder / "error.txt").exists():
        raise AssertionError(failed.read_text("utf-8"))
    with np.load(folder / "found.npz") as file:
        found = dict(file)
    weights, (inputs, labels) = weights_of(job.model), batches(job.model, job.workload.batch_size, seed)
    for name, one in weights.items():
        assert found[f"initial/{name}"].tobytes() == one.tobytes(), name
    if job.workload.optimizer.has_schedule and not job.workload.is_forward_pass:
        rates = [job.workload.optimizer.learning_rate_at(step) for step in range(12)]
        np.testing.assert_allclose(found["rates"], rates, rtol=1e-14)
    if job.workload.is_forward_pass:
        assert_close({"logits": found["logits"]}, {"logits": logits(job.model, weights, inputs[0])})
        return
    engine = ReferenceEngine()
    engine.build(msgspec.structs.replace(job, conventions=_CONVENTIONS), weights)
    engine.load(inputs, labels)
    losses, gradients = [], engine.snapshot(0).gradients
    for step in range(STEPS):
        engine.run_steps(step, 1)
        losses.append(engine.loss())
    trained = engine.snapshot(STEPS).weights
    assert_close({"losses": found["losses"]}, {"losses": np.array(losses)})
    assert_close({name: found[f"gradient/{name}"] for name in gradients}, gradients)
    # RMSProp and Adam divide by the root of a gradient, which magnifies the rounding of one that is almost 0.
    tolerance = 1e-9 if job.workload.optimizer.name in ("sgd", "momentum", "nesterov") else 1e-8
    assert_close({name: found[f"weight/{name}"] for name in trained}, trained, tolerance)


def assert_close(found: Mapping[str, Any], expected: Mapping[str, Any], tolerance: float = 1e-9) -> None:
    """Check each array to a fraction of its largest value."""
    for name, exact in expected.items():
        scale = max(1e-3, float(np.abs(exact).max()))
        np.testing.assert_allclose(found[name], exact, rtol=tolerance, atol=tolerance * scale, err_msg=name)


def weights_of(model: Model) -> dict[str, Any]:
    """Return weights without zeros, in float64."""
    random = np.random.default_rng(3)
    initial = initial_weights(model, 1)
    return {name: one + 0.05 * random.random(one.shape) for name, one in initial.items()}


def batches(model: Model, size: int, seed: int) -> tuple[Any, Any]:
    """Return inputs (steps, batch, ...) and labels (steps, batch, ...)."""
    random, shape = np.random.default_rng(seed), (STEPS, size, *model.input_shape)
    if model.vocabulary_size is None:
        inputs: Any = random.random(shape, np.float32)
    else:
        inputs = random.integers(model.vocabulary_size, size=shape).astype(np.int32)
    return inputs, random.integers(model.classes, size=(STEPS, size, *model.label_shape))


def check_programs(jobs: Mapping[str, Job], folder: Path, emit: Emit = flux, *packages: str) -> None:
    """Check the programs of all jobs."""
    for name, job in jobs.items():
        write_case(folder / name, job, emit)
    run_julia(folder, *packages)
    failures: Sequence[str] = [
        f"{name}: {error}" for name, job in jobs.items() for error in _failures(folder / name, job)
    ]
    assert not failures, "\n".join(failures)


def _failures(folder: Path, job: Job) -> list[str]:
    try:
        compare(folder, job)
    except AssertionError as error:
        return [str(error)]
    return []
