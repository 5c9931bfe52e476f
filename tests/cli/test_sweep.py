"""`polybench sweep` and `overhead`, with the engine `fake` in real processes."""

from __future__ import annotations

import csv
import functools
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, NoReturn
from unittest.mock import patch

import pytest
from typer.testing import Result

from polybench.data import synthetic
from polybench.errors import BadInput
from polybench.experiments.sweep import SweepOutcome
from polybench.planning.grid import SweepSpec, points
from polybench.results.sweep import build_sweep_document
from polybench.schema.options import Study
from polybench.schema.result import Status
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store
from tests import factories
from tests.commands import invoke, printed, printed_json, refused
from tests.plugin.faulty_engine import OVERHEAD_SECONDS, SECONDS_PER_IMAGE

PRICED, BATCHES, OVERHEAD = "priced", "batches", "overhead"
COMMANDS = {
    PRICED: "sweep --engines fake+slow,fake --baseline fake/cpu --threads 1,2,512 --oversubscribe --price cpu-1=3.6"
    " --price cpu-2=7.2",
    BATCHES: "sweep --engines faulty+linear_cost,fake,faulty+crash --batch-size 1,128",
    OVERHEAD: "overhead --engines faulty+linear_cost --batch-size 128,1,16",
}
SHORT = ("--data", "synthetic", "--processes", "1", "--rounds-per-process", "1", "--steps-per-round", "4", "--quiet")
FASTEST = (*SHORT, "--no-parity", "--no-metrics")


class Saved(NamedTuple):
    """A saved sweep, and what the command printed."""

    folder: Path
    shown: Result

    def show(self, *options: object, code: int = 0) -> str:
        """Return what `polybench show` prints about it."""
        name = "overhead-last" if self.folder.name == OVERHEAD else "sweep-last"
        return printed("show", name, "--results", self.folder, *options, code=code)

    def rows(self, *options: object) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(self.show("--format", "csv", *options))))


@pytest.fixture(scope="module")
def measured(shared_folders: Path) -> Callable[[str], Saved]:
    """Provide `measured(name)`: the command is run once for all tests, in two processes."""

    @functools.cache
    def measure(name: str) -> Saved:
        with patch.dict(synthetic.IMAGES, {"train": 600}):
            options = (*FASTEST[:-3], *FASTEST[-2:], "--processes", "2", "--results", shared_folders / name)
            return Saved(shared_folders / name, invoke(*COMMANDS[name].split(), *options))

    return measure


Measured = Callable[[str], Saved]


def test_overhead_finds_the_injected_fixed_cost(measured: Measured) -> None:
    document = json.loads(measured(OVERHEAD).show("--format", "json"))
    assert document["schema"] == "polybench.overhead/2"
    (overhead,) = document["configurations"]
    assert overhead["overhead_seconds"] == pytest.approx(OVERHEAD_SECONDS, rel=0.05)
    assert overhead["seconds_per_item"] == pytest.approx(SECONDS_PER_IMAGE, rel=0.25)
    assert [point["batch_size"] for point in overhead["points"]] == [1, 16, 128]
    assert (overhead["status"], overhead["reason"]) == ("ok", None)  # without a parity check


def test_a_sweep_reports_the_speedup_of_larger_batches(measured: Measured) -> None:
    rows = {(row["batch_size"], row["configuration"]): row for row in measured(BATCHES).rows()}
    step = OVERHEAD_SECONDS + 128 * SECONDS_PER_IMAGE
    linear = rows["128", "faulty+linear_cost/cpu"]
    assert float(linear["speedup"]) == pytest.approx(128 * (OVERHEAD_SECONDS + SECONDS_PER_IMAGE) / step, rel=0.2)
    assert float(linear["low"]) < float(linear["speedup"]) < float(linear["high"])
    assert float(rows["128", "fake/cpu"]["speedup"]) == pytest.approx(128, rel=0.2)


def test_a_failed_configuration_has_a_reason_and_the_others_have_numbers(measured: Measured) -> None:
    sweep = measured(BATCHES)
    assert sweep.shown.exit_code == 1
    assert "faulty+crash/cpu: failed: the worker was killed by SIGSEGV" in sweep.shown.stdout
    fake, crashed = (
        line.split() for line in sweep.shown.stdout.splitlines() if line.startswith(("fake/", "faulty+crash/"))
    )
    assert len(fake) > 3
    assert crashed == ["faulty+crash/cpu", "failed", "failed"]


def test_points_with_more_threads_than_cores_are_marked(measured: Measured) -> None:
    text = measured(PRICED).shown.stdout
    (fake,) = (line.split() for line in text.splitlines() if line.startswith("fake/cpu "))
    assert fake.index("*") == 4
    assert "* more threads than usable cores" in text
    assert "Fastest: fake/cpu with threads " in text
    marked = {row["threads"] for row in measured(PRICED).rows() if row["oversubscribed"] == "1"}
    assert "512" in marked
    assert "1" not in marked


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sweep", "--engines", "fake"], "nothing is varied"),
        (["sweep", "--engines", "fake", "--threads", "1,two"], "--threads 1,two: expected whole numbers"),
        (
            ["sweep", "--engines", "fake", "--threads", 10**17, "--batch-size", "1,2"],
            "--threads: Expected `int` <= 100000",
        ),
        (["sweep", "--engines", "fake", "--threads", "1,99999"], "--threads 99999 on "),
        (["overhead", "--engines", "fake", "--batch-size", "8"], "expected at least two batch sizes"),
        (["sweep", "--engines", "fake", "--threads", "1,2", "--format", "svg"], "unknown format 'svg'"),
    ],
)
def test_bad_input(arguments: list[object], message: str) -> None:
    assert message in refused(*arguments, *SHORT)


def test_time_and_cost_of_an_epoch_are_relative_to_the_baseline_at_the_first_point(measured: Measured) -> None:
    """A second costs a thousandth of a dollar with one thread, and twice that with two."""
    rows = {(row["threads"], row["configuration"]): row for row in measured(PRICED).rows()}
    base = float(rows["1", "fake/cpu"]["epoch_seconds"])
    for (threads, configuration), row in rows.items():
        seconds = float(row["epoch_seconds"])
        assert float(row["relative_time"]) == pytest.approx(seconds / base)
        assert seconds == pytest.approx(base * (2 if configuration == "fake+slow/cpu" else 1), rel=0.2)
        if threads == "512":
            assert (row["dollars_per_hour"], row["dollars_per_epoch"], row["relative_cost"]) == ("", "", "")
            continue
        assert float(row["dollars_per_hour"]) == 3.6 * int(threads)
        assert float(row["dollars_per_epoch"]) == pytest.approx(int(threads) * seconds / 1000)
        assert float(row["relative_cost"]) == pytest.approx(int(threads) * seconds / base)


def test_the_text_has_a_table_of_costs_and_names_missing_prices(measured: Measured) -> None:
    text = measured(PRICED).shown.stdout
    assert "Time and cost per epoch, relative to fake/cpu at threads 1\n" in text
    assert "Cheapest epoch: fake/cpu at threads 1: $0.000" in text
    assert "threads 512: no price of cpu with 512 threads: prices have 1, 2 threads; add cpu-512" in text
    costs = text.partition("Time and cost per epoch")[2]
    rows = [line.split() for line in costs.splitlines()[1:] if "fake/cpu" in line]
    assert [row[0] for row in rows[:3]] == ["1", "2", "512"]
    assert rows[0][-1] == "1.00"


def test_without_prices_the_text_has_no_table_of_costs(measured: Measured) -> None:
    document = json.loads(measured(BATCHES).show("--format", "json"))
    assert document["reference"] == {"configuration": "faulty+linear_cost/cpu", "parameters": {"batch_size": 1}}
    found = [configuration for point in document["points"] for configuration in point["configurations"]]
    assert {configuration["dollars_per_epoch"] for configuration in found} == {None}
    assert found[4]["relative_time"] == pytest.approx(found[4]["epoch_seconds"] / found[0]["epoch_seconds"])
    assert "cost" not in measured(BATCHES).shown.stdout.replace("faulty+linear_cost", "")


def test_other_prices_change_the_costs_of_a_saved_sweep(measured: Measured) -> None:
    priced, unpriced = measured(PRICED), measured(BATCHES)
    saved = json.loads(priced.show("--format", "json"))
    same = json.loads(priced.show("--price", "cpu-1=3.6", "--price", "cpu-2=7.2", "--format", "json"))
    assert sorted(same.pop("warnings")) == sorted(saved.pop("warnings"))
    assert same == saved
    assert [point["id"] for point in saved["points"]] == [f"{saved['id']}.{number}" for number in range(3)]
    study = ("show", saved["points"][1]["id"], "--results", priced.folder)
    assert printed_json(*study, "--price", "cpu=7.2") == printed_json(*study)
    everywhere = priced.show("--price", "cpu=36")
    assert "Cheapest epoch: fake/cpu at threads" in everywhere
    assert "no price" not in everywhere
    assert {row["dollars_per_hour"] for row in priced.rows("--price", "cpu=36")} == {"36.0"}
    rows = unpriced.rows("--price", "cpu=3.6")
    for row in rows:
        assert (row["dollars_per_epoch"] == "") == (row["status"] == "failed")
        if row["dollars_per_epoch"]:
            assert float(row["dollars_per_epoch"]) == pytest.approx(float(row["epoch_seconds"]) / 1000)
            assert float(row["relative_cost"]) == pytest.approx(float(row["relative_time"]))
    assert {row["status"] for row in rows} == {"ok", "failed"}
    for name, price, message in (
        ("sweep-last", "cuda=1", "no configuration ran on cuda: expected one of cpu"),
        ("sweep-last", "cpu-7=1", "no study used that many threads: expected cpu-N with N one of 1, 2, 512, or cpu"),
        ("sweep-last", "gpu=1", "unknown device 'gpu': expected cpu, cuda or cuda:1"),
        ("sweep-last", "cpu", "expected DEVICE=DOLLARS"),
    ):
        assert message in refused("show", name, "--price", price, "--results", priced.folder)
    folder = measured(OVERHEAD).folder
    message = refused("show", "overhead-last", "--price", "cpu=1", "--results", folder)
    assert "only studies and sweeps have costs" in message


@pytest.mark.parametrize("name", [BATCHES, OVERHEAD])
def test_one_process_has_no_interval(name: str, measured: Measured, small_data: None) -> None:
    assert "intervals: 95%" in measured(name).shown.stdout
    command = COMMANDS[name].replace("faulty+linear_cost,fake,faulty+crash", "faulty+linear_cost")
    assert "intervals" not in printed(*command.split(), *FASTEST, "--processes", "3", "--quick", "--no-save")


def test_a_saved_sweep_is_printed_again(measured: Measured, tmp_path: Path) -> None:
    saved = measured(PRICED)
    assert saved.show() == saved.shown.stdout
    document = json.loads(saved.show("--format", "json"))
    where = ("--results", saved.folder)
    assert printed("show", document["id"], "--format", "csv", *where).startswith("threads,configuration,status,")
    assert json.loads(saved.show("--format", "json", "--anonymous"))["host"]["hostname"] == "<host>"
    for wrong, message in {
        ("sweep-last", "--columns", "cost"): "--columns: sweep-last is a sweep, which does not have this option",
        ("sweep-last", "--format", "svg"): "unknown format 'svg'",
        ("sweep-x",): "no saved sweep 'sweep-x'",
    }.items():
        assert message in refused("show", *wrong, *where)
    (log,) = saved.folder.glob("*.jsonl")
    assert log.stem == document["id"]
    (tmp_path / "copy.jsonl").write_bytes(log.read_bytes())
    (tmp_path / "copy.json").write_text(saved.show("--format", "json"))
    for copy in ("copy.jsonl", "copy.json"):
        assert printed("show", tmp_path / copy) == saved.shown.stdout


def test_a_saved_overhead_is_listed_and_printed_again(measured: Measured, tmp_path: Path) -> None:
    saved = measured(OVERHEAD)
    where = ("--results", saved.folder)
    assert saved.show() == saved.shown.stdout
    text = saved.show("--format", "json")
    document = json.loads(text)
    path = tmp_path / "copy" / "overhead.json"
    path.parent.mkdir()
    path.write_text(text)
    assert printed("show", path, "--format", "json") == text
    assert [path.stem for path in saved.folder.glob("*.jsonl")] == [document["id"]]
    assert sorted(document["studies"]) == [f"{document['id']}.{number}" for number in range(3)]
    assert f"polybench show {document['id']}" in saved.shown.stderr
    assert document["batch_sizes"] == [1, 16, 128]
    sizes = {study.id: study.settings.batch_size for study in Store(saved.folder).studies()}
    assert [sizes[id] for id in document["studies"]] == [1, 16, 128]

    rows = printed_json("list", *where)
    (row,) = [row for row in rows if row["kind"] == "overhead"]
    assert (row["id"], row["finished"], row["axes"]) == (document["id"], True, {"batch_size": [1, 16, 128]})
    assert [one["sweep"] for one in rows if one["kind"] == "study"] == [row["id"]] * 3
    for wrong, message in {
        ("show", "overhead-last", "--columns", "cost"): "overhead-last is an overhead, which does not have",
        ("show", "overhead-last", "--published"): "--published: overhead-last is an overhead, which does not have",
        ("show", "overhead-x"): "no saved overhead 'overhead-x'; polybench overhead saves one",
        ("plot", "overhead-last", "--figure", "speed", "-o", str(tmp_path / "x.html")): (
            "--figure speed: expected a study, but overhead-last is an overhead; its figures are: overhead"
        ),
        ("diff", "overhead-last", "last"): "is an overhead, not a study; use polybench show or plot",
    }.items():
        assert message in refused(*wrong, *where)
    pytest.importorskip("plotly", reason="plotly is not installed")
    printed("report", "overhead-last", "-o", tmp_path / "overhead.html", *where)
    assert "overhead of a step" in (tmp_path / "overhead.html").read_text()


def test_a_saved_sweep_or_overhead_is_measured_again_by_its_id(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs: list[SweepSpec] = []

    def run_sweep(spec: SweepSpec, *_: object, **__: object) -> NoReturn:
        specs.append(spec)
        raise BadInput("not measured")

    monkeypatch.setattr("polybench.experiments.sweep.run_sweep", run_sweep)
    for name in (PRICED, OVERHEAD):
        saved = measured(name)
        id = json.loads(saved.show("--format", "json"))["id"]
        where = ("--results", saved.folder)
        for option in (("--processes", 7), ("--quick",)):
            assert refused("run", id, *option, *where) == "not measured"
        assert refused("run", next(saved.folder.glob("*.jsonl")), *where) == "not measured"
        assert f"{id} is a sweep, which does not have this option" in refused("run", id, "--columns", "cost", *where)
        assert refused("run", f"{id}.0", "--threads", 10**17, *where) != "not measured"  # the study of a point
    priced, quick, copy, overhead, *_ = specs
    assert (priced.command, dict(priced.axes)) == ("sweep", {"threads": [1, 2, 512]})
    assert (priced.study.processes, quick.study.processes, copy.study.processes) == (7, 1, 2)
    assert priced.study.prices == {"cpu-1": 3.6, "cpu-2": 7.2}
    assert (overhead.command, dict(overhead.axes)) == ("overhead", {"batch_size": [128, 1, 16]})
    assert printed("run", "sweep-last", "--dry-run", "--results", measured(PRICED).folder).count("fake/cpu\n") == 3


def test_quick_applies_to_every_point(monkeypatch: pytest.MonkeyPatch) -> None:
    specs: list[SweepSpec] = []

    def run_sweep(spec: SweepSpec, *_: object, **__: object) -> NoReturn:
        specs.append(spec)
        raise BadInput("not measured")

    monkeypatch.setattr("polybench.experiments.sweep.run_sweep", run_sweep)
    for options in ((), ("--quick",)):
        assert refused("sweep", "--engines", "fake", "--batch-size", "8,16", "--no-save", *options) == "not measured"
    assert [spec.study.processes for spec in specs] == [Study(engines=("fake",)).processes, 1]


def invented_sweep(studies: list[StudyDocument]) -> Callable[..., SweepOutcome]:
    """Return a function that has measured these studies at the points of a sweep."""

    def run_sweep(spec: SweepSpec, *_: object, **__: object) -> SweepOutcome:
        measured = [(point.values, one) for point, one in zip(points(spec.study, spec.axes), studies, strict=True)]
        return SweepOutcome(build_sweep_document(spec.axes, measured, [], 2), measured, b"")

    return run_sweep


@pytest.mark.parametrize(
    ("statuses", "code"), [(("ok", "ok"), 0), (("failed", "ok"), 1), (("failed", "interrupted"), 130)]
)
def test_the_exit_code_is_the_most_severe_of_all_points(
    statuses: tuple[Status, ...], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    studies = [factories.study(factories.measured("fake/cpu", 0.01, status=status)) for status in statuses]
    monkeypatch.setattr("polybench.experiments.sweep.run_sweep", invented_sweep(studies))
    printed("sweep", "--engines", "fake", "--batch-size", "8,16", "--no-save", "--quiet", code=code)


@pytest.mark.parametrize("order", [1, -1])
def test_a_failed_point_is_more_severe_than_one_without_a_result(order: int, monkeypatch: pytest.MonkeyPatch) -> None:
    studies = [
        factories.study(factories.measured("fake/cpu", 0.01, status="failed")),
        factories.study(factories.unmeasured("fake/cpu", "unavailable", "no engine")),
    ][::order]

    monkeypatch.setattr("polybench.experiments.sweep.run_sweep", invented_sweep(studies))
    printed("sweep", "--engines", "fake", "--batch-size", "8,16", "--no-save", "--quiet", code=1)
