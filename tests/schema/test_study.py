"""The saved document of a study: fields of the public interface, JSON in both directions, other versions."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import msgspec
import pytest

from polybench.errors import BadInput
from polybench.schema.documents import DOCUMENT_KINDS, kind_of, read_document
from polybench.schema.encoding import encode
from polybench.schema.study import from_json, to_json
from polybench.storage.anonymize import anonymize
from polybench.storage.store import Store, load_document
from tests.factories import measured, study, typical_study
from tests.figures.documents import full_sweep

INTERFACE = {
    "": "schema id created polybench argv study title published finished settings host interference warnings results",
    "polybench": "version commit",
    "settings": "model parameters dataset data_sha256 weights_sha256 batches_sha256 batch_size optimizer "
    "precision threads seed processes rounds_per_process steps_per_round input loader_workers augment malloc "
    "pinned_cpus epochs baseline prices",
    "host": "hostname os cpu cores threads memory_bytes gpus cpu_governor load_average python",
    "result": "configuration engine variant environment device workload status reason hint log_path warnings "
    "versions step_time items_per_second epoch_seconds startup break_even_steps allocations gc "
    "memory utilization energy cost interference peak parity losses accuracy trainings time_to_accuracy "
    "vs_baseline gpu_speedup step_times",
    "workload": "model dataset batch_size optimizer precision threads input loader_workers augment",
    "step_time": "mean ci95 median min p05 p95 std n",
    "startup": "process_seconds import_seconds build_seconds data_seconds first_step_seconds "
    "second_step_seconds detail",
    "allocations": "native host device",
    "gc": "seconds_per_step full_collections",
    "memory": "peak_rss_bytes rss_after_import_bytes rss_anon_bytes rss_file_bytes step_peak_increase_bytes "
    "device_peak_bytes device_nvml_bytes growth_bytes_per_step",
    "utilization": "cpu_percent cores_used gpu_percent power clocks temperature throttle_reasons",
    "energy": "joules_per_epoch source",
    "parity": "status steps batch_size float64 timed known_deviations tensors",
    "vs_baseline": "baseline speedup ci95 scope inconclusive_reason p_value typical_speedup",
    "step_times": "resolution steps_per_value values",
}


def test_a_document_is_the_same_after_json() -> None:
    original = typical_study()
    text = to_json(original)
    assert from_json(text) == original
    assert to_json(from_json(text)) == text


@pytest.mark.parametrize("place", INTERFACE)
def test_fields_of_the_interface_exist(place: str) -> None:
    document = json.loads(to_json(typical_study()))
    if place in ("polybench", "settings", "host"):
        fields = document[place]
    elif place == "":
        fields = document
    else:
        result = document["results"][0]
        fields = result if place == "result" else result[place]
    assert set(INTERFACE[place].split()) <= set(fields)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_lacks_is_an_error_with_its_location(number: float) -> None:
    result = measured("torch/cpu", 0.01, losses=[2.3, number])
    with pytest.raises(ValueError, match=r"study\.results\[0\]\.losses\[1\] is"):
        to_json(study(result))


def test_a_newer_schema_is_an_error_with_a_fix() -> None:
    text = to_json(typical_study()).replace(b"polybench.study/3", b"polybench.study/99")
    with pytest.raises(msgspec.ValidationError, match=r"polybench\.study/99.*a newer polybench wrote it: pip install"):
        from_json(text)


@pytest.mark.parametrize("kind", [*DOCUMENT_KINDS, "limit"])
def test_files_of_another_version_are_bad_input(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "old.json"
    file.write_text(json.dumps({"schema": f"polybench.{kind}/1", "id": "20250101-000000-abcd"}))
    with pytest.raises(BadInput, match=rf"old\.json: .*polybench\.{kind}/1"):
        load_document(str(file), Store(tmp_path))


@pytest.mark.parametrize("field", ["speedup", "median", "mean"])
def test_zero_is_neither_a_time_nor_a_ratio(field: str) -> None:
    """Found by fuzzing: the code that shows a document divides by these fields."""
    text = re.sub(rf'"{field}":\s*[0-9.e-]+'.encode(), f'"{field}":0'.encode(), to_json(typical_study()), count=1)
    with pytest.raises(msgspec.ValidationError, match=f"Expected `float` >= 1e-.*{field}"):
        from_json(text)


def test_other_json_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError):
        from_json(b"{}")
    with pytest.raises(msgspec.DecodeError):
        from_json(b"not json")


def test_every_kind_has_the_schema_of_its_record() -> None:
    for kind, row in DOCUMENT_KINDS.items():
        schema = next(field.default for field in msgspec.structs.fields(row.type) if field.name == "schema")
        assert schema == f"polybench.{kind}/{3 if kind == 'study' else 2}"
        assert kind_of(schema) == kind
        with pytest.raises(msgspec.ValidationError, match="missing required field"):
            read_document(json.dumps({"schema": schema}).encode())


def test_ranked_configurations_were_measured_and_passed_their_parity_check() -> None:
    by_configuration = {result.configuration: result for result in typical_study().results}
    ranked = [name for name, result in by_configuration.items() if result.is_ranked]
    assert ranked == ["torch/cpu", "tf/cpu", "flux/cpu"]
    assert by_configuration["tf+keras_fit/cpu"].is_measured
    assert not by_configuration["torch/cuda"].is_measured


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("axes", {"batch_size": [1]}),
        ("fastest", [{"configuration": "tf/cpu", "parameters": {"threads": 4}}]),
        ("cheapest", [{"configuration": "torch/cpu", "parameters": {"threads": 3}}]),
        ("curves", []),
    ],
)
def test_the_best_points_of_a_sweep_are_among_its_points(field: str, value: object) -> None:
    """Found by fuzzing: the code that shows a sweep looks them up."""
    document = msgspec.json.decode(encode(full_sweep()))
    assert read_document(msgspec.json.encode(document)) == full_sweep()
    with pytest.raises(msgspec.ValidationError):
        read_document(msgspec.json.encode(document | {field: value}))


def test_an_anonymous_document_keeps_an_id_that_contains_the_host_name() -> None:
    document = typical_study()
    document.host.hostname = "20250101"
    assert anonymize(document).id == document.id
    document.host.hostname = "polybench"
    assert anonymize(document).schema == document.schema
