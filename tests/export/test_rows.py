from __future__ import annotations

from polybench.core.document.identity import Parity
from polybench.export.rows import build
from polybench.metrics import metrics_of
from polybench.metrics.base import Metric
from tests.factories import absent, measured, study, typical_study


def test_blocks(columns: list[Metric]) -> None:
    table = build(typical_study(), columns)
    assert [row[0] for row in table.ranked] == ["torch/cpu", "tf/cpu", "flux/cpu"]
    assert [row[0] for row in table.unranked] == ["tf+keras_fit/cpu"]
    assert [cell for cell, _ in table.absent] == ["torch/cuda", "tf/cuda"]


def test_every_row_has_the_cell_and_all_columns(columns: list[Metric]) -> None:
    table = build(typical_study(), columns)
    lengths = {len(row) for row in [*table.ranked, *table.unranked, table.header, table.alignment]}
    assert lengths == {len(columns) + 1}
    assert table.alignment[0] == table.alignment[-1] == "left"
    assert set(table.alignment[1:-1]) == {"right"}


def test_a_failing_row_keeps_its_times(columns: list[Metric]) -> None:
    failed = measured("tf/cpu", 0.01, status="failed", parity=Parity("fail"), relative=None)
    table = build(study(failed), columns)
    assert table.ranked == []
    assert table.unranked[0][1].startswith("10.0 ms")


def test_fate_has_reason_remedy_and_log(columns: list[Metric]) -> None:
    fates = dict(build(typical_study(), columns).absent)
    assert fates["torch/cuda"] == (
        "unavailable: no CUDA device is visible to PyTorch "
        "(remedy: install an NVIDIA driver, then run polybench doctor)"
    )
    assert (
        fates["tf/cuda"] == "failed: killed by signal 9 (SIGKILL) out of memory? (log: /tmp/polybench/tf.log)"
    )
    assert build(study(absent("tf/cpu", "interrupted", None)), columns).absent == [("tf/cpu", "interrupted")]


def test_a_cell_that_failed_after_some_rounds_is_not_ranked(columns: list[Metric]) -> None:
    table = build(study(measured("tf/cpu", 0.01, status="failed", reason="timed out")), columns)
    assert table.ranked == table.unranked == []
    assert table.absent == [("tf/cpu", "failed: timed out")]


def test_a_chosen_column_that_is_empty_says_what_it_needs() -> None:
    chosen = metrics_of(["step_time", "cost", "relative_cost", "power"])
    *_, cost, power = build(study(measured("torch/cpu", 0.01)), chosen).footnotes
    assert cost == "empty: cost, relative_cost: needs `--price`, as in `--price cpu=0.24`"
    assert power == "empty: power: not measured here; see `polybench doctor`"
    assert not any("empty" in note for note in build(typical_study(), metrics_of(["parity"])).footnotes)
    assert build(study(absent("torch/cpu", "failed", "crashed")), chosen).footnotes == []
