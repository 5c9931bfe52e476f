"""Users' programs in Julia as rows of a real study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from polybench.data import synthetic
from polybench.engines.flux.emitter import emit
from polybench.engines.flux.julia.environment import environments_folder
from polybench.engines.source import read_source
from polybench.errors import BadInput
from polybench.run import run_study
from polybench.runner.progress import NullProgress
from polybench.schema.options import Study
from polybench.schema.result import Result
from tests.configured_julia import configured_julia
from tests.engines.emitted_programs import job
from tests.user_programs import MODEL

TEXT = emit(job(MODEL))
BY_HAND = """
const DTYPE = Float32

setup(arrays) = start!(Dict{String, Any}(), arrays)

function start!(state, arrays)
    for (name, array) in arrays
        state[name] = DTYPE.(array)
        state["velocity of $name"] = zero(state[name])
    end
    return state
end

load(images, labels) = reshape(DTYPE.(images), :, size(images, 4)), labels

function train_step!(state, (inputs, labels))
    probabilities = exp.(state["dense.weight"]' * inputs .+ state["dense.bias"])
    probabilities ./= sum(probabilities; dims = 1)
    chosen = [CartesianIndex(label + 1, image) for (image, label) in enumerate(labels)]
    loss = -sum(log, probabilities[chosen]) / length(labels)
    probabilities[chosen] .-= 1
    probabilities ./= length(labels)
    update!(state, "dense.weight", inputs * probabilities')
    update!(state, "dense.bias", vec(sum(probabilities; dims = 2)))
    return loss
end

function update!(state, name, gradient)
    velocity = state["velocity of $name"]
    velocity .= 0.9 .* velocity .+ gradient
    state[name] .-= 0.01 .* velocity
    return nothing
end
"""
"""The program without Flux and Zygote, which compiles fast, and without `reset!` and `weights`."""
WEIGHTS = 'weights(state) = Dict(name => copy(state[name]) for name in ("dense.weight", "dense.bias"))\n'

PROGRAMS = {
    "exported": TEXT,
    "plain": BY_HAND,
    "wrong": BY_HAND.replace("0.9 .* velocity", "0.5 .* velocity") + WEIGHTS,
    "raises": BY_HAND.replace("    update!(", "    missing_name(") + WEIGHTS,
    "syntax": f"{BY_HAND}\nfunction (\n",
}


def test_programs_in_julia_are_checked_and_fail_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured_julia()
    monkeypatch.setenv("PYTHON_JULIACALL_OPTIMIZE", "0")  # included in each worker: nothing is compiled in advance
    monkeypatch.setitem(synthetic.IMAGES, "train", 256)
    for name, text in PROGRAMS.items():
        (tmp_path / f"{name}.jl").write_text(text)
    study = Study(
        engines=tuple(f"{tmp_path}/{name}.jl" for name in PROGRAMS),
        devices=("cpu",), model=MODEL, data="synthetic", batch_size=16, wait_idle=0.0, timeout=300.0,
    )  # fmt: skip
    results = run_study(study, NullProgress(), store=None, parity_check="only").results
    exported, plain, wrong, raises, syntax = results
    assert [one.configuration for one in results] == [f"{name}.jl/cpu" for name in PROGRAMS]
    assert exported.parity.status == "pass", exported.reason
    assert {(one.part, one.kind) for one in exported.parity.tensors} == {
        (part, kind) for part in ("float64", "timed") for kind in ("loss", "weight")
    }
    assert plain.parity.status == "pass", plain.reason
    assert {one.kind for one in plain.parity.tensors} == {"loss"}
    assert wrong.parity.status == "fail"
    assert "weight error of dense." in (wrong.parity.reason or "")
    assert raises.status == syntax.status == "failed"
    assert "missing_name" in (raises.reason or "")
    assert "syntax.jl: " in (syntax.reason or "")


def is_compiled(text: str) -> bool:
    """Return True if this program has packages that could be compiled."""
    packages = [
        file.parents[1] for file in environments_folder().glob("programs/*/src/program.jl") if file.read_text() == text
    ]
    return packages != [] and all((one / "compiled").is_dir() and not (one / "failed").exists() for one in packages)


PIPELINE = """
batches(images, labels, order) =
    (load(images[:, :, :, chosen] ./ 255.0f0, labels[chosen]) for chosen in eachcol(order))
"""
EARLY = PIPELINE.replace("eachcol(order)", "eachcol(order[:, 1:1])")
RAISING = PIPELINE.replace("    (load", '    error("no file") isa Any && (load')
OWN = "setup() = nothing\nload(images, labels) = images\ntrain_step!(state, batch) = sum(batch)\n"
"""A program of another network, which compiles fast."""


def measure(folder: Path, texts: dict[str, str], **fields: Any) -> list[Result]:
    """Return the results of a short study of these programs."""
    configured_julia()
    for name, text in texts.items():
        (folder / f"{name}.jl").write_text(text)
    study = Study(
        engines=tuple(f"{folder}/{name}.jl" for name in texts), devices=("cpu",), model=MODEL, data="synthetic",
        batch_size=16, wait_idle=0.0, metrics=False, processes=1, rounds_per_process=1,
        **{"steps_per_round": 4, "cold_starts": 0, "timeout": 300.0, **fields},
    )  # fmt: skip
    return run_study(study, NullProgress(), store=None).results


@pytest.mark.wide  # julia/test/program.jl reads a pipeline
def test_the_pipeline_of_a_program_in_julia_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_JULIACALL_OPTIMIZE", "0")
    monkeypatch.setitem(synthetic.IMAGES, "train", 256)
    texts = {"mine": OWN + PIPELINE, "early": OWN + EARLY, "raises": OWN + RAISING}
    mine, early, raises = measure(tmp_path, texts, input="pipeline", parity=False)
    assert mine.pipeline is not None
    assert mine.pipeline.data_wait_seconds_per_step is not None
    assert mine.pipeline.data_wait_seconds_per_step > 0
    assert mine.pipeline.pipeline_items_per_second is not None
    expected = "early.jl, in step 1: ArgumentError: batches ended early: expected 18 from batch 0 on"
    assert (early.status, early.reason) == ("failed", expected)
    assert (raises.status, raises.reason) == ("failed", "raises.jl, in batches: no file")


@pytest.mark.wide  # compiles a program in fresh workers
def test_the_pipeline_of_a_program_in_julia_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(synthetic.IMAGES, "train", 256)
    wrong = TEXT.replace("DTYPE", "NUMBERS") + PIPELINE.replace("labels[chosen]", "labels[reverse(chosen)]")
    results = measure(tmp_path, {"mine": TEXT + PIPELINE, "wrong": wrong}, input="pipeline")
    assert [one.parity.status for one in results] == ["pass", "fail"]
    assert is_compiled(TEXT + PIPELINE)


ODD = {
    "it prints": 'train_step!(state, batch) = (println("hello"); sum(batch))',
    "it reads the standard input": "train_step!(state, batch) = (read(stdin); sum(batch))",
    "it changes the working directory": 'train_step!(state, batch) = (cd("/"); sum(batch))',
    "it starts another program": "train_step!(state, batch) = (run(`true`); sum(batch))",
}
FAILING = {
    "the worker exited with code 3": "train_step!(state, batch) = exit(3)",
    ", in step 0: not ready": 'train_step!(state, batch) = isempty(batch) ? sum(batch) : error("not ready")',
    ", in step 0: MethodError: no method matching Float32(::Nothing)": "train_step!(state, batch) = nothing",
    ", in load: no data": 'load(images, labels) = error("no data")',
    ", in setup: no state": 'setup() = error("no state")',
    "no response to prepare within 120 s (--timeout)": "train_step!(state, batch) = (sleep(200); sum(batch))",
}
"""Functions of a program by the reason of its failure."""


def changed(function: str) -> str:
    """Return the program `OWN` with this function in place of its own."""
    name = function.partition("(")[0]
    return "".join(f"{function}\n" if line.startswith(f"{name}(") else line for line in OWN.splitlines(keepends=True))


@pytest.mark.wide  # starts Julia for each program
def test_odd_programs_in_julia_run_and_the_others_fail_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(synthetic.IMAGES, "train", 256)
    texts = {f"one{number}": changed(text) for number, text in enumerate((*ODD.values(), *FAILING.values()))}
    results = measure(tmp_path, texts, parity=False, timeout=120.0)
    for oddity, result in zip(ODD, results, strict=False):
        assert result.status == "ok", (oddity, result.reason)
    for reason, result in zip(FAILING, results[len(ODD) :], strict=True):
        assert result.status == "failed", reason
        assert reason in (result.reason or ""), result.reason


FLOAT64 = {
    "constant": TEXT.replace("Dense(3072 => 10))", "Dense(3072 => 10), x -> 0.5 .* x)"),
    "wide": TEXT.replace("? f64 : f32)", "? f64 : f64)").replace("convert(Array{DTYPE}, images)", "Float64.(images)"),
}
"""Programs that compute in `Float64`: from a layer on, or from their batches on, in their weights."""


@pytest.mark.wide  # compiles a program in fresh workers; julia/test/program.jl has the search itself
def test_a_constant_of_float64_in_a_layer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(synthetic.IMAGES, "train", 256)
    results = measure(tmp_path, FLOAT64, parity=False, steps_per_round=1)
    start = "float64 in a training in float32: "
    named = [text.removeprefix(start).partition(";")[0] for one in results for text in one.warnings if start in text]
    velocity = [f"state.optimizer.layers[2].{name}.state" for name in ("weight", "bias")]
    assert named == [
        "output of state.model[3]",
        ", ".join(["state.model[2].weight", "state.model[2].bias", *velocity, "batch[1]"]),
    ]


def test_a_program_in_julia_is_read_without_running_it(tmp_path: Path) -> None:
    (path := tmp_path / "mine.jl").write_text(TEXT)
    source = read_source(path)
    assert source.takes_weights
    assert source.has_dtype
    assert source.has_device
    assert "weights" in source.functions
    assert source.adapted("float64", "cpu") == TEXT.replace("const DTYPE = Float32", "const DTYPE = Float64")
    path.write_text("setup() = 1\nload(images, labels) = images\ntrain_step!(state, batch) = 0.0f0\n")
    assert not read_source(path).takes_weights
    path.write_text("setup(; seed = 1) = 1\nload(x, y) = x\nfunction train_step!(state, batch)\nend\n")
    assert not read_source(path).takes_weights
    path.write_text("setup(weights) = 1\nload(x, y) = x\ntrain_step(state, batch) = 1\n")
    with pytest.raises(BadInput, match=r"mine\.jl lacks train_step!\(\): expected the functions"):
        read_source(path)


@pytest.mark.wide  # a start of Julia without compiled code
def test_a_program_in_julia_is_started_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(synthetic.IMAGES, "train", 256)
    (result,) = measure(tmp_path, {"mine": TEXT}, parity=False, steps_per_round=3, cold_starts=1)
    assert result.startup is not None, result.warnings
    assert result.startup.starts == 1
    assert result.startup.first_step_seconds > 0
