"""`polybench layers` with real processes finds a layer with an injected slowdown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.engines import ENGINES
from polybench.engines.fake.engine import STEP_SECONDS
from polybench.errors import BadInput
from polybench.experiments.layers import run_layers
from polybench.networks.keras_examples import IMDB_BILSTM
from polybench.networks.layers import Embedding, MeanOverTime
from polybench.render.layers import slowdown_by_operation, sort_operations
from polybench.runner.progress import NullProgress
from polybench.schema.measurements import ConfigurationLayers, LayersDocument
from polybench.schema.options import Study
from polybench.storage.store import Store
from tests.commands import printed_json, refused
from tests.runner.studies import RecordingProgress, interrupt_at

FAST: dict[str, Any] = {"data": "synthetic", "devices": ("cpu",), "batch_size": 8, "timeout": 240.0}


def measured(*engines: str, export_folder: Path | None = None, **fields: Any) -> LayersDocument:
    return run_layers(Study(engines=engines, **(FAST | fields)), NullProgress(), export_folder=export_folder).document


def by_name(document: LayersDocument) -> dict[str, ConfigurationLayers]:
    return {layers.configuration: layers for layers in document.configurations}


def test_a_slow_layer_is_found(tmp_path: Path) -> None:
    document = measured(
        "fake", "faulty+slow_last_layer", "faulty+unavailable", "faulty+crash",
        export_folder=tmp_path / "programs", processes=3, rounds_per_process=3, steps_per_round=5,
    )  # fmt: skip
    configurations = by_name(document)
    assert configurations["faulty+unavailable/cpu"].status == "unavailable"
    assert configurations["faulty+crash/cpu"].status == "failed"
    first = sort_operations(document, "slowdown")[0]
    assert first == ("dense3", "weight gradient")
    slowdown = slowdown_by_operation(document)[first]
    assert slowdown.configuration == "faulty+slow_last_layer/cpu"
    assert slowdown.seconds == pytest.approx(STEP_SECONDS, rel=0.2)
    script = (tmp_path / "programs" / "layer_torch.py").read_text()
    assert "nn.Linear(84, 10)" in script
    assert '"weight gradient"' in script
    for configuration in ("fake/cpu", "faulty+slow_last_layer/cpu"):
        layers = configurations[configuration]
        assert layers.step_times is not None
        assert [len(process) for process in layers.step_times.values] == [3, 3, 3]
        assert layers.step_seconds is not None
        assert layers.unattributed_seconds is not None
        total = sum(row.seconds_per_step for row in layers.rows) + layers.unattributed_seconds
        assert total == pytest.approx(layers.step_seconds)


def test_a_warning_explains_why_no_program_is_written(tmp_path: Path) -> None:
    layers = (Embedding("embedding", 20, IMDB_BILSTM.classes), MeanOverTime())
    study = Study(
        engines=("fake", "faulty+slow_last_layer"),
        model=msgspec.structs.replace(IMDB_BILSTM, layers=layers, published_parameters=None),
        processes=1, rounds_per_process=1, steps_per_round=2, parity=False, **FAST,
    )  # fmt: skip
    progress = RecordingProgress()
    run_layers(study, progress, export_folder=tmp_path)
    (warning,) = (text for text in progress.warnings if "programs" in text)
    assert warning.startswith(
        "no programs for embedding, weight gradient, the largest slowdown: embeddings, dropout, flatten layers and sums"
        " have none; "
    )
    assert warning.endswith("for the whole training, run polybench export --train --model imdb-bilstm -o FOLDER")
    assert not any(tmp_path.iterdir())


@pytest.mark.wide  # engines/test_operations.py has the operations of each engine
def test_real_engines_time_the_same_layers() -> None:
    document = measured("torch", "tf", processes=1, rounds_per_process=1, steps_per_round=2, parity=False)
    configurations = {name: layers for name, layers in by_name(document).items() if layers.status != "unavailable"}
    if "torch/cpu" not in configurations or "tf/cpu" not in configurations:
        pytest.skip("PyTorch or TensorFlow is not installed")
    torch, tf = configurations["torch/cpu"], configurations["tf/cpu"]
    assert [(row.layer, row.operation) for row in torch.rows] == [(row.layer, row.operation) for row in tf.rows]
    for layers in (torch, tf):
        assert {row.operation for row in layers.rows if row.layer == "step"} == {"loss", "update", "call"}
        assert layers.unattributed_seconds is not None
        assert all(row.seconds == [[row.seconds_per_step]] for row in layers.rows)


def test_layers_of_a_step_that_is_compiled_as_a_whole_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ENGINES["torch"].variants["compile"].compiled_as_whole
    compiled = msgspec.structs.replace(ENGINES["fake"].variants["slow"], compiled_as_whole=True)
    variants = {**ENGINES["fake"].variants, "slow": compiled}
    monkeypatch.setitem(ENGINES, "fake", msgspec.structs.replace(ENGINES["fake"], variants=variants))
    plain, whole = measured("fake", "fake+slow", processes=1, rounds_per_process=1, steps_per_round=2).configurations
    assert (plain.compiled_as_whole, whole.compiled_as_whole) == (False, True)
    assert plain.rows
    assert whole.rows == []
    assert whole.step_seconds == pytest.approx(2 * (plain.step_seconds or 0), rel=0.2)


def test_layers_cannot_be_timed_with_a_pipeline() -> None:
    with pytest.raises(BadInput, match="layers cannot be timed with an input pipeline: use --input preload"):
        measured("fake", input="pipeline")


def test_programs_of_operations_are_refused_in_bf16(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--export writes programs that compute in float32"):
        measured("fake", precision=("fp32", "bf16"), export_folder=tmp_path)


def test_interrupted_layers_are_resumed_by_their_id(own_folders: Path) -> None:
    store = Store(own_folders / "results")
    study = Study(engines=("fake",), parity=False, processes=2, rounds_per_process=1, steps_per_round=2, **FAST)
    stopped = run_layers(study, interrupt_at("process 2 of 2: round 1"), store=store).document
    assert [one.status for one in stopped.configurations] == ["interrupted"]
    assert [row["resumable"] for row in printed_json("list")] == [True]
    assert "which does not have this option" in refused("resume", stopped.id, "--columns", "all")
    finished = printed_json("resume", "last", "--format", "json", "--quiet")
    assert finished["id"] == stopped.id
    assert [len(row["seconds"]) for row in finished["configurations"][0]["rows"]] == [2] * 25
    assert printed_json("show", "layers-last") == finished
    assert "it has finished" in refused("resume", stopped.id)
