"""A small CIFAR-10, in every published format."""

from __future__ import annotations

import pickle
import tarfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

PER_FILE = 7
NAMES = ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"]
# The official archives' members are not sorted either.
SHUFFLED = ["data_batch_4", "test_batch", "data_batch_3", "data_batch_2", "data_batch_5", "data_batch_1"]


@pytest.fixture(autouse=True)
def may_damage_caches(own_data_caches: None) -> None: ...


class SmallCifar(NamedTuple):
    """`images` (42, 3, 32, 32) and `labels` (42,): five training files and one test file of seven."""

    root: Path
    images: np.ndarray
    labels: np.ndarray

    @property
    def train(self) -> tuple[np.ndarray, np.ndarray]:
        return self.images[: 5 * PER_FILE], self.labels[: 5 * PER_FILE]

    def part(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        start = NAMES.index(name) * PER_FILE
        return self.images[start : start + PER_FILE], self.labels[start : start + PER_FILE]

    def binary_file(self, name: str) -> bytes:
        images, labels = self.part(name)
        return np.hstack([labels[:, None], images.reshape(PER_FILE, -1)]).tobytes()

    def python_file(self, name: str) -> bytes:
        images, labels = self.part(name)
        batch = {
            b"batch_label": b"training batch",
            b"labels": labels.tolist(),
            b"data": images.reshape(PER_FILE, -1),
            b"filenames": [b"a.png"] * PER_FILE,
        }
        return pickle.dumps(batch, 2)

    def binary_folder(self) -> Path:
        return self._folder("cifar-10-batches-bin", {f"{name}.bin": self.binary_file(name) for name in NAMES})

    def python_folder(self) -> Path:
        return self._folder("cifar-10-batches-py", {name: self.python_file(name) for name in NAMES})

    def archive(self, folder: Path, name: str) -> Path:
        path = self.root / name
        with tarfile.open(path, "w:gz") as tar:
            for member in SHUFFLED:
                for file in folder.glob(f"{member}*"):
                    tar.add(file, f"{folder.name}/{file.name}")
        return path

    def _folder(self, name: str, files: dict[str, bytes]) -> Path:
        folder = self.root / name
        folder.mkdir()
        for file, content in {**files, "batches.meta.txt": b"airplane\n", "readme.html": b"<html>"}.items():
            (folder / file).write_bytes(content)
        return folder


@pytest.fixture
def small_cifar(tmp_path: Path) -> SmallCifar:
    random = np.random.default_rng(5)
    count = len(NAMES) * PER_FILE
    root = tmp_path / "published"
    root.mkdir()
    return SmallCifar(
        root, random.integers(0, 256, (count, 3, 32, 32), np.uint8), random.integers(0, 10, count).astype(np.uint8)
    )


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (folder := tmp_path / "scratch").mkdir()
    return folder


@pytest.fixture(autouse=True)
def no_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hide the user's downloaded data from all tests."""
    folder = tmp_path / "data-folder"
    monkeypatch.setenv("POLYBENCH_DATA", str(folder))
    return folder
