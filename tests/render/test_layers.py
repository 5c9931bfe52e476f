"""Layer times as text."""

from __future__ import annotations

import csv
import io

import msgspec
import pytest

from polybench.networks.layers import Operation
from polybench.render import render
from polybench.render.layers import layer_records, sort_operations
from polybench.schema.measurements import ConfigurationLayers, LayerRow, LayersDocument
from polybench.schema.resources import PeakComparison
from polybench.schema.result import StepTimes
from tests.factories import study


def row(layer: str, operation: Operation, ms: float, flops: int | None = None, gc_ms: float | None = None) -> LayerRow:
    return LayerRow(
        layer=layer,
        operation=operation,
        seconds_per_step=ms / 1e3,
        ci95=(0.9 * ms / 1e3, 1.1 * ms / 1e3),
        flops=flops,
        gc_seconds_per_step=None if gc_ms is None else gc_ms / 1e3,
        seconds=[[0.99 * ms / 1e3], [1.01 * ms / 1e3]],
    )


def configuration_layers(configuration: str, step_ms: float, *rows: LayerRow, **fields: object) -> ConfigurationLayers:
    name, device = configuration.split("/")
    unattributed = step_ms / 1e3 - sum(one.seconds_per_step for one in rows)
    layers = ConfigurationLayers(
        configuration=configuration,
        engine=name.partition("+")[0],
        variant=name.partition("+")[2] or None,
        device=device,
        status="ok",
        parity="pass",
        step_seconds=step_ms / 1e3,
        step_ci95=(0.99 * step_ms / 1e3, 1.01 * step_ms / 1e3),
        unattributed_seconds=unattributed if rows else None,
        ci95=(unattributed - 1e-4, unattributed + 1e-4) if rows else None,
        rows=list(rows),
        step_times=StepTimes("step", 1, [[[step_ms / 1e3]], [[step_ms / 1e3]]]),
    )
    return msgspec.structs.replace(layers, **fields)


@pytest.fixture
def document() -> LayersDocument:
    template = study()
    return LayersDocument(
        id=template.id,
        created=template.created,
        polybench=template.polybench,
        argv=["layers"],
        study=template.study,
        settings=template.settings,
        host=template.host,
        warnings=["the machine was busy"],
        configurations=[
            configuration_layers(
                "flux/cpu",
                100.0,
                row("conv2 + relu", "forward", 20.0, 80_000_000, 0.5),
                row("conv2 + relu", "input gradient", 40.0, 80_000_000, 1.5),
                row("max_pool1", "input gradient", 8.0, gc_ms=0.0),
                row("step", "loss", -0.004, gc_ms=0.0),
                gc_seconds_per_step=3e-3,
            ),
            configuration_layers(
                "torch/cpu",
                50.0,
                row("conv2 + relu", "forward", 19.0, 80_000_000),
                row("conv2 + relu", "input gradient", 10.0, 80_000_000),
                row("max_pool1", "input gradient", 9.0),
                row("step", "loss", 0.2),
            ),
            configuration_layers("torch+compile/cpu", 40.0, compiled_as_whole=True),
            configuration_layers("tf/cpu", 1.0, status="unavailable", reason="no TensorFlow", hint="install it",
                   step_seconds=None, step_times=None),
        ],
    )  # fmt: skip


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_configurations_are_side_by_side(document: LayersDocument) -> None:
    text = render(document, "table", width=200)
    assert "  input gradient" in text
    assert lines(text)[lines(text).index("each operation timed alone, in ms") + 2 :][:16] == [
        "layer flux % GFLOP/s GC torch % GFLOP/s torch+compile slowdown",
        lines(text)[6],
        "conv2 + relu 60.0 ±7.6 60.0 29.00 ±3.68 58.0",
        "forward 20.0 20.0 4.00 0.5 19.00 38.0 4.21 1.0 flux",
        "input gradient 40.0 40.0 2.00 1.5 10.00 20.0 8.00 30.0 flux",
        "max_pool1, input gradient 8.0 ±0.8 8.0 0.0 9.00 ±0.90 18.0",
        "loss < 0.05 0.0 0.20 ±0.02 0.4",
        "",
        "forward 20.0 ±2.0 20.0 19.00 ±1.90 38.0",
        "backward 48.0 ±6.1 48.0 19.00 ±2.41 38.0",
        "sum of operations 68.0 ±8.6 68.0 38.20 ±4.85 76.4",
        "between the layers 32.0 ±0.1 11.80 ±0.10",
        "whole step 100.0 ±1.0 50.00 ±0.50 40.00 ±0.40",
        "",
        "±: half of the 95% interval, over 2 processes",
        "< 0.05 ms: too short, or a negative difference of two times; JSON and CSV have the value",
    ]


def test_totals_have_the_interval_of_their_sum(document: LayersDocument) -> None:
    """Operations that vary in opposite directions make a sum that does not."""
    forward, gradient = row("conv1", "forward", 10.0), row("conv1", "weight gradient", 20.0)
    rows = [
        msgspec.structs.replace(forward, seconds=[[0.009], [0.010], [0.011]]),
        msgspec.structs.replace(gradient, seconds=[[0.021], [0.020], [0.019]]),
    ]
    document.configurations = [configuration_layers("torch/cpu", 40.0, *rows)]
    text = lines(render(document))
    assert "conv1 30.00 ±0.01 75.0" in text
    assert "forward 10.00 ±1.00 25.0" in text


def test_notes_explain_the_table(document: LayersDocument) -> None:
    text = " ".join(render(document, "table").split())
    assert "±: half of the 95% interval, over 2 processes" in text
    assert "slowdown: time beyond that of torch, in the slowest engine" in text
    assert "flux/cpu: garbage collection takes 3.00 ms of a step" in text
    assert "torch+compile/cpu: no layer times, because the step is compiled" in text
    assert "tf/cpu: unavailable: no TensorFlow (hint: install it)" in text
    assert "the machine was busy" in text


def test_wide_intervals_are_no_result_and_have_no_slowdown(document: LayersDocument) -> None:
    flux, torch, *others = document.configurations
    wide = msgspec.structs.replace(flux.rows[1], ci95=(-0.01, 0.09))
    rest = (-0.05, 0.114)
    flux = msgspec.structs.replace(flux, rows=[flux.rows[0], wide, *flux.rows[2:]], ci95=rest)
    document.configurations = [flux, torch, *others]
    text = lines(render(document, width=80))
    assert "input gradient (no result) 10.00" in text
    assert "between the layers (no result) 11.80 ±0.10" in text
    assert "(no result): the interval is too wide; use more --processes or an idle machine" in text


def test_a_configuration_without_a_quiet_block_is_busy(document: LayersDocument) -> None:
    nothing = {"step_seconds": None, "step_ci95": None, "unattributed_seconds": None, "ci95": None, "step_times": None}
    reason = "other programs used the cores in every timing block"
    document.configurations[0] = msgspec.structs.replace(
        document.configurations[0], rows=[], busy=True, reason=reason, **nothing
    )
    text = lines(render(document))
    assert "whole step (busy) 50.00 ±0.50 40.00 ±0.40" in text
    assert f"NO RESULT for flux: {reason}. Stop other programs" in " ".join(text)


def test_operations_can_be_sorted_by_slowdown(document: LayersDocument) -> None:
    assert sort_operations(document, "slowdown") == [
        ("conv2 + relu", "input gradient"),
        ("conv2 + relu", "forward"),
        ("step", "loss"),
        ("max_pool1", "input gradient"),
    ]
    lines = render(document, sort="slowdown").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("---"))
    assert lines[first + 1].startswith("conv2 + relu, input gradient ")


def test_csv_has_a_line_per_operation_and_configuration(document: LayersDocument) -> None:
    lines = list(csv.DictReader(io.StringIO(render(document, "csv", sort="slowdown"))))
    assert len(lines) == 8
    assert lines[0]["configuration"] == "flux/cpu"
    assert float(lines[0]["slowdown [s]"]) == pytest.approx(0.03)
    assert float(lines[0]["flops_per_second"]) == pytest.approx(2e9)
    assert list(layer_records(document)[0]) == [title.split(" ")[0] for title in lines[0]]


def test_operations_are_compared_with_a_known_peak(document: LayersDocument) -> None:
    assert "% of peak" not in render(document, "table", width=200)
    document.configurations[1].peak = PeakComparison(16e9, 0.4, "2048x2048x2048 in torch")
    text = render(document, "table", width=200)
    assert "input gradient 40.0 40.0 2.00 1.5 10.00 20.0 8.00 50.0 30.0 flux" in lines(text)
    assert "whole step 100.0 ±1.0 50.00 ±0.50 40.0 40.00 ±0.40" in lines(text)
    assert "peak: 16.0 GFLOP/s, fastest matrix product on this machine (2048x2048x2048 in torch)" in text
    fractions = [
        record["fraction_of_peak"] for record in layer_records(document) if record["operation"] == "input gradient"
    ]
    assert fractions == [None, pytest.approx(0.5), None, None]


def test_single_configuration_has_no_slowdown(document: LayersDocument) -> None:
    single = msgspec.structs.replace(document, configurations=document.configurations[1:2])
    assert "slowdown" not in render(single, "table", sort="slowdown")
    assert sort_operations(single, "slowdown") == sort_operations(single, "network")


def test_unavailable_configuration_is_listed(document: LayersDocument) -> None:
    nothing = msgspec.structs.replace(document, configurations=document.configurations[3:])
    for format in ("table", "markdown"):
        assert "tf/cpu: unavailable: no TensorFlow" in render(nothing, format)
    assert "| conv2 + relu" in render(document, "markdown")


def test_layers_without_whole_steps_have_no_totals(document: LayersDocument) -> None:
    nothing = {"step_seconds": None, "unattributed_seconds": None, "gc_seconds_per_step": None}
    engines = [
        msgspec.structs.replace(configuration_layers, **nothing) for configuration_layers in document.configurations
    ]
    text = render(msgspec.structs.replace(document, configurations=engines), "table")
    assert "conv2 + relu" in text
    assert not any(word in text for word in ("between the layers", "whole step", "%  "))


def test_a_negative_time_is_too_short(document: LayersDocument) -> None:
    text = render(document)
    loss = next(line for line in text.splitlines() if line.startswith("loss "))
    assert "< 0.05" in loss
    assert "-" not in loss
    assert "< 0.05 ms: too short, or a negative difference of two times" in text
    assert min(record["seconds_per_step"] for record in layer_records(document)) == -4e-6
    document.configurations[0].rows.pop()
    assert "< 0.05" not in render(document)


@pytest.mark.parametrize(("width", "omitted"), [(200, []), (108, ["GC"]), (80, ["%", "GFLOP/s", "GC"])])
def test_a_narrow_terminal_omits_the_same_columns_of_all_configurations(
    width: int, omitted: list[str], document: LayersDocument
) -> None:
    text = render(document, "table", width=width)
    assert max(map(len, text.splitlines())) <= width
    header = text.split("\n\n")[1].splitlines()[0].split()
    assert [title for title in ("%", "GFLOP/s", "GC") if title not in header] == omitted
    note = f"omitted, because the line is too short: {', '.join(omitted)};"
    assert (note in " ".join(text.split())) == bool(omitted)
