from __future__ import annotations

import pytest

from polybench.core.results import Memory, Parity, Relative, StepSeconds
from polybench.metrics import DEFAULT_COLUMNS, METRICS
from tests.factories import absent, measured


@pytest.mark.parametrize(
    ("metric", "text"),
    [
        ("step_time", "8.55 ms ±2.5%"),
        ("throughput", "14,971"),
        ("epoch_time", "3.33 s"),
        ("speedup", "1.93 (1.93 to 1.93)"),
        ("cold_start", "2.15 s"),
        ("peak_memory", "412 MiB"),
        ("parity", "identical"),
    ],
)
def test_text(metric: str, text: str) -> None:
    assert METRICS[metric].text(measured("tf/cpu", 0.00855)) == text


@pytest.mark.parametrize("metric", [name for name in METRICS if name != "parity"])
def test_nothing_measured_is_empty_not_zero(metric: str) -> None:
    result = absent("tf/cuda", "failed", "crashed")
    assert METRICS[metric].value(result) is None
    assert METRICS[metric].text(result) == ""
    assert METRICS[metric].interval(result) is None


def test_values_are_in_si_units() -> None:
    result = measured("tf/cpu", 0.01)
    assert METRICS["step_time"].value(result) == pytest.approx(0.01, rel=0.001)
    assert METRICS["peak_memory"].value(result) == 412 * 2**20
    assert METRICS["cold_start"].value(result) == pytest.approx(2.15)
    assert METRICS["throughput"].value(result) == pytest.approx(12_800)
    assert METRICS["epoch_time"].value(result) == pytest.approx(3.9)


def test_baseline_is_named() -> None:
    assert METRICS["speedup"].text(measured("torch/cpu", 0.0165)) == "1 (baseline)"
    assert METRICS["speedup"].text(measured("torch/cpu#2", 0.0165)) == "1.00 (1.00 to 1.00)"


def test_no_interval() -> None:
    result = measured(
        "tf/cpu",
        0.01,
        step_seconds=StepSeconds(0.01, 0.01, 0.01, None, None, None, 1, None),
        relative=Relative("torch/cpu", 1.65, None, "within one run"),
    )
    assert METRICS["step_time"].text(result) == "10.0 ms"
    assert METRICS["speedup"].text(result) == "1.65"


def test_no_source() -> None:
    result = measured("tf/cpu", 0.01, memory=Memory(), startup=None)
    assert METRICS["peak_memory"].text(result) == METRICS["cold_start"].text(result) == ""


@pytest.mark.parametrize(
    ("parity", "value", "word"),
    [
        (Parity("pass"), "pass", "identical"),
        (Parity("fail"), "fail", "DIFFERS"),
        (Parity("skipped"), "skipped", "not checked"),
    ],
)
def test_parity(parity: Parity, value: str, word: str) -> None:
    result = measured("tf/cpu", 0.01, parity=parity)
    assert METRICS["parity"].value(result) == value
    assert METRICS["parity"].text(result) == word


def test_table_is_keyed_by_name_and_default_columns_exist() -> None:
    assert all(name == metric.name for name, metric in METRICS.items())
    assert set(DEFAULT_COLUMNS) <= set(METRICS)
    assert list(DEFAULT_COLUMNS) == [name for name in METRICS if name in DEFAULT_COLUMNS]
