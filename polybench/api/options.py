"""What is asked for from Python: the options of a study, as keyword arguments."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import msgspec

from polybench.core.errors import BadInput, said
from polybench.core.model import Model
from polybench.core.names import pick, split_names
from polybench.core.spec import Study, refuse_unused_environments
from polybench.measuring.progress import Progress, Silent, Told
from polybench.planning.network_file import with_network


class Options(TypedDict, total=False):
    """The fields of core.spec.Study, which has their meanings and defaults.

    Written out, because type checkers know no computed TypedDict; a test holds that fields and types are
    Study's.
    """

    engines: Sequence[str]
    devices: Sequence[str] | None
    env: dict[str, str]
    model: str | Model
    data: str
    batch_size: int | None
    optimizer: str | None
    learning_rate: float | None
    momentum: float | None
    weight_decay: float | None
    schedule: Sequence[tuple[int, float]] | None
    precision: str | Sequence[str]
    input: str
    workers: int | None
    augment: bool
    threads: int | None
    replicas: int | Sequence[int]
    heap: str
    pin: bool
    seed: int
    processes: int
    rounds: int | None
    steps: int | None
    target: float
    epochs: int | None
    accuracy: bool
    until: dict[str, float]
    budget: float
    patience: float
    timeout: float
    parity: bool
    parity_steps: int
    baseline: str | None
    prices: dict[str, float]
    metrics: bool
    handicaps: dict[str, float]


Tell = Callable[[str], object]
"""Called with each line of progress, between measurements: `print`, or a logger's `info`."""

_LISTS = ("engines", "devices", "precision")
"""Also as text, as on the command line: "torch,tf"."""


def told(tell: Tell | None) -> Progress:
    """Whom a study tells how it goes; `print` prints where it would now, whatever of Ray's is kept silent."""
    if tell is None:
        return Silent()
    out = sys.stdout

    def say(line: str) -> None:
        with contextlib.redirect_stdout(out):
            tell(line)

    return Told(say)


def study_of(options: Options) -> Study:
    """The study that options ask for.

    Raises:
        BadInput: one is unknown, or has a value that no machine could run.
    """
    public = dict.fromkeys(name for name in Study.__struct_fields__ if name != "handicaps")
    for name in options:
        if name not in Study.__struct_fields__:
            pick(name, public, "option")
    fields: dict[str, Any] = {
        name: split_names(value) if name in _LISTS and isinstance(value, str) else value
        for name, value in options.items()
    }
    try:
        study = msgspec.convert(fields, Study)
    except msgspec.ValidationError as error:
        raise BadInput(said(error)) from error
    study = with_network(study)
    refuse_unused_environments(study)
    return study
