"""`polybench limit` in real processes: the fastest is found, kept, and used."""

from __future__ import annotations

import json
import math
import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

import polybench
from polybench.cli import app
from polybench.commands.outcome import exit_code_of_limit
from polybench.core import interrupts
from polybench.core.document import limit as document_of_limit
from polybench.core.document.limit import LimitDocument
from polybench.core.errors import BadInput
from polybench.core.spec import Study
from polybench.data import synthetic
from polybench.measuring import limit
from polybench.measuring.limit import run_limit
from polybench.measuring.progress import Silent

FAST: dict[str, Any] = {"devices": ("cpu",), "batch_size": 8, "threads": 1, "timeout": 240.0}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product of 512 takes the fake engine as long as one of 64: it does 700 GFLOP/s."""
    monkeypatch.setitem(synthetic.IMAGES, "train", 600)
    monkeypatch.setitem(limit.SIZES, "cpu", (64, 512))
    monkeypatch.setattr(limit, "last_level_bytes", lambda threads: 1 << 16)
    monkeypatch.setattr(document_of_limit, "STEADY", math.inf)  # tests run beside others


def measured(*engines: str, recheck: bool = False, **fields: Any) -> LimitDocument:
    return run_limit(Study(engines=engines, **(FAST | fields)), Silent(), recheck=recheck)


def test_the_fastest_is_kept_and_the_next_study_says_what_it_reaches() -> None:
    document = measured("fake+slow", "fake", "fake+unavailable")
    roofs = {roof.kind: roof for roof in document.roofs}
    assert set(roofs) == {"gemm", "convolution", "triad"}
    product = roofs["gemm"]
    assert product.engine == "fake"
    assert product.shape.startswith("512x512x512, ")
    assert product.interval95 is not None
    assert product.interval95[0] <= product.value <= product.interval95[1]
    assert roofs["convolution"].shape.startswith("conv1: 5x5 3->16 on 32x32, batch 8, ")
    assert roofs["triad"].engine == "numpy"
    assert [engine.status for engine in document.engines] == ["ok", "ok", "unavailable"]

    assert measured("fake").roofs == document.roofs  # kept
    again = measured("fake", recheck=True)
    assert again.roofs != document.roofs
    (new,) = (roof for roof in again.roofs if roof.kind == "gemm")

    fast: dict[str, Any] = {"data": "synthetic", "processes": 1, "rounds": 2, "steps": 5, "batch_size": 8}
    compared = polybench.compare(engines=["fake"], devices=["cpu"], threads=1, metrics=False, **fast)
    roof = compared.document.results[0].roof
    assert roof is not None
    assert roof.flops_per_second == new.value
    assert compared.rows()[0]["roof"] == roof.share
    layers = polybench.layers(engines=["fake"], devices=["cpu"], threads=1, **fast)
    forward = next(row for row in layers.rows() if row["layer"] == "dense1")
    assert forward["roof"] == pytest.approx(forward["flop_per_second"] / new.value)
    text = layers.to_markdown()
    assert "% of roof" in text
    assert "fake on cpu in fp32; polybench limit, " in text


class Told(Silent):
    """Keeps what is warned of."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def kept_file() -> Path:
    (path,) = (Path(os.environ["XDG_CACHE_HOME"]) / "polybench" / "roofs").iterdir()
    return path


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"fake": "1"', '"fake": "0"', "fake/cpu: fake 1, was 0; fake+slow/cpu: fake 1, was 0"),
        ('"numpy": "', '"numpy": "0', "numpy: NumPy "),
    ],
)
def test_roofs_of_other_versions_are_measured_again(old: str, new: str, said: str) -> None:
    first = measured("fake", "fake+slow")
    text = kept_file().read_text()
    assert old in text
    kept_file().write_text(text.replace(old, new))
    again = run_limit(Study(engines=("fake", "fake+slow"), **FAST), told := Told())
    (warning,) = [text for text in told.warnings if "kept" in text]
    assert said in warning
    assert again.roofs != first.roofs
    # They take the place of the old ones, and are believed from now on.
    known = run_limit(Study(engines=("fake",), **FAST), told := Told())
    assert known.roofs == again.roofs
    assert told.warnings == []


def test_what_set_a_roof_is_looked_at_too() -> None:
    """Only `fake+slow` is asked for, but `fake` set the roof."""
    measured("fake", "fake+slow")
    document = msgspec.json.decode(kept_file().read_bytes(), type=LimitDocument)
    fast = next(engine for engine in document.engines if engine.cell == "fake/cpu")
    fast.versions["fake"] = "0"
    kept_file().write_bytes(msgspec.json.encode(document))
    run_limit(Study(engines=("fake+slow",), **FAST), told := Told())
    assert any("fake/cpu: fake 1, was 0" in text for text in told.warnings)


def test_what_was_missing_and_still_is_changes_nothing() -> None:
    first = measured("fake", "fake+unavailable")
    run_limit(Study(engines=("fake", "fake+unavailable"), **FAST), told := Told())
    assert told.warnings == []
    assert measured("fake").roofs == first.roofs


@pytest.fixture
def signals() -> None:
    """Whoever started the tests may have ignored Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class CtrlC(Told):
    """Comes at a stage whose name contains this text, each time that it is named."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def stage(self, text: str) -> None:
        if self.text in text:
            os.kill(os.getpid(), signal.SIGINT)


def interrupted(at: str, **fields: Any) -> LimitDocument:
    study = Study(engines=("fake",), **(FAST | fields))
    with interrupts.deferred():
        document = run_limit(study, CtrlC(at))
    assert exit_code_of_limit(document) == 130
    assert not list((Path(os.environ["XDG_CACHE_HOME"]) / "polybench").glob("scratch-*"))
    return document


@pytest.mark.usefixtures("signals")
def test_ctrl_c_leaves_the_rounds_that_were_finished_and_keeps_nothing() -> None:
    document = interrupted("round 3 of")
    assert {roof.kind for roof in document.roofs} == {"gemm", "convolution", "triad"}
    assert all(
        roof.change is not None and roof.interval95 is None for roof in document.roofs
    )  # of two rounds
    assert "interrupted" in document.warnings[0]
    assert not (Path(os.environ["XDG_CACHE_HOME"]) / "polybench" / "roofs").exists()


@pytest.mark.usefixtures("signals")
def test_ctrl_c_before_anything_was_measured_says_so() -> None:
    assert interrupted("starting fake").roofs == []


@pytest.mark.usefixtures("signals")
def test_ctrl_c_twice_leaves_the_roofs_of_the_device_before() -> None:
    class Second(CtrlC):
        """Comes twice, when the other device's turn begins."""

        seen = 0

        def stage(self, text: str) -> None:
            self.seen += self.text in text
            if self.seen == 2:
                super().stage(text)
                super().stage(text)

    with interrupts.deferred():
        document = run_limit(
            Study(engines=("fake",), **(FAST | {"devices": ("cpu", "cuda")})), Second("preparing data")
        )
    assert {roof.device for roof in document.roofs} == {"cpu"}
    assert [(engine.cell, engine.status) for engine in document.engines] == [
        ("fake/cpu", "ok"), ("fake/cuda", "interrupted"),
    ]  # fmt: skip
    assert exit_code_of_limit(document) == 130
    assert measured("fake").roofs == document.roofs  # which were kept


def test_from_the_command_line_and_from_python() -> None:
    command = ["limit", "--engines", "fake", "--devices", "cpu", "--threads", "1", "-q"]
    result = CliRunner().invoke(app, [*command, "--batch-size", "8", "--format", "json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["schema"] == "polybench.limit/1"
    assert {roof["kind"]: roof["unit"] for roof in document["roofs"]} == {
        "gemm": "FLOP/s", "convolution": "FLOP/s", "triad": "B/s",
    }  # fmt: skip
    kept = polybench.limit(engines="fake", devices="cpu", threads=1, batch_size=8)
    assert json.loads(json.dumps(kept.rows())) == document["roofs"]
    assert len(kept.to_pandas()) == 3
    assert "512x512x512" in str(kept)
    assert "| gemm" in kept._repr_markdown_()


def test_what_is_not_there_is_said() -> None:
    result = CliRunner().invoke(app, ["limit", "--engines", "fake+unavailable", "--devices", "cpu", "-q"])
    assert result.exit_code == 4
    assert "fake+unavailable/cpu: unavailable: the fake framework is not installed" in result.stdout


def test_a_triad_that_memory_does_not_hold_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit, "last_level_bytes", lambda threads: 1 << 50)
    document = measured("fake")
    assert [roof.kind for roof in document.roofs] == ["gemm", "convolution"]
    assert any("no triad" in text for text in document.warnings)


def test_there_are_no_roofs_of_bf16() -> None:
    with pytest.raises(BadInput, match="fp32 or tf32"):
        measured("fake", precision="bf16")


@pytest.mark.slow
def test_a_real_engine_reaches_less_than_a_machine_could() -> None:
    document = measured("torch", "fake+crash", recheck=True)
    engine = document.engines[0]
    if engine.status == "unavailable":
        pytest.skip(engine.reason or "")
    rates = {roof.kind: roof.value for roof in document.roofs}
    assert all(roof.engine in ("torch", "numpy") for roof in document.roofs)
    assert 1e9 < rates["gemm"] < 1e12  # of one thread
    assert 1e8 < rates["convolution"] < 1e12
    assert 1e8 < rates["triad"] < 1e12
    assert engine.versions["torch"]
