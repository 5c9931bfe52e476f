"""Peaks of a machine as text."""

from __future__ import annotations

import csv
import io
import json

import msgspec
import pytest

from polybench.render import render
from polybench.schema.measurements import ConfigurationPeaks, PeakDocument, PeakMeasurement
from tests.factories import study


@pytest.fixture
def document() -> PeakDocument:
    template = study()
    common = {
        "device": "cpu",
        "threads": 2,
        "measured_at": "2025-01-01T00:00:00Z",
        "drift": 0.01,
        "cpu_contention": 0.0,
    }
    return PeakDocument(
        created=template.created,
        polybench=template.polybench,
        argv=["peak"],
        model="lenet",
        batch_size=128,
        threads=2,
        malloc="retain",
        host=template.host,
        peaks=[
            PeakMeasurement(
                precision="fp32", kind="gemm", value=1.234e11, unit="FLOP/s", engine="torch",
                shape="2048x2048x2048, forward", ci95=(1.2e11, 1.25e11), **common,
            ),
            PeakMeasurement(
                precision=None, kind="memory_bandwidth", value=1.5e10, unit="B/s", engine="numpy",
                shape="3 arrays of 128 MiB", ci95=None, **common,
            ),
        ],
        configurations=[
            ConfigurationPeaks(
                configuration="torch/cpu", engine="torch", variant=None, device="cpu", status="ok",
                versions={"torch": "2.13.0"},
            ),
            ConfigurationPeaks(
                configuration="flux/cpu", engine="flux", variant=None, device="cpu", status="unavailable",
                reason="no Julia", hint="polybench setup flux",
            ),
        ],
        warnings=["the machine was busy"],
    )  # fmt: skip


def test_each_peak_has_a_line(document: PeakDocument) -> None:
    text = render(document, "table")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "Some CPU @ 2.00GHz, 2 threads, malloc retain" in lines
    assert "gemm cpu fp32 torch 2048x2048x2048, forward 123 (120 to 125) GFLOP/s" in lines
    assert "memory bandwidth cpu fp64 numpy 3 arrays of 128 MiB 15.0 GB/s" in lines


def test_notes_explain_the_table(document: PeakDocument) -> None:
    text = " ".join(render(document, "table").split())
    assert "without the fetch of a cache line before a write" in text
    assert "measured on 2025-01-01 with torch 2.13.0; repeat with --remeasure" in text
    assert "flux/cpu: unavailable: no Julia (hint: polybench setup flux)" in text
    assert "the machine was busy" in text
    assert "| gemm" in render(document, "markdown")
    assert "\n- the machine was busy" in render(document, "markdown")


def test_convolution_note_appears_only_with_a_convolution(document: PeakDocument) -> None:
    assert "Winograd" not in render(document, "table")
    document.peaks.append(msgspec.structs.replace(document.peaks[0], kind="convolution"))
    text = " ".join(render(document, "table").split())
    assert "fastest convolution of lenet; FLOPs assume direct computation, so Winograd's algorithm can" in text


def test_csv_and_json_are_in_si_units(document: PeakDocument) -> None:
    gemm, bandwidth = csv.DictReader(io.StringIO(render(document, "csv")))
    assert (float(gemm["value"]), gemm["unit"], float(gemm["high"])) == (1.234e11, "FLOP/s", 1.25e11)
    assert (bandwidth["precision"], bandwidth["low"]) == ("", "")
    assert json.loads(render(document, "json"))["peaks"][0]["ci95"] == [1.2e11, 1.25e11]


def test_unavailable_configuration_is_listed(document: PeakDocument) -> None:
    document.peaks.clear()
    text = render(document, "table")
    assert "shape" not in text
    assert "flux/cpu: unavailable" in text
