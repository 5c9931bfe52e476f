"""Personal data, host data and environment variables in saved documents."""

from __future__ import annotations

import getpass
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import psutil
import pytest
from typer.testing import CliRunner

from polybench.cli import app
from polybench.protocol.environment import recorded_env_vars
from polybench.render import FORMATS
from polybench.runner import peak
from polybench.runner.prepare import new_header
from polybench.runner.study import run_study
from polybench.schema.options import Study
from polybench.schema.study import to_json
from polybench.storage import anonymize as module
from polybench.storage.anonymize import anonymize
from polybench.storage.store import Store
from tests import small_datasets
from tests.commands import printed
from tests.factories import measured, study
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
    monkeypatch.setenv("KMP_BLOCKTIME", "7")
    document = run("fake", "faulty+crash", store=Store(tmp_path), processes=1, rounds_per_process=1, parity=False)
    assert document.results[0].versions["inherited"]["KMP_BLOCKTIME"] == "7"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.suffix == ".log" for path in files)
    assert not [path for path in files if CANARY.encode() in path.read_bytes()]


SECRET = "s3cr3tPassw0rd"
TOKEN = "ghp_0123456789abcdefghijABCDEFGHIJ456789"
PRINTS_SECRETS = f"""
import os, sys
if "POLYBENCH_PARENT" in os.environ:
    print("mirror", os.environ["JULIA_PKG_SERVER"], "Authorization: Bearer {SECRET}", file=sys.stderr, flush=True)
    print("cannot download https://host/x?token={SECRET}, token {TOKEN}", file=sys.stderr, flush=True)
"""


@pytest.mark.parametrize("anonymous", [[], ["--anonymous"]])
def test_secrets_inside_of_values_are_masked_everywhere(tmp_path: Path, anonymous: list[str]) -> None:
    (tmp_path / "sitecustomize.py").write_text(PRINTS_SECRETS)
    study_file = tmp_path / "study.toml"
    title = f'title = "data of https://user:{SECRET}@host/"\n'
    study_file.write_text(title + 'engines = ["fake", "faulty+crash"]\ndata = "synthetic"\nprocesses = 1\nbudget = 0.1')
    urls = dict.fromkeys(("JULIA_PKG_SERVER", "http_proxy", "PIP_INDEX_URL"), f"https://user:{SECRET}@host/path")
    environment = {**os.environ, **urls, "KMP_NOTE": f"x,token={SECRET}", "PYTHONPATH": str(tmp_path)}
    results = tmp_path / "results"

    def output(*command: object) -> str:
        line = [sys.executable, "-m", "polybench", *map(str, command), *anonymous]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False, timeout=120)
        return done.stdout + done.stderr

    texts = [
        output("run", study_file, "--results", results),
        output("run", study_file, "--on", f"ray://user:{SECRET}@nowhere.invalid:1"),
        *(printed("show", "last", "--results", results, "--format", format) for format in FORMATS),
        printed("report", "last", "--results", results, "--output", tmp_path / "report.html"),
    ]
    logs = [path.read_text() for path in results.rglob("*.log")]
    assert all("mirror https://***@host/path Authorization: Bearer ***" in text for text in logs)
    assert "token ***" in texts[0]
    assert "--on ray://***@nowhere.invalid:1: invalid address" in texts[1]
    texts += [*logs, *(path.read_text() for path in [*results.glob("*.json"), tmp_path / "report.html"])]
    assert not [line for text in texts for line in text.splitlines() if SECRET in line or TOKEN in line]


def read_log(worker: psutil.Process) -> str:
    """Return what a process has written to its standard error, if that is a file."""
    log = Path(f"/proc/{worker.pid}/fd/2")
    return log.read_text() if log.is_file() else ""


def test_no_secret_is_left_in_a_log_if_polybench_is_killed(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(PRINTS_SECRETS)
    environment = os.environ | {"JULIA_PKG_SERVER": f"https://user:{SECRET}@host", "PYTHONPATH": str(tmp_path)}
    results = tmp_path / "results"
    command = ["compare", "--engines", "faulty+hang", "--data", "synthetic", "--no-parity", "--results", str(results)]
    with subprocess.Popen([sys.executable, "-m", "polybench", *command], env=environment) as polybench:
        workers = psutil.Process(polybench.pid).children
        assert becomes_true(lambda: any(SECRET in read_log(one) for one in workers()))
        running = workers()
        polybench.kill()
    assert have_ended(running)
    assert not [path for path in results.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


def test_a_checkpoint_contains_no_secrets_of_the_command_line_and_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(PRINTS_SECRETS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("JULIA_PKG_SERVER", f"https://user:{SECRET}@host/path")
    header = new_header(["compare", f"--x=https://user:{SECRET}@host"])
    unfinished = Study(engines=("faulty+crash", "fake"), **(FAST | {"parity": False}))
    run_study(unfinished, interrupt_at("process 2"), store=Store(tmp_path / "results"), header=header)
    (checkpoint,) = (tmp_path / "results").glob("unfinished/*/study")
    assert b"mirror https://***@host" in checkpoint.read_bytes()
    assert SECRET.encode() not in checkpoint.read_bytes()


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
    (path,) = store.folder.glob("*.json")
    for text in (to_json(document).decode(), path.read_text()):
        assert "mary" not in text
        assert str(tmp_path) not in text
    assert document.host.hostname == "<host>"
    assert document.argv[2] == "<folder>/cifar"
    assert (document.results[1].log_path or "").startswith("<folder>/faulty+crash")


MINIMAL = {
    name: value
    for name, value in (FAST | {"processes": 1, "rounds_per_process": 1, "parity": False}).items()
    if name != "data"
}


def test_anonymizing_changes_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_name_rules", lambda _: [])
    document = study()
    document.host.hostname = "<host>"
    document.argv = ["compare", "--baseline", "torch/cpu/bf16", "--price", "cpu=0.24", "~/data"]
    document.warnings = ["see https://example.org/a/b/c, 1/2 of it", "<folder>/data/x is torch/cpu/bf16"]
    assert msgspec.to_builtins(anonymize(document)) == msgspec.to_builtins(document)


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
    Store(tmp_path).save(document)

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


HOME = "/home/Mary Shelley/My Lab: 1"


@pytest.mark.parametrize(
    ("argument", "anonymized"),
    [
        (f"-o{HOME}/out.svg", "-o<folder>/out.svg"),
        (f"--data={HOME}/cifar", "--data=<folder>/cifar"),
        (f"old={HOME}/venv", "old=<folder>/venv"),
        (f"{HOME}/My Data", "<folder>/My Data"),
        (f"file://{HOME}/x.json", "file://<folder>/x.json"),
        ("/home//mary//x/", "<folder>/x/"),
    ],
)
def test_paths_in_command_line_arguments_are_anonymized(argument: str, anonymized: str) -> None:
    document = study()
    document.argv = [argument]
    assert anonymize(document).argv == [anonymized]


@pytest.mark.parametrize(
    ("text", "anonymized"),
    [
        ("cannot read file:///home/mary/a/x.png", "cannot read <folder>/x.png"),
        (f"cannot read '{HOME}/a b/x.png'", "cannot read '<folder>/x.png'"),
        (f"cannot write {HOME}/results: no room", "cannot write <folder>/results: no room"),
        (f"log in {HOME}/results/logs/my id/x.log", "log in <folder>/x.log"),
        (f"{HOME}/data/a.png and /home/mary/b.png", "<folder>/a.png and <folder>/b.png"),
        ("gcc -I/home/mary/include/julia -L/home/mary/lib/x", "gcc -I<folder>/julia -L<folder>/x"),
    ],
)
def test_folders_with_spaces_and_colons_in_texts_are_anonymized(text: str, anonymized: str) -> None:
    document = study()
    document.study = msgspec.toml.encode({"data": f"{HOME}/data", "env": {"old": f"{HOME}/venv"}}).decode()
    document.warnings = [text]
    changed = anonymize(document, Path(f"{HOME}/results"))
    assert changed.warnings == [anonymized]
    assert "Shelley" not in changed.study


def test_the_host_name_of_another_machine_is_anonymized(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "here.example.org")
    document = study()
    document.host.hostname = "frankenstein.lab"
    document.warnings = ["frankenstein is busy, frankenstein.lab too, and here is not"]
    changed = anonymize(document)
    assert changed.warnings == ["<host> is busy, <host> too, and <host> is not"]
    assert anonymize(changed) == changed


def test_a_user_without_home_folder_or_name_is_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> str:
        raise RuntimeError("Could not determine home directory.")

    def no_user() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setattr(getpass, "getuser", no_user)
    monkeypatch.delenv("HOME", raising=False)
    assert anonymize(study()).host.hostname == "<host>"
