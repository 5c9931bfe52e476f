"""Completion of values, requested as shells do: through the environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from polybench.cli import app
from polybench.engines import ENGINES
from polybench.storage.store import Store
from tests.factories import measured, points_over_threads, study
from tests.figures.documents import full_layers, full_study
from tests.log_of import save_document, save_sweep


def completed(line: str) -> list[str]:
    """Return what bash gets for the last word of a line."""
    words = line.split(" ")
    environment = {"_POLYBENCH_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    result = CliRunner().invoke(app, [], env=environment, prog_name="polybench")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("polybench com", ["compare"]),
        ("polybench trace d", ["diff"]),
        ("polybench compare --engines to", ["torch"]),
        ("polybench compare --engines torch", ["torch", *(f"torch+{name}" for name in ENGINES["torch"].variants)]),
        ("polybench compare --engines torch,t", ["torch,tf"]),
        ("polybench compare --engines tf,torch+comp", ["tf,torch+compile"]),
        ("polybench compare --engines torch+compile+ch", ["torch+compile+channels_last"]),
        ("polybench compare --engines torch+compile+co", []),
        ("polybench compare --engines fak", []),  # internal
        ("polybench sweep --model len", ["lenet"]),
        ("polybench models mnist-m", ["mnist-mlp"]),
        ("polybench compare --model ./my_", []),  # the shell completes files
        ("polybench compare --devices cpu,", ["cpu,cuda"]),
        ("polybench compare --precision b", ["bf16"]),
        ("polybench compare --malloc ", ["retain", "system"]),
        ("polybench compare --optimizer nes", ["nesterov"]),
        (
            "polybench compare --columns step_time,memor",
            [f"step_time,{name}" for name in ("memory_after_import", "memory_growth", "memory")],
        ),
        ("polybench compare --format csv", ["csv"]),
        ("polybench sweep --format csv", ["csv"]),
        ("polybench plot --figure st", ["step_times", "startup"]),
        ("polybench layers --sort s", ["slowdown"]),
        ("polybench export len", ["lenet"]),
        ("polybench export --framework t", ["torch", "tf"]),
    ],
)
def test_names_are_completed(line: str, expected: list[str]) -> None:
    assert completed(line) == expected


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    store = Store(tmp_path / "results")
    monkeypatch.setenv("POLYBENCH_RESULTS", str(store.folder))
    save_document(store, msgspec.structs.replace(study(measured("torch/cpu", 0.01)), id="20260102-a", title="Nightly"))
    save_sweep(store, "sweep-20260101-b", points_over_threads()[:1], created="2026-01-01T00:00:00Z")
    return store


@pytest.mark.parametrize("command", ["show", "report", "plot", "show --format csv"])
def test_every_saved_document_is_completed(command: str, store: Store) -> None:
    assert completed(f"polybench {command} ") == [
        "last", "sweep-last", "20260102-a", "sweep-20260101-b.0", "sweep-20260101-b",
    ]  # fmt: skip
    assert completed(f"polybench {command} sweep-2") == ["sweep-20260101-b.0", "sweep-20260101-b"]
    save_document(store, msgspec.structs.replace(full_layers(full_study()), id="layers-20260103-c"))
    layers = [] if command == "report" else ["layers-last", "layers-20260103-c"]
    assert completed(f"polybench {command} layers") == layers


@pytest.mark.parametrize("command", ["diff", "diff last", "merge last", "explain"])
def test_only_studies_are_completed_where_others_are_refused(command: str, store: Store) -> None:
    assert completed(f"polybench {command} ") == ["last", "20260102-a", "sweep-20260101-b.0"]


def test_another_results_folder_is_used(store: Store, tmp_path: Path) -> None:
    assert completed(f"polybench show --results {tmp_path / 'none'} ") == []
    (tmp_path / "file").touch()
    assert completed(f"polybench show --results {tmp_path / 'file'} ") == []


def test_only_unfinished_runs_are_completed_for_resume(store: Store) -> None:
    assert completed("polybench resume ") == []
    (store.folder / "20260103-c.jsonl").touch()
    (store.folder / "unfinished" / "20260104-d").mkdir(parents=True)
    (store.folder / "unfinished" / "20260104-d" / "cluster").touch()
    assert completed("polybench resume ") == ["last", "20260103-c", "20260104-d"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_with_the_installed_script(store: Store, tmp_path: Path) -> None:
    """The script is what `--install-completion` installs; `polybench` is this environment's program."""
    (tmp_path / "polybench").write_text(f"#!{sys.executable}\nfrom polybench.cli import main\nmain()\n")
    (tmp_path / "polybench").chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    script = subprocess.run(
        ["polybench"],
        env=environment | {"_POLYBENCH_COMPLETE": "source_bash"},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    function = script.split("()")[0].strip()
    shell = f'COMP_WORDS=(polybench show 2026); COMP_CWORD=2; {script}\n{function} polybench; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", shell], env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("20260102-a\n", "")
