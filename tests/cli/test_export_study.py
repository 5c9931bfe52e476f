"""`polybench export ID`: the programs of a saved study."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from polybench.schema.result import Program
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store
from tests.commands import printed, refused
from tests.factories import measured, study
from tests.log_of import save_document

MY_NET = Path(__file__).parents[2] / "examples/my_net.toml"
TORCH, JAX = "import torch\n", "import jax\n"


def saved_study(**programs: str) -> StudyDocument:
    results = [measured(f"{name}/cpu", 0.01) for name in ("torch", "jax", "flux")]
    for result in results:
        if text := programs.get(result.engine):
            result.program = Program.of(text)
    return study(*results)


@pytest.fixture
def store(own_folders: Path) -> Store:
    return Store(own_folders / "results")


@pytest.fixture
def both(store: Store) -> None:
    save_document(store, saved_study(torch=TORCH, jax=JAX))


@pytest.mark.usefixtures("both")
def test_programs_are_printed_with_their_hashes_and_the_others_named() -> None:
    text = printed("export", "last")
    assert f"# torch/cpu, SHA-256 {Program.of(TORCH).sha256}\nimport torch\n" in text
    assert f"# jax/cpu, SHA-256 {Program.of(JAX).sha256}\nimport jax\n" in text
    assert "# flux/cpu: the engine flux does not run a program of its own: see polybench export --train\n" in text


@pytest.mark.usefixtures("both")
def test_a_folder_gets_one_file_a_program(tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    printed("export", "last", "-o", folder)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"torch_cpu.py": TORCH, "jax_cpu.py": JAX}
    assert refused("export", "last", "-o", str(folder)).startswith(f"--output: {folder} exists")
    assert refused("export", "last", "-o", str(tmp_path / "x.py")).endswith("x.py: 2 programs: name a folder")


def test_a_single_program_is_written_to_a_file(store: Store, tmp_path: Path) -> None:
    save_document(store, saved_study(jax=JAX))
    file = tmp_path / "own.py"
    file.write_text("mine")
    assert "own.py exists: name another one, or add --force" in refused("export", "last", "-o", str(file))
    assert file.read_text() == "mine"
    printed("export", "last", "--force", "-o", file)
    assert file.read_text() == JAX


def test_the_table_names_the_command_if_there_are_programs(store: Store) -> None:
    save_document(store, saved_study())
    assert "Programs:" not in printed("show", "last")
    save_document(store, saved_study(torch=TORCH))
    assert "Programs: polybench export last" in printed("show", "last")


@pytest.mark.usefixtures("both")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("last --train", "--train: has no effect on the programs of last: leave it out"),
        ("last --batch-size 8", "--batch-size: has no effect on the programs of last: leave it out"),
        ("20200101", "no study '20200101'"),
        ("lenet --framework torch --results . -o x.py", "--results: has no effect without the ID of a study"),
    ],
)
def test_options_of_networks_are_refused(arguments: str, message: str, tmp_path: Path) -> None:
    assert refused("export", *arguments.split()).startswith(message)


def test_a_network_file_may_begin_with_a_digit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(MY_NET, tmp_path / "3d.toml")
    printed("export", "3d.toml", "--framework", "torch", "-o", "net.py")
    assert "class Network" in (tmp_path / "net.py").read_text()


def test_a_sweep_has_no_programs_of_its_own() -> None:
    assert "is a sweep, not a study" in refused("export", "sweep-last")
