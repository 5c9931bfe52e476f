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
        seconds=[[ms / 1e3]],
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


def test_configurations_are_side_by_side(document: LayersDocument) -> None:
    text = render(document, "table", width=200)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "conv2 + relu input gradient 40.0 40.0 2.00 1.50 10.0 20.0 8.00 30.0 flux/cpu" in lines
    assert "max_pool1 input gradient 8.00 8.0 0.000 9.00 18.0" in lines
    assert "sum of operations 68.0 68.0 38.2 76.4" in lines
    assert "unattributed 32.0 32.0 11.8 23.6" in lines
    assert "whole step 100 100.0 50.0 100.0" in lines


def test_notes_explain_the_table(document: LayersDocument) -> None:
    text = " ".join(render(document, "table").split())
    assert "torch/cpu: unattributed 11.8 (11.7 to 11.9) ms, 23.6% of a step" in text
    assert "intervals: 95% confidence, across process runs" in text
    assert "slowdown: time beyond that of torch/cpu, in the slowest configuration" in text
    assert "flux/cpu: garbage collection takes 3.00 ms of a step" in text
    assert "torch+compile/cpu: whole step 40.0 (39.6 to 40.4) ms; no layer times, because" in text
    assert "tf/cpu: unavailable: no TensorFlow (hint: install it)" in text
    assert "the machine was busy" in text


def test_operations_can_be_sorted_by_slowdown(document: LayersDocument) -> None:
    assert sort_operations(document, "slowdown") == [
        ("conv2 + relu", "input gradient"),
        ("conv2 + relu", "forward"),
        ("step", "loss"),
        ("max_pool1", "input gradient"),
    ]
    lines = render(document, sort="slowdown").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("---"))
    assert lines[first + 1].startswith("conv2 + relu       input gradient")


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
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "conv2 + relu input gradient 40.0 40.0 2.00 1.50 10.0 20.0 8.00 50.0 30.0 flux/cpu" in lines
    assert "whole step 100 100.0 50.0 100.0 40.0" in lines
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
    assert not any(word in text for word in ("unattributed", "whole step", "%  "))


def test_a_negative_time_is_below_the_noise(document: LayersDocument) -> None:
    text = render(document)
    loss = next(line for line in text.splitlines() if " loss " in line)
    assert "below noise" in loss
    assert "-" not in loss
    assert "below noise: a difference of two measured times that came out negative" in text
    assert min(record["seconds_per_step"] for record in layer_records(document)) == -4e-6
    document.configurations[0].rows.pop()
    assert "below noise" not in render(document)


@pytest.mark.parametrize(("width", "omitted"), [(200, []), (110, ["GC ms"]), (80, ["%", "GFLOP/s", "GC ms"])])
def test_a_narrow_terminal_omits_the_same_columns_of_all_configurations(
    width: int, omitted: list[str], document: LayersDocument
) -> None:
    text = render(document, "table", width=width)
    assert max(map(len, text.splitlines())) <= width
    header = text.split("\n\n")[1].splitlines()[0].split()
    assert [title for title in ("%", "GFLOP/s", "GC ms") if title.split()[0] not in header] == omitted
    note = f"omitted, because the line is too short: {', '.join(omitted)};"
    assert (note in " ".join(text.split())) == bool(omitted)
