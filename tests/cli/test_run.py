"""`polybench run` with study files and saved studies."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.cluster.driver import ClusterResult, MachineResult
from polybench.experiments.sweep import SweepOutcome
from polybench.log import AnyEvent, Header, Log, SettingsChosen, encode_line, read_log
from polybench.planning.grid import SweepSpec, points
from polybench.planning.study_file import REFERENCES
from polybench.planning.suggested_commands import OWN_DATA
from polybench.results.sweep import build_sweep_document
from polybench.runner.checkpoint import ClusterRun, ResumableRun
from polybench.schema.options import Study
from polybench.schema.study import StudyDocument, from_json
from polybench.storage.store import Store, results_folder
from tests import factories
from tests.cli.conftest import Run
from tests.commands import invoke, printed, printed_json, refused
from tests.gallery import GALLERY
from tests.golden import FILE as GOLDEN
from tests.log_of import save_document
from tests.scripts.test_plain import folder

__all__ = ["folder"]

STUDY = """
title = "Two fakes"
published = "paper"
engines = ["fake", "fake+slow"]
devices = ["cpu"]
data = "cifar"
batch_size = 16
processes = 2
rounds_per_process = 1
steps_per_round = 5
[prices]
cpu = 3.6
"""
REFERENCE = """
[paper]
source = "a journal"
numbers = [{label = "Flux", hardware = "i7", quantity = "time an epoch", value = 82.470, unit = "s"}]
"""


@pytest.fixture
def study(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / REFERENCES).write_text(REFERENCE)
    file = tmp_path / "two.toml"
    file.write_text(STUDY)
    return file


def test_a_study_file_is_measured_printed_and_repeated(study: Path) -> None:
    first = printed("run", study.name, "--published")
    assert first.startswith("Two fakes\nlenet ")
    assert "fake+slow/cpu" in first
    table, block = first.split("published (not measured here)")
    assert "82.47 s" in block
    assert "82.47" not in table
    assert printed("show", "last", "--published") == first
    assert printed("show", "last") == table.rstrip() + "\n"

    saved = from_json(printed("show", "last", "--format", "json").encode())
    repeated = from_json(printed("run", "last", "--format", "json", "--no-save", "--quiet").encode())
    assert repeated.study == saved.study
    assert repeated.settings == saved.settings
    assert (repeated.title, repeated.published) == (saved.title, saved.published)
    assert [result.configuration for result in repeated.results] == [result.configuration for result in saved.results]
    assert repeated.results[0].cost is not None


def test_quick_and_data_override_a_study_file(study: Path) -> None:
    assert printed_json("run", study, "--quick", "--no-save", "--quiet")["settings"]["processes"] == 1
    assert "nowhere" in refused("run", study, "--data", "nowhere")


def test_options_override_the_study_file(study: Path) -> None:
    options = "--engines fake --seed 7 --price cpu=1.8 --steps-per-round 4 --no-metrics --no-save --quiet"
    document = from_json(printed("run", study, *options.split(), "--format", "json").encode())
    assert [result.configuration for result in document.results] == ["fake/cpu"]
    settings = document.settings
    assert (settings.seed, settings.prices, settings.steps_per_round) == (7, {"cpu": 1.8}, 4)
    assert (settings.batch_size, settings.processes, settings.rounds_per_process) == (16, 2, 1)  # the file's
    assert 'engines = ["fake"]' in document.study.replace("\n    ", "").replace(",\n]", "]")
    assert "metrics = false" in document.study
    assert "--processes" in refused("run", study, "--processes", "0")
    assert "processes 1\n" in invoke("run", study, "--quick", "--processes", "3", "--dry-run").stderr
    assert "processes 3\n" in invoke("run", study, "--processes", "3", "--dry-run").stderr


def test_dry_run_prints_what_would_be_measured(study: Path) -> None:
    planned = invoke("run", study, "--dry-run", "--rounds-per-process", "4")
    assert planned.exit_code == 0
    assert planned.stdout.split() == ["fake/cpu", "fake+slow/cpu"]
    assert planned.stderr.endswith("processes 2\nrounds per process: 4, steps per round: 5\n")
    study.write_text("epochs = 2\n" + STUDY)
    assert "; then trainings of at most 2 epochs" in invoke("run", study, "--dry-run").stderr
    assert "rounds per process: by speed, steps" in invoke("compare", "--engines", "fake", "--dry-run").stderr


def test_bad_input_names_the_file_and_line(run: Run, study: Path) -> None:
    study.write_text("engines = ['fake']\nbatchsize = 8\n")
    done = run("run", study.name)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: two.toml:2: unknown key 'batchsize'; did you mean 'batch_size'?")
    for name, message in {
        "nowhere.toml": "cannot read nowhere.toml",
        f"{study.parent}/": "Is a directory",
        "nothing": "no study 'nothing' in ",
    }.items():
        assert message in refused("run", name)


@pytest.mark.parametrize("options", [("--strict",), ("--columns", "speedup")])
def test_a_sweep_rejects_options_that_it_does_not_have(study: Path, options: tuple[str, ...]) -> None:
    study.write_text(STUDY + "[sweep]\nbatch_size = [8, 16]\n")
    assert options[0].removeprefix("--") in refused("run", study, *options)


def test_dry_run_prints_the_points_of_a_sweep(study: Path) -> None:
    study.write_text(STUDY + "[sweep]\nbatch_size = [8, 16]\n")
    planned = invoke("run", study, "--dry-run")
    assert planned.stdout == 2 * "fake/cpu\nfake+slow/cpu\n"
    assert "batch size 16:\nlenet, batch 16, fp32" in planned.stderr


def test_a_saved_study_is_repeated_from_its_log() -> None:
    (log, *_) = Store(GALLERY / "measured").logs()
    assert printed("run", log, "--engines", "fake", "--devices", "cpu", "--dry-run") == "fake/cpu\n"
    assert "is a report" in refused("run", GOLDEN, "--dry-run")


def test_a_study_of_a_julia_users_model_is_not_measured_again(study: Path) -> None:
    printed("run", study.name)
    (log,) = results_folder(None).glob("*.jsonl")
    header, *events = read_log(log)
    assert isinstance(header, Header)
    own = re.sub(r"^model = .*$", 'model = "my chain"', header.study, flags=re.MULTILINE)
    events = [msgspec.structs.replace(header, study=own), *map(_of_julia, events)]
    log.write_bytes(b"".join(map(encode_line, events)))
    for command in ("run", "explain"):
        assert "'my chain' is known only to the Julia session that measured it: call bench there" in refused(
            command, "last"
        )
    assert "my chain" in printed("show", "last")


def _of_julia(event: AnyEvent) -> AnyEvent:
    """Return the event of a log as if Julia had measured a user's own model."""
    if not isinstance(event, SettingsChosen):
        return event
    return msgspec.structs.replace(
        event, settings=msgspec.structs.replace(event.settings, model="my chain", dataset=OWN_DATA)
    )


def test_julia_names_own_data_as_python_does() -> None:
    document = Path(__file__).parents[2] / "julia/src/document.jl"
    assert f'const OWN_DATA = "{OWN_DATA}"\n' in document.read_text("utf-8")


@pytest.mark.parametrize("command", ["compare", "run", "compare --on local", "run --on local"])
@pytest.mark.parametrize(
    ("options", "strict", "parity_check"),
    [((), False, "new"), (("--recheck",), False, "all"), (("--strict",), True, "new")],
)
def test_options_of_the_checks_reach_the_study(
    command: str,
    options: tuple[str, ...],
    strict: bool,
    parity_check: str,
    study: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    received: list[tuple[bool, str]] = []
    document = factories.study(factories.measured("fake/cpu", 0.01))

    def run(*_: object, strict: bool, parity_check: str, **__: object) -> StudyDocument:
        received.append((strict, parity_check))
        return document

    def run_on_cluster(cluster_run: ClusterRun, *_: object, **__: object) -> ClusterResult:
        received.append((cluster_run.strict, cluster_run.parity_check))
        return ClusterResult([MachineResult("local", document, None)], None, False)

    monkeypatch.setattr("polybench.run.run", run)
    monkeypatch.setattr("polybench.cluster.run.run_on_cluster", run_on_cluster)
    name, *where = command.split()
    given = (study,) if name == "run" else ("--engines", "fake")
    printed(name, *given, *where, *options, "--no-save", "--quiet")
    assert received == [(strict, parity_check)]


def invented_sweep(spec: SweepSpec, *_: object, argv: Any = (), **__: object) -> SweepOutcome:
    """Return a sweep with an invented study for each point."""
    document = factories.study(factories.measured("fake/cpu", 0.01))
    measured = [
        (point.values, msgspec.structs.replace(document, id=f"{document.id}{number}"))
        for number, point in enumerate(points(spec.study, spec.axes))
    ]
    found = build_sweep_document(spec.axes, measured, argv, 2, spec.study_file)
    return SweepOutcome(found, measured, b"")


def test_published_numbers_are_printed_below_a_sweep_on_request(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polybench.experiments.sweep.run_sweep", invented_sweep)
    study.write_text(f"{STUDY}[sweep]\nbatch_size = [8, 16]\n")
    options = ("--no-save", "--quiet")
    assert "82.47 s" in printed("run", study, "--published", *options)
    assert "82.47" not in printed("run", study, *options)


def test_quick_applies_after_the_other_options_and_another_seed_has_other_data(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[tuple[int, int, str | None]] = []
    document = factories.study(factories.measured("fake/cpu", 0.01))

    def run(study: Study, log: Log, *_: object, **__: object) -> StudyDocument:
        received.append((study.processes, study.seed, log.header.repeated_data_sha256))
        return document

    monkeypatch.setattr("polybench.run.run", run)
    save_document(Store(results_folder()), msgspec.structs.replace(document, study='engines = ["fake"]\n'))
    for options in ((), ("--processes", "3"), ("--processes", "3", "--quick"), ("--seed", "7")):
        printed("run", "last", *options, "--no-save", "--quiet")
    sha256 = document.settings.data_sha256
    assert received == [(5, 0, sha256), (3, 0, sha256), (1, 0, sha256), (5, 7, None)]


@pytest.mark.parametrize("strict", [False, True])
def test_a_study_is_resumed_strictly_on_request(strict: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[tuple[str, bool]] = []

    @contextlib.contextmanager
    def unfinished_log(id: str, *_: object, **__: object) -> Iterator[tuple[str, Study]]:
        yield id, Study(engines=("fake",))

    def run(_: Study, log: str, *__: object, strict: bool = False, **___: object) -> StudyDocument:
        received.append((log, strict))
        return factories.study(factories.measured("fake/cpu", 0.01))

    monkeypatch.setattr("polybench.runner.resume.unfinished_log", unfinished_log)
    monkeypatch.setattr("polybench.run.run", run)
    monkeypatch.setattr("polybench.runner.checkpoint.find_resumable", lambda name, store: ResumableRun(name))
    printed("resume", "20260101-a", "--quiet", *(["--strict"] if strict else []))
    assert received == [("20260101-a", strict)]


def test_a_machine_without_results_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = factories.study(factories.measured("fake/cpu", 0.01))
    machines = [MachineResult("a", document, None), MachineResult("b", None, "it is gone")]
    result = ClusterResult(machines, "x", interrupted=False)
    monkeypatch.setattr("polybench.cluster.run.run_on_cluster", lambda *_, **__: result)
    file = tmp_path / "machines.toml"
    file.write_text('engines = ["fake"]\n[[machines]]\nlabel = "a"\n[[machines]]\nlabel = "b"\n')
    assert "b: failed: it is gone" in printed("run", file, "--on", "local", "--quiet", code=1)
