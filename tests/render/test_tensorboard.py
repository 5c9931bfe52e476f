"""TensorBoard event files, read back with TensorBoard's own reader."""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import msgspec
import pytest

from polybench.errors import BadInput
from polybench.render.tensorboard import check_tensorboard, write
from polybench.schema.resources import Memory
from polybench.schema.result import StepTimes
from tests.factories import measured, study, trainings, unmeasured
from tests.render.malicious_inputs import malicious_study

pytest.importorskip("tensorboard")

REPOSITORY = Path(__file__).parents[2]
START = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC).timestamp()
Curve = list[tuple[int, float, float]]


def read(path: Path) -> dict[str, Curve]:
    """Return step, seconds since the start of the study and value of all points, by tag."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New

    reader = PyRecordReader_New(str(path))
    curves: dict[str, Curve] = defaultdict(list)
    versions = []
    while True:
        try:
            reader.GetNext()  # verifies checksums
        except Exception:  # end of file
            break
        event = Event.FromString(reader.record())
        versions += [event.file_version] if event.file_version else []
        for value in event.summary.value:
            curves[value.tag].append((event.step, event.wall_time - START, value.simple_value))
    assert versions == ["brain.Event:2"]
    return dict(curves)


def test_each_configuration_with_times_is_a_run(tmp_path: Path) -> None:
    configurations = measured("torch/cpu", 0.01), measured("torch+compile@old/cpu#2", 0.02)
    document = study(*configurations, unmeasured("tf/cpu", "failed", "crashed"))
    files = write(document, tmp_path)
    runs = [file.parent.relative_to(tmp_path).as_posix() for file in files]
    assert runs == ["20250101-000000-abcd/torch_cpu", "20250101-000000-abcd/torch+compile@old_cpu#2"]
    assert write(document, tmp_path) == files
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == sorted(files)


def test_every_step_time_is_a_point_at_its_time(tmp_path: Path) -> None:
    configuration = measured("torch/cpu", 0.01, step_times=StepTimes("block", 5, [[[0.1, 0.2]], [[0.5]]]))
    (file,) = write(study(configuration), tmp_path)
    curves = read(file)
    assert curves["steps_per_second"] == [
        (5, pytest.approx(0.5, abs=1e-5), pytest.approx(10)),
        (10, pytest.approx(1.5, abs=1e-5), pytest.approx(5)),
        (15, pytest.approx(4.0, abs=1e-5), pytest.approx(2)),
    ]
    assert [value for _, _, value in curves["loss"]] == pytest.approx(configuration.losses)


def test_trainings_have_losses_and_accuracies_by_epoch(tmp_path: Path) -> None:
    configuration = measured("torch/cpu", 0.01, trainings=trainings(0.5, 0.6), memory=Memory(peak_rss_bytes=1 << 20))
    (file,) = write(study(configuration), tmp_path)
    curves = read(file)
    for training in configuration.trainings:
        seed = f"training/seed {training.seed}"
        accuracies = [epoch.accuracy for epoch in training.epochs]
        assert [value for _, _, value in curves[f"{seed}/accuracy"]] == pytest.approx(accuracies)
        assert [step for step, _, _ in curves[f"{seed}/loss"]] == [1, 2]
        _, seconds, _ = curves[f"{seed}/steps_per_second"][-1]
        assert seconds == pytest.approx(sum(epoch.seconds for epoch in training.epochs), abs=1e-5)
    assert curves["memory/peak_rss_bytes"] == [(0, 0.0, 1 << 20)]


def test_malicious_names_stay_inside_the_folder(tmp_path: Path) -> None:
    document = msgspec.structs.replace(malicious_study(), created="2025-01-01T00:00:00+00:00", id="../../out")
    document.results[0].configuration = "../.."
    folder = tmp_path / "runs"
    for file in write(document, folder):
        assert file.parent.parent.parent == folder
        assert file.resolve().is_relative_to(folder.resolve())


def test_problems_are_reported_before_measuring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_tensorboard(tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="cannot write to --tensorboard"):
        check_tensorboard(tmp_path / "file")
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.record_writer", None)
    monkeypatch.delattr("tensorboard.summary.writer.record_writer")
    with pytest.raises(BadInput, match=r"pip install 'polybench-dl\[tensorboard\]'"):
        check_tensorboard(tmp_path / "new")


def test_export_imports_no_framework(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from polybench.render.tensorboard import write\n"
        "from tests.factories import measured, study\n"
        f"print(write(study(measured('torch/cpu', 0.01)), Path({str(tmp_path)!r})))\n"
        "print(sorted({'tensorflow', 'torch', 'jax'} & sys.modules.keys()))"
    )
    command = [sys.executable, "-c", script]
    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert "tfevents" in run.stdout
    assert run.stdout.endswith("\n[]\n")
