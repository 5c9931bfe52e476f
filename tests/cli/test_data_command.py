"""`polybench data`: download, verify and locate CIFAR-10."""

from __future__ import annotations

from pathlib import Path

import pytest

from polybench.data import cifar10
from tests.commands import invoke, printed, refused


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POLYBENCH_DATA", str(tmp_path))
    return tmp_path


def test_path_prints_the_data_folder(folder: Path) -> None:
    assert printed("data", "path") == f"{folder}\n"


def test_verify_counts_the_images_if_there_are_any(folder: Path) -> None:
    assert "CIFAR-10 not found" in refused("data", "verify")
    place = folder / "cifar-10-batches-bin"
    place.mkdir()
    for name in ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"):
        (place / f"{name}.bin").write_bytes(bytes(2 * 3073))
    expected = f"{place}: 10 train, 2 test images, all records valid; not the official archive: checksums differ\n"
    assert printed("data", "verify") == printed("data", "verify", place) == expected


def test_fetch_downloads_the_archive(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr(cifar10, "fetch", lambda *arguments: calls.append(arguments) or folder / "done")
    result = invoke("data", "fetch", "--version", "python")
    assert result.stdout == f"{folder / 'done'}\n"
    assert "cifar-10-python.tar.gz" in result.stderr
    printed("data", "fetch", "--folder", folder / "other")
    assert calls == [("python", folder), ("binary", folder / "other")]
    assert invoke("data", "fetch", "--version", "matlab").exit_code == 2
