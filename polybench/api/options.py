"""The options of a study as keyword arguments."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import msgspec

from polybench.errors import BadInput, format_validation_error, lookup_or_suggest, split_names
from polybench.importer import import_model
from polybench.networks.model import Model
from polybench.planning.study_file import with_network
from polybench.runner.progress import CallbackProgress, NullProgress, Progress
from polybench.schema.options import Study, reject_unused_environments


class Options(TypedDict, total=False):
    """The fields of schema.options.Study, which documents their meanings and defaults.

    They are repeated here because type checkers do not support a computed TypedDict; a test compares both.
    """

    engines: Sequence[str]
    devices: Sequence[str] | None
    env: dict[str, str]
    model: str | Model | Any
    """A module of PyTorch or a model of Keras as well, see `import_model`."""
    data: str
    inference: bool
    batch_size: int | None
    optimizer: str | None
    learning_rate: float | None
    momentum: float | None
    weight_decay: float | None
    lr_schedule: Sequence[tuple[int, float]] | None
    precision: str | Sequence[str]
    input: str
    loader_workers: int | None
    augment: bool
    threads: int | None
    oversubscribe: bool
    replicas: int | Sequence[int]
    malloc: str
    pin_cpus: bool
    seed: int
    processes: int
    rounds_per_process: int | None
    steps_per_round: int | None
    margin: float
    tolerance: float
    epochs: int | None
    accuracy: bool
    target_accuracy: float | None
    target_loss: float | None
    budget: float
    wait_idle: float
    timeout: float
    parity: bool
    parity_steps: int
    cold_starts: int
    baseline: str | None
    prices: dict[str, float]
    metrics: bool
    injected_delays: dict[str, float]


ProgressCallback = Callable[[str], object]
"""Called with each line of progress, between measurements: `print`, or a logger's `info`."""

_COMMA_SEPARATED = ("engines", "devices", "precision")
"""Options that may also be text, as on the command line: "torch,tf"."""


def make_progress(callback: ProgressCallback | None) -> Progress:
    """Return a progress display for a callback; `print` writes to the current stdout, even if Ray redirects
    it."""
    if callback is None:
        return NullProgress()
    stdout = sys.stdout

    def print_progress(line: str) -> None:
        with contextlib.redirect_stdout(stdout):
            callback(line)

    return CallbackProgress(print_progress)


def build_study(options: Options) -> Study:
    """Return the study; raises BadInput for an unknown option, or a value that is invalid on every machine."""
    public = dict.fromkeys(name for name in Study.__struct_fields__ if name != "injected_delays")
    for name in options:
        if name not in Study.__struct_fields__:
            lookup_or_suggest(name, public, "option")
    fields: dict[str, Any] = {
        name: split_names(value) if name in _COMMA_SEPARATED and isinstance(value, str) else value
        for name, value in options.items()
    }
    if not isinstance(model := fields.get("model", ""), str | Model):
        fields["model"] = import_model(model)
    try:
        study = msgspec.convert(fields, Study)
    except msgspec.ValidationError as error:
        raise BadInput(format_validation_error(error)) from error
    study = with_network(study)
    reject_unused_environments(study)
    return study
