"""`polybench plot` and `polybench report`: saved documents in, files out."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import polybench
from polybench.analysis.related_documents import load_saved_documents, related_documents
from polybench.api.results import load_sections
from polybench.html_report import StudySection
from polybench.html_report.study_section import build_view
from polybench.schema.encoding import encode
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store
from tests.commands import printed, printed_json, refused
from tests.factories import measured, points_over_threads, study
from tests.figures.documents import full_history, full_layers, full_peak, full_study, full_sweep, with_peaks
from tests.log_of import log_of, save_document, save_sweep


@pytest.fixture(autouse=True)
def needed() -> None:
    pytest.importorskip("plotly", reason="plotly is not installed")
    pytest.importorskip("jinja2", reason="jinja2 is not installed")


@pytest.fixture
def store(own_folders: Path) -> Store:
    store = Store(own_folders / "results")
    save_document(store, full_study())
    return store


def test_plot_writes_a_figure_of_a_study(store: Store, tmp_path: Path) -> None:
    assert printed("plot", "last", "--figure", "step_times", "-o", tmp_path / "step_times.html") == ""
    assert "Step times in order" in (tmp_path / "step_times.html").read_text()


def test_the_layers_figure_uses_saved_layers_or_names_the_command(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "layers.html"
    message = refused("plot", "last", "--figure", "layers", "-o", file)
    assert "no saved layers belong to study" in message
    assert "polybench layers --engines torch,tf,flux" in message
    assert not file.exists()
    save_document(store, full_layers(full_study()))
    printed("plot", "last", "--figure", "layers", "-o", file)
    assert "Time of each layer" in file.read_text()


def test_other_documents_have_their_own_figures(store: Store, tmp_path: Path) -> None:
    for name, document, title in (
        ("sweep.json", full_sweep(), "Throughput of a sweep"),
        ("layers.json", full_layers(full_study()), "Time of each layer"),
        ("study.jsonl", full_study(), "Speed relative to the baseline"),
    ):
        content = log_of(document) if isinstance(document, StudyDocument) else encode(document)
        (tmp_path / name).write_bytes(content)
        printed("plot", tmp_path / name, "-o", tmp_path / "x.html")
        assert title in (tmp_path / "x.html").read_text()
    message = refused("plot", tmp_path / "sweep.json", "--figure", "cost", "-o", "x.html")
    assert "--figure cost: expected a study" in message
    assert message.endswith("its figures are: scaling")
    (tmp_path / "none.json").write_text('{"schema": 3}')
    assert "cannot read" in refused("plot", tmp_path / "none.json", "-o", tmp_path / "x.html")


def test_bad_input_writes_nothing(store: Store, tmp_path: Path) -> None:
    assert "unknown format 'gif'" in refused("plot", "last", "-o", tmp_path / "x.gif")
    assert "unknown figure" in refused("plot", "last", "--figure", "sped", "-o", tmp_path / "x.html")
    assert "cannot write" in refused("plot", "last", "-o", tmp_path / "no" / "x.html")
    assert "no study 'x'" in refused("report", "x", "-o", tmp_path / "x.html")
    assert "--figure" in printed("plot", "--help")


def test_prices_add_costs_without_a_measurement(store: Store, tmp_path: Path) -> None:
    unpriced = full_study()
    for result in unpriced.results:
        result.cost = None
    save_document(store, unpriced)
    file = tmp_path / "x.html"
    assert "has no costs; add --price cpu=0.24" in refused("plot", "last", "--figure", "cost", "-o", file)
    printed("plot", "last", "--figure", "cost", "--price", "cpu=36", "-o", file)
    assert r"$36\u002fhour" in file.read_text()
    printed("report", "last", "-o", file)
    assert "Cost and time per epoch" not in file.read_text()
    printed("report", "last", "--price", "cpu=36", "-o", file)
    assert "Cost and time per epoch" in file.read_text()
    (torch,) = (row for row in polybench.load("last", prices={"cpu": 36}).rows() if row["configuration"] == "torch/cpu")
    assert torch["cost_per_epoch"] == pytest.approx(torch["epoch_time"] / 100)
    assert "$36/hour" in polybench.report("last", prices={"cpu": 36})
    for command in ("plot", "report", "show"):
        assert "--price cuda:7: no configuration ran on cuda:7" in refused(
            command, "last", "--price", "cuda:7=1", "-o", file
        )


def test_a_report_contains_several_studies(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    printed("report", "last", "last", "-o", file)
    page = file.read_text()
    assert "tf is 1.25" in page
    assert "2 studies" in page


def test_a_report_includes_related_documents(store: Store) -> None:
    save_document(store, full_layers(full_study()))
    (found,) = load_sections(["last"], store)
    assert isinstance(found, StudySection)
    assert found.layers is not None
    assert found.explanation is not None
    assert [pair.configuration for pair in found.explanation.comparisons] == ["tf/cpu", "flux/cpu"]
    programs = dict(found.programs)
    assert {"torch/cpu", "tf/cpu", "flux/cpu"} == set(programs)  # keras_fit has none
    assert "UNTIMED_STEPS, STEPS = 2, 3" in programs["torch/cpu"]
    assert "UNTIMED_STEPS, STEPS = 2, 3" in programs["tf/cpu"]
    assert related_documents(study(), load_saved_documents(study(), store)) == ([], None, None)


def test_the_spread_between_days_is_in_the_table_the_methods_and_the_report(store: Store) -> None:
    line = "Between 2 studies on different days, speeds vary by ±2.8% (standard deviation)"
    for day, seconds in ((5, 0.0100), (6, 0.0104)):
        assert line not in printed("show", "last", "--notes")
        document = study(measured("torch/cpu", 0.0165), measured("tf/cpu", seconds))
        document.settings.baseline = "torch/cpu"
        when = {"id": f"2025010{day}-000000-abcd", "created": f"2025-01-0{day}T00:00:00Z"}
        save_document(store, msgspec.structs.replace(document, **when))
    assert line in printed("show", "last")
    assert printed_json("show", "last", "--format", "json")["repetitions"]["studies"] == 2
    assert f"{line}." in " ".join(printed("show", "last", "--methods").split())
    (section,) = load_sections(["last"], store)
    assert line in build_view(section, 1)["notes"]
    assert line in printed("show", "last", "--format", "markdown")


def test_a_sweep_has_a_report_and_a_figure(store: Store, tmp_path: Path) -> None:
    id = "sweep-20250101-000000-abcd"
    log = save_sweep(store, id, points_over_threads())
    file = tmp_path / "report.html"
    for name in (id, "sweep-2025", "sweep-last", log):
        file.unlink(missing_ok=True)
        printed("report", name, "-o", file)
        assert "torch/cpu has the highest throughput: 190 images/s (threads 4)." in file.read_text()
        printed("plot", name, "-o", tmp_path / "x.html")
    printed("report", name, "last", "-o", file)
    assert "2 reports" in file.read_text()
    assert "no saved sweep 'sweep-x'" in refused("report", "sweep-x", "-o", file)
    assert "is a sweep, not a study" in refused("diff", id, "last")


def test_a_roofline_needs_measured_peaks(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "roofline.html"
    save_document(store, full_layers(full_study()))
    assert "no cached peak" in refused("plot", "last", "--figure", "roofline", "-o", file)
    save_document(store, with_peaks(full_layers(full_study())))
    printed("plot", "last", "--figure", "roofline", "-o", file)
    assert "Roofline of each layer" in file.read_text()
    for name, document, title in (
        ("peak.json", full_peak(), "Attainable performance of lenet"),
        ("history.json", full_history(), "Step times over time"),
    ):
        (tmp_path / name).write_bytes(encode(document))
        printed("plot", tmp_path / name, "-o", file)
        assert title in file.read_text()
        assert "is not a study, sweep or overhead" in refused("report", tmp_path / name, "-o", file)
