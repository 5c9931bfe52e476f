"""A study as runs of MLflow, written and read by MLflow itself."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.core.errors import BadInput
from polybench.export.mlflow_runs import EXPERIMENT, ensure_mlflow, write
from tests.plots.documents import full_study

mlflow: Any = pytest.importorskip("mlflow", reason="mlflow is not installed")


@pytest.fixture
def uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    warnings.simplefilter("ignore", FutureWarning)  # MLflow's own, of stores in files
    return (tmp_path / "runs").as_uri()


def runs(uri: str) -> dict[str, Any]:
    client = mlflow.MlflowClient(uri)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    return {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}


def test_each_cell_is_a_run_with_its_workload_columns_and_lines(uri: str) -> None:
    one = full_study(rounds=400)
    ensure_mlflow(uri)
    assert write(one, uri) == 4
    found = runs(uri)
    assert set(found) == {"torch/cpu", "tf/cpu", "flux/cpu", "tf+keras_fit/cpu"}
    torch = found["torch/cpu"]
    assert torch.data.params["version.torch"] == "2.13.0"
    assert torch.data.params["batch_size"] == "128"
    assert torch.data.tags["polybench.study"] == one.id
    assert torch.data.metrics["step_time"] == pytest.approx(0.01, rel=0.01)
    assert found["tf/cpu"].data.metrics["speedup_low"] <= found["tf/cpu"].data.metrics["speedup"]
    line = mlflow.MlflowClient(uri).get_metric_history(torch.info.run_id, "steps_per_second")
    assert 250 < len(line) <= 500 < 3 * 400 * 3
    assert max(point.step for point in line) == 3 * 400 * 3  # the last sample is among them


def test_lines_of_long_trainings_are_thinned_too(uri: str) -> None:
    one = full_study()
    (training, *_) = one.results[0].trainings
    epoch = msgspec.structs.replace(training.epochs[0], steps_per_second=[100.0] * 10)
    one.results[0].trainings = [msgspec.structs.replace(training, epochs=[epoch] * 200)]
    write(one, uri)
    torch = runs(uri)[one.results[0].cell].info.run_id
    tag = f"training/seed_{training.seed}/steps_per_second"
    line = mlflow.MlflowClient(uri).get_metric_history(torch, tag)
    assert 250 < len(line) <= 500


def test_a_study_that_is_written_again_is_there_once(uri: str) -> None:
    one = full_study()
    write(one, uri)
    one.results.pop(0)
    write(one, uri)
    assert "torch/cpu" not in runs(uri)
    assert len(runs(uri)) == 3


def test_what_cannot_be_used_is_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    for uri in ("http://127.0.0.1:9", "nothing://x"):
        with pytest.raises(BadInput, match=f"cannot use --mlflow {uri}: "):
            ensure_mlflow(uri)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(BadInput, match=r"pip install 'polybench\[mlflow\]'"):
        ensure_mlflow("http://127.0.0.1:9")
