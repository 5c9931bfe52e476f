"""Commands that list values of options and saved studies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.engines import ALLOCATOR_VARIANTS, ENGINES
from polybench.errors import EngineUnavailable
from polybench.networks import MODELS
from polybench.planning.plan import resolve
from polybench.results.document import derive
from polybench.schema.encoding import encode
from polybench.schema.metrics import METRICS
from polybench.schema.options import Study
from polybench.schema.study import to_json
from polybench.storage.store import Store
from tests.commands import printed, printed_json, refused
from tests.factories import WORKLOAD, measured, points_over_threads, study, unmeasured
from tests.figures.documents import full_history, full_layers, full_peak, full_study
from tests.log_of import events_of, log_of, save_document, save_sweep


def first_words(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines() if line and not line.startswith((" ", "-"))]


def test_each_listed_name_is_a_value_of_engines() -> None:
    found = printed_json("engines", "--all")
    assert [row["engine"] for row in found] == list(ENGINES.names())
    assert all(row["summary"] for row in found)
    text = printed("engines", "--all")
    names = [name for name in first_words(text) if name.partition("+")[0] in ENGINES]
    assert "torch+compile" in names
    assert len(names) == len(ENGINES) + sum(len(spec.variants) for spec in ENGINES.values())
    assert all(ALLOCATOR_VARIANTS.keys() <= row["variants"].keys() for row in found)
    assert "ENGINE+jemalloc" in first_words(text)
    assert len(resolve(Study(engines=tuple(names), devices=("cpu",))).configurations) == len(names)


def test_engines_have_variants_and_an_install_command_and_internal_ones_are_hidden() -> None:
    by_name = {row["engine"]: row for row in printed_json("engines")}
    assert set(by_name) == {*ENGINES} - {"fake", "reference"}
    assert by_name["tf"]["install"] == "pip install 'polybench-dl[tf]'"
    text = printed("engines")
    assert "pip install 'polybench-dl[flux]'" in text
    names = first_words(text)
    assert not {"fake", "reference"} & {*names}
    assert names.index("torch") < names.index("torch+compile") < names.index("tf") < names.index("tf+xla")


def test_a_variant_lists_its_requirement_and_whether_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(variants: tuple[str, ...]) -> None:
        if "compile" in variants:
            raise EngineUnavailable("the C++ compiler g++ is not installed", "apt-get install g++")

    monkeypatch.setattr("polybench.engines.torch.check_requirements", missing)
    monkeypatch.setattr("polybench.runner.doctor._is_installed", lambda package: True)
    torch = next(row for row in printed_json("engines") if row["engine"] == "torch")
    assert torch["installed"]
    assert torch["variants"]["compile"] == {
        "summary": ENGINES["torch"].variants["compile"].summary,
        "experimental": False,
        "requires": "a C++ compiler",
        "install": "apt-get install g++",
        "installed": False,
        "hint": "apt-get install g++",
    }
    assert torch["variants"]["foreach"]["requires"] is None
    lines = printed("engines").splitlines()
    number = next(number for number, line in enumerate(lines) if line.startswith("torch+compile"))
    assert lines[number].split()[-4:] == ["a", "C++", "compiler", "no"]
    assert lines[number + 1].strip() == "apt-get install g++"


def test_engines_marks_experimental_variants() -> None:
    (flux,) = (row for row in printed_json("engines") if row["engine"] == "flux")
    experimental = {name for name, variant in flux["variants"].items() if variant["experimental"]}
    assert experimental == {"enzyme", "reactant", "mkl"}
    assert printed("engines").count("experimental: never run") == len(experimental)


def test_models_have_counts_and_training_settings() -> None:
    found = {row["model"]: row for row in printed_json("models")}
    assert list(found) == list(MODELS)
    lenet = found["lenet"]
    assert lenet["parameters"] == 39_558
    assert lenet["training_macs"] * lenet["batch_size"] == pytest.approx(377e6, rel=0.01)
    assert lenet["optimizer"]["name"] == "momentum"
    text = printed("models")
    assert "39,558" in text
    assert "catdog-N has N convolutions, 2 to 1000" in text


def test_columns_have_a_better_direction_and_groups() -> None:
    found = {row["column"]: row for row in printed_json("columns")}
    assert list(found) == list(METRICS)
    assert (found["step_time"]["unit"], found["step_time"]["better"]) == ("s", "lower")
    assert (found["speedup"]["better"], found["parity"]["better"]) == ("higher", None)
    assert "startup" in found["cold_start"]["groups"]
    lines = {words[0]: words for words in map(str.split, printed("columns").splitlines())}
    assert lines["throughput"] == ["throughput", "images/s", "higher", "speed,", "pipeline"]


@pytest.mark.parametrize("command", ["engines", "models", "columns", "list", "doctor"])
def test_an_unknown_format_is_bad_input(command: str) -> None:
    assert "formats are: json, table" in refused(command, "--format", "csv")


def saved_studies(folder: Path) -> None:
    store = Store(folder)
    one = study(measured("torch/cpu", 0.0101, versions={"torch": "2.13.0"}), measured("tf/cpu", 0.02))
    one.title, one.finished = "An old\n\x1b[2Jstory", True
    save_document(store, one)
    two = study(*(measured(f"flux/cpu#{number}", 0.03) for number in range(2, 90)))
    two.id, two.created, two.finished = "20260101-other", "2026-01-01T00:00:00Z", False
    save_document(store, two)
    interrupted = study(unmeasured("jax/cpu", "interrupted", "Ctrl-C"))
    interrupted.id, interrupted.created = "20260102-third", "2026-01-02T00:00:00Z"
    save_document(store, interrupted)


def test_studies_are_listed_with_title_age_and_fastest_configuration(tmp_path: Path) -> None:
    saved_studies(tmp_path)
    text = printed("list", "--results", tmp_path)
    header, _, *lines = text.splitlines()
    assert header.split() == ["id", "age", "workload", "fastest", "title", "engines"]
    assert "An old \\x1b[2Jstory" in lines[0]
    assert "10.1 ms torch/cpu An old \\x1b[2Jstory torch/cpu, tf/cpu" in " ".join(lines[0].split())
    assert lines[1].startswith("20260101-other (to resume)")
    assert lines[1].endswith("84 more")
    assert lines[2].startswith("20260102-third (to resume)")
    assert "nothing measured jax/cpu" in " ".join(lines[2].split())
    assert all(len(line) < 200 for line in lines)


def test_a_list_in_json_has_all_fields(tmp_path: Path) -> None:
    saved_studies(tmp_path)
    one, two, three = printed_json("list", "--results", tmp_path)
    assert one["fastest"] == {
        "configuration": "torch/cpu",
        "step_seconds": pytest.approx(0.0101, rel=1e-3),
        "inconclusive": False,
    }
    assert (one["id"], one["model"], one["batch_size"]) == ("20250101-000000-abcd", "lenet", 128)
    assert (one["configurations"], one["measured"], one["host"]) == (["torch/cpu", "tf/cpu"], 2, "host")
    assert one["age_seconds"] > 30e6
    assert (two["finished"], two["interrupted"], three["interrupted"]) == (False, False, True)
    assert len(two["configurations"]) == 88


SWEEP = "sweep-20260101-000000-abcd"


def test_a_saved_sweep_is_listed_among_the_studies(tmp_path: Path) -> None:
    saved_studies(tmp_path)
    save_sweep(Store(tmp_path), SWEEP, points_over_threads())
    sweep = Store(tmp_path).load_other(SWEEP, "sweep")
    found = {row["id"]: row for row in printed_json("list", "--results", tmp_path)}
    row = found[sweep.id]
    assert (row["kind"], row["batch_size"], row["dataset"], row["finished"]) == ("sweep", None, None, True)
    assert row["configurations"] == [curve.configuration for curve in sweep.curves]
    assert row["fastest"]["inconclusive"] == (sweep.inconclusive_reason is not None)
    assert found["20260101-other"]["kind"] == "study"
    engine = row["configurations"][0].partition("/")[0]
    assert sweep.id in {one["id"] for one in printed_json("list", "--results", tmp_path, "--engine", engine)}
    line = next(line for line in printed("list", "--results", tmp_path).splitlines() if sweep.id in line)
    assert "3 points over threads 1, 2, 4" in line
    assert "190 images/s torch/cpu, threads 4" in line
    assert (row["points"], row["planned"], row["axes"]) == (3, 3, {"threads": [1, 2, 4]})
    assert row["fastest"]["parameters"] == {"threads": 4}


def test_the_fastest_point_has_the_most_items_per_second(tmp_path: Path) -> None:
    points = []
    for size, seconds in {8: 0.010, 128: 0.1, 512: 0.5}.items():
        workload = msgspec.structs.replace(WORKLOAD, batch_size=size)
        points.append(({"batch_size": size}, study(measured("torch/cpu", seconds, workload=workload))))
    save_sweep(Store(tmp_path), SWEEP, points)
    (row,) = [row for row in printed_json("list", "--results", tmp_path) if row["kind"] == "sweep"]
    assert row["fastest"]["parameters"] == {"batch_size": 128}
    assert row["fastest"]["items_per_second"] == pytest.approx(1280, rel=1e-3)
    document = Store(tmp_path).load_other(SWEEP, "sweep")
    assert document.fastest[0].parameters == {"batch_size": 128}


def test_a_point_for_teaching_only_is_not_the_fastest(tmp_path: Path) -> None:
    caveat = "step times leave out garbage collection"
    points = [
        ({"threads": threads}, study(measured("torch/cpu", 0.02), measured("flux+gc_off/cpu", 0.01, caveat=caveat)))
        for threads in (1, 2)
    ]
    save_sweep(Store(tmp_path), SWEEP, points)
    (row,) = [row for row in printed_json("list", "--results", tmp_path) if row["kind"] == "sweep"]
    assert row["fastest"]["configuration"] == "torch/cpu"


def test_a_sweep_lists_what_was_measured_at_any_point(tmp_path: Path) -> None:
    torch, tf, jax = (measured(f"{engine}/cpu", 0.02) for engine in ("torch", "tf", "jax"))
    no_torch, no_tf, no_jax = (unmeasured(one.configuration, "failed", "died") for one in (torch, tf, jax))
    results = [(torch, no_tf, no_jax), (no_torch, tf, no_jax)]
    save_sweep(Store(tmp_path), SWEEP, [({"threads": n}, study(*some)) for n, some in enumerate(results, start=1)])
    (row,) = [row for row in printed_json("list", "--results", tmp_path) if row["kind"] == "sweep"]
    assert (row["configurations"], row["measured"]) == (["torch/cpu", "tf/cpu", "jax/cpu"], 2)


def test_the_points_of_a_sweep_are_listed_in_json_and_hidden_in_the_table(tmp_path: Path) -> None:
    saved_studies(tmp_path)
    save_sweep(Store(tmp_path), SWEEP, points_over_threads(torch="2.14.0"), created="2026-01-01T12:00:00Z")
    points = [f"{SWEEP}.{number}" for number in range(3)]
    where = ("list", "--results", tmp_path)
    assert {row["id"]: row["sweep"] for row in printed_json(*where)} == {
        "20250101-000000-abcd": None,
        "20260101-other": None,
        "20260102-third": None,
        SWEEP: None,
    } | dict.fromkeys(points, SWEEP)
    hidden, shown = printed(*where), printed(*where, "--show-points")
    assert points[0] not in hidden
    assert shown.index(f"{SWEEP} ") < shown.index(points[0]) < shown.index(points[2]) < shown.index("20260102-third")
    (row,) = [row for row in printed_json(*where) if row["id"] == points[1]]
    assert row["fastest"]["step_seconds"] == pytest.approx(128 / 180, rel=1e-3)
    assert (row["finished"], row["resumable"], row["measured"]) == (True, False, 1)
    # Versions belong to points: a sweep matches if one of its points does.
    for options in (["--version", "torch=2.14"], ["--since", "2026-01-01"]):
        assert {SWEEP, *points} <= {row["id"] for row in printed_json(*where, *options)}
    for options in (["--engine", "jax"], ["--version", "torch=2.13"], ["--until", "2025-12-31"]):
        assert SWEEP not in {row["id"] for row in printed_json(*where, *options)}


def test_an_interrupted_sweep_is_not_finished_and_a_corrupt_one_is_listed(tmp_path: Path) -> None:
    path = save_sweep(Store(tmp_path), SWEEP, points_over_threads()[:2], ended=False, axes={"threads": [1, 2, 4]})
    rows = {row["id"]: row for row in printed_json("list", "--results", tmp_path)}
    assert [*rows] == [SWEEP, f"{SWEEP}.0", f"{SWEEP}.1"]
    assert all((row["finished"], row["resumable"]) == (False, True) for row in rows.values())
    assert (rows[SWEEP]["points"], rows[SWEEP]["planned"]) == (2, 3)
    text = path.read_bytes()
    path.write_bytes(text[:100])
    (row,) = printed_json("list", "--results", tmp_path)
    assert row["id"] == SWEEP
    assert "it has no header" in row["unreadable"]
    path.write_bytes(text.replace(b'"event":"settings"', b'"event":"sittings"'))
    (row,) = printed_json("list", "--results", tmp_path)
    assert (row["id"], ": line 3: " in row["unreadable"]) == (SWEEP, True)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--engine", "torch"], ["20250101-000000-abcd"]),
        (["--version", "torch=2.13", "--version", "torch=2"], ["20250101-000000-abcd"]),
        (["--since", "2026-01-01"], ["20260101-other", "20260102-third"]),
        (["--since", "2026-01-01", "--until", "2026-01-01"], ["20260101-other"]),
        (["--host", "h*", "--device", "cpu", "--model", "lenet", "--engine", "jax"], ["20260102-third"]),
        (["--engine", "reference"], []),
    ],
)
def test_filters_select_studies(tmp_path: Path, options: list[str], found: list[str]) -> None:
    saved_studies(tmp_path)
    assert [row["id"] for row in printed_json("list", "--results", tmp_path, *options)] == found
    if not found:
        text = printed("list", "--results", tmp_path, *options)
        assert text == "no saved study matches (3 searched)\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--version", "torch"], "expected NAME=NUMBER"),
        (["--since", "yesterday"], "--since 'yesterday': invalid date: expected a date such as 2026-11-01"),
        (["--until", "2026-13-01"], "--until '2026-13-01': invalid date"),
    ],
)
def test_an_invalid_filter_is_bad_input(options: list[str], message: str) -> None:
    assert message in refused("list", *options)


@pytest.mark.parametrize(
    "document", [full_layers(full_study()), full_peak(), full_history()], ids=["layers", "peak", "history"]
)
def test_show_prints_the_file_of_any_document(document: Any, tmp_path: Path) -> None:
    path = tmp_path / "document.json"
    path.write_bytes(encode(document))
    assert printed("show", path)
    assert printed_json("show", path) == json.loads(path.read_text())


def test_show_prints_the_log_of_a_study(tmp_path: Path) -> None:
    document = study(measured("torch/cpu", 0.01))
    path = tmp_path / "copy.jsonl"
    path.write_bytes(log_of(document))
    assert printed("show", path)
    assert printed_json("show", path) == json.loads(to_json(derive(events_of(document))))


def test_saved_layers_are_listed_and_shown(tmp_path: Path) -> None:
    store = Store(tmp_path)
    save_document(
        store, msgspec.structs.replace(full_study(), id="20260101-000000-aaaa", created="2026-01-01T00:00:00Z")
    )
    old = msgspec.structs.replace(
        full_layers(full_study()), id="layers-20260102-000000-bbbb", created="2026-01-02T00:00:00Z"
    )
    new = msgspec.structs.replace(old, id="layers-20260103-000000-cccc", created="2026-01-03T00:00:00Z")
    for one in (new, old):
        save_document(store, one)
    results = ("--results", tmp_path)
    rows = printed_json("list", *results)
    assert [(row["id"], row["kind"]) for row in rows] == [
        ("20260101-000000-aaaa", "study"), (old.id, "layers"), (new.id, "layers"),
    ]  # fmt: skip
    fastest = min(one.step_seconds for one in old.configurations if one.step_seconds)
    assert rows[1]["fastest"]["step_seconds"] == pytest.approx(fastest)
    text = printed("list", *results)
    assert "layers of lenet, batch " in text
    assert len(printed_json("list", "--engine", "torch", *results)) == 3
    assert printed_json("show", "layers-last", *results)["id"] == new.id
    assert printed_json("show", "layers-20260102", *results)["id"] == old.id
    assert printed_json("show", "last", *results)["id"] == "20260101-000000-aaaa"
