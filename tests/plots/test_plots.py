"""Figures: what is drawn is what was measured; who cannot be compared is not, and says why."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from polybench.core.document.study import StudyDocument
from polybench.core.document.sweep import SweepPoint, SweptCell
from polybench.core.errors import BadInput
from polybench.plots import FIGURES, Kind, default_of, draw
from polybench.plots.plot import NothingToDraw, Plot, log_axis
from polybench.plots.provenance import provenance
from polybench.plots.style import look, looks
from tests.factories import measured, study
from tests.plots.documents import (
    full_history,
    full_layers,
    full_limit,
    full_overhead,
    full_study,
    full_sweep,
    with_roofs,
)

STUDY = full_study()
DOCUMENTS: dict[str, Any] = {
    "study": STUDY,
    "layers": with_roofs(full_layers(STUDY)),
    "sweep": full_sweep(),
    "overhead": full_overhead(),
    "limit": full_limit(),
    "history": full_history(),
}
OF_STUDIES = [name for name, row in FIGURES.items() if row.of == "study"]


def drawn(name: str) -> Plot:
    return draw(name, DOCUMENTS[FIGURES[name].of])


def named(plot: Plot, name: str) -> list[dict[str, Any]]:
    return [trace for trace in plot.traces if trace.get("name") == name]


@pytest.mark.parametrize("name", FIGURES)
def test_plotly_takes_every_figure(name: str) -> None:
    figures = pytest.importorskip("plotly.graph_objects")
    plot = drawn(name)
    figures.Figure(plot.traces, plot.layout | {"height": plot.height})  # raises ValueError for what it lacks
    assert plot.title
    assert plot.note.endswith(".")


@pytest.mark.parametrize("name", OF_STUDIES)
def test_a_study_in_which_nothing_was_measured_says_what_measures_it(name: str) -> None:
    with pytest.raises(NothingToDraw, match=r"^study 20250101-000000-abcd has no .*; .*"):
        draw(name, study())


@pytest.mark.parametrize("name", FIGURES)
def test_names_from_elsewhere_are_no_markup(name: str) -> None:
    hostile = "<b onclick=alert(1)>/cpu"
    document = msgspec.json.decode(
        msgspec.json.encode(DOCUMENTS[FIGURES[name].of]).replace(b"torch/cpu", hostile.encode()),
        type=type(DOCUMENTS[FIGURES[name].of]),
    )
    plot = draw(name, document)
    assert "<b onclick" not in str((plot.traces, plot.layout))


def test_each_kind_of_document_has_a_figure_of_its_own() -> None:
    kinds: dict[Kind, str] = {
        "study": "speed", "layers": "layers", "sweep": "scaling", "overhead": "overhead", "limit": "roofs"
    }  # fmt: skip
    assert {kind: default_of(kind) for kind in kinds} == kinds
    with pytest.raises(BadInput, match="unknown figure 'sped'; did you mean 'speed'"):
        draw("sped", STUDY)


def test_speed_is_of_ranked_cells_the_fastest_first() -> None:
    plot = drawn("speed")
    assert [trace["y"] for trace in plot.traces] == [["tf/cpu"], ["torch/cpu"], ["flux/cpu"]]
    tf, torch, flux = plot.traces
    relative = STUDY.result("tf/cpu").relative
    assert relative
    assert relative.interval95
    assert tf["x"] == [pytest.approx(1.25)]
    assert tf["x"][0] + tf["error_x"]["array"][0] == pytest.approx(relative.interval95[1], rel=1e-4)
    assert tf["x"][0] - tf["error_x"]["arrayminus"][0] == pytest.approx(relative.interval95[0], rel=1e-4)
    assert [one["marker"]["symbol"] for one in (tf, torch, flux)] == ["circle", "circle-open", "circle"]
    assert [note["text"] for note in plot.layout["annotations"]][1] == "baseline"
    assert "tf+keras_fit/cpu" in plot.note


def test_a_mark_without_a_verdict_is_hollow() -> None:
    assert {trace["marker"]["symbol"] for trace in draw("speed", full_study(processes=1)).traces} == {
        "circle-open"
    }


def test_steps_are_those_of_all_rounds_and_the_warm_up_apart() -> None:
    warm, band, line = (one for one in drawn("steps").traces if one["legendgroup"] == "tf/cpu")
    assert warm["y"] == pytest.approx([7000.0, 16.0])
    assert (len(line["x"]), line["x"][0], line["xaxis"]) == (6, 1.0, "x2")  # two rounds of three steps
    assert line["y"] == pytest.approx([7.92, 8.0, 8.08] * 2, rel=1e-3)
    assert min(band["y"]) < min(line["y"]) < max(line["y"]) < max(band["y"])
    assert "bands from the least to the most" in drawn("steps").note  # of three samples each


def test_many_steps_become_few_points() -> None:
    plot = draw("steps", full_study(rounds=400))
    # Eight steps of three processes each, but for a cell that has no more than six steps.
    assert "bands 5% to 95%, of few samples from the least to the most" in plot.note
    line = named(plot, "tf/cpu")[-1]
    assert 100 < len(line["x"]) <= 150
    assert line["x"][-1] < 1200
    assert line["y"] == pytest.approx([8.0] * len(line["y"]), rel=0.02)


def test_each_process_has_a_box() -> None:
    (box,) = named(drawn("distributions"), "tf/cpu")
    assert len(box["median"]) == len(box["y"]) == 3
    assert box["median"] == pytest.approx([7.92, 8.0, 8.08])
    for low, first, middle, third, high in zip(
        *(box[name] for name in ("lowerfence", "q1", "median", "q3", "upperfence")), strict=True
    ):
        assert low <= first <= middle <= third <= high


def test_parts_of_the_start_add_up_and_lines_cross_where_it_is_repaid() -> None:
    plot = drawn("startup")
    bars = [trace for trace in plot.traces if trace["type"] == "bar"]
    totals = dict(zip(bars[0]["y"], map(sum, zip(*(bar["x"] for bar in bars), strict=True)), strict=True))
    assert totals["tf/cpu"] == pytest.approx(0.05 + 1.0 + 0.2 + 0.1 + 7.0)
    line, mark = named(plot, "tf/cpu")
    assert mark["x"] == [pytest.approx(2501, abs=1)]  # 5 s later, and 2 ms a step faster
    assert mark["y"] == [pytest.approx(1.0, abs=1e-3)]
    assert line["y"][0] > 1 > line["y"][-1]
    assert len(named(plot, "flux/cpu")) == 1  # never repaid


def test_allocations_of_one_meaning_are_one_colour() -> None:
    native, own = drawn("allocations").traces
    assert native["x"][1] is None
    assert native["x"][::2] == pytest.approx([6e6 / 2**20, 18e6 / 2**20], rel=1e-5)
    assert native["text"][0] == "2,700"
    assert own["x"] == pytest.approx([3e6 / 2**20, 6e6 / 2**20, 9e6 / 2**20], rel=1e-5)


def test_cost_lies_on_the_line_of_its_price() -> None:
    price, *marks = drawn("cost").traces
    assert price["name"] == "$0.24 an hour"
    for mark in marks:
        assert mark["y"][0] == pytest.approx(mark["x"][0] * 0.24 / 3600, rel=1e-4)


def test_accuracy_has_a_line_for_each_seed_and_one_for_their_mean() -> None:
    plot = drawn("accuracy")
    *seeds, mean = (trace for trace in plot.traces if trace["legendgroup"] == "tf/cpu")
    assert [seed["y"][-1] for seed in seeds] == pytest.approx([50.0, 60.0])
    assert (mean["x"], mean["y"]) == (pytest.approx([1.0, 2.0]), pytest.approx([10.0, 55.0]))
    assert [shape["y0"] for shape in plot.layout["shapes"]] == [pytest.approx(55.0)]


def test_layers_are_stacked_in_the_order_of_the_network_and_the_residue_is_last() -> None:
    plot = drawn("layers")
    forward = named(plot, "forward")[0]
    layers, cells = forward["y"]
    assert list(dict.fromkeys(layers)) == ["conv1", "dense1", "step", "residue"]
    assert cells[:2] == ["torch/cpu", "tf/cpu"]
    assert forward["x"][:4] == [pytest.approx(2.0), pytest.approx(9.0), None, pytest.approx(1.0)]
    assert named(plot, "residue")[0]["x"][-2:] == [pytest.approx(4.9), pytest.approx(-2.2)]


def test_scaling_marks_more_threads_than_cores_and_shows_the_ideal() -> None:
    curve, ideal = drawn("scaling").traces
    assert curve["marker"]["symbol"] == ["circle", "circle", "circle-open"]
    assert curve["error_y"]["array"] == pytest.approx([0.0, 10.0, 10.0])
    assert ideal["y"] == pytest.approx([100.0, 200.0, 400.0])


def test_history_has_a_mark_a_study_and_the_levels_between_which_it_stepped() -> None:
    plot = drawn("history")
    level, marks = (one for one in plot.traces if one["name"].startswith("torch/cpu"))
    assert marks["y"] == pytest.approx([10, 10, 20, 20], rel=0.01)
    assert marks["text"][2] == "20250103-000000-abcd"
    assert level["y"] == pytest.approx([10, 10, 20, 20], rel=0.01)
    assert level["line"]["shape"] == "hv"
    one = msgspec.structs.replace(full_history(), series=full_history().series[:1])
    assert draw("history", one).title == "torch/cpu, lenet, batch 128 over time"
    with pytest.raises(NothingToDraw, match="no ranked cell"):
        draw("history", msgspec.structs.replace(one, series=[]))


def test_looks_differ_in_grey_too() -> None:
    assert len({(look(number).colour, look(number).dash) for number in range(42)}) == 42
    assert len({look(number).symbol for number in range(8)}) == 8
    assert len({look(number).hatch for number in range(8)}) == 8
    assert looks(["a", "b"])["b"] == look(1)


@pytest.mark.parametrize("values", [(1.0, 1.02), (0.28, 1.3), (0.001, 900.0), (3.0, 3.0), (8e-5, 9e-5)])
def test_a_logarithmic_axis_has_a_few_round_labels(values: tuple[float, float]) -> None:
    axis = log_axis(values)
    low, high = (10.0**end for end in axis["range"])
    assert low < values[0] <= values[1] < high
    assert 4 <= len(axis["tickvals"]) <= 13
    assert all(low <= tick <= high and math.isfinite(tick) for tick in axis["tickvals"])
    assert len(set(axis["ticktext"])) == len(axis["ticktext"])


def test_a_caption_says_where_the_numbers_are_from() -> None:
    text = provenance(STUDY)
    for part in ("lenet", "batch 128", "Some CPU @ 2.00GHz, 2 cores", "torch 2.13.0", "2025-01-01", STUDY.id):
        assert part in text
    assert "mkl" not in text
    assert "2025-01-01, polybench 0.1.0" in provenance(full_sweep())
    assert full_layers(STUDY).id in provenance(full_layers(STUDY))


def test_blocks_count_as_many_steps() -> None:
    result = measured("torch/cpu", 0.01)
    assert result.samples
    blocks = msgspec.structs.replace(result.samples, kind="block", steps_per_sample=10)
    document: StudyDocument = study(msgspec.structs.replace(result, samples=blocks))
    assert named(draw("steps", document), "torch/cpu")[-1]["x"][:2] == pytest.approx([5.5, 15.5])
    assert "a block counts as one" in draw("distributions", document).note


def test_a_sweep_of_two_axes_is_a_curve_for_each_value_of_the_shorter() -> None:
    one = full_sweep()
    points = [
        SweepPoint({"threads": threads, "batch_size": size}, "x", threads > 2, point.cells)
        for point, (threads, size) in zip(one.points, ((1, 8), (1, 512), (4, 8)), strict=True)
    ]
    lost = SweepPoint({"threads": 1, "batch_size": 64}, "x", False, [SweptCell("torch/cpu", "failed")])
    two = msgspec.structs.replace(
        one, points=[*points, lost], axes={"threads": [1, 4], "batch_size": [8, 64, 512]}
    )
    plot = draw("scaling", two)
    assert [trace["name"] for trace in plot.traces] == ["torch/cpu, threads 1", "torch/cpu, threads 4"]
    assert plot.traces[0]["x"] == [8, 512]  # what failed is not drawn
    assert plot.layout["xaxis"]["type"] == "log"
    assert plot.layout["xaxis"]["title"]["text"] == "batch size"
    assert plot.layout["yaxis"]["rangemode"] == "tozero"
