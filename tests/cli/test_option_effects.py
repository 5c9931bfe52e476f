"""What each option of `compare` changes in the document, on a simulated machine.

One command has the defaults and one has another value of each option, so that an option that is ignored or takes the
place of another one shows.
"""

from __future__ import annotations

import json
from functools import reduce
from typing import Any

import pytest
from typer.testing import CliRunner

from polybench.cli import app
from polybench.cli.options import OPTIONS
from tests.simulated_machine import Machine, Script

STEADY = {"process": 0.0, "round": 0.0, "tail": 0.0}
SCRIPTS = {"torch": Script(0.02, seconds_per_item=1e-4), "tf": Script(0.01), "jax": Script(0.03)}
DEFAULTS = (
    "compare --engines torch,tf --devices cpu --data synthetic --no-parity --no-metrics --wait-idle 0 --threads 2"
    " --processes 2 --rounds-per-process 2 --steps-per-round 5 --format json"
)
CHANGED = (
    "--engines torch,tf,jax --baseline tf/cpu --model mnist-mlp --batch-size 64 --optimizer nesterov --momentum 0.5"
    " --learning-rate 0.2 --weight-decay 0.001 --lr-schedule 10=0.1 --threads 1 --malloc system --seed 7 --processes 3"
    " --rounds-per-process 4 --steps-per-round 6 --tolerance 50% --price cpu=0.24"
    " --title nightly --tag ci --anonymous --epochs 2"
)
EFFECTS: dict[str, tuple[str, Any]] = {
    "engines": ("results.*.engine", ["torch", "tf", "jax"]),
    "baseline": ("results.0.vs_baseline.baseline", "tf/cpu"),
    "model": ("settings.model", "mnist-mlp"),
    "batch_size": ("results.0.workload.batch_size", 64),
    "optimizer": ("settings.optimizer.name", "nesterov"),
    "momentum": ("results.0.workload.optimizer.momentum", 0.5),
    "learning_rate": ("results.0.workload.optimizer.learning_rate", 0.2),
    "weight_decay": ("results.0.workload.optimizer.weight_decay", 0.001),
    "lr_schedule": ("results.0.workload.optimizer.lr_schedule", [[10, 0.1]]),
    "threads": ("results.0.workload.threads", 1),
    "malloc": ("settings.malloc", "system"),
    "seed": ("settings.seed", 7),
    "processes": ("results.0.step_times.values.length", 3),
    "rounds_per_process": ("results.1.step_times.values.0.length", 4),
    "steps_per_round": ("results.1.step_times.values.0.0.length", 6),
    "tolerance": ("settings.tolerance", 0.5),
    "prices": ("settings.prices", {"cpu": 0.24}),
    "title": ("title", "nightly"),
    "tags": ("tags", ["ci"]),
    "anonymous": ("host.hostname", "<host>"),
    "epochs": ("settings.epochs", 2),
}
ELSEWHERE = {
    *("devices", "env", "data", "inference", "precision", "input", "loader_workers", "augment"),
    *("oversubscribe", "replicas"),
    *("pin_cpus", "quick", "accuracy", "target_accuracy", "target_loss", "margin", "budget", "wait_idle", "timeout"),
    *("parity_steps", "cold_starts", "recheck", "parity", "metrics", "injected_delays", "strict", "dry_run"),
    *("columns", "published"),
    *("format", "output", "results", "save", "explain", "quiet", "verbose"),
}
"""Options that need real workers, files or a table; the tests of these have them."""


@pytest.fixture(scope="module")
def documents() -> tuple[Any, Any]:
    """The document of the defaults, and that of the changed options."""
    return measure(), measure(*CHANGED.split())


def measure(*options: str) -> Any:
    with Machine(1, **STEADY).simulate(SCRIPTS):
        result = CliRunner().invoke(app, [*DEFAULTS.split(), "--no-save", *options])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def at(document: Any, path: str) -> Any:
    """Return the value at `results.0.engine`; `*` stands for each of a list, `length` for its length."""

    def step(value: Any, name: str) -> Any:
        if name == "*":
            return value
        if name == "length":
            return len(value)
        if name.isdecimal():
            return value[int(name)]
        return [one[name] for one in value] if isinstance(value, list) else value and value[name]

    return reduce(step, path.split("."), document)


@pytest.mark.parametrize("option", EFFECTS)
def test_an_option_of_compare_changes_the_document(option: str, documents: tuple[Any, Any]) -> None:
    path, expected = EFFECTS[option]
    default, changed = (at(document, path) for document in documents)
    assert changed == expected
    assert default != changed


def test_every_option_has_its_effect_here_or_elsewhere() -> None:
    assert EFFECTS.keys() | ELSEWHERE == OPTIONS.keys()
    assert not EFFECTS.keys() & ELSEWHERE
