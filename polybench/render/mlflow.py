"""Export of a study as MLflow runs, one per configuration, to a tracking server or a folder."""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Iterator
from typing import Any

import msgspec

from polybench.errors import BadInput, install_command
from polybench.render.tensorboard import ScalarPoint, scalar_points
from polybench.schema.metrics import METRICS
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument

EXPERIMENT = "polybench"
_STUDY_TAG = "polybench.schema.options"
"""Tag of all runs of a study."""

_MAX_POINTS = 500
"""Points per curve: servers store each in a row. The saved study contains all of them."""
_MAX_METRICS_PER_REQUEST = 1000
"""Limit of MLflow."""
_MAX_PARAMETER_LENGTH = 500

_RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"


def check_mlflow(uri: str) -> None:
    """Check before measuring that `write` can succeed.

    Raises:
        BadInput: mlflow cannot be imported, or the server or folder does not respond.
    """
    try:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException
    except ImportError as error:
        raise BadInput(f"--mlflow: cannot import mlflow ({error}); {install_command('mlflow')}") from None
    try:
        with _few_retries():
            MlflowClient(uri).get_experiment_by_name(EXPERIMENT)
    except (MlflowException, OSError) as error:
        raise BadInput(f"cannot use --mlflow {uri}: {_first_line(error)}") from error


def write(study: StudyDocument, uri: str) -> int:
    """Write the study to the experiment `polybench`, replacing earlier exports of it.

    Returns:
        The number of runs; configurations without times have none.

    Raises:
        OSError: MLflow cannot write the runs.
    """
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    measured = [result for result in study.results if result.is_measured]
    try:
        with _few_retries():
            client = MlflowClient(uri)
            existing = client.get_experiment_by_name(EXPERIMENT)
            experiment = existing.experiment_id if existing else client.create_experiment(EXPERIMENT)
            earlier_runs = client.search_runs([experiment], f"tags.`{_STUDY_TAG}` = '{study.id}'")
            for result in measured:
                _write(client, experiment, study, result)
            for run in earlier_runs:
                client.delete_run(run.info.run_id)
    except MlflowException as error:
        raise OSError(None, _first_line(error)) from error
    return len(measured)


def _write(client: Any, experiment: str, study: StudyDocument, result: Result) -> None:
    from mlflow.entities import Metric, Param, RunTag

    start = round(1e3 * datetime.datetime.fromisoformat(study.created).timestamp())
    tags = {
        _STUDY_TAG: study.id,
        "polybench.host": study.host.hostname,
        "polybench.parity": result.parity.status,
    }
    run = client.create_run(experiment, start_time=start, tags=tags, run_name=result.configuration).info.run_id
    parameters = [Param(name, value[:_MAX_PARAMETER_LENGTH]) for name, value in _parameters(result)]
    client.log_batch(run, params=parameters, tags=[RunTag("polybench.version", study.polybench.version)])
    metrics = [Metric(name, value, start, 0) for name, value in _values(result)]
    metrics += [
        Metric(one.tag.replace("/seed ", "/seed_"), one.value, start + round(1e3 * one.seconds), one.step)
        for one in _thinned_points(result)
    ]
    for first in range(0, len(metrics), _MAX_METRICS_PER_REQUEST):
        client.log_batch(run, metrics=metrics[first : first + _MAX_METRICS_PER_REQUEST])
    client.set_terminated(run, "FAILED" if result.status == "failed" else "FINISHED")


def _parameters(result: Result) -> Iterator[tuple[str, str]]:
    """Yield the configuration, its workload and its versions."""
    yield from (("engine", result.engine), ("device", result.device))
    yield from (("variant", result.variant or ""), ("environment", result.environment or ""))
    for name, value in msgspec.to_builtins(result.workload).items():
        if isinstance(value, dict):
            yield from ((f"{name}.{key}", str(item)) for key, item in value.items())
        else:
            yield name, str(value)
    for name, value in result.versions.items():
        if not isinstance(value, dict):
            yield f"version.{name}", str(value)


def _values(result: Result) -> Iterator[tuple[str, float]]:
    """Yield every numeric column and the ends of its interval."""
    for metric in METRICS.values():
        value = metric.value(result)
        if isinstance(value, float | int):
            yield metric.name, float(value)
            if metric.has_interval and (interval := metric.interval(result)):
                yield from zip((f"{metric.name}_low", f"{metric.name}_high"), interval, strict=True)


def _thinned_points(result: Result) -> Iterator[ScalarPoint]:
    """Yield at most _MAX_POINTS evenly spaced points of each curve, including the last one."""
    curves: dict[str, list[ScalarPoint]] = {}
    for point in scalar_points(result):
        curves.setdefault(point.tag, []).append(point)
    for curve in curves.values():
        stride = -(-len(curve) // _MAX_POINTS)
        yield from reversed(curve[::-1][::stride])


@contextlib.contextmanager
def _few_retries() -> Iterator[None]:
    """Detect an unreachable server in seconds instead of minutes; an explicit setting takes precedence."""
    if _RETRIES in os.environ:
        yield
        return
    os.environ[_RETRIES] = "1"
    try:
        yield
    finally:
        del os.environ[_RETRIES]


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300]
