"""Faults that really happen to a study, and what is left of it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from polybench.commands.outcome import exit_code
from polybench.core.document.circumstances import Background
from polybench.core.document.study import StudyDocument, from_json
from polybench.core.errors import BadInput, StrictlyUnavailable
from polybench.core.spec import Study
from polybench.data.disk import room
from polybench.measuring.scratch import prune_logs, scratch_folder
from polybench.measuring.study import new_context, run_study
from polybench.report.saved_studies import Store
from tests import small
from tests.measuring.test_study import FAST, Listener, run, small_data

__all__ = ["small_data"]

OFTEN = ["--rounds", "100000", "--steps", "5", "--budget", "1h", "--processes", "3"]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.cifar_folder(tmp_path_factory.mktemp("images"), 100)


def compare(images: Path, results: Path, engines: str, *options: str) -> list[str]:
    """The program's command line."""
    command = [sys.executable, "-m", "polybench", "compare", "--engines", engines, "--data", str(images)]
    return [*command, "--batch-size", "16", "--results", str(results), *options]


class When(Listener):
    """Does something at the first stage whose name contains `text`."""

    def __init__(self, text: str, act: Callable[[], object]) -> None:
        super().__init__()
        self.text, self.act, self.done = text, act, False

    def stage(self, text: str) -> None:
        super().stage(text)
        if self.text in text and not self.done:
            self.done = True
            self.act()


def _hear_signals() -> None:
    """Where tests run in the background, a shell or nohup has told all its children to ignore these."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def endless_study(images: Path, results: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """The program, whose study is in its third round and would go on for an hour."""
    with subprocess.Popen(
        compare(images, results, "fake,fake+slow", *OFTEN, *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_hear_signals,  # noqa: PLW1509 - no threads here
    ) as process:
        assert process.stderr is not None
        assert any("round 3" in line for line in process.stderr)
        try:
            yield process
        finally:
            process.kill()


def saved(results: Path) -> StudyDocument:
    (path,) = results.glob("*.json")
    return from_json(path.read_bytes())


@pytest.mark.parametrize("pause", [0.0, 0.3, 1.0])
def test_ctrl_c_twice_loses_nothing(images: Path, tmp_path: Path, pause: float) -> None:
    with endless_study(images, tmp_path, "--format", "json") as process:
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        time.sleep(pause)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
        assert process.returncode == 130, errors
        assert all(result.measured for result in from_json(out.encode()).results)
        assert saved(tmp_path).finished is True
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


def test_a_closed_terminal_is_an_interrupt(images: Path, tmp_path: Path) -> None:
    with endless_study(images, tmp_path) as process:
        process.send_signal(signal.SIGHUP)
        process.communicate(timeout=60)
        assert process.returncode == 130
    document = saved(tmp_path)
    assert {result.status for result in document.results} == {"interrupted"}
    assert not [*(Path(os.environ["XDG_CACHE_HOME"]) / "polybench").glob("scratch-*")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_a_result_that_is_being_printed_is_printed_whole(
    images: Path, tmp_path: Path, number: signal.Signals
) -> None:
    once = ["--processes", "1", "--rounds", "1", "--steps", "2", "--no-parity", "--format", "json"]
    with subprocess.Popen(
        compare(images, tmp_path, "fake,fake+slow", *once),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=_hear_signals,  # noqa: PLW1509 - no threads here
    ) as process:
        assert process.stdout is not None
        pipe = process.stdout.fileno()
        room = fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)
        full = struct.pack("i", room)
        while fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)) != full:  # then it waits for who reads
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        time.sleep(0.1)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert from_json(out) == saved(tmp_path)


def test_a_killed_study_does_not_look_finished(tmp_path: Path) -> None:
    listener = When("process 2 of 2", lambda: seen.append(saved(tmp_path)))
    seen: list[StudyDocument] = []
    result = run("fake", listener=listener, store=Store(tmp_path))
    assert [document.finished for document in seen] == [False]
    assert result.finished is saved(tmp_path).finished is True


def test_a_results_folder_that_vanishes_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    run("fake", listener=When("round 2", lambda: shutil.rmtree(folder)), store=Store(folder), processes=1)
    assert saved(folder).results[0].measured


def test_what_cannot_be_saved_is_printed_and_told(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    store = Store(tmp_path)

    def no_more_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))

    try:
        result = run("fake", listener=When("round 2", no_more_room), store=store, processes=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert result.results[0].measured
    why_not = store.unsaved[result.id]
    assert "File too large" in why_not
    assert why_not in result.warnings


def test_of_a_disk_that_has_room_again_nothing_is_left_to_say(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    store, listener = Store(tmp_path), Listener()

    class Full(Listener):
        """From the first process to the second."""

        def stage(self, text: str) -> None:
            if "starting" in text:
                limit = 1000 if "process 1" in text else before[0]
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))

        def warn(self, text: str) -> None:
            listener.warn(text)

    copies = set(Path(tempfile.gettempdir()).glob("polybench-*.json"))
    try:
        result = run("fake", listener=Full(), store=store, parity=False, metrics=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert any("tried again later" in text for text in listener.warnings)
    assert result.warnings == saved(tmp_path).warnings
    assert not any("cannot save" in text for text in result.warnings)
    assert not store.unsaved
    assert set(Path(tempfile.gettempdir()).glob("polybench-*.json")) == copies


@pytest.mark.parametrize("options", [[], ["--output", "/dev/full"]])
def test_an_output_that_is_full_is_told_in_a_sentence(
    images: Path, tmp_path: Path, options: list[str]
) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        done = subprocess.run(
            compare(images, tmp_path, "fake", "--quick", *options),
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "No space left" in done.stderr
    assert saved(tmp_path).finished is True


def test_a_reader_of_the_progress_that_goes_away_ends_nothing(images: Path, tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        compare(images, tmp_path, "fake", "--quick"),
        stdout=subprocess.PIPE, stderr=write, text=True, timeout=120, check=False,
    )  # fmt: skip
    os.close(write)
    assert done.returncode == 0
    assert "fake/cpu" in done.stdout
    assert saved(tmp_path).finished is True


def kill_the_reference() -> None:
    for child in psutil.Process().children(recursive=True):
        if Path(f"/proc/{child.pid}/fd/1").readlink().name == "reference.log":
            child.kill()


def test_without_its_reference_a_cell_is_measured_and_not_checked() -> None:
    listener = When("checking reference/cpu", kill_the_reference)
    (result,) = run("reference", listener=listener, processes=1, rounds=1, parity=True, batch_size=8).results
    assert result.status == "ok"
    assert result.measured
    assert result.parity.status == "skipped"
    assert "SIGKILL" in (result.parity.reason or "")
    assert any("reference/cpu is not checked" in text for text in listener.warnings)


def test_a_check_that_is_all_that_was_asked_for_has_failed_without_its_reference() -> None:
    listener = When("checking reference/cpu", kill_the_reference)
    study = Study(engines=("reference",), **(FAST | {"parity": True, "batch_size": 8}))
    document = run_study(study, listener, store=None, check="only")
    (result,) = document.results
    assert result.status == "failed"
    assert "SIGKILL" in (result.reason or "")
    assert exit_code(document, parity_only=True) == 1


def test_scratch_of_a_living_study_is_kept_whatever_its_number(own_folders: Path) -> None:
    with scratch_folder() as mine:
        old = time.time() - 3600
        dead = mine.with_name("scratch-abc")
        dead.mkdir()
        for folder in (mine, dead):
            os.utime(folder, (old, old))
        with scratch_folder():
            assert mine.is_dir()
            assert not dead.exists()


def test_a_handicap_is_said() -> None:
    result = run("fake", processes=1, rounds=1, handicaps={"fake/cpu": 0.5})
    assert any("fake/cpu waits in each step, 50% of it" in text for text in result.warnings)


def test_strictness_leaves_nothing(tmp_path: Path) -> None:
    study = Study(engines=("fake+unavailable",), data="synthetic", parity=False)
    with pytest.raises(StrictlyUnavailable):
        run_study(study, Listener(), store=Store(tmp_path), strict=True)
    assert [*tmp_path.rglob("*")] == [tmp_path / "logs"]


def test_logs_of_long_ago_go(tmp_path: Path) -> None:
    others = {tmp_path / "1999", tmp_path / "20260101"}  # in a folder that somebody else had before
    studies = [tmp_path / f"20260101-000{number:03}-abcd" for number in range(120)]
    for folder in (*others, *studies):
        folder.mkdir()
    prune_logs(tmp_path)
    assert {*tmp_path.iterdir()} == {*others, *studies[20:]}


@pytest.mark.parametrize("folder", ["/proc/none", "/dev/null/none"])
def test_a_cache_that_cannot_be_written_is_bad_input(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", folder)
    with pytest.raises(BadInput, match=r"cannot write to the cache folder .*set XDG_CACHE_HOME"):
        run("fake")


def test_the_remedy_for_a_full_disk_is_the_variable_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    remedies = {"cache": "set XDG_CACHE_HOME", "tmp": "set TMPDIR", "other": "choose another folder"}
    for name, remedy in remedies.items():
        with pytest.raises(BadInput, match=remedy), room(tmp_path / name, 1 << 60):
            pass


def test_epochs_without_end_are_refused() -> None:
    with pytest.raises(BadInput, match=r"1000000 epochs are more than .*; try --epochs \d+$"):
        run("fake", input="pipeline", epochs=1_000_000)


def test_images_that_only_look_like_cifar_are_said_to_be_others(images: Path) -> None:
    background = Background(data_sha256="0" * 64)
    study = Study(engines=("fake",), data=str(images), processes=1, rounds=1, batch_size=16, parity=False)
    document = run_study(
        study, listener := Listener(), store=None, context=new_context(background=background)
    )
    assert any("is not the official data set" in text for text in document.warnings)
    assert any("are not those of the study that is measured again" in text for text in listener.warnings)
