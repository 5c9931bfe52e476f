"""The plain programs of networks with token inputs; `test_plain` covers those with images."""

import ast
import json
import subprocess

import msgspec
import numpy as np
import pytest

from polybench.data import synthetic
from polybench.data.batches import batch_stream
from polybench.networks import find_model
from polybench.networks.initial_weights import initial_weights
from polybench.networks.optimizers import Optimizer
from polybench.planning.plan import resolve
from polybench.planning.shared_files import dataset_of
from polybench.schema.options import Study, Workload, configuration_grid
from polybench.scripts import TOKEN_MODELS, make_command, make_script, unsupported_reason
from polybench.scripts.script_folder import IMAGES, INITIAL_STATE, write_folder
from tests.scripts.test_plain import BATCH_SIZE, DROPOUT, SEED, TIMED, losses_of_engine, workers

__all__ = ["workers"]

IN_PYTHON = ("torch", "tf", "jax", "keras")
ENGINES = ("flux", *IN_PYTHON)


def workload(model="imdb-bilstm", **changes):
    declared = find_model(model).optimizer
    return msgspec.structs.replace(Workload(model, "synthetic", 32, declared, "fp32", 3), **changes)


def script_of(engine, model="imdb-bilstm"):
    return make_script(configuration_grid((engine,), ("cpu",))[0], workload(model), 7)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", TOKEN_MODELS)
def test_a_script_trains_like_the_engine(model, engine, workers, tmp_path, monkeypatch):
    monkeypatch.setitem(synthetic.IMAGES, "train", 200)
    plan = resolve(
        Study((engine,), ("cpu",), model=model, data="synthetic", batch_size=BATCH_SIZE, seed=SEED, threads=1)
    )
    expected = losses_of_engine(workers(engine), plan, tmp_path)
    (tmp_path / "data").mkdir()
    dataset = dataset_of(plan.study, plan.model, tmp_path / "data")
    batches = batch_stream(len(dataset.labels), BATCH_SIZE, SEED, 2 + TIMED)
    write_folder(tmp_path / "described", dataset, batches, initial_weights(plan.model, SEED), [])
    script, command = make_command(plan.configurations[0], plan.workload, tmp_path)
    script.write_text(DROPOUT.sub("0.0", make_script(plan.configurations[0], plan.workload, TIMED)))
    command += [str(tmp_path / "described" / name) for name in (INITIAL_STATE, IMAGES)]
    if engine == "flux":
        command.insert(1, "-O0")
    run = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert run.returncode == 0, run.stderr
    printed = json.loads(run.stdout)
    assert printed["losses"] == pytest.approx(expected, rel=1e-5)
    assert len(set(expected)) == 2 + TIMED
    assert len(printed["step_seconds"]) == TIMED


@pytest.mark.parametrize("engine", IN_PYTHON)
@pytest.mark.parametrize("model", TOKEN_MODELS)
def test_a_script_needs_no_other_file(model, engine):
    tree = ast.parse(script_of(engine, model))
    imported = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not [name for name in imported if name.startswith("polybench")]
    assert f"Train `{model}`" in ast.get_docstring(tree)


@pytest.mark.parametrize("model", TOKEN_MODELS)
def test_a_julia_script_needs_no_other_file(model):
    script = script_of("flux", model)
    assert script.startswith(f"# Train `{model}`")
    assert "include" not in script


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", TOKEN_MODELS)
def test_a_script_has_the_rates_of_the_model_and_the_settings_of_the_study(model, engine):
    script = script_of(engine, model)
    rates = [layer.rate for layer in find_model(model).layers if hasattr(layer, "rate")]
    assert [float(rate) for rate in DROPOUT.findall(script)] == rates
    lines = [line.removeprefix("const ") for line in script.splitlines()]
    for line in ("LEARNING_RATE = 0.001", "UNTIMED_STEPS = 2", "STEPS = 7"):
        assert line in lines
    assert ("JULIA_THREADS = 3" if engine == "flux" else "THREADS = 3") in lines


def test_thread_pools_are_constants_of_the_julia_script():
    lines = script_of("flux+framework_threads").splitlines()
    assert {"const JULIA_THREADS = 1", "const BLAS_THREADS = 3"} <= set(lines)


@pytest.mark.parametrize("engine", ["torch+compile", "fake", "tf+unrolled", "tf+xla", "keras+jax", "flux+train"])
def test_unsupported_configurations_have_no_script(engine):
    assert script_of(engine) is None
    assert unsupported_reason(configuration_grid((engine,), ("cpu",))[0], workload())


def test_other_optimizers_have_no_script():
    configuration = configuration_grid(("torch",), ("cpu",))[0]
    for optimizer in (Optimizer("momentum"), Optimizer("adam", 0.001, weight_decay=0.1)):
        assert make_script(configuration, workload(optimizer=optimizer), 7) is None


def test_tokens_are_written_unchanged(tmp_path, monkeypatch):
    monkeypatch.setitem(synthetic.IMAGES, "train", 40)
    study = Study(("torch",), ("cpu",), model="imdb-bilstm", data="synthetic")
    dataset = dataset_of(study, find_model(study.model), tmp_path)
    batches = np.array([[3, 9], [9, 30]])
    write_folder(tmp_path / "it", dataset, batches, {}, [])
    tokens, start = np.load(tmp_path / "it" / IMAGES / "tokens.npy"), np.load(tmp_path / "it" / INITIAL_STATE)
    labels = np.load(tmp_path / "it" / IMAGES / "labels.npy")
    assert (tokens[start["batches"]] == dataset.images[batches]).all()
    assert (labels[start["batches"]] == dataset.labels[batches]).all()
