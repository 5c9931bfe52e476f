"""`polybench layers` with real processes: a planted slow layer is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.core.document.layers import EngineLayers, LayersDocument
from polybench.core.errors import BadInput
from polybench.core.model import Model
from polybench.core.sequence_layers import LSTM, Embedding
from polybench.core.spec import Study
from polybench.data import synthetic
from polybench.engines import ENGINES
from polybench.engines.fake.engine import STEP_SECONDS
from polybench.export.layers_rows import lost_by_part, ordered
from polybench.measuring.layers import run_layers
from polybench.measuring.progress import Silent
from polybench.models.char_lstm import CHAR_LSTM
from polybench.models.imdb import IMDB_BILSTM

FAST: dict[str, Any] = {"data": "synthetic", "devices": ("cpu",), "batch_size": 8, "timeout": 240.0}


@pytest.fixture(autouse=True)
def small_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(synthetic.IMAGES, "train", 1000)


def measured(*engines: str, script: Path | None = None, **fields: Any) -> LayersDocument:
    return run_layers(Study(engines=engines, **(FAST | fields)), Silent(), script=script)


def by_name(document: LayersDocument) -> dict[str, EngineLayers]:
    return {engine.cell: engine for engine in document.engines}


def test_a_slow_layer_is_found(tmp_path: Path) -> None:
    document = measured(
        "fake", "fake+uneven", "fake+unavailable", "fake+crash",
        script=tmp_path / "programs", processes=3, rounds=3, steps=5,
    )  # fmt: skip
    cells = by_name(document)
    assert cells["fake+unavailable/cpu"].status == "unavailable"
    assert cells["fake+crash/cpu"].status == "failed"
    first = ordered(document, "lost")[0]
    assert first == ("dense3", "weight gradient")
    lost = lost_by_part(document)[first]
    assert lost.cell == "fake+uneven/cpu"
    assert lost.seconds == pytest.approx(STEP_SECONDS, rel=0.2)
    program = (tmp_path / "programs" / "layer_pytorch.py").read_text()
    assert "LAYER = nn.Linear(84, 10)" in program
    assert "PART = 'weight gradient'" in program
    for cell in ("fake/cpu", "fake+uneven/cpu"):
        one = cells[cell]
        assert one.samples is not None
        assert [len(process) for process in one.samples.step_seconds] == [3, 3, 3]
        assert one.step_seconds is not None
        assert one.residue_seconds is not None
        total = sum(row.seconds_per_step for row in one.rows) + one.residue_seconds
        assert total == pytest.approx(one.step_seconds)


class Told(Silent):
    """Keeps what is warned of."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        self.warnings.append(message)


@pytest.mark.parametrize(
    ("model", "part", "instead"),
    [
        (
            CHAR_LSTM,
            "weight gradient",
            "there are some for convolutions, dense layers, LSTMs with sigmoid gates, batch norm, pooling"
            " and ReLU",
        ),
        (
            IMDB_BILSTM,
            "weight gradient",
            "of the whole training: polybench compare --model imdb-bilstm --describe FOLDER",
        ),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_why_no_program_is_written_is_said(model: Model, part: str, instead: str, tmp_path: Path) -> None:
    told = Told()
    run_layers(slow_lstm(model, recurrent_activation="hard_sigmoid"), told, script=tmp_path)
    (said,) = (warning for warning in told.warnings if "programs" in warning)
    assert said.startswith(f"no programs: lstm, {part} loses most; ")
    assert said.endswith(instead)
    assert not any(tmp_path.iterdir())


def slow_lstm(model: Model, **options: Any) -> Study:
    """The planted slow layer is the last with weights: here it is an LSTM."""
    before = [layer for layer in model.layers if isinstance(layer, Embedding)]
    features = 128 if before else model.classes
    layers = (*before, LSTM("lstm", features, model.classes, **options))
    return Study(
        engines=("fake", "fake+uneven"),
        model=msgspec.structs.replace(model, layers=layers),
        processes=1, rounds=1, steps=2, parity=False, **FAST,
    )  # fmt: skip


def test_programs_are_written_of_an_lstm(tmp_path: Path) -> None:
    told = Told()
    run_layers(slow_lstm(IMDB_BILSTM), told, script=tmp_path)
    assert not [warning for warning in told.warnings if "programs" in warning]
    assert {file.name for file in tmp_path.iterdir()} == {
        "layer.npz", "lstm_pytorch.py", "lstm_tensorflow.py", "lstm_flux.jl",
    }  # fmt: skip
    program = (tmp_path / "lstm_pytorch.py").read_text()
    assert "PART = 'weight gradient'" in program
    assert "WANTS_DATA_GRADIENT = True" in program
    assert "BIDIRECTIONAL = False" in program


@pytest.mark.slow
def test_real_engines_time_every_layer_that_the_other_does() -> None:
    document = measured("torch", "tf", processes=1, rounds=1, steps=2, parity=False)
    cells = {name: one for name, one in by_name(document).items() if one.status != "unavailable"}
    if "torch/cpu" not in cells or "tf/cpu" not in cells:
        pytest.skip("PyTorch or TensorFlow is not installed")
    torch, tf = cells["torch/cpu"], cells["tf/cpu"]
    assert [(row.layer, row.part) for row in torch.rows] == [(row.layer, row.part) for row in tf.rows]
    for one in (torch, tf):
        assert {row.part for row in one.rows if row.layer == "step"} == {"loss", "update", "call"}
        assert one.residue_seconds is not None
        assert all(row.seconds == [[row.seconds_per_step]] for row in one.rows)


def test_of_a_step_that_is_compiled_as_a_whole_no_layer_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ENGINES["torch"].variants["compile"].whole_step
    compiled = msgspec.structs.replace(ENGINES["fake"].variants["slow"], whole_step=True)
    variants = {**ENGINES["fake"].variants, "slow": compiled}
    monkeypatch.setitem(ENGINES, "fake", msgspec.structs.replace(ENGINES["fake"], variants=variants))
    plain, whole = measured("fake", "fake+slow", processes=1, rounds=1, steps=2).engines
    assert (plain.whole_step, whole.whole_step) == (False, True)
    assert plain.rows
    assert whole.rows == []
    assert whole.step_seconds == pytest.approx(2 * (plain.step_seconds or 0), rel=0.2)


def test_layers_are_timed_with_preloaded_data_in_float32() -> None:
    for fields in ({"input": "pipeline"}, {"precision": "bf16"}):
        with pytest.raises(BadInput, match="layers are timed with"):
            measured("fake", **fields)
