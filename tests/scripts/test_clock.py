"""Real programs with a clock, as polybench starts them alone: every phase of a cold start has its time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from polybench.data import synthetic
from polybench.data.batches import batch_stream
from polybench.networks.initial_weights import initial_weights
from polybench.planning.plan import resolve
from polybench.planning.shared_files import dataset_of
from polybench.runner.cold_start import Program, program_with_clock, start_program
from polybench.schema.options import Study
from polybench.scripts.script_folder import IMAGES, INITIAL_STATE, write_folder
from tests.lazy import needs

ENGINES = [
    pytest.param("torch", "lenet", marks=needs("torch")),
    pytest.param("tf", "lenet", marks=[needs("tensorflow"), pytest.mark.wide]),
    pytest.param("jax", "imdb-bilstm", marks=[needs("jax"), pytest.mark.wide]),
    pytest.param("keras", "lenet", marks=[needs("keras"), pytest.mark.wide]),
    *(
        pytest.param("flux", model, marks=[pytest.mark.julia, pytest.mark.wide])
        for model in ("lenet", "imdb-bilstm", "char-gpt")
    ),
]


@pytest.mark.parametrize(("engine", "model"), ENGINES)
def test_a_program_says_when_each_phase_of_its_start_has_ended(
    engine: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(synthetic.IMAGES, "train", 600)
    study = Study((engine,), ("cpu",), model=model, data="synthetic", batch_size=8, threads=1)
    plan = resolve(study)
    (configuration,) = plan.configurations
    script = program_with_clock(plan, configuration)
    dataset, folder = dataset_of(study, plan.model, tmp_path), tmp_path / "programs"
    write_folder(folder, dataset, batch_stream(len(dataset.labels), 8, 0, 3), initial_weights(plan.model, 0), [script])
    command = [*script.command, script.file, INITIAL_STATE, IMAGES]
    found = start_program(Program(command, folder), os.environ, tmp_path / "log", 300.0)
    phases = {name: getattr(found.startup, f"{name}_seconds") for name in ("process", "import", "data", "build")}
    assert all(seconds > 0 for seconds in phases.values()), phases
    assert found.startup.first_step_seconds > found.startup.second_step_seconds > 0
    assert len(found.losses) == 3
    assert all(loss is not None and 0.1 < loss < 5.0 for loss in found.losses)
