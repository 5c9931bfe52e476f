"""Files that a user names: only regular files are read, and a result replaces an older one only when it is whole."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import polybench
from polybench.data import disk, text
from polybench.data.disk import check_output, open_regular_file, read_regular_file, write_output
from polybench.errors import BadInput
from polybench.planning.study_file import read_network, read_toml
from polybench.scripts.network_code import read_weights
from polybench.storage.store import Store, load_document
from polybench.trace.file import Trace
from polybench.trace.pairing import read_map
from tests.example_networks import BIASED


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A pipe without a writer: a program that opens it waits forever."""
    os.mkfifo(path := tmp_path / "pipe.json")
    return path


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "read",
    [Trace, read_map, read_toml, read_network, lambda path: list(text.read(path, "train", 4, 8))],
    ids=["trace", "map", "study", "network", "text"],
)
def test_a_pipe_or_device_is_refused_at_once(read: Callable[[Path], object], pipe: Path) -> None:
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(BadInput, match="it is not a regular file"):
            read(path)


def test_a_document_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(3 << 30)
    with pytest.raises(BadInput, match="it has 3072 MiB: expected at most 1024 MiB"):
        load_document(str(path), Store(tmp_path))
    with pytest.raises(BadInput, match="it has 3072 MiB"):
        Store(tmp_path).load(str(path))
    with pytest.raises(BadInput, match="it has 3072 MiB"):
        read_map(path)
    path.rename(tmp_path / "net.npz")
    with pytest.raises(BadInput, match="it has 3072 MiB"):
        read_weights(BIASED, tmp_path / "net.toml", 0)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        open_regular_file(tmp_path)
    with pytest.raises(IsADirectoryError):
        check_output(tmp_path)


USER_FILES = ["trace", "planning", "networks", "data/text.py", "data/mnist.py", "data/imdb.py", "storage/store.py"]


@pytest.mark.parametrize("place", USER_FILES)
def test_files_of_users_are_opened_by_one_function(place: str) -> None:
    root = Path(polybench.__file__).parent / place
    for file in [root] if root.suffix else root.glob("*.py"):
        assert not re.search(r"\.(read_bytes|read_text)\(|\.open\(\"rb\"\)|[^.\w]open\(", file.read_text("utf-8")), file


class _DiskFullError(Exception):
    pass


def test_an_older_result_remains_until_the_new_one_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.txt"
    path.write_text("old")

    def fail(_: int) -> None:
        raise _DiskFullError

    monkeypatch.setattr(disk.os, "fsync", fail)
    with pytest.raises(_DiskFullError):
        write_output(path, b"new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_size_limit_leaves_the_older_result(tmp_path: Path) -> None:
    path = tmp_path / "result.txt"
    path.write_text("old")
    program = (
        "import resource, sys, pathlib; from polybench.data.disk import write_output\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512)); write_output(pathlib.Path(sys.argv[1]), bytes(4096))"
    )
    run = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=False)
    assert "File too large" in run.stderr
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_a_result_keeps_the_mode_of_the_older_one(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "result.txt"
    path.write_text("a longer old text")
    path.chmod(mode)
    write_output(path, b"new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_result_goes_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.txt").symlink_to("result.txt")
    for content in (b"first", b"second"):
        write_output(tmp_path / "link.txt", content)
        assert (tmp_path / "link.txt").is_symlink()
        assert (tmp_path / "result.txt").read_bytes() == content


@pytest.mark.timeout(20)
def test_a_result_is_written_to_a_pipe(pipe: Path) -> None:
    check_output(pipe)  # waits for no reader
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    write_output(pipe, b"text")
    reader.join()
    assert found == [b"text"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_result_is_written_to_standard_output_in_a_file(tmp_path: Path) -> None:
    """Another file in the place of the open one would lose what the shell's command prints besides."""
    program = (
        "import sys, pathlib; from polybench.data.disk import write_output\n"
        "print('before', flush=True); write_output(pathlib.Path('/dev/stdout'), b'text')"
    )
    with (tmp_path / "out.txt").open("ab") as out:
        subprocess.run([sys.executable, "-c", program], stdout=out, check=True)
        assert os.fstat(out.fileno()).st_ino == (tmp_path / "out.txt").stat().st_ino
    assert (tmp_path / "out.txt").read_text().endswith("text")


def test_a_check_of_an_output_changes_nothing(tmp_path: Path) -> None:
    check_output(tmp_path / "new.txt")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        check_output(tmp_path / "missing" / "new.txt")


def test_a_whole_file_of_the_maximum_size_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1234")
    assert read_regular_file(tmp_path / "a", 4) == b"1234"
    with pytest.raises(OSError, match="expected at most 0 MiB"):
        read_regular_file(tmp_path / "a", 3)
