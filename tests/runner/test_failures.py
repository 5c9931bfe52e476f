"""Failures of real studies and processes, and the results that remain."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from _faults import restore_signals

from polybench.cli.output import exit_code
from polybench.data.disk import check_free_space
from polybench.errors import BadInput
from polybench.run import run_study
from polybench.runner.prepare import new_header
from polybench.runner.scratch import scratch_folder
from polybench.schema.metadata import StudyFileMetadata
from polybench.schema.options import Study
from polybench.schema.study import StudyDocument, from_json
from polybench.storage.store import Store
from tests import small_datasets
from tests.commands import FAST as FASTEST
from tests.processes import has_ended, worker_with_log
from tests.runner.studies import FAST, CallbackOnStage, RecordingProgress, run, saved

SHORTEST = [*FASTEST[4:], "--no-parity", "--no-metrics"]
MANY_ROUNDS = ["--rounds-per-process", "100000", "--steps-per-round", "5", "--budget", "1h", "--processes", "3"]
MANY_ROUNDS += ["--wait-idle", "0"]  # other tests use the cores


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_datasets.cifar_folder(tmp_path_factory.mktemp("images"), 100)


def compare(images: Path, results: Path, engines: str, *options: str) -> list[str]:
    """Return the command line of the program."""
    command = [sys.executable, "-m", "polybench", "compare", "--engines", engines, "--data", str(images)]
    return [*command, "--batch-size", "16", "--results", str(results), *options]


@contextlib.contextmanager
def endless_study(images: Path, results: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run the program until its study is in the third round; the study would continue for an hour."""
    with subprocess.Popen(
        compare(images, results, "fake,fake+slow", *MANY_ROUNDS, *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=restore_signals,  # noqa: PLW1509 - no threads here
    ) as process:
        assert process.stderr is not None
        assert any("round 3" in line for line in process.stderr)
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("pause", [0.0, 0.3, pytest.param(1.0, marks=pytest.mark.wide)])
def test_ctrl_c_twice_loses_no_finished_measurements(images: Path, tmp_path: Path, pause: float) -> None:
    with endless_study(images, tmp_path, "--format", "json") as process:
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        time.sleep(pause)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
        assert process.returncode == 130, errors
        assert all(result.is_measured for result in from_json(out.encode()).results)
        assert saved(tmp_path).finished is True
    assert all(map(has_ended, children))


@pytest.mark.parametrize(  # machine/test_interrupts.py has each signal
    "number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.wide)]
)
def test_a_signal_interrupts_the_study(images: Path, tmp_path: Path, number: signal.Signals) -> None:
    with endless_study(images, tmp_path, "--format", "json") as process:
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 130
    document = from_json(out.encode())
    assert document == saved(tmp_path)
    assert [(result.status, result.is_measured) for result in document.results] == [("interrupted", True)] * 2
    assert not [*(Path(os.environ["XDG_CACHE_HOME"]) / "polybench").glob("scratch-*")]


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, *(pytest.param(one, marks=pytest.mark.wide) for one in (signal.SIGINT, signal.SIGHUP))]
)
def test_a_signal_does_not_truncate_printed_results(images: Path, tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        compare(images, tmp_path, "fake,fake+slow", *SHORTEST, "--format", "json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=restore_signals,  # noqa: PLW1509 - no threads here
    ) as process:
        assert process.stdout is not None
        pipe = process.stdout.fileno()
        capacity = fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)
        full = struct.pack("i", capacity)
        while fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)) != full:  # until it blocks on the full pipe
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        time.sleep(0.1)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert from_json(out) == saved(tmp_path)


def test_a_killed_study_is_not_marked_as_finished(tmp_path: Path) -> None:
    listener = CallbackOnStage("process 2 of 2", lambda: documents.append(saved(tmp_path)))
    documents: list[StudyDocument] = []
    result = run("fake", listener=listener, store=Store(tmp_path))
    assert [document.finished for document in documents] == [False]
    assert result.finished is saved(tmp_path).finished is True


def test_a_deleted_results_folder_is_created_again(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    run("fake", listener=CallbackOnStage("round 2", lambda: shutil.rmtree(folder)), store=Store(folder), processes=1)
    assert saved(folder).results[0].is_measured


def test_a_results_folder_that_becomes_a_file_stops_no_study(tmp_path: Path) -> None:
    """The second process starts without a folder for its log, and the result is saved elsewhere."""
    folder, store = tmp_path / "results", Store(tmp_path / "results")

    def replace_folder() -> None:
        shutil.rmtree(folder)
        folder.write_text("a file")

    result = run("fake", listener=CallbackOnStage("round 2", replace_folder), store=store, processes=2)
    assert result.results[0].is_measured
    assert "saved a copy to" in store.failed_saves[result.id]
    Path(store.failed_saves[result.id].rpartition("saved a copy to ")[2]).unlink()
    assert folder.read_text() == "a file"


def test_results_that_cannot_be_saved_are_returned_with_a_warning(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    store = Store(tmp_path)

    def limit_file_size() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))

    try:
        result = run("fake", listener=CallbackOnStage("round 2", limit_file_size), store=store, processes=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert result.results[0].is_measured
    save_error = store.failed_saves[result.id]
    assert "File too large" in save_error
    assert save_error in result.warnings


def test_a_save_that_succeeds_on_retry_leaves_no_warning(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    store, listener = Store(tmp_path), RecordingProgress()

    class FullDisk(RecordingProgress):
        """Limits file sizes between the first process run and the second."""

        def on_stage(self, text: str) -> None:
            if "starting" in text:
                limit = 1000 if "process 1" in text else before[0]
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))

        def on_warning(self, text: str) -> None:
            listener.on_warning(text)

    copies = set(Path(tempfile.gettempdir()).glob("polybench-*.json"))
    try:
        result = run("fake", listener=FullDisk(), store=store, parity=False, metrics=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert any("polybench retries later" in text for text in listener.warnings)
    assert result.warnings == saved(tmp_path).warnings
    assert not any("cannot write to" in text for text in result.warnings)
    assert not store.failed_saves
    assert set(Path(tempfile.gettempdir()).glob("polybench-*.json")) == copies


@pytest.mark.parametrize("options", [[], ["--output", "/dev/full"]])
def test_a_full_output_device_is_an_error_without_a_traceback(images: Path, tmp_path: Path, options: list[str]) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        done = subprocess.run(
            compare(images, tmp_path, "fake", *SHORTEST, *options),
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "No space left" in done.stderr
    assert saved(tmp_path).finished is True


def test_a_closed_standard_error_does_not_end_the_study(images: Path, tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        compare(images, tmp_path, "fake", *SHORTEST),
        stdout=subprocess.PIPE, stderr=write, text=True, timeout=120, check=False,
    )  # fmt: skip
    os.close(write)
    assert done.returncode == 0
    assert "fake/cpu" in done.stdout
    assert saved(tmp_path).finished is True


@pytest.mark.parametrize("redirection", [">&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_a_study_needs_no_standard_streams(redirection: str, images: Path, tmp_path: Path) -> None:
    command = f"{shlex.join(compare(images, tmp_path, 'fake', *SHORTEST))} {redirection}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done
    assert "Error" not in done.stderr
    assert saved(tmp_path).finished is True


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("columns > /dev/full", 1),
        ("--help > /dev/full", 1),
        ("--version > /dev/full", 1),
        ("columns >&-", 0),
        ("columns --format json | true", 0),
        ("show nothing 2> /dev/full", 2),
        ("show nothing 2>&-", 2),
    ],
)
def test_streams_that_cannot_be_written_have_no_traceback(command: str, code: int) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m polybench {command}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done
    assert not done.stdout
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert ("No space left on device" in done.stderr) == (code == 1)


def kill_the_reference() -> None:
    worker_with_log("reference.log").kill()


def test_a_configuration_is_measured_without_a_check_if_the_reference_fails() -> None:
    listener = CallbackOnStage("checking reference/cpu", kill_the_reference)
    fields = {"model": "mnist-mlp", "processes": 1, "rounds_per_process": 1, "parity": True, "batch_size": 8}
    (result,) = run("reference", listener=listener, **fields).results
    assert result.status == "ok"
    assert result.is_measured
    assert result.parity.status == "skipped"
    assert "SIGKILL" in (result.parity.reason or "")
    assert any("reference/cpu is not checked" in text for text in listener.warnings)


def test_a_required_check_fails_if_the_reference_fails() -> None:
    listener = CallbackOnStage("checking reference/cpu", kill_the_reference)
    study = Study(engines=("reference",), **(FAST | {"parity": True, "batch_size": 8}))
    document = run_study(study, listener, store=None, parity_check="only")
    (result,) = document.results
    assert result.status == "failed"
    assert "SIGKILL" in (result.reason or "")
    assert exit_code(document, parity_only=True) == 1


def test_scratch_folders_of_running_studies_are_not_deleted(own_folders: Path) -> None:
    with scratch_folder() as active:
        old = time.time() - 3600
        stale = active.with_name("scratch-abc")
        stale.mkdir()
        for folder in (active, stale):
            os.utime(folder, (old, old))
        with scratch_folder():
            assert active.is_dir()
            assert not stale.exists()


@pytest.mark.parametrize("folder", ["/proc/none", "/dev/null/none"])
def test_an_unwritable_cache_folder_is_bad_input(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", folder)
    with pytest.raises(BadInput, match=r"cannot write to the cache folder .*set XDG_CACHE_HOME"):
        run("fake")


def test_the_hint_for_a_full_disk_names_the_variable_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    hints = {"cache": "set XDG_CACHE_HOME", "tmp": "set TMPDIR", "other": "choose another folder"}
    for name, hint in hints.items():
        with pytest.raises(BadInput, match=hint), check_free_space(tmp_path / name, 1 << 60):
            pass


def test_other_images_in_the_format_of_cifar_are_a_warning(images: Path) -> None:
    study_file = StudyFileMetadata(data_sha256="0" * 64)
    study = Study(engines=("fake",), data=str(images), processes=1, rounds_per_process=1, batch_size=16, parity=False)
    document = run_study(study, listener := RecordingProgress(), store=None, header=new_header(study_file=study_file))
    assert any("is not the official CIFAR-10" in text for text in document.warnings)
    assert document.settings.data_name == "cifar10 (other files)"
    assert any("another SHA-256 than those of the study that is repeated" in text for text in listener.warnings)
