"""Export of a study as MLflow runs, read back with MLflow."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.errors import BadInput
from polybench.render.mlflow import EXPERIMENT, check_mlflow, write
from tests.figures.documents import full_study

mlflow: Any = pytest.importorskip("mlflow", reason="mlflow is not installed")


@pytest.fixture
def uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    warnings.simplefilter("ignore", FutureWarning)  # MLflow warns about file stores
    return (tmp_path / "runs").as_uri()


def runs(uri: str) -> dict[str, Any]:
    client = mlflow.MlflowClient(uri)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    return {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}


def test_each_configuration_is_a_run_with_parameters_metrics_and_curves(uri: str) -> None:
    one = full_study(rounds=400)
    check_mlflow(uri)
    assert write(one, uri) == 4
    by_name = runs(uri)
    assert set(by_name) == {"torch/cpu", "tf/cpu", "flux/cpu", "tf+keras_fit/cpu"}
    torch = by_name["torch/cpu"]
    assert torch.data.params["version.torch"] == "2.13.0"
    assert torch.data.params["batch_size"] == "128"
    assert torch.data.tags["polybench.schema.options"] == one.id
    assert torch.data.metrics["step_time"] == pytest.approx(0.01, rel=0.01)
    assert by_name["tf/cpu"].data.metrics["speedup_low"] <= by_name["tf/cpu"].data.metrics["speedup"]
    curve = mlflow.MlflowClient(uri).get_metric_history(torch.info.run_id, "steps_per_second")
    assert 250 < len(curve) <= 500 < 3 * 400 * 3
    assert max(point.step for point in curve) == 3 * 400 * 3  # includes the last step time


def test_curves_of_long_trainings_are_thinned(uri: str) -> None:
    one = full_study()
    (training, *_) = one.results[0].trainings
    epoch = msgspec.structs.replace(training.epochs[0], steps_per_second=[100.0] * 10)
    one.results[0].trainings = [msgspec.structs.replace(training, epochs=[epoch] * 200)]
    write(one, uri)
    torch = runs(uri)[one.results[0].configuration].info.run_id
    tag = f"training/seed_{training.seed}/steps_per_second"
    curve = mlflow.MlflowClient(uri).get_metric_history(torch, tag)
    assert 250 < len(curve) <= 500


def test_second_export_replaces_the_first(uri: str) -> None:
    one = full_study()
    write(one, uri)
    one.results.pop(0)
    write(one, uri)
    assert "torch/cpu" not in runs(uri)
    assert len(runs(uri)) == 3


def test_unusable_server_raises_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    for uri in ("http://127.0.0.1:9", "nothing://x"):
        with pytest.raises(BadInput, match=f"cannot use --mlflow {uri}: "):
            check_mlflow(uri)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(BadInput, match=r"pip install 'polybench-dl\[mlflow\]'"):
        check_mlflow("http://127.0.0.1:9")
