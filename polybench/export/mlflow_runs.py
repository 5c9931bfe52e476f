"""A study as runs of MLflow, one a cell, on a tracking server or in a folder."""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Iterator
from typing import Any

import msgspec

from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.core.errors import BadInput
from polybench.export.event_files import Point, points
from polybench.metrics import METRICS

EXPERIMENT = "polybench"
_STUDY = "polybench.study"
"""The tag by which the runs of a study are found."""

_MOST_POINTS = 500
"""Of a line: a server takes each in a row of its own. The saved study has them all."""
_MOST_AT_ONCE = 1000
"""Metrics in one request, as MLflow limits them."""
_LONGEST_PARAMETER = 500

_RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"


def ensure_mlflow(uri: str) -> None:
    """Find out before measuring what would prevent `write`.

    Raises:
        BadInput: the package is not there, or the server or folder does not answer.
    """
    try:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException
    except ImportError as error:
        raise BadInput(
            f"--mlflow: the package does not load ({error}); pip install 'polybench[mlflow]'"
        ) from None
    try:
        with _few_retries():
            MlflowClient(uri).get_experiment_by_name(EXPERIMENT)
    except (MlflowException, OSError) as error:
        raise BadInput(f"cannot use --mlflow {uri}: {_first_line(error)}") from error


def write(study: StudyDocument, uri: str) -> int:
    """Write the study to the experiment `polybench`, in place of what was written of it before.

    Returns:
        How many runs; a cell without times has none.

    Raises:
        OSError: it could not be written.
    """
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    measured = [result for result in study.results if result.measured]
    try:
        with _few_retries():
            client = MlflowClient(uri)
            found = client.get_experiment_by_name(EXPERIMENT)
            experiment = found.experiment_id if found else client.create_experiment(EXPERIMENT)
            before = client.search_runs([experiment], f"tags.`{_STUDY}` = '{study.id}'")
            for result in measured:
                _write(client, experiment, study, result)
            for run in before:
                client.delete_run(run.info.run_id)
    except MlflowException as error:
        raise OSError(None, _first_line(error)) from error
    return len(measured)


def _write(client: Any, experiment: str, study: StudyDocument, result: Result) -> None:
    from mlflow.entities import Metric, Param, RunTag

    start = round(1e3 * datetime.datetime.fromisoformat(study.created).timestamp())
    tags = {_STUDY: study.id, "polybench.host": study.host.hostname, "polybench.parity": result.parity.status}
    run = client.create_run(experiment, start_time=start, tags=tags, run_name=result.cell).info.run_id
    parameters = [Param(name, value[:_LONGEST_PARAMETER]) for name, value in _parameters(result)]
    client.log_batch(run, params=parameters, tags=[RunTag("polybench.version", study.polybench.version)])
    metrics = [Metric(name, value, start, 0) for name, value in _values(result)]
    metrics += [
        Metric(one.tag.replace("/seed ", "/seed_"), one.value, start + round(1e3 * one.seconds), one.step)
        for one in _thinned(result)
    ]
    for first in range(0, len(metrics), _MOST_AT_ONCE):
        client.log_batch(run, metrics=metrics[first : first + _MOST_AT_ONCE])
    client.set_terminated(run, "FAILED" if result.status == "failed" else "FINISHED")


def _parameters(result: Result) -> Iterator[tuple[str, str]]:
    """The cell, its workload, and the versions of what ran."""
    yield from (("engine", result.engine), ("device", result.device))
    yield from (("variant", result.variant or ""), ("environment", result.environment or ""))
    for name, value in msgspec.to_builtins(result.workload).items():
        if isinstance(value, dict):
            yield from ((f"{name}.{part}", str(one)) for part, one in value.items())
        else:
            yield name, str(value)
    for name, value in result.versions.items():
        if not isinstance(value, dict):
            yield f"version.{name}", str(value)


def _values(result: Result) -> Iterator[tuple[str, float]]:
    """Every column with a number, and the ends of its interval."""
    for metric in METRICS.values():
        value = metric.value(result)
        if isinstance(value, float | int):
            yield metric.name, float(value)
            if metric.has_interval and (interval := metric.interval(result)):
                yield from zip((f"{metric.name}_low", f"{metric.name}_high"), interval, strict=True)


def _thinned(result: Result) -> Iterator[Point]:
    """Of each line as many points as a server takes, evenly, the last one among them."""
    lines: dict[str, list[Point]] = {}
    for point in points(result):
        lines.setdefault(point.tag, []).append(point)
    for known in lines.values():
        every = -(-len(known) // _MOST_POINTS)
        yield from reversed(known[::-1][::every])


@contextlib.contextmanager
def _few_retries() -> Iterator[None]:
    """A server that is not there is known in seconds, not in minutes; whoever says otherwise is heard."""
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
