"""The paragraph for papers about how a study was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from polybench.render.methods import methods_text
from polybench.schema.parity import ParityCheck, PrecisionResult
from polybench.schema.study import from_json
from tests.commands import printed
from tests.factories import FLUX_DEVIATIONS, measured, study, unmeasured
from tests.golden import FILE
from tests.log_of import log_of


def test_methods_name_workload_frameworks_runs_check_and_statistics() -> None:
    checked = PrecisionResult(1e-12, 1e-11, 1e-12, tolerance={"loss": 1e-9, "gradient": 1e-9})
    flux = measured(
        "flux/cpu",
        0.02,
        versions={"julia": "1.10.8", "flux": "0.16.10"},
        parity=ParityCheck("pass", known_deviations=FLUX_DEVIATIONS, float64=checked),
    )
    tf = measured("tf/cpu", 0.01, versions={"tensorflow": "2.21.0", "keras": "3.15.1"})
    torch = measured("torch/cpu", 0.0165, versions={"torch": "2.13.0", "environment": {}})
    assert methods_text(study(flux, torch, tf, unmeasured("jax/cpu", "failed", "crashed"))) == (
        "We measured one training step of lenet on synthetic images (62,006 parameters; batch 128; float32;"
        " 2 threads; malloc retain) in Flux 0.16.10 (Julia 1.10.8), PyTorch 2.13.0 and TensorFlow 2.21.0 with polybench"
        " 0.1.0 on 2 cores of Some."
        " Each configuration ran in 3 processes of its own, one at a time, in 2 rounds of random order, interleaved"
        " with those of the others, of 3 steps each."
        " Before timing, losses, gradients and weights agreed with a float64 reference to 1e-9, except for documented"
        " rules (max-pool gradient goes to the first value within 3.5e-4 of the maximum)."
        " The speed-up is the ratio of mean step times, each the mean over processes; intervals are Student's t"
        " over processes (n = 3, 95 %), those of speed-ups over pairs that ran side by side. An engine is called"
        " faster only if Holm's correction for the number of comparisons allows it. The intervals do not contain"
        " differences between repetitions of the study on other days."
    )


def test_methods_of_one_process_and_of_nothing() -> None:
    text = methods_text(study(measured("torch/cpu", 0.01, processes=1, parity=ParityCheck("skipped"))))
    assert "were not compared with a reference. With a single process" in text
    assert methods_text(study(unmeasured("tf/cpu", "failed", "crashed"))) == "Nothing was measured."


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return the path of the log of the example study."""
    path = tmp_path / "study.jsonl"
    path.write_bytes(log_of(from_json(FILE.read_bytes())))
    return path


def test_show_prints_the_methods_of_a_study(log: Path) -> None:
    assert printed("show", log, "--methods").startswith("We measured one training step of lenet on")


def test_the_ending_of_the_output_chooses_the_format(log: Path, tmp_path: Path) -> None:
    for suffix, beginning in {
        "tex": r"\begin{table}",
        "csv": "study,",
        "json": "{",
        "md": "lenet",
        "txt": "lenet",
    }.items():
        output = tmp_path / f"table.{suffix}"
        printed("show", log, "-o", output)
        assert output.read_text().startswith(beginning)
    assert "|" in (tmp_path / "table.md").read_text()
    printed("show", log, "--format", "csv", "-o", tmp_path / "table.md")
    assert (tmp_path / "table.md").read_text().startswith("study,")
    printed("show", log, "--format", "table", "-o", tmp_path / "table.md")
    assert "|" not in (tmp_path / "table.md").read_text()
