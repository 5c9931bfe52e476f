"""Suggested command lines: the commands parse them to the intended study."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest
from typer.testing import CliRunner

from polybench.cli import app
from polybench.engines import ENGINES
from polybench.errors import BadInput
from polybench.planning.grid import SweepSpec, points
from polybench.planning.suggested_commands import (
    command_line,
    for_comparison,
    for_layers,
    for_parity,
    for_sweep,
    has_layers,
    measured_study,
    other_variants,
)
from polybench.schema.options import Study
from tests.factories import WORKLOAD, measured, study

ENVIRONMENT = str(Path(sys.executable))  # a Python, named itself
PLAIN = Study(engines=("fake",), threads=2)
FULL = Study(
    engines=("fake", "fake+slow", "fake@other"),
    devices=("cpu",),
    env={"other": ENVIRONMENT},
    model="catdog-2",
    data="synthetic",
    batch_size=16,
    optimizer="nesterov",
    learning_rate=0.125,
    momentum=0.5,
    weight_decay=1e-05,
    lr_schedule=((10, 0.1), (20, 0.05)),
    input="pipeline",
    loader_workers=1,
    augment=True,
    threads=1,
    malloc="system",
    seed=3,
    processes=2,
    rounds_per_process=4,
    steps_per_round=5,
    margin=0.02,
    epochs=2,
    accuracy=True,
    target_accuracy=0.5,
    budget=90.5,
    wait_idle=3.0,
    timeout=120.0,
    parity=False,
    parity_steps=2,
    cold_starts=4,
    baseline="fake+slow/cpu",
    prices={"cpu": 0.24},
    metrics=False,
    injected_delays={"fake/cpu": 0.25},
)


class Read(Exception):
    """Carries the study that a command parsed."""

    def __init__(self, study: Study) -> None:
        self.study = study


@pytest.fixture(autouse=True)
def measure_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(study: Study, *_: Any, **__: Any) -> NoReturn:
        raise Read(study)

    def stop_series(series: SweepSpec, *_: Any, **__: Any) -> NoReturn:
        raise Read(points(series.study, series.axes)[0].study)

    monkeypatch.setattr("polybench.run.run", stop)
    monkeypatch.setattr("polybench.experiments.layers.run_layers", stop)
    monkeypatch.setattr("polybench.experiments.sweep.run_sweep", stop_series)


def read(line: str) -> Study:
    program, *words = shlex.split(line)
    assert program == "polybench"
    error = CliRunner().invoke(app, words).exception
    assert isinstance(error, Read), error
    return error.study


NO_WAIT = msgspec.structs.replace(PLAIN, wait_idle=0.0)


@pytest.mark.parametrize("wanted", [PLAIN, FULL, NO_WAIT], ids=["plain", "full", "no wait"])
def test_a_suggested_comparison_parses_to_the_same_study(wanted: Study) -> None:
    assert read(command_line("compare", wanted)) == wanted
    other = for_comparison(wanted, ["faulty+linear_cost", "fake"], malloc="retain")
    found = read(command_line("compare", other))
    assert found == other
    assert (found.engines, found.malloc, found.baseline, found.injected_delays) == (
        ("faulty+linear_cost", "fake"), "retain", None, {},
    )  # fmt: skip
    assert found.seed == wanted.seed


@pytest.mark.parametrize("wanted", [PLAIN, FULL], ids=["plain", "full"])
def test_suggested_layers_parity_and_sweeps_parse_to_the_same_study(wanted: Study) -> None:
    configurations = [measured(name, 0.01) for name in ("fake/cpu", "fake/cpu#2", "fake+slow/cpu", "fake+slow/cuda")]
    layers = for_layers(wanted, configurations)
    assert layers is not None
    assert read(command_line("layers", layers)) == layers
    assert layers.engines == ("fake", "fake", "fake+slow")
    assert (layers.input, layers.steps_per_round) == ("preload", wanted.steps_per_round)
    check = for_parity(wanted, "fake")
    assert read(command_line("parity", check)) == check
    threads = for_sweep(wanted, ["fake"], "threads")
    point = read(command_line("sweep", threads, "--threads", "1,2"))
    assert (point.threads, point.batch_size, point.seed) == (1, wanted.batch_size, wanted.seed)
    sizes = for_sweep(wanted, ["fake"], "batch_size")
    point = read(command_line("overhead", sizes))
    assert (point.batch_size, point.threads, point.input) == (1, wanted.threads, wanted.input)


def test_environments_are_kept_for_their_engines_only() -> None:
    old = measured("fake+slow@other/cpu", 0.01)
    layers = for_layers(FULL, [measured("fake/cpu", 0.01), old])
    assert layers is not None
    assert (layers.engines, layers.env) == (("fake", "fake+slow@other"), {"other": ENVIRONMENT})
    assert read(command_line("layers", layers)) == layers
    assert for_parity(FULL, "fake").env == {}
    assert {"torch@old", "torch+channels_last@old"} <= set(other_variants(measured("torch+compile@old/cpu", 0.01)))


def test_bf16_has_no_layer_timing() -> None:
    def precision(*names: Any) -> Any:
        found = for_layers(msgspec.structs.replace(PLAIN, precision=names), [measured("fake/cpu", 0.01)])
        return found and found.precision

    assert precision("bf16", "fp32") is None
    assert precision("fp32", "bf16") == "fp32"
    assert precision("fp32", "tf32") == ("fp32", "tf32")
    in_bf16 = msgspec.structs.replace(WORKLOAD, precision="bf16")
    assert not has_layers(measured("torch/cpu", 0.01, workload=in_bf16))
    assert not has_layers(measured("tf+keras_fit+xla/cpu", 0.01))
    assert has_layers(measured("torch+channels_last/cpu", 0.01))


def test_the_machines_choice_of_threads_is_explicit() -> None:
    document = study(measured("torch/cpu", 0.01))
    assert measured_study(document) == Study(engines=("torch", "tf"), threads=2)
    document.study = 'engines = ["torch"]\nfuture = 1\n'
    with pytest.raises(BadInput, match="cannot read the settings of study 20250101"):
        measured_study(document)


def test_other_variants_match_the_device() -> None:
    on_cpu = other_variants(measured("torch+compile/cpu", 0.01))
    assert {"torch", "torch+channels_last"} <= set(on_cpu)
    assert not {"torch+compile", "torch+cudagraph"} & set(on_cpu)
    assert "torch+cudagraph" in other_variants(measured("torch/cuda", 0.01))
    assert other_variants(measured("fake/cpu", 0.01)) == other_variants(measured("other/cpu", 0.01)) == []


def test_only_the_first_variant_with_other_thread_pools_is_suggested() -> None:
    suggested = other_variants(measured("flux/cpu", 0.01))
    assert [name for name in suggested if ENGINES["flux"].variants[name.partition("+")[2]].changes_thread_pools] == [
        "flux+framework_threads"
    ]
