"""Personal data, host data and environment variables in saved documents."""

from __future__ import annotations

import getpass
import json
import os
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import tomli_w
from typer.testing import CliRunner

import polybench
from polybench.cli import app
from polybench.data import DATASET_NAMES
from polybench.experiments import peak
from polybench.protocol.environment import recorded_env_vars
from polybench.render import FORMATS
from polybench.run import run_study
from polybench.runner.prepare import new_header
from polybench.schema.metadata import UNKNOWN_HOST
from polybench.schema.options import Study
from polybench.schema.study import to_json
from polybench.storage.anonymize import DATASETS, OMITTED, anonymize
from polybench.storage.store import Store
from tests import small_datasets
from tests.commands import FAST as FASTEST
from tests.commands import printed
from tests.factories import measured, study
from tests.log_of import save_document
from tests.processes import becomes_true, have_ended
from tests.runner.studies import FAST, RecordingProgress, interrupt_at, run

CANARY = "canary-5f1e"


def test_no_document_or_log_contains_secrets_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "AWS_SECRET_ACCESS_KEY",
        "MY_PASSWORD",
        "TF_API_TOKEN",
        "TF_VAR_db",
        "JULIA_PKG_AUTH",
        "CUDA_PWD",
        "XLA_CRED",
        "HARMLESS",
        "https_proxy",
    ):
        monkeypatch.setenv(name, CANARY)
    monkeypatch.setenv("XLA_MIRROR", f"https://user:{CANARY}@host/path")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", f"s3://{CANARY}@host/path")
    monkeypatch.setenv("KMP_NOTE", f"x,token={CANARY}")
    monkeypatch.setenv("KMP_BLOCKTIME", "7")
    document = run("fake", "faulty+crash", store=Store(tmp_path), processes=1, rounds_per_process=1, parity=False)
    assert document.results[0].versions["inherited"]["KMP_BLOCKTIME"] == "7"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.suffix == ".log" for path in files)
    assert not [path for path in files if CANARY.encode() in path.read_bytes()]


SECRET = "s3cr3tPassw0rd"
PRINTS_SECRETS = f"""
import os, sys
if "POLYBENCH_PARENT" in os.environ:
    print("mirror", os.environ["JULIA_PKG_SERVER"], "Authorization: Bearer {SECRET}", file=sys.stderr, flush=True)
"""


@pytest.mark.parametrize("anonymous", [[], ["--anonymous"]])
def test_the_output_of_workers_is_printed_and_logged_but_in_no_document(tmp_path: Path, anonymous: list[str]) -> None:
    (tmp_path / "sitecustomize.py").write_text(PRINTS_SECRETS)
    environment = os.environ | {
        "JULIA_PKG_SERVER": f"https://user:{SECRET}@host/path",
        "PYTHONPATH": with_folder(tmp_path),
    }
    results = tmp_path / "results"
    command = [sys.executable, "-m", "polybench", "compare", "--engines", "fake,faulty+crash", *FAST_OPTIONS]
    done = subprocess.run(
        [*command, "--results", str(results), *anonymous],
        env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert "faulty+crash/cpu" in done.stdout
    assert SECRET not in done.stdout
    assert (f"faulty+crash/cpu: mirror https://user:{SECRET}@host/path" in done.stderr) == (not anonymous)
    logs = [*results.rglob("*.log")]
    assert all(SECRET in log.read_text() and log.stat().st_mode & 0o077 == 0 for log in logs)
    assert any("crash" in log.name for log in logs)
    texts = [printed("show", "last", "--results", results, "--format", format) for format in FORMATS]
    texts += [path.read_text() for path in results.rglob("*.json")]
    assert not [text for text in texts if SECRET in text]


FAST_OPTIONS = [*FASTEST, "--no-parity"]


def test_no_output_of_a_worker_is_left_if_polybench_is_killed(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(PRINTS_SECRETS)
    environment = os.environ | {"JULIA_PKG_SERVER": f"https://user:{SECRET}@host", "PYTHONPATH": with_folder(tmp_path)}
    results = tmp_path / "results"
    command = ["compare", "--engines", "faulty+hang", "--data", "synthetic", "--no-parity", "--results", str(results)]
    with subprocess.Popen([sys.executable, "-m", "polybench", *command], env=environment) as polybench:
        workers = psutil.Process(polybench.pid).children
        assert becomes_true(lambda: any(SECRET in read_log(one) for one in workers()))
        running = workers()
        polybench.kill()
    assert have_ended(running)
    assert not [path for path in results.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


def with_folder(folder: Path) -> str:
    """Return PYTHONPATH with a folder before the others."""
    return os.pathsep.join((str(folder), os.environ["PYTHONPATH"]))


def read_log(worker: psutil.Process) -> str:
    """Return what a process has written to its standard error, if that is a file."""
    log = Path(f"/proc/{worker.pid}/fd/2")
    return log.read_text() if log.is_file() else ""


def test_a_log_contains_no_secrets_of_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(PRINTS_SECRETS)
    monkeypatch.setenv("PYTHONPATH", with_folder(tmp_path))
    monkeypatch.setenv("JULIA_PKG_SERVER", f"https://user:{SECRET}@host/path")
    unfinished = Study(engines=("faulty+crash", "fake"), **(FAST | {"parity": False}))
    run_study(unfinished, interrupt_at("process 2"), store=Store(tmp_path / "results"), header=new_header([]))
    (log,) = (tmp_path / "results").glob("*.jsonl")
    assert b"the worker was killed by SIGSEGV" in log.read_bytes()
    assert SECRET.encode() not in log.read_bytes()


def test_no_document_contains_the_command_line_of_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--token", CANARY])
    options: dict[str, Any] = {"engines": ["fake"], "data": "synthetic", "processes": 1, "budget": 0.1}
    text = polybench.compare(**options, parity=False).to_json()
    assert json.loads(text)["argv"] == []
    command = ["compare", "--engines", "fake", *FAST_OPTIONS, "--no-save", "--format", "json"]
    shown = printed(*command)
    assert json.loads(shown)["argv"] == command
    assert CANARY not in text + shown


def test_variables_that_engines_read_and_polybench_does_not_set_are_recorded() -> None:
    user = {
        "OMP_NUM_THREADS": "9",
        "OMP_SCHEDULE": "static",
        "LD_PRELOAD": "x.so",
        "EDITOR": "vi",
        "MALLOC_X": "1",
        "CXX": "clang++",
        "CXXFLAGS": "-O0",
        "CC": "clang",
        "CCACHE_DIR": "somewhere",
        "TORCHINDUCTOR_DISABLED_PASSES": "fusion",
        "JAX_COMPILER_ENABLE_REMAT_PASS": "0",
        "JULIA_PASS": "tulip",
        "JULIA_KEY": "2718",
        "KMP_NOTE": "x",
        "XLA_MIRROR": "https://host",
    }
    assert recorded_env_vars(user, {"OMP_NUM_THREADS": "2"}) == {
        "CC": "clang",
        "CXX": "clang++",
        "JAX_COMPILER_ENABLE_REMAT_PASS": "0",
        "LD_PRELOAD": "x.so",
        "OMP_SCHEDULE": "static",
        "TORCHINDUCTOR_DISABLED_PASSES": "fusion",
    }


def test_an_anonymous_study_contains_no_host_user_or_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "marys-laptop")
    monkeypatch.setattr(getpass, "getuser", lambda: "mary")
    folder = tmp_path / "home" / "mary"
    folder.mkdir(parents=True)
    data = small_datasets.cifar_folder(folder, 100)
    anonymous_study = Study(engines=("fake", "faulty+crash"), data=str(data), batch_size=16, **(MINIMAL))
    store = Store(folder / "results")
    argv = ["compare", "--data", str(data), "--results", f"{folder}/results"]
    document = run_study(anonymous_study, RecordingProgress(), store=store, header=new_header(argv, anonymous=True))
    (path,) = store.folder.glob("*.jsonl")
    for text in (to_json(document).decode(), path.read_text()):
        assert "mary" not in text
        assert str(tmp_path) not in text
    assert document.host.hostname == "<host>"
    assert document.argv == []
    assert (document.results[1].log_path or "").startswith("faulty+crash")
    assert (document.results[1].reason, document.results[1].hint) == (OMITTED, None)
    fields = tomllib.loads(document.study)
    assert (fields["data"], fields["engines"]) == (OMITTED, ["fake", "faulty+crash"])


MINIMAL = {
    name: value
    for name, value in (FAST | {"processes": 1, "rounds_per_process": 1, "parity": False}).items()
    if name != "data"
}


def test_anonymizing_changes_nothing_else() -> None:
    document = study(measured("torch/cpu", 0.02))
    document.host.hostname = UNKNOWN_HOST
    document.argv, document.warnings, document.title = [], [], "see https://example.org/a/b/c, 1/2 of it"
    document.study = tomli_w.dumps({"engines": ["torch"], "data": "cifar10", "env": {}})
    assert msgspec.to_builtins(anonymize(document)) == msgspec.to_builtins(document)


def test_an_anonymous_study_keeps_the_warnings_without_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OMP_PROC_BIND", "close")
    data = small_datasets.cifar_folder(tmp_path, 100)
    delayed = Study(engines=("fake",), data=str(data), injected_delays={"fake/cpu": 0.1}, batch_size=16, **MINIMAL)
    both = [
        run_study(delayed, RecordingProgress(), store=None, header=new_header([], anonymous=anonymous)).warnings
        for anonymous in (False, True)
    ]
    private = [text for text in both[0] if text not in both[1]]
    assert [text for text in both[0] if "injected delay" in text] == [text for text in both[1] if "injected" in text]
    assert sorted(text.partition(" ")[0] for text in private) == [str(data), "workers"]


def test_the_names_of_data_remain() -> None:
    assert DATASETS == DATASET_NAMES


def test_an_anonymous_document_says_that_its_warnings_were_left_out() -> None:
    document = study(measured("torch/cpu", 0.02))
    document.warnings = document.results[0].warnings = ["marys-laptop is busy"]
    changed = anonymize(document)
    assert changed.warnings == changed.results[0].warnings
    assert changed.warnings[0].startswith("warnings were left out")


@pytest.mark.parametrize(
    "command",
    [
        ["layers", "--processes", "1", "--rounds-per-process", "2", "--steps-per-round", "5"],
        ["sweep", "--batch-size", "8,16", "--processes", "1", "--rounds-per-process", "1", "--steps-per-round", "5"],
        ["overhead", "--batch-size", "8,16", "--processes", "1", "--rounds-per-process", "1", "--steps-per-round", "5"],
        ["layers", "--allocations"],
        ["parity"],
        ["peak", "--batch-size", "8"],
    ],
    ids=lambda command: command[0],
)
def test_no_measuring_command_prints_the_host_name(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "marys-laptop")
    monkeypatch.setitem(peak.MATRIX_SIZES, "cpu", (64,))
    monkeypatch.setattr(peak, "last_level_cache_bytes", lambda threads: 1 << 16)
    name, *options = command
    output = tmp_path / "document.json"
    common_options = ["--engines", "fake", "--anonymous", "--format", "json", "--output", str(output), "--quiet"]
    monkeypatch.setattr(sys, "argv", ["polybench", name, *options, *common_options])
    done = CliRunner().invoke(app, sys.argv[1:])
    assert done.exit_code in (0, 4), done.output
    text = output.read_text()
    assert json.loads(text)["host"]["hostname"] == "<host>"
    assert "marys-laptop" not in text
    assert str(tmp_path) not in text


def test_saved_studies_can_be_shown_anonymously(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = study(measured("torch/cpu", 0.02), measured("tf/cpu", 0.01))
    document.host.hostname = "marys-laptop"
    document.argv = ["compare", "--data", str(tmp_path / "cifar")]
    document.warnings = [f"marys-laptop is busy with {tmp_path}/a.out"]
    save_document(Store(tmp_path), document)

    def printed(*command: str) -> str:
        output = tmp_path / "out.html"
        done = CliRunner().invoke(app, [*command, "--results", str(tmp_path), "--output", str(output)])
        assert done.exit_code == 0, done.output
        return output.read_text()

    for command in (["show", "last", "--format", "json"], ["report", "last"], ["plot", "last"]):
        assert command[0] == "plot" or "marys-laptop" in printed(*command)
        text = printed(*command, "--anonymous")
        assert "marys-laptop" not in text
        assert str(tmp_path) not in text


def test_an_anonymous_document_has_neither_paths_nor_texts_of_engines() -> None:
    document = study(measured("torch@old/cpu", 0.02), measured("tf/cpu", 0.01))
    document.study = tomli_w.dumps({"data": "/home/mary/cifar", "env": {"old": "/home/mary/venv"}, "batch_size": 8})
    one = document.results[0]
    one.status, one.reason, one.hint = "failed", "no file /home/mary/x", "rm /home/mary/x"
    one.versions = {"torch": "2.0", "build": {"blas": "mkl", "interpreter": "/home/mary/python"}}
    one.log_path = "/home/mary/results/logs/torch.log"
    changed = anonymize(document)
    assert tomllib.loads(changed.study) == {"data": OMITTED, "env": {"old": OMITTED}, "batch_size": 8}
    assert changed.results[0].versions == {"torch": "2.0", "build": {"blas": "mkl"}}
    assert (changed.results[0].reason, changed.results[0].hint) == (OMITTED, None)
    assert changed.results[0].log_path == "torch.log"
    assert b"mary" not in to_json(changed)
    assert anonymize(changed) == changed
    document.study = "a program's own /home/mary/"
    assert anonymize(document).study == ""
