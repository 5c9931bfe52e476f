from __future__ import annotations

import json
import math
import re

import msgspec
import pytest

from polybench.core.document.study import StudyDocument, from_json, to_json
from tests.factories import measured, study, typical_study

INTERFACE = {
    "": "schema id created polybench argv study settings host warnings results",
    "settings": "model parameters dataset data_sha256 weights_sha256 batches_sha256 batch_size optimizer "
    "precision threads seed processes rounds steps_per_round input epochs baseline prices",
    "host": "hostname os cpu cores threads memory_bytes gpus governor load python noise",
    "result": "cell engine variant device workload status reason remedy log warnings versions step_seconds "
    "samples_per_second epoch_seconds startup break_even allocations gc memory utilization energy cost "
    "parity losses accuracy relative device_speedup samples",
    "workload": "model dataset batch_size optimizer precision threads input",
    "step_seconds": "median mean min p05 p95 std n interval95",
    "startup": "process_seconds import_seconds build_seconds data_seconds first_step_seconds "
    "second_step_seconds detail",
    "allocations": "host device",
    "gc": "seconds_per_step full_sweeps",
    "memory": "peak_rss_bytes baseline_rss_bytes rss_anon_bytes rss_file_bytes step_peak_increase_bytes "
    "device_peak_bytes device_nvml_bytes",
    "utilization": "cpu_percent cores_used gpu_percent power clocks temperature throttle",
    "energy": "joules_per_epoch source",
    "parity": "status steps batch_size algorithm timed deviations tensors",
    "relative": "baseline speedup interval95 scope",
    "samples": "kind steps_per_sample step_seconds",
}


def test_round_trip_both_ways() -> None:
    original = typical_study()
    text = to_json(original)
    assert from_json(text) == original
    assert to_json(from_json(text)) == text


@pytest.mark.parametrize("place", INTERFACE)
def test_keys_of_the_interface_are_there(place: str) -> None:
    document = json.loads(to_json(typical_study()))
    if place in ("settings", "host"):
        part = document[place]
    elif place == "":
        part = document
    else:
        result = document["results"][0]
        part = result if place == "result" else result[place]
    assert set(INTERFACE[place].split()) <= set(part)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_lacks_is_an_error_with_its_place(number: float) -> None:
    result = measured("torch/cpu", 0.01, losses=[2.3, number])
    with pytest.raises(ValueError, match=r"study\.results\[0\]\.losses\[1\] is"):
        to_json(study(result))


def test_another_schema_is_an_error() -> None:
    text = to_json(typical_study()).replace(b"polybench.study/1", b"polybench.study/99")
    with pytest.raises(msgspec.ValidationError, match=r"polybench\.study/99"):
        from_json(text)


@pytest.mark.parametrize("where", ["speedup", "median", "mean"])
def test_no_time_and_no_ratio_of_times_is_zero(where: str) -> None:
    """Found by fuzzing: what shows a document divides by them."""
    text = re.sub(
        rf'"{where}":\s*[0-9.e-]+'.encode(), f'"{where}":0'.encode(), to_json(typical_study()), count=1
    )
    with pytest.raises(msgspec.ValidationError, match=f"Expected `float` > 0.*{where}"):
        from_json(text)


def test_another_document_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError):
        from_json(b"{}")
    with pytest.raises(msgspec.DecodeError):
        from_json(b"not json")


def test_null_stays_null() -> None:
    result = measured("torch/cpu", 0.01, samples_per_second=None)
    again: StudyDocument = from_json(to_json(study(result)))
    assert again.result("torch/cpu").samples_per_second is None


def test_ranked() -> None:
    by_cell = {result.cell: result for result in typical_study().results}
    assert [cell for cell, result in by_cell.items() if result.ranked] == ["torch/cpu", "tf/cpu", "flux/cpu"]
    assert by_cell["tf+keras_fit/cpu"].measured
    assert not by_cell["torch/cuda"].measured
