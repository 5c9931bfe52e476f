"""Command lines of follow-up studies: the commands read them as they were meant."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest
from typer.testing import CliRunner

from polybench.cli import app
from polybench.core.errors import BadInput
from polybench.core.spec import Study
from polybench.measuring.sweep_checkpoint import Series
from polybench.planning.follow_ups import (
    command_line,
    for_check,
    for_comparison,
    for_layers,
    for_series,
    has_layers,
    measured_study,
    other_variants,
)
from polybench.planning.grid import points
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
    schedule=((10, 0.1), (20, 0.05)),
    input="pipeline",
    workers=1,
    augment=True,
    threads=1,
    heap="system",
    seed=3,
    processes=2,
    rounds=4,
    steps=5,
    target=0.02,
    epochs=2,
    accuracy=True,
    until={"accuracy": 0.5},
    budget=90.5,
    patience=3.0,
    timeout=120.0,
    parity=False,
    parity_steps=2,
    baseline="fake+slow/cpu",
    prices={"cpu": 0.24},
    metrics=False,
    handicaps={"fake/cpu": 0.25},
)


class Read(Exception):
    """Carries the study that a command made of its words."""

    def __init__(self, study: Study) -> None:
        self.study = study


@pytest.fixture(autouse=True)
def measure_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(study: Study, *_: Any, **__: Any) -> NoReturn:
        raise Read(study)

    def stop_series(series: Series, *_: Any, **__: Any) -> NoReturn:
        raise Read(points(series.study, series.axes)[0].study)

    monkeypatch.setattr("polybench.measuring.study.run_study", stop)
    monkeypatch.setattr("polybench.measuring.layers.run_layers", stop)
    monkeypatch.setattr("polybench.measuring.sweep.run_sweep", stop_series)


def read(line: str) -> Study:
    program, *words = shlex.split(line)
    assert program == "polybench"
    error = CliRunner().invoke(app, words).exception
    assert isinstance(error, Read), error
    return error.study


@pytest.mark.parametrize("wanted", [PLAIN, FULL], ids=["plain", "full"])
def test_a_comparison_is_read_as_it_was_written(wanted: Study) -> None:
    assert read(command_line("compare", wanted)) == wanted
    other = for_comparison(wanted, ["fake+line", "fake"], heap="keep")
    found = read(command_line("compare", other))
    assert found == other
    assert (found.engines, found.heap, found.baseline, found.handicaps) == (
        ("fake+line", "fake"), "keep", None, {},
    )  # fmt: skip
    assert found.seed == wanted.seed


@pytest.mark.parametrize("wanted", [PLAIN, FULL], ids=["plain", "full"])
def test_so_are_layers_the_check_and_series(wanted: Study) -> None:
    cells = [measured(name, 0.01) for name in ("fake/cpu", "fake/cpu#2", "fake+slow/cpu", "fake+slow/cuda")]
    layers = for_layers(wanted, cells)
    assert layers is not None
    assert read(command_line("layers", layers)) == layers
    assert layers.engines == ("fake", "fake", "fake+slow")
    assert (layers.input, layers.steps) == ("preload", wanted.steps)
    check = for_check(wanted, "fake")
    assert read(command_line("parity", check)) == check
    threads = for_series(wanted, ["fake"], "threads")
    point = read(command_line("sweep", threads, "--threads", "1,2"))
    assert (point.threads, point.batch_size, point.seed) == (1, wanted.batch_size, wanted.seed)
    sizes = for_series(wanted, ["fake"], "batch_size")
    point = read(command_line("overhead", sizes))
    assert (point.batch_size, point.threads, point.input) == (1, wanted.threads, wanted.input)


def test_environments_go_with_the_engines_that_have_them() -> None:
    old = measured("fake+slow@other/cpu", 0.01)
    layers = for_layers(FULL, [measured("fake/cpu", 0.01), old])
    assert layers is not None
    assert (layers.engines, layers.env) == (("fake", "fake+slow@other"), {"other": ENVIRONMENT})
    assert read(command_line("layers", layers)) == layers
    assert for_check(FULL, "fake").env == {}
    assert {"torch@old", "torch+channels_last@old"} <= set(
        other_variants(measured("torch+compile@old/cpu", 0.01))
    )


def test_layers_have_no_times_in_bfloat16() -> None:
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


def test_what_the_machine_chose_is_written_out() -> None:
    document = study(measured("torch/cpu", 0.01))
    assert measured_study(document) == Study(engines=("torch", "tf"), threads=2)
    document.study = 'engines = ["torch"]\nfuture = 1\n'
    with pytest.raises(BadInput, match="cannot read the settings of study 20250101"):
        measured_study(document)


def test_variants_that_the_device_can_run() -> None:
    on_cpu = other_variants(measured("torch+compile/cpu", 0.01))
    assert {"torch", "torch+channels_last"} <= set(on_cpu)
    assert not {"torch+compile", "torch+cudagraph"} & set(on_cpu)
    assert "torch+cudagraph" in other_variants(measured("torch/cuda", 0.01))
    assert other_variants(measured("fake/cpu", 0.01)) == other_variants(measured("other/cpu", 0.01)) == []
