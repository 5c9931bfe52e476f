"""The plain scripts, run as their readers run them, against workers that are asked as a study asks them."""

import ast
import json
import subprocess

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from polybench import materials
from polybench.commands.weights import weights
from polybench.core.errors import Unavailable
from polybench.core.optimizers import Optimizer
from polybench.core.spec import Study, Workload, cells
from polybench.launcher import WorkerProcess, worker_environment
from polybench.messages import Load, Prepare
from polybench.plain import plain_command, plain_script, render
from polybench.plan import resolve, row

TIMED = 4
SEED = 3
BATCH_SIZE = 16
# Not the model's own, so that a script which ignored its settings would fail.
OPTIMIZER = Optimizer(learning_rate=0.05, momentum=0.8)


@pytest.fixture
def folder(tmp_path):
    """100 training images of large smooth patches, which the network can tell apart, as binary batches."""
    random = np.random.default_rng(8)
    patches = random.integers(0, 256, (5, 20, 3, 4, 4), np.uint8).repeat(8, 3).repeat(8, 4)
    labels = random.integers(0, 10, (5, 20, 1)).astype(np.uint8)
    folder = tmp_path / "cifar"
    folder.mkdir()
    for number, (images, classes) in enumerate(zip(patches, labels, strict=True), start=1):
        np.hstack([classes, images.reshape(20, -1)]).tofile(folder / f"data_batch_{number}.bin")
    return folder


def plan_of(engine, folder):
    study = Study(
        (engine,), ("cpu",), data=str(folder), batch_size=BATCH_SIZE, seed=SEED, threads=1,
        learning_rate=OPTIMIZER.learning_rate, momentum=OPTIMIZER.momentum,
    )  # fmt: skip
    return resolve(study)


def losses_of_engine(plan, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    files = materials.make(plan, scratch)
    cell = plan.cells[0]
    prepare = Prepare(plan.job(cell), str(files.weights), files.epoch, 2 + TIMED)
    with WorkerProcess(worker_environment(row(cell), "cpu", 1), tmp_path / "log") as worker:
        try:
            worker.ask(Load(row(cell).factory), 120)
        except Unavailable as lacking:
            pytest.skip(lacking.reason)
        return worker.ask(prepare, 240).losses


def run_script(plan, folder, tmp_path):
    start = tmp_path / "start.npz"
    app = typer.Typer()
    app.command()(weights)
    options = {"data": folder, "seed": SEED, "batch-size": BATCH_SIZE, "steps": 2 + TIMED, "output": start}
    arguments = [str(part) for name, value in options.items() for part in (f"--{name}", value)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    script, command = plain_command(plan.cells[0], plan.workload, tmp_path)
    script.write_text(plain_script(plan.cells[0], plan.workload, TIMED))
    command += [str(start), str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["flux", "torch", "torch+channels_last", "torch+compile", "tf", "tf+xla"])
def test_trains_as_the_engine_does(engine, folder, tmp_path):
    plan = plan_of(engine, folder)
    expected = losses_of_engine(plan, tmp_path)
    printed = run_script(plan, folder, tmp_path)
    # The same operations in the same order: what float32 rounds differently grows too little in 6 steps.
    assert printed["losses"] == pytest.approx(expected, rel=1e-5)
    assert len(set(expected)) == 2 + TIMED
    assert len(printed["step_seconds"]) == TIMED
    assert min(printed["step_seconds"]) > 0


@pytest.mark.parametrize("engine", ["torch", "torch+compile", "tf", "tf+xla"])
def test_script_stands_alone(engine):
    tree = ast.parse(script_of(engine))
    imported = [
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
    ]
    assert imported
    assert not [name for name in imported if name.startswith("polybench")]


def test_settings_become_constants():
    lines = script_of("torch+compile").splitlines()
    for line in (
        "DEVICE = 'cpu'", "THREADS = 3", "TF32 = False", "LEARNING_RATE = 0.05", "MOMENTUM = 0.8",
        "CHANNELS_LAST = False", "COMPILE = True", "UNTIMED_STEPS = 2", "STEPS = 7",
    ):  # fmt: skip
        assert line in lines


def test_settings_become_constants_of_julia():
    lines = script_of("flux+default_threads").splitlines()
    for line in (
        'const DEVICE = "cpu"', "const JULIA_THREADS = 1", "const BLAS_THREADS = 3", "const TF32 = false",
        "const LEARNING_RATE = 0.05", "const MOMENTUM = 0.8", "const UNTIMED_STEPS = 2", "const STEPS = 7",
    ):  # fmt: skip
        assert line in lines


@pytest.mark.parametrize("engine", ["reference", "fake", "tf+keras_fit"])
def test_no_script(engine):
    assert script_of(engine) is None


def test_no_script_for_other_models_and_precisions():
    assert script_of("torch", model="resnet32") is None
    assert script_of("torch", precision="bf16") is None


def test_unknown_constant():
    with pytest.raises(KeyError, match="DROPOUT"):
        render("lenet_pytorch.py", {"DROPOUT": 0.5})


@pytest.mark.parametrize(
    "optimizer",
    [Optimizer("nesterov"), Optimizer("adam"), Optimizer(weight_decay=1e-4), Optimizer(schedule=((9, 0.1),))],
)
def test_no_script_for_other_optimizers(optimizer):
    assert script_of("torch", optimizer=optimizer) is None


def script_of(engine, model="lenet", precision="fp32", optimizer=OPTIMIZER):
    workload = Workload(model, "cifar10", 128, optimizer, precision, 3)
    return plain_script(cells((engine,), ("cpu",))[0], workload, 7)
