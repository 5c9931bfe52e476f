from __future__ import annotations

from polybench.render.study_table import build_table
from polybench.schema.metrics import Metric, select_metrics
from polybench.schema.parity import ParityCheck
from tests.factories import measured, study, typical_study, unmeasured


def test_rows_are_grouped_by_status(columns: list[Metric]) -> None:
    table = build_table(typical_study(), columns)
    assert [row[0] for row in table.ranked] == ["torch/cpu", "tf/cpu", "flux/cpu"]
    assert [row[0] for row in table.unranked] == ["tf+keras_fit/cpu"]
    assert [configuration for configuration, _ in table.not_measured] == ["torch/cuda", "tf/cuda"]


def test_every_row_has_the_configuration_and_all_columns(columns: list[Metric]) -> None:
    table = build_table(typical_study(), columns)
    lengths = {len(row) for row in [*table.ranked, *table.unranked, table.column_titles, table.alignment]}
    assert lengths == {len(columns) + 1}
    assert table.alignment[0] == table.alignment[-1] == "left"
    assert set(table.alignment[1:-1]) == {"right"}


def test_row_that_fails_the_parity_check_keeps_its_times(columns: list[Metric]) -> None:
    failed = measured("tf/cpu", 0.01, status="failed", parity=ParityCheck("fail"), vs_baseline=None)
    table = build_table(study(failed), columns)
    assert table.ranked == []
    assert table.unranked[0][1].startswith("10.0 ms")


def test_status_text_contains_reason_hint_and_log(columns: list[Metric]) -> None:
    status = dict(build_table(typical_study(), columns).not_measured)
    assert status["torch/cuda"] == (
        "unavailable: no CUDA device is visible to PyTorch (hint: install an NVIDIA driver, then run polybench doctor)"
    )
    assert status["tf/cuda"] == "failed: killed by signal 9 (SIGKILL) out of memory? (log: /tmp/polybench/tf.log)"
    assert build_table(study(unmeasured("tf/cpu", "interrupted", None)), columns).not_measured == [
        ("tf/cpu", "interrupted")
    ]


def test_configuration_that_failed_after_some_rounds_is_not_ranked(columns: list[Metric]) -> None:
    table = build_table(study(measured("tf/cpu", 0.01, status="failed", reason="timed out")), columns)
    assert table.ranked == table.unranked == []
    assert table.not_measured == [("tf/cpu", "failed: timed out")]


def test_empty_chosen_columns_are_explained() -> None:
    chosen = select_metrics(["step_time", "cost_per_epoch", "relative_cost", "power"])
    *_, cost, power = build_table(study(measured("torch/cpu", 0.01)), chosen).footnotes
    assert cost == "cost_per_epoch, relative_cost: empty: needs `--price`, for example `--price cpu=0.24`"
    assert power == "power: empty: not measured on this machine; see `polybench doctor`"
    assert not any("empty" in note for note in build_table(typical_study(), select_metrics(["parity"])).footnotes)
    assert build_table(study(unmeasured("torch/cpu", "failed", "crashed")), chosen).footnotes == []
