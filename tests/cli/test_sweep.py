"""`polybench sweep` and `overhead`, with the engine `fake` in real processes."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from polybench.engines.fake.engine import OVERHEAD_SECONDS, SECONDS_PER_IMAGE
from polybench.storage.store import Store
from tests.commands import invoke, printed, printed_json, refused

pytestmark = pytest.mark.usefixtures("small_data")

TWO = ("--data", "synthetic", "--processes", "2", "--rounds-per-process", "2", "--steps-per-round", "4")
UNSAVED = (*TWO, "--no-save", "--quiet")
UNCHECKED = ("--no-parity", "--no-metrics")


def run(*arguments: str, code: int = 0) -> str:
    return printed(*arguments, *UNSAVED, code=code)


def rows_of(*arguments: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(run(*arguments, "--format", "csv"))))


def test_overhead_finds_the_injected_fixed_cost() -> None:
    engines = ("--engines", "fake+linear_cost")
    document = printed_json("overhead", *engines, "--batch-size", "1,16,128", *UNSAVED)
    assert document["schema"] == "polybench.overhead/2"
    (overhead,) = document["configurations"]
    assert overhead["overhead_seconds"] == pytest.approx(OVERHEAD_SECONDS, rel=0.05)
    assert overhead["seconds_per_item"] == pytest.approx(SECONDS_PER_IMAGE, rel=0.25)
    assert [point["batch_size"] for point in overhead["points"]] == [1, 16, 128]
    assert (overhead["status"], overhead["reason"]) == ("ok", None)  # without a parity check


def test_a_sweep_reports_the_speedup_of_larger_batches() -> None:
    rows = rows_of("sweep", "--engines", "fake+linear_cost,fake", "--batch-size", "1,128")
    assert [(row["batch_size"], row["configuration"]) for row in rows] == [
        ("1", "fake+linear_cost/cpu"),
        ("1", "fake/cpu"),
        ("128", "fake+linear_cost/cpu"),
        ("128", "fake/cpu"),
    ]
    step = OVERHEAD_SECONDS + 128 * SECONDS_PER_IMAGE
    assert float(rows[2]["speedup"]) == pytest.approx(128 * (OVERHEAD_SECONDS + SECONDS_PER_IMAGE) / step, rel=0.2)
    assert float(rows[3]["speedup"]) == pytest.approx(128, rel=0.2)
    assert float(rows[2]["low"]) < float(rows[2]["speedup"]) < float(rows[2]["high"])


def test_points_with_more_threads_than_cores_are_marked() -> None:
    text = run("sweep", "--engines", "fake", "--threads", "1,512")
    assert "fake/cpu *" in text
    assert "* more threads than usable cores" in text
    assert "efficiency" in text
    assert "fake/cpu: highest throughput " in text
    rows = rows_of("sweep", "--engines", "fake", "--threads", "512", "--batch-size", "8,16")
    assert [(row["batch_size"], row["oversubscribed"]) for row in rows] == [("8", "1"), ("16", "1")]


def test_a_failed_configuration_has_a_reason_and_the_others_have_numbers() -> None:
    text = run("sweep", "--engines", "fake,fake+crash", "--batch-size", "8,16", code=1)
    assert "fake+crash/cpu: failed: the worker was killed by SIGSEGV" in text
    assert "at batch size 16\n" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sweep", "--engines", "fake"], "nothing is varied"),
        (["sweep", "--engines", "fake", "--threads", "1,two"], "--threads 1,two: expected whole numbers"),
        (["overhead", "--engines", "fake", "--batch-size", "8"], "expected at least two batch sizes"),
        (["sweep", "--engines", "fake", "--threads", "1,2", "--format", "latex"], "format"),
    ],
)
def test_bad_input(arguments: list[str], message: str) -> None:
    assert message in refused(*arguments, *UNSAVED)


def test_time_and_cost_of_an_epoch_are_relative_to_the_baseline_at_the_first_point() -> None:
    """A second costs a thousandth of a dollar with one thread, and twice that with two."""
    prices = ("--price", "cpu-1=3.6", "--price", "cpu-2=7.2")
    options = ("--engines", "fake+slow,fake", "--baseline", "fake/cpu", "--threads", "1,2,4")
    rows = {(row["threads"], row["configuration"]): row for row in rows_of("sweep", *options, *prices, *UNCHECKED)}
    base = float(rows["1", "fake/cpu"]["epoch_seconds"])
    for (threads, configuration), row in rows.items():
        seconds = float(row["epoch_seconds"])
        assert float(row["relative_time"]) == pytest.approx(seconds / base)
        assert seconds == pytest.approx(base * (2 if configuration == "fake+slow/cpu" else 1), rel=0.2)
        if threads == "4":
            assert (row["dollars_per_hour"], row["dollars_per_epoch"], row["relative_cost"]) == ("", "", "")
            continue
        assert float(row["dollars_per_hour"]) == 3.6 * int(threads)
        assert float(row["dollars_per_epoch"]) == pytest.approx(int(threads) * seconds / 1000)
        assert float(row["relative_cost"]) == pytest.approx(int(threads) * seconds / base)


def test_the_text_has_a_table_of_costs_and_names_missing_prices() -> None:
    text = run("sweep", "--engines", "fake", "--threads", "1,4", "--price", "cpu-1=3.6", *UNCHECKED)
    assert "Time and cost per epoch, relative to fake/cpu at threads 1\n" in text
    assert "cheapest epoch: fake/cpu at threads 1: $0.000" in text
    assert "threads 4: no price of cpu with 4 threads: prices have 1 threads; add cpu-4" in text
    rows = [line.split() for line in text.split("relative cost")[1].splitlines() if "fake/cpu" in line]
    assert [row[0] for row in rows[:2]] == ["1", "4"]
    assert rows[0][-1] == "1.00"


def test_without_prices_the_text_has_no_table_of_costs() -> None:
    options = ("--engines", "fake", "--batch-size", "8,16", *UNCHECKED)
    document = printed_json("sweep", *options, *UNSAVED)
    assert document["reference"] == {"configuration": "fake/cpu", "parameters": {"batch_size": 8}}
    configurations = [configuration for point in document["points"] for configuration in point["configurations"]]
    assert [configuration["dollars_per_epoch"] for configuration in configurations] == [None, None]
    assert configurations[1]["relative_time"] == pytest.approx(0.5, rel=0.1)
    assert "cost" not in run("sweep", *options)


@pytest.mark.parametrize("command", ["sweep", "overhead"])
def test_one_process_has_no_interval(command: str) -> None:
    options = (command, "--engines", "fake+linear_cost", "--batch-size", "1,64", *UNCHECKED, *UNSAVED)
    assert "intervals: 95%" in printed(*options)
    assert "intervals" not in printed(*options, "--processes", "1")


def test_a_saved_sweep_is_printed_again(tmp_path: Path) -> None:
    options = ("--engines", "fake", "--threads", "1,2", "--price", "cpu=0.24", *UNCHECKED)
    where = ("--results", tmp_path)
    text = printed("sweep", *options, *TWO, "--quiet", *where)
    assert printed("show", "sweep-last", *where) == text
    document = printed_json("show", "sweep-last", *where)
    assert printed("show", document["id"], "--format", "csv", *where).startswith("threads,configuration,status,")
    assert printed_json("show", "sweep-last", "--anonymous", *where)["host"]["hostname"] == "<host>"
    for wrong, message in {
        ("sweep-last", "--columns", "cost"): "--columns: sweep-last is a sweep, which does not have this option",
        ("sweep-last", "--format", "latex"): "unknown format 'latex'",
        ("sweep-x",): "no saved sweep 'sweep-x'",
    }.items():
        assert message in refused("show", *wrong, *where)
    (tmp_path / "copy.json").write_bytes(Store(tmp_path).sweep_files()[0].read_bytes())
    assert printed("show", tmp_path / "copy.json") == text


def test_a_saved_overhead_is_listed_and_printed_again(tmp_path: Path) -> None:
    where = ("--results", tmp_path)
    measured = invoke("overhead", "--engines", "fake+linear_cost", "--batch-size", "64,1", *UNCHECKED, *TWO, *where)
    assert measured.exit_code == 0, measured.output
    assert printed("show", "overhead-last", *where) == measured.stdout
    text = printed("show", "overhead-last", "--format", "json", *where)
    document = json.loads(text)
    path = tmp_path / "copy" / "overhead.json"
    path.parent.mkdir()
    path.write_text(text)
    assert printed("show", path, "--format", "json") == text
    assert document["id"] == f"overhead-{min(document['studies'])}"
    assert f"polybench show {document['id']}" in measured.stderr
    assert document["batch_sizes"] == [1, 64]
    sizes = {study.id: study.settings.batch_size for study in Store(tmp_path).studies()}
    assert [sizes[id] for id in document["studies"]] == [1, 64]

    rows = printed_json("list", *where)
    (row,) = [row for row in rows if row["kind"] == "overhead"]
    assert (row["id"], row["finished"], row["axes"]) == (document["id"], True, {"batch_size": [1, 64]})
    assert [one["sweep"] for one in rows if one["kind"] == "study"] == [row["id"], row["id"]]
    for wrong, message in {
        ("show", "overhead-last", "--columns", "cost"): "overhead-last is an overhead, which does not have",
        ("show", "overhead-last", "--published"): "--published: overhead-last is an overhead, which does not have",
        ("show", "overhead-x"): "no saved overhead 'overhead-x'; polybench overhead saves one",
        ("plot", "overhead-last", "--figure", "speed", "-o", str(tmp_path / "x.html")): (
            "--figure speed: expected a study, but overhead-last is an overhead; its figures are: overhead"
        ),
        ("diff", "overhead-last", "last"): "is an overhead, not a study; use polybench show or plot",
        ("report", "overhead-last"): "neither a study nor a sweep",
    }.items():
        assert message in refused(*wrong, *where)
