"""Every option of every command that measures reaches what is measured, and nothing else comes with it.

Each command runs up to the function that measures, which gets its arguments and refuses. All options are given at once,
each with a value unlike its default and unlike the others.
"""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from polybench.cli import app
from polybench.errors import BadInput
from polybench.schema.options import SINGLE_MACHINE, Study

STUDY: dict[str, tuple[str, Any]] = {
    "engines": ("--engines torch,tf", ("torch", "tf")),
    "devices": ("--devices cpu", ("cpu",)),
    "model": ("--model mnist-mlp", "mnist-mlp"),
    "data": ("--data synthetic", "synthetic"),
    "batch_size": ("--batch-size 48", 48),
    "optimizer": ("--optimizer nesterov", "nesterov"),
    "learning_rate": ("--learning-rate 0.2", 0.2),
    "momentum": ("--momentum 0.5", 0.5),
    "weight_decay": ("--weight-decay 0.001", 0.001),
    "lr_schedule": ("--lr-schedule 11=0.1", ((11, 0.1),)),
    "threads": ("--threads 1", 1),
    "oversubscribe": ("--oversubscribe", True),
    "malloc": ("--malloc system", "system"),
    "pin_cpus": ("--pin-cpus", True),
    "seed": ("--seed 7", 7),
    "processes": ("--processes 9", 9),
    "rounds_per_process": ("--rounds-per-process 4", 4),
    "steps_per_round": ("--steps-per-round 6", 6),
    "epochs": ("--epochs 2", 2),
    "accuracy": ("--accuracy", True),
    "target_accuracy": ("--target-accuracy 0.6", 0.6),
    "margin": ("--margin 8%", 0.08),
    "tolerance": ("--tolerance 3%", 0.03),
    "budget": ("--budget 90s", 90.0),
    "wait_idle": ("--wait-idle 13s", 13.0),
    "timeout": ("--timeout 5m", 300.0),
    "parity": ("--no-parity", False),
    "parity_steps": ("--parity-steps 5", 5),
    "cold_starts": ("--cold-starts 3", 3),
    "baseline": ("--baseline tf/cpu", "tf/cpu"),
    "prices": ("--price cpu=0.24", {"cpu": 0.24}),
    "metrics": ("--no-metrics", False),
    "injected_delays": ("--inject-delay torch/cpu=0.5", {"torch/cpu": 0.5}),
}
APART: dict[str, tuple[str, Any]] = {
    "env": (f"--engines torch,torch@old --env old={sys.executable}", {"old": sys.executable}),
    "inference": ("--inference", True),
    "precision": ("--precision fp32,bf16", ("fp32", "bf16")),
    "input": ("--input pipeline", "pipeline"),
    "loader_workers": ("--input pipeline --loader-workers 3", 3),
    "augment": ("--input pipeline --augment", True),
    "replicas": ("--replicas 1,2", (1, 2)),
    "target_loss": ("--target-loss 1.9", 1.9),
}
"""Options that exclude others."""

COMMANDS = {
    "compare": "polybench.run:run",
    "run {folder}/study.toml": "polybench.run:run",
    "parity": "polybench.run:run",
    "sweep": "polybench.experiments.sweep:run_sweep",
    "overhead": "polybench.experiments.sweep:run_sweep",
    "layers": "polybench.experiments.layers:run_layers",
    "layers --allocations": "polybench.experiments.allocation_sites:find_allocation_sites",
    "peak": "polybench.experiments.peak:run_peak",
    "compare --on ray://here:1": "polybench.cluster.run:run_on_cluster",
    "run {folder}/study.toml --on ray://here:1": "polybench.cluster.run:run_on_cluster",
    "bisect A B --package torch": "polybench.experiments.bisect:run_bisect",
    "versions A B --package torch": "polybench.runner.versions:Versions.pair",
}
"""Beginning of the command -> the function that it calls to measure."""

FILE = """title = "of the file"
engines = ["jax"]
seed = 99
"""


@pytest.fixture
def measures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Return a function that runs a command, and returns the arguments of the function that measures."""
    (tmp_path / "study.toml").write_text(FILE)

    def run(command: str, *options: str) -> dict[str, Any]:
        given: dict[str, Any] = {}

        def measure(*arguments: Any, **named: Any) -> None:
            given.update(signature.bind(*arguments, **named).arguments)
            raise BadInput("not measured")

        module, _, name = COMMANDS[command].partition(":")
        owner, _, name = name.rpartition(".")
        place = resolve_name(f"{module}:{owner}") if owner else resolve_name(module)
        signature = inspect.signature(getattr(place, name))
        words = shlex.split(" ".join((command, *options)).replace("{folder}", str(tmp_path)))
        with monkeypatch.context() as patched:
            patched.setattr(place, name, measure)
            result = CliRunner().invoke(app, words)
        assert str(result.exception) == "not measured", result.output or result.exception
        return given

    return run


NOT_WITH = {
    "overhead": {"batch_size"},
    "layers --allocations": {
        *("processes", "rounds_per_process", "steps_per_round", "margin", "tolerance", "budget", "wait_idle"),
        *("parity", "parity_steps", "baseline"),
    },
}
"""Options that have no effect in a form of a command."""
INSTEAD: dict[str, dict[str, tuple[str, Any]]] = {
    "bisect": {"engines": ("--engines torch", ("torch",))},
    "versions": {"engines": ("--engines torch", ("torch",))},
    "sweep": {"model": ("--model catdog --depth 2,4", "catdog")},
}
"""Values of options that suit a command."""


def parameters_of(command: str) -> dict[str, str]:
    """Return the first spelling of each parameter of a command."""
    group = typer.main.get_command(app)
    listed = group.get_command(typer.Context(group), command)  # type: ignore[attr-defined]
    spellings = {one.name: [flag for flag in one.opts if flag.startswith("--")] for one in listed.load().params}
    return {name: next(iter(flags), "") for name, flags in spellings.items()}


def options_of(command: str) -> set[str]:
    """Return the fields of the study that have an option of a command."""
    return {*parameters_of(command)} & {*Study.__struct_fields__}


def study_in(given: dict[str, Any]) -> Study:
    """Return the study among the arguments of a function that measures."""
    record = given.get("spec") or given.get("cluster_run")
    found = record.study if record is not None else given["study"]
    assert isinstance(found, Study)
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_a_study_reaches_what_is_measured(
    command: str, measures: Callable[..., dict[str, Any]]
) -> None:
    name = command.split(maxsplit=1)[0]
    given = {field: STUDY[field] for field in STUDY if field in options_of(name) - NOT_WITH.get(command, set())}
    given |= INSTEAD.get(name, {})
    study = study_in(measures(command, *(option for option, _ in given.values())))
    expected = {field: value for field, (_, value) in given.items()}
    assert {field: getattr(study, field) for field in given} == expected
    default = Study(**({"seed": 99, "engines": ("jax",)} if name == "run" else {}))
    others = {field for field in Study.__struct_fields__ if field not in given}
    assert {field: getattr(study, field) for field in others} == {field: getattr(default, field) for field in others}


@pytest.mark.parametrize(("field", "option", "value"), [(name, *APART[name]) for name in APART])
@pytest.mark.parametrize("command", ["compare", "run {folder}/study.toml", "layers --allocations", "parity"])
def test_options_that_exclude_others_reach_it_too(
    command: str, field: str, option: str, value: Any, measures: Callable[..., dict[str, Any]]
) -> None:
    if field not in options_of(command.split(maxsplit=1)[0]):
        return
    assert getattr(study_in(measures(command, option, "--data synthetic")), field) == value


def test_every_field_of_a_study_has_an_option_here() -> None:
    assert STUDY.keys() | APART.keys() == {*Study.__struct_fields__}


def test_options_of_the_log_reach_its_header(measures: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    options = "--title nightly --tag ci --tag lr=1 --anonymous --results {folder}/own --data synthetic"
    for command, title in (("compare", "nightly"), ("run {folder}/study.toml", "nightly")):
        given = measures(command, options)
        header = given["log"].header
        assert (header.title, header.tags, header.anonymous, header.argv) == (title, ["ci", "lr=1"], True, [])
        assert given["store"].folder == tmp_path / "own"
        assert (given["strict"], given["parity_check"]) == (False, "new")
    given = measures("run {folder}/study.toml", "--no-save --strict --recheck")
    header = given["log"].header
    assert (header.title, header.tags, header.anonymous, header.argv[0]) == ("of the file", [], False, "run")
    assert (given["store"], given["strict"], given["parity_check"]) == (None, True, "all")
    given = measures("parity", "--strict --anonymous --engines torch")
    assert (given["store"], given["strict"], given["parity_check"]) == (None, True, "only")
    assert given["log"].header.anonymous


def test_options_of_a_sweep_reach_it(measures: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    options = "--title nightly --tag ci --anonymous --results {folder}/own"
    given = measures("sweep", "--batch-size 8,16 --threads 2 --loader-workers 1 --input pipeline", options)
    spec = given["spec"]
    assert (spec.axes, spec.command, spec.study.threads) == ({"batch_size": [8, 16]}, "sweep", 2)
    assert (spec.study_file.title, spec.study_file.tags) == ("nightly", ("ci",))
    assert (given["anonymous"], given["argv"][0], given["store"].folder) == (True, "sweep", tmp_path / "own")
    axes = "--threads 1,2 --depth 2 --resolution 32,64 --model catdog"
    given = measures("sweep", axes, "--no-save")
    assert (given["spec"].axes, given["store"], given["anonymous"]) == (
        {"threads": [1, 2], "depth": [2], "resolution": [32, 64]}, None, False,
    )  # fmt: skip
    assert measures("sweep", "--model char-gpt --length 64,128")["spec"].axes == {"length": [64, 128]}
    given = measures("overhead", "--batch-size 2,9", options)
    assert (given["spec"].axes, given["spec"].command) == ({"batch_size": [2, 9]}, "overhead")
    assert measures("overhead")["spec"].axes["batch_size"][:3] == [1, 2, 4]


def test_options_of_layers_reach_them(measures: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    options = "--strict --expand-blocks --export {folder}/programs --anonymous --results {folder}/own"
    given = measures("layers", options, "--layer 'conv 8->16 3x3' --shape 9x9")
    assert (given["strict"], given["expand_blocks"], given["export_folder"]) == (True, True, tmp_path / "programs")
    assert (given["header"].anonymous, given["store"].folder) == (True, tmp_path / "own")
    assert given["study"].model == "conv 8->16 3x3 on 9x9"
    given = measures("layers", "--no-save", "--quick")
    assert (given["strict"], given["expand_blocks"], given["export_folder"]) == (False, False, None)
    assert (given["header"].anonymous, given["store"]) == (False, None)
    assert (given["study"].processes, given["header"].argv[0]) == (1, "layers")


def test_options_of_other_measurements_reach_them(measures: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    given = measures("peak", "--quick --remeasure")
    assert (given["quick"], given["remeasure"], given["argv"][0]) == (True, True, "peak")
    given = measures("peak")
    assert (given["quick"], given["remeasure"]) == (False, False)
    one = "--engines torch"
    given = measures("bisect A B --package torch", one, "--max-pairs 3 --results {folder}/own")
    assert (given["ends"], given["max_pairs"], given["store"].folder) == (("A", "B"), 3, tmp_path / "own")
    assert (given["source"].package, given["argv"][0]) == ("torch", "bisect")
    given = measures("versions A B --package torch", one)
    assert (given["base"], given["other"], given["self"].package) == ("A", "B", "torch")


def test_options_of_a_cluster_reach_it(measures: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    options = "--upload --strict --recheck --title nightly --tag ci --anonymous --results {folder}/own"
    for command in COMMANDS:
        if "--on" in command:
            given = measures(command, options)
            run, header = given["cluster_run"], given["header"]
            assert (run.on, run.upload, run.strict, run.parity_check) == ("ray://here:1", True, True, "all")
            assert run.groups == SINGLE_MACHINE
            assert (header.title, header.tags, header.anonymous) == ("nightly", ["ci"], True)
            assert given["store"].folder == tmp_path / "own"
            run = measures(command, "--no-save")["cluster_run"]
            assert (run.upload, run.strict, run.parity_check) == (False, False, "new")
