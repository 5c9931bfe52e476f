"""Figures show the measured values, omit what cannot be compared, and explain missing data."""

from __future__ import annotations

import html
import math
import re
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from polybench.engines import ENGINES
from polybench.errors import BadInput
from polybench.figures import FIGURES, Kind, default_figure, draw, image_export
from polybench.figures.figure import (
    DARK_COLOURS,
    DARK_PAPER,
    HOLLOW,
    NEUTRAL,
    OPERATIONS,
    PAPER,
    Figure,
    NoData,
    bar_style,
    engine_colour,
    error_bars,
    log_axis,
    styles_for,
    template,
)
from polybench.figures.image_export import caption_for
from polybench.schema.measurements import Curve, PointReference, PointResult, SweepPoint
from polybench.schema.study import StudyDocument
from tests.factories import measured, study
from tests.figures.documents import (
    full_history,
    full_layers,
    full_overhead,
    full_peak,
    full_study,
    full_sweep,
    with_peaks,
)

STUDY = full_study()
DOCUMENTS: dict[str, Any] = {
    "study": STUDY,
    "layers": with_peaks(full_layers(STUDY)),
    "sweep": full_sweep(),
    "overhead": full_overhead(),
    "peak": full_peak(),
    "history": full_history(),
}
STUDY_FIGURES = [name for name, row in FIGURES.items() if row.kind == "study"]


def draw_full(name: str) -> Figure:
    return draw(name, DOCUMENTS[FIGURES[name].kind])


def traces_named(figure: Figure, name: str) -> list[dict[str, Any]]:
    return [trace for trace in figure.traces if trace.get("name") == name]


@pytest.mark.parametrize("name", FIGURES)
def test_plotly_accepts_every_figure(name: str) -> None:
    figures = pytest.importorskip("plotly.graph_objects")
    figure = draw_full(name)
    figures.Figure(figure.traces, figure.layout | {"height": figure.height})  # raises ValueError for unknown properties
    assert figure.title, f"figure {name}: add a title"
    assert figure.note.endswith("."), f"figure {name}: add a note that explains marks and intervals, in sentences"


@pytest.mark.parametrize("name", STUDY_FIGURES)
def test_a_figure_without_its_data_raises_no_data_with_the_command_that_measures_it(name: str) -> None:
    with pytest.raises(NoData, match=r"^study 20250101-000000-abcd has no .*; .*"):
        draw(name, study())


@pytest.mark.parametrize("name", FIGURES)
def test_malicious_names_are_escaped(name: str) -> None:
    malicious = "<b onclick=alert(1)>/cpu"
    text = msgspec.json.encode(DOCUMENTS[FIGURES[name].kind])
    for harmless in (b"torch/cpu", b"conv1", b"dense1"):
        text = text.replace(harmless, malicious.encode())
    document = msgspec.json.decode(text, type=type(DOCUMENTS[FIGURES[name].kind]))
    figure = draw(name, document)
    unsafe = "<b onclick" in str((figure.traces, figure.layout))
    assert not unsafe, f"figure {name}: pass names through escape_text"


@pytest.mark.parametrize("name", FIGURES)
def test_marks_lie_within_the_range_of_their_axis(name: str) -> None:
    """The range is in the unit of the marks."""
    figure = draw_full(name)
    for trace in figure.traces:
        for letter in "xy" if "markers" in trace.get("mode", "") else "":
            axis = figure.layout.get(f"{letter}axis{trace.get(f'{letter}axis', letter)[1:]}", {})
            if axis.get("type") == "log":
                low, high = (10.0**end for end in axis["range"])
                assert all(low <= value <= high for value in trace[letter] if value is not None), trace["name"]


def test_error_bars_reach_from_a_value_to_both_bounds() -> None:
    bars = error_bars([2.0, 5.0], [(1.5, 4.0), None], 1e3)
    assert (bars["array"], bars["arrayminus"]) == ([2000.0, 0.0], [500.0, 0.0])


def test_each_kind_of_document_has_a_default_figure() -> None:
    kinds: dict[Kind, str] = {
        "study": "speed", "layers": "layers", "sweep": "scaling", "overhead": "overhead", "peak": "peak"
    }  # fmt: skip
    assert {kind: default_figure(kind) for kind in kinds} == kinds
    with pytest.raises(BadInput, match="unknown figure 'sped'; did you mean 'speed'"):
        draw("sped", STUDY)


def test_speed_shows_ranked_configurations_fastest_first() -> None:
    figure = draw_full("speed")
    assert [trace["y"] for trace in figure.traces] == [["tf/cpu"], ["torch/cpu"], ["flux/cpu"]]
    tf, torch, flux = figure.traces
    comparison = STUDY.result("tf/cpu").vs_baseline
    assert comparison
    assert comparison.ci95
    assert tf["x"] == [pytest.approx(1.25)]
    assert tf["x"][0] + tf["error_x"]["array"][0] == pytest.approx(comparison.ci95[1], rel=1e-4)
    assert tf["x"][0] - tf["error_x"]["arrayminus"][0] == pytest.approx(comparison.ci95[0], rel=1e-4)
    assert [one["marker"]["symbol"] for one in (tf, torch, flux)] == ["circle", "circle", "circle"]
    assert tf["hovertext"] == ["tf/cpu: 1.25 (1.25 to 1.25) times as fast as torch/cpu"]
    assert figure.layout["annotations"][0]["y"] == "tf/cpu"
    assert [note["text"] for note in figure.layout["annotations"]][1] == "baseline"
    assert "tf+keras_fit/cpu" in figure.note


def test_only_inconclusive_marks_are_hollow_and_a_note_says_so() -> None:
    figure = draw("speed", full_study(processes=1))
    assert {trace["name"]: trace["marker"]["symbol"] for trace in figure.traces} == {
        "tf/cpu": "circle-open",
        "torch/cpu": "circle",  # the baseline
        "flux/cpu": "circle-open",
    }
    assert HOLLOW in figure.note
    for name in FIGURES:
        drawn = draw_full(name)
        assert ("-open" in str(drawn.traces)) == (HOLLOW in drawn.note), name


@pytest.mark.parametrize("name", FIGURES)
def test_tooltips_have_units_and_are_the_text_alternative(name: str) -> None:
    figure = draw_full(name)
    tooltips = [text for trace in figure.traces for text in trace.get("hovertext", ()) if text]
    unit = re.compile(r"(s|MiB|%|epoch|FLOP/s|B/s|steps?|times as (fast|long) as torch/cpu|baseline|allocations|\))$")
    assert [text for text in tooltips if not unit.search(text.partition(", cannot tell")[0])] == []
    assert figure.text_alternative
    if not figure.numbers:
        assert figure.text_alternative == [html.unescape(text) for text in tooltips]
    for trace in figure.traces:
        assert "hovertemplate" not in trace
        assert trace["hoverinfo"] in ("text", "skip")


@pytest.mark.parametrize("name", FIGURES)
def test_an_engine_has_one_colour_that_no_phase_operation_or_source_has(name: str) -> None:
    engines = {engine_colour(engine) for engine in ENGINES}
    for trace in draw_full(name).traces:
        colours = set(re.findall(r"#[0-9a-f]{6}", str(trace)))
        configuration = trace.get("meta", trace.get("legendgroup"))
        if isinstance(configuration, str):
            assert colours <= {engine_colour(configuration), NEUTRAL}
        else:
            assert not colours & engines


def test_engines_differ_in_colour() -> None:
    own = [name for name in ENGINES if name not in ("fake", "reference")]
    assert len({engine_colour(name) for name in own}) == len(own)
    assert engine_colour("torch+compile@old/cpu#2") == engine_colour("torch/cuda") != engine_colour("torchlike/cpu")


def contrast(one: str, other: str) -> float:
    """Compute the contrast ratio of WCAG 2."""
    brighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    values = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_colours_have_contrast_on_paper_and_on_dark_screens() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    for light, dark in DARK_COLOURS.items():
        if light != PAPER:
            assert contrast(light, PAPER) >= 3, light
            assert contrast(dark, DARK_PAPER) >= 4.5, dark
    assert len({*DARK_COLOURS.values()}) == len(DARK_COLOURS)
    for is_dark, paper in ((False, PAPER), (True, DARK_PAPER)):
        layout = template(dark=is_dark)["layout"]
        fonts = [layout["font"], layout["legend"]["font"], layout["annotationdefaults"]["font"]]
        fonts += [layout["xaxis"]["tickfont"], layout["xaxis"]["title"]["font"]]
        assert all(contrast(font["color"], paper) >= 4.5 for font in fonts)
        label = layout["hoverlabel"]
        assert contrast(label["font"]["color"], label["bgcolor"]) >= 4.5


@pytest.mark.parametrize("name", FIGURES)
def test_labels_are_not_rotated(name: str) -> None:
    assert template()["layout"]["xaxis"]["tickangle"] == 0
    assert "textangle" not in str(draw_full(name).layout)


def test_step_times_are_those_of_all_rounds_with_a_separate_warm_up() -> None:
    warm, band, line = (one for one in draw_full("step_times").traces if one["legendgroup"] == "tf/cpu")
    assert warm["y"] == pytest.approx([7000.0, 16.0])
    assert (len(line["x"]), line["x"][0], line["xaxis"]) == (6, 1.0, "x2")  # two rounds of three steps
    assert line["y"] == pytest.approx([7.92, 8.0, 8.08] * 2, rel=1e-3)
    assert min(band["y"]) < min(line["y"]) < max(line["y"]) < max(band["y"])
    assert "bands of the full range" in draw_full("step_times").note  # three values each


def test_step_times_without_a_cold_start_have_no_warm_up() -> None:
    """Studies that Julia's `write_study` saves lack it."""
    results = [msgspec.structs.replace(result, startup=None) for result in STUDY.results]
    without = draw("step_times", msgspec.structs.replace(STUDY, results=results))
    full = draw("step_times", STUDY)
    assert 0 < len(without.traces) < len(full.traces)


def test_many_steps_are_binned() -> None:
    figure = draw("step_times", full_study(rounds=400))
    # Bins contain eight steps of three processes, except for a configuration with six steps.
    assert "bands from 5% to 95% (full range for few values)" in figure.note
    line = traces_named(figure, "tf/cpu")[-1]
    assert 100 < len(line["x"]) <= 150
    assert line["x"][-1] < 1200
    assert line["y"] == pytest.approx([8.0] * len(line["y"]), rel=0.02)


def test_each_process_has_a_box() -> None:
    box, marks = traces_named(draw_full("distributions"), "tf/cpu")
    assert marks["hovertext"][0] == (
        "tf/cpu, process 1: median 7.92 ms, 5% to 95% 7.84 ms to 8.00 ms, quartiles 7.86 ms to 7.98 ms"
    )
    assert box["y"] == marks["y"]
    assert len(box["median"]) == len(box["y"]) == 3
    assert box["median"] == pytest.approx([7.92, 8.0, 8.08])
    for low, first, middle, third, high in zip(
        *(box[name] for name in ("lowerfence", "q1", "median", "q3", "upperfence")), strict=True
    ):
        assert low <= first <= middle <= third <= high


def test_startup_phases_add_up() -> None:
    bars = draw_full("startup").traces
    totals = dict(zip(bars[0]["y"], map(sum, zip(*(bar["x"] for bar in bars), strict=True)), strict=True))
    assert totals["tf/cpu"] == pytest.approx(0.05 + 1.0 + 0.2 + 0.1 + 7.0)


def test_lines_cross_at_break_even() -> None:
    figure = draw_full("break_even")
    line, mark = traces_named(figure, "tf/cpu")
    assert mark["x"] == [pytest.approx(2501, abs=1)]  # starts 5 s later, steps are 2 ms faster
    assert mark["y"] == [pytest.approx(1.0, abs=1e-3)]
    tf, torch = (one.startup.cold_start_seconds for one in map(STUDY.result, ("tf/cpu", "torch/cpu")) if one.startup)
    assert line["y"][0] == pytest.approx(tf / torch, rel=1e-4)  # a cold start ends with the first step
    assert line["y"][-1] < 1
    assert len(traces_named(figure, "flux/cpu")) == 1  # never breaks even


def test_allocations_are_grouped_by_counter() -> None:
    native, host = draw_full("allocations").traces
    assert native["x"][1] is None
    assert native["x"][::2] == pytest.approx([6e6 / 2**20, 18e6 / 2**20], rel=1e-5)
    assert native["text"] == ["5.72 MiB", "", "17.2 MiB"]  # no counts on an axis of MiB
    assert native["hovertext"][0] == "torch/cpu, native: 5.72 MiB in 2,700 allocations"
    assert host["x"] == pytest.approx([3e6 / 2**20, 6e6 / 2**20, 9e6 / 2**20], rel=1e-5)


def test_costs_lie_on_the_line_of_their_price() -> None:
    price, *marks = draw_full("cost").traces
    assert price["name"] == "$0.24/hour"
    assert price["y"] == pytest.approx([seconds * 0.24 / 3600 for seconds in price["x"]], rel=1e-4)
    for mark in marks:
        assert mark["y"][0] == pytest.approx(mark["x"][0] * 0.24 / 3600, rel=1e-4)


def test_accuracy_has_a_line_per_seed_and_a_mean() -> None:
    figure = draw_full("accuracy")
    *seeds, mean = (trace for trace in figure.traces if trace["legendgroup"] == "tf/cpu")
    assert [seed["y"][-1] for seed in seeds] == pytest.approx([50.0, 60.0])
    assert (mean["x"], mean["y"]) == (pytest.approx([1.0, 2.0]), pytest.approx([10.0, 55.0]))
    assert [shape["y0"] for shape in figure.layout["shapes"]] == [pytest.approx(55.0)]


def test_layers_are_in_network_order_with_time_between_layers_last() -> None:
    figure = draw_full("layers")
    forward = traces_named(figure, "forward")[0]
    layers, configurations = forward["y"]
    assert list(dict.fromkeys(layers)) == ["conv1", "dense1", "step", "between the layers"]
    assert configurations[:2] == ["torch/cpu", "tf/cpu"]
    assert forward["x"][:4] == [pytest.approx(2.0), pytest.approx(9.0), None, pytest.approx(1.0)]
    assert traces_named(figure, "between the layers")[0]["x"][-2:] == [pytest.approx(4.9), pytest.approx(-2.2)]


def test_scaling_shades_oversubscribed_points_and_shows_linear_scaling() -> None:
    figure = draw_full("scaling")
    curve, linear = figure.traces
    assert curve["marker"]["symbol"] == ["circle", "circle", "circle"]
    assert [(shape["x0"], shape["x1"]) for shape in figure.layout["shapes"]] == [(3.0, 5.0)]
    assert curve["hovertext"][-1] == "torch/cpu, threads 4: 190 (180 to 200) images/s, more threads than usable cores"
    assert curve["error_y"]["array"] == pytest.approx([0.0, 10.0, 10.0])
    assert linear["y"] == pytest.approx([100.0, 200.0, 400.0])


def test_history_has_a_mark_per_study_and_segment_levels() -> None:
    figure = draw_full("history")
    level, marks = (one for one in figure.traces if one["name"].startswith("torch/cpu"))
    assert marks["y"] == pytest.approx([10, 10, 20, 20], rel=0.01)
    assert marks["hovertext"][2] == "torch/cpu, lenet, batch 128, host, 20250103-000000-abcd: 20.0 ms ±2.5%"
    assert level["y"] == pytest.approx([10, 10, 20, 20], rel=0.01)
    assert level["line"]["shape"] == "hv"
    one = msgspec.structs.replace(full_history(), series=full_history().series[:1])
    assert draw("history", one).title == "torch/cpu, lenet, batch 128 over time"
    with pytest.raises(NoData, match="no ranked configuration"):
        draw("history", msgspec.structs.replace(one, series=[]))


def test_the_axis_of_a_single_study_is_the_day_around_it() -> None:
    history = full_history()
    (first, *_), one = history.series[0].points, history.series[0]
    only = msgspec.structs.replace(history, series=[msgspec.structs.replace(one, points=[first])])
    ends = draw("history", only).layout["xaxis"]["range"]
    dates = [datetime.fromtimestamp(milliseconds / 1e3, UTC) for milliseconds in ends]  # the unit of a date axis
    assert dates == [datetime(2024, 12, 31, 12, tzinfo=UTC), datetime(2025, 1, 1, 12, tzinfo=UTC)]


def test_styles_differ_without_colour() -> None:
    styles = styles_for(f"torch+{number}" for number in range(8))
    assert len({(style.symbol, style.dash) for style in styles.values()}) == 8
    assert len({bar_style(OPERATIONS, number)["pattern"]["shape"] for number in range(8)}) == 8


@pytest.mark.parametrize("values", [(1.0, 1.02), (0.28, 1.3), (0.001, 900.0), (3.0, 3.0), (8e-5, 9e-5)])
def test_logarithmic_axis_has_a_few_round_labels(values: tuple[float, float]) -> None:
    axis = log_axis(values)
    low, high = (10.0**end for end in axis["range"])
    assert low < values[0] <= values[1] < high
    assert 4 <= len(axis["tickvals"]) <= 13
    assert all(low <= tick <= high and math.isfinite(tick) for tick in axis["tickvals"])
    assert len(set(axis["ticktext"])) == len(axis["ticktext"])


def test_caption_describes_the_origin_of_a_document() -> None:
    text = caption_for(STUDY)
    for expected in ("lenet", "batch 128", "Some CPU @ 2.00GHz, 2 cores", "torch 2.13.0", "2025-01-01", STUDY.id):
        assert expected in text
    assert "mkl" not in text
    assert "2025-01-01, polybench 0.1.0" in caption_for(full_sweep())
    assert full_layers(STUDY).id in caption_for(full_layers(STUDY))


def test_block_means_count_as_several_steps() -> None:
    result = measured("torch/cpu", 0.01)
    assert result.step_times
    blocks = msgspec.structs.replace(result.step_times, resolution="block", steps_per_value=10)
    document: StudyDocument = study(msgspec.structs.replace(result, step_times=blocks))
    assert traces_named(draw("step_times", document), "torch/cpu")[-1]["x"][:2] == pytest.approx([5.5, 15.5])
    assert "each value is a block mean" in draw("distributions", document).note


def test_sweep_of_two_axes_has_a_curve_per_value_of_the_shorter_axis() -> None:
    one = full_sweep()
    points = [
        SweepPoint({"threads": threads, "batch_size": size}, "x", threads > 2, point.configurations)
        for point, (threads, size) in zip(one.points, ((1, 8), (1, 512), (4, 8)), strict=True)
    ]
    failed = SweepPoint({"threads": 1, "batch_size": 64}, "x", False, [PointResult("torch/cpu", "failed")])
    axes, best = {"threads": [1, 4], "batch_size": [8, 64, 512]}, {"threads": 4, "batch_size": 8}
    curves, fastest = [Curve("torch/cpu", best, 190.0, [])], [PointReference("torch/cpu", best)]
    two = msgspec.structs.replace(one, points=[*points, failed], axes=axes, curves=curves, fastest=fastest)
    figure = draw("scaling", two)
    assert [trace["name"] for trace in figure.traces] == ["torch/cpu, threads 1", "torch/cpu, threads 4"]
    assert figure.traces[0]["x"] == [8, 512]  # failed points are not drawn
    assert figure.layout["xaxis"]["type"] == "log"
    assert figure.layout["xaxis"]["title"]["text"] == "batch size"
    assert figure.layout["yaxis"]["rangemode"] == "tozero"


def test_overhead_shows_points_and_the_fit_from_zero() -> None:
    points, line, overhead_mark = draw("overhead", full_overhead()).traces
    assert points["x"] == [1, 64]
    assert points["y"] == pytest.approx([2.1, 8.4])
    assert points["error_y"]["array"] == pytest.approx([0.2, 0.0])
    assert points["error_y"]["arrayminus"] == pytest.approx([0.1, 0.0])
    assert line["x"] == [0, 64]
    assert line["y"] == pytest.approx([2.0, 8.4])
    assert (overhead_mark["x"], overhead_mark["y"]) == ([0], [2.0])
    assert overhead_mark["error_y"]["array"] == pytest.approx([0.5])
    assert overhead_mark["hovertext"] == ["torch/cpu, overhead of a step: 2.00 ms (1.50 ms to 2.50 ms)"]


def test_configuration_without_a_fit_has_points() -> None:
    document = full_overhead()
    torch, tf = document.configurations
    torch = msgspec.structs.replace(torch, overhead_seconds=None, seconds_per_item=None)
    (points,) = draw("overhead", msgspec.structs.replace(document, configurations=[torch, tf])).traces
    assert points["name"] == "torch/cpu"
    refuted = msgspec.structs.replace(full_overhead().configurations[0], max_relative_residual=0.4)
    assert len(draw("overhead", msgspec.structs.replace(document, configurations=[refuted])).traces) == 1
    with pytest.raises(NoData, match="the overhead has no times: tf/cpu: no tf"):
        draw("overhead", msgspec.structs.replace(document, configurations=[tf]))


def test_missing_plotly_is_reported_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(BadInput, match=r"pip install 'polybench-dl\[plot\]', or use rows\(\)"):
        image_export.to_plotly(draw("overhead", full_overhead()))


def test_intervals_of_the_history_are_in_the_unit_of_its_marks() -> None:
    document = DOCUMENTS["history"]
    marks = [trace for trace in draw("history", document).traces if trace["mode"] == "markers"]
    for series, trace in zip(document.series, marks, strict=True):
        bars = zip(trace["y"], trace["error_y"]["arrayminus"], trace["error_y"]["array"], strict=True)
        bounds = [(value - below, value + above) for value, below, above in bars]
        for (low, high), point in zip(bounds, series.points, strict=True):
            assert (low, high) == pytest.approx([1e3 * bound for bound in point.ci95], rel=1e-3)
