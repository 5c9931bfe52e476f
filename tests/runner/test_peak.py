"""`polybench peak` in real processes: peaks are found, cached and used."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

import polybench
from polybench.cli import app
from polybench.cli.output import measured_exit_code
from polybench.errors import BadInput
from polybench.experiments import peak
from polybench.experiments.peak import run_peak
from polybench.machine import interrupts
from polybench.runner.progress import NullProgress
from polybench.schema import measurements as peak_document
from polybench.schema import options
from polybench.schema.measurements import PeakDocument
from polybench.schema.options import Study
from polybench.storage.store import Store
from tests.commands import printed, printed_json, refused
from tests.runner.studies import RecordingProgress

FAST: dict[str, Any] = {"devices": ("cpu",), "batch_size": 8, "threads": 1, "timeout": 240.0}


@pytest.fixture(autouse=True)
def small_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use products of 64 and 512, which take the fake engine equally long: the peak is 700 GFLOP/s."""
    monkeypatch.setitem(peak.MATRIX_SIZES, "cpu", (64, 512))
    monkeypatch.setattr(peak, "last_level_cache_bytes", lambda threads: 1 << 16)
    monkeypatch.setattr(peak_document, "MAX_DRIFT", math.inf)  # other tests run at the same time


def measured(*engines: str, remeasure: bool = False, **fields: Any) -> PeakDocument:
    return run_peak(Study(engines=engines, **(FAST | fields)), NullProgress(), remeasure=remeasure).document


def test_peaks_are_cached_and_later_studies_have_their_fraction_of_the_peak() -> None:
    document = measured("fake+slow", "fake", "faulty+unavailable")
    peaks = {peak.kind: peak for peak in document.peaks}
    assert set(peaks) == {"gemm", "convolution", "memory_bandwidth"}
    product = peaks["gemm"]
    assert product.engine == "fake"
    assert product.shape.startswith("512x512x512, ")
    assert product.ci95 is not None
    assert product.ci95[0] <= product.value <= product.ci95[1]
    assert peaks["convolution"].shape.startswith("conv1: 5x5 3->16 on 32x32, batch 8, ")
    assert peaks["memory_bandwidth"].engine == "numpy"
    assert [one.status for one in document.configurations] == ["ok", "ok", "unavailable"]

    assert measured("fake").peaks == document.peaks  # from the cache
    remeasured = measured("fake", remeasure=True)
    assert remeasured.peaks != document.peaks
    (new,) = (peak for peak in remeasured.peaks if peak.kind == "gemm")

    fast: dict[str, Any] = {
        "data": "synthetic",
        "processes": 1,
        "rounds_per_process": 2,
        "steps_per_round": 5,
        "batch_size": 8,
    }
    compared = polybench.compare(engines=["fake"], devices=["cpu"], threads=1, metrics=False, **fast)
    comparison = compared.document.results[0].peak
    assert comparison is not None
    assert comparison.flops_per_second == new.value
    assert compared.rows()[0]["pct_of_peak"] == comparison.fraction
    layers = polybench.layers(engines=["fake"], devices=["cpu"], threads=1, **fast)
    forward = next(row for row in layers.rows() if row["layer"] == "dense1")
    assert forward["fraction_of_peak"] == pytest.approx(forward["flops_per_second"] / new.value)
    text = layers.to_markdown()
    assert "% of peak" in text
    assert "fake on cpu in fp32; polybench peak, " in text


def cache_file() -> Path:
    (path,) = (Path(os.environ["XDG_CACHE_HOME"]) / "polybench" / "peaks").iterdir()
    return path


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [('"fake": "1"', '"fake": "0"', "re-measured: fake was 0, now 1"), ('"numpy": "', '"numpy": "0', "NumPy was 0")],
)
def test_peaks_of_other_versions_are_remeasured(old: str, new: str, change: str) -> None:
    first = measured("fake", "fake+slow")
    text = cache_file().read_text()
    assert old in text
    cache_file().write_text(text.replace(old, new))
    remeasured = run_peak(Study(engines=("fake", "fake+slow"), **FAST), progress := RecordingProgress()).document
    (warning,) = [text for text in progress.warnings if "outdated" in text]
    assert change in warning
    assert remeasured.peaks != first.peaks
    # They replace the old peaks in the cache.
    cached = run_peak(Study(engines=("fake",), **FAST), progress := RecordingProgress()).document
    assert cached.peaks == remeasured.peaks
    assert progress.warnings == []


def test_versions_of_engines_that_reached_a_peak_are_checked() -> None:
    """Only `fake+slow` is requested, but `fake` reached the peak."""
    measured("fake", "fake+slow")
    document = msgspec.json.decode(cache_file().read_bytes(), type=PeakDocument)
    fast = next(one for one in document.configurations if one.configuration == "fake/cpu")
    fast.versions["fake"] = "0"
    cache_file().write_bytes(msgspec.json.encode(document))
    run_peak(Study(engines=("fake+slow",), **FAST), progress := RecordingProgress())
    assert any("fake was 0, now 1" in text for text in progress.warnings)


def test_an_engine_that_is_still_unavailable_does_not_outdate_the_cache() -> None:
    first = measured("fake", "faulty+unavailable")
    run_peak(Study(engines=("fake", "faulty+unavailable"), **FAST), progress := RecordingProgress())
    assert progress.warnings == []
    assert measured("fake").peaks == first.peaks


def test_cached_peaks_are_those_of_all_requested_engines_and_of_their_batch() -> None:
    first, both = measured("fake"), measured("fake", "fake+slow")
    assert [one.configuration for one in both.configurations] == ["fake/cpu", "fake+slow/cpu"]
    assert both.peaks != first.peaks
    assert measured("fake+slow").peaks == both.peaks
    assert measured("fake", batch_size=4).batch_size == 4


@pytest.fixture
def signals() -> None:
    """Restore the handler of Ctrl-C, which the process that started the tests may ignore."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class CtrlC(RecordingProgress):
    """Interrupts at every stage whose name contains this text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def on_stage(self, text: str) -> None:
        if self.text in text:
            os.kill(os.getpid(), signal.SIGINT)


def interrupted(at: str, **fields: Any) -> PeakDocument:
    study = Study(engines=("fake",), **(FAST | fields))
    with interrupts.defer_signals():
        document = run_peak(study, CtrlC(at)).document
    assert measured_exit_code(document) == 130
    assert not list((Path(os.environ["XDG_CACHE_HOME"]) / "polybench").glob("scratch-*"))
    return document


@pytest.mark.usefixtures("signals")
def test_ctrl_c_returns_finished_rounds_and_caches_nothing() -> None:
    document = interrupted("round 3 of")
    assert {one.kind for one in document.peaks} == {"gemm", "convolution", "memory_bandwidth"}
    assert all(one.drift is not None and one.ci95 is None for one in document.peaks)  # of two rounds
    assert "interrupted" in document.warnings[0]
    assert not (Path(os.environ["XDG_CACHE_HOME"]) / "polybench" / "peaks").exists()


@pytest.mark.usefixtures("signals")
def test_ctrl_c_before_any_measurement_returns_no_peaks() -> None:
    assert interrupted("starting fake").peaks == []


@pytest.mark.usefixtures("signals")
def test_ctrl_c_twice_returns_the_peaks_of_the_previous_device() -> None:
    class Second(CtrlC):
        """Interrupts twice when the second device starts."""

        devices = 0

        def on_stage(self, text: str) -> None:
            self.devices += self.text in text
            if self.devices == 2:
                super().on_stage(text)
                super().on_stage(text)

    with interrupts.defer_signals():
        study = Study(engines=("fake",), **(FAST | {"devices": ("cpu", "cuda")}))
        document = run_peak(study, Second("preparing data")).document
    assert {one.device for one in document.peaks} == {"cpu"}
    assert [(one.configuration, one.status) for one in document.configurations] == [
        ("fake/cpu", "ok"), ("fake/cuda", "interrupted"),
    ]  # fmt: skip
    assert measured_exit_code(document) == 130
    assert measured("fake").peaks == document.peaks  # from the cache


def test_peaks_from_the_command_line_and_from_python() -> None:
    command = ["peak", "--engines", "fake", "--devices", "cpu", "--threads", "1", "-q"]
    result = CliRunner().invoke(app, [*command, "--batch-size", "8", "--format", "json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["schema"] == "polybench.peak/2"
    assert {one["kind"]: one["unit"] for one in document["peaks"]} == {
        "gemm": "FLOP/s", "convolution": "FLOP/s", "memory_bandwidth": "B/s",
    }  # fmt: skip
    result_from_python = polybench.peak(engines="fake", devices="cpu", threads=1, batch_size=8)
    assert json.loads(json.dumps(result_from_python.rows())) == document["peaks"]
    assert len(result_from_python.to_pandas()) == 3
    assert "512x512x512" in str(result_from_python)
    assert "| gemm" in result_from_python._repr_markdown_()


def test_peaks_are_saved_listed_shown_plotted_and_resumed(own_folders: Path, tmp_path: Path) -> None:
    store = Store(own_folders / "results")
    command = ["peak", "--engines", "fake", "--devices", "cpu", "--threads", "1", "--batch-size", "8", "-q"]
    document = printed_json(*command, "--anonymous")
    (log,) = store.folder.glob("peak-*.jsonl")
    assert socket.gethostname() not in log.read_text()
    assert printed_json("show", "peak-last") == document
    assert [(row["id"], row["kind"], row["resumable"]) for row in printed_json("list")] == [(log.stem, "peak", False)]
    assert "peak of lenet" in printed("list")
    printed("plot", "peak-last", "-o", tmp_path / "peak.html")
    assert "Peaks" in (tmp_path / "peak.html").read_text()
    assert "is a peak, not a study" in refused("diff", log.stem, "last")
    again = printed_json(*command)  # from the cache, which has the name of the machine
    assert (again["peaks"], again["host"]["hostname"]) == (document["peaks"], socket.gethostname())
    assert [*store.folder.glob("*.jsonl")] == [log]
    log.write_bytes(log.read_bytes().rpartition(b'{"event":"end"')[0])  # as if killed
    assert printed_json("resume", "last", "-q", "--format", "json")["peaks"] == document["peaks"]


def test_a_quick_measurement_stops_early_and_is_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "QUICK_BUDGET", 1e-3)
    command = ["peak", "--engines", "fake", "--devices", "cpu", "--threads", "1", "-q", "--quick"]
    document = printed_json(*command)
    assert {one["ci95"] for one in document["peaks"]} == {None}  # a single round
    assert document["warnings"][0].startswith("the budget of ")
    complete = polybench.peak(engines="fake", devices="cpu", threads=1)
    assert all(one["ci95"] for one in complete.rows())
    assert printed_json(*command)["peaks"] == json.loads(complete.to_json())["peaks"]  # from the cache


def test_a_quick_measurement_with_all_rounds_is_not_cached_either() -> None:
    document = run_peak(Study(engines=("fake",), **FAST), NullProgress(), quick=True).document
    assert all(one.ci95 for one in document.peaks)
    assert not (Path(os.environ["XDG_CACHE_HOME"]) / "polybench" / "peaks").exists()


def test_an_unavailable_engine_is_reported() -> None:
    result = CliRunner().invoke(app, ["peak", "--engines", "faulty+unavailable", "--devices", "cpu", "-q"])
    assert result.exit_code == 4
    assert "faulty+unavailable/cpu: unavailable: the faulty framework is not installed" in result.stdout


def test_a_triad_that_exceeds_memory_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peak, "last_level_cache_bytes", lambda threads: 1 << 50)
    document = measured("fake")
    assert [one.kind for one in document.peaks] == ["gemm", "convolution"]
    assert any("no triad" in text for text in document.warnings)


@pytest.mark.parametrize(("more", "fits"), [(0, True), (-2, False)])
def test_the_three_arrays_of_a_triad_may_take_half_of_the_free_memory(
    more: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    array, warnings = peak._CACHE_MULTIPLE << 16, list[str]()
    monkeypatch.setattr(peak.host, "available_memory", lambda: 2 * 3 * array + more)
    session: Any = SimpleNamespace(plan=SimpleNamespace(workload=SimpleNamespace(threads=1)), warn=warnings.append)
    assert peak._triad_bytes(session) == (array if fits else None)
    assert len(warnings) == (not fits)


@pytest.mark.parametrize(
    ("device", "threads", "sizes"),
    [("cpu", 7, (64, 512)), ("cpu", 8, (64, 512, 4096)), ("cuda", 8, (2048, 4096, 8192))],
)
def test_a_large_product_needs_eight_threads(device: str, threads: int, sizes: tuple[int, ...]) -> None:
    configuration, workload = SimpleNamespace(device=device), SimpleNamespace(threads=threads)
    plan: Any = SimpleNamespace(configurations=[configuration], workload=workload)
    assert peak._matrix_sizes(plan) == sizes


def test_peaks_in_bf16_are_bad_input() -> None:
    with pytest.raises(BadInput, match="fp32 or tf32"):
        measured("fake", precision="bf16")


def test_peaks_of_a_real_engine_are_plausible() -> None:
    document = measured("torch", "faulty+crash", remeasure=True)
    torch = document.configurations[0]
    if torch.status == "unavailable":
        pytest.skip(torch.reason or "")
    rates = {one.kind: one.value for one in document.peaks}
    assert all(one.engine in ("torch", "numpy") for one in document.peaks)
    assert 1e9 < rates["gemm"] < 1e12  # with one thread
    assert 1e8 < rates["convolution"] < 1e12
    assert 1e8 < rates["memory_bandwidth"] < 1e12
    assert torch.versions["torch"]
