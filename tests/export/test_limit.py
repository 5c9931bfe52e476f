"""The roofs of a machine as text."""

from __future__ import annotations

import csv
import io
import json

import msgspec
import pytest

from polybench.core.document.limit import LimitDocument, LimitEngine, MeasuredRoof
from polybench.export.limit import render
from tests.factories import study


@pytest.fixture
def document() -> LimitDocument:
    told = study()
    common = {
        "device": "cpu",
        "threads": 2,
        "measured": "2025-01-01T00:00:00Z",
        "change": 0.01,
        "others": 0.0,
    }
    return LimitDocument(
        created=told.created,
        polybench=told.polybench,
        argv=["limit"],
        model="lenet",
        batch_size=128,
        threads=2,
        heap="keep",
        host=told.host,
        roofs=[
            MeasuredRoof(
                precision="fp32", kind="gemm", value=1.234e11, unit="FLOP/s", engine="torch",
                shape="2048x2048x2048, forward", interval95=(1.2e11, 1.25e11), **common,
            ),
            MeasuredRoof(
                precision=None, kind="triad", value=1.5e10, unit="B/s", engine="numpy",
                shape="3 arrays of 128 MiB", interval95=None, **common,
            ),
        ],
        engines=[
            LimitEngine(
                cell="torch/cpu", engine="torch", variant=None, device="cpu", status="ok",
                versions={"torch": "2.13.0"},
            ),
            LimitEngine(
                cell="flux/cpu", engine="flux", variant=None, device="cpu", status="unavailable",
                reason="no Julia", remedy="polybench setup flux",
            ),
        ],
        warnings=["the machine was busy"],
    )  # fmt: skip


def test_each_roof_has_a_line(document: LimitDocument) -> None:
    text = render(document, "table")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "Some CPU @ 2.00GHz, 2 threads, heap keep" in lines
    assert "gemm cpu fp32 torch 2048x2048x2048, forward 123 (120 to 125) GFLOP/s" in lines
    assert "triad cpu fp64 numpy 3 arrays of 128 MiB 15.0 GB/s" in lines


def test_what_a_reader_must_know_is_below(document: LimitDocument) -> None:
    text = " ".join(render(document, "table").split())
    assert "fetched before it is written is not counted" in text
    assert "measured on 2025-01-01 with torch 2.13.0; to measure again: --recheck" in text
    assert "flux/cpu: unavailable: no Julia (polybench setup flux)" in text
    assert "the machine was busy" in text
    assert "| gemm" in render(document, "markdown")
    assert "\n- the machine was busy" in render(document, "markdown")


def test_convolutions_are_explained_where_there_are_any(document: LimitDocument) -> None:
    assert "Winograd" not in render(document, "table")
    document.roofs.append(msgspec.structs.replace(document.roofs[0], kind="convolution"))
    text = " ".join(render(document, "table").split())
    assert "of those of lenet, counted as if computed directly, so Winograd's algorithm may be above" in text


def test_programs_get_si_units(document: LimitDocument) -> None:
    product, triad = csv.DictReader(io.StringIO(render(document, "csv")))
    assert (float(product["value"]), product["unit"], float(product["high"])) == (1.234e11, "FLOP/s", 1.25e11)
    assert (triad["precision"], triad["low"]) == ("", "")
    assert json.loads(render(document, "json"))["roofs"][0]["interval95"] == [1.2e11, 1.25e11]


def test_nothing_measured_is_said(document: LimitDocument) -> None:
    document.roofs.clear()
    text = render(document, "table")
    assert "reached" not in text
    assert "flux/cpu: unavailable" in text
