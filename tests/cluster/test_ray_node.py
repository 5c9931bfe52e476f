"""Transfer of images: the received data are identical, or rejected."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from polybench.cluster import ray_node
from polybench.cluster.messages import Task, current_fingerprint
from polybench.cluster.ray_node import Data, NodeActor, cached_path, content_sha256, find_data, pack, unpack
from polybench.errors import BadInput
from polybench.runner.prepare import new_header
from polybench.schema.options import Study


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    (folder / "cat").mkdir(parents=True)
    (folder / "cat" / "1.png").write_bytes(b"one")
    (folder / "2.png").write_bytes(b"two")
    return folder


def described(path: Path, folder: str = "/of/the/driver") -> Data:
    """Describe data of a driver that has them in a folder of its own."""
    return Data(f"{folder}/{path.name}", content_sha256(path))


def link_to_file(folder: Path) -> None:
    (folder.parent / "elsewhere.png").write_bytes(b"three")
    (folder / "3.png").symlink_to(folder.parent / "elsewhere.png")


def link_to_folder(folder: Path) -> None:
    (folder.parent / "dogs" / "young").mkdir(parents=True)
    (folder.parent / "dogs" / "young" / "3.png").write_bytes(b"three")
    (folder / "dog").symlink_to(folder.parent / "dogs")


@pytest.mark.parametrize("change", [lambda _: None, link_to_file, link_to_folder])
def test_folder_is_received_with_all_that_its_links_point_to(images: Path, change: Callable[[Path], object]) -> None:
    change(images)
    data = described(images)
    assert find_data(data) is None
    path = unpack(pack(images), data)
    assert path == cached_path(data) == find_data(data)
    expected = sorted(file.read_bytes() for file in ray_node._files(images))
    assert sorted(file.read_bytes() for file in path.rglob("*.png")) == expected


def test_file_is_received_unchanged(images: Path) -> None:
    file = images / "2.png"
    assert unpack(pack(file), described(file)).read_bytes() == b"two"


def test_hash_depends_on_names_and_content(images: Path) -> None:
    digest = content_sha256(images)
    os.utime(images / "2.png", (0, 0))
    assert content_sha256(images) == digest
    (images / "2.png").rename(images / "3.png")
    assert content_sha256(images) != digest


@pytest.mark.parametrize("target", ["images", "images/cat"])
def test_link_to_a_parent_folder_is_named(images: Path, target: str) -> None:
    (images / "cat" / "all").symlink_to(images.parent / target)
    with pytest.raises(BadInput, match="cat/all is a link to a parent folder; remove it"):
        content_sha256(images)


def test_data_shared_by_several_nodes_are_replaced_only_if_damaged(images: Path) -> None:
    data = described(images)
    path = unpack(pack(images), data)
    before = path.stat().st_ino
    assert unpack(pack(images), data).stat().st_ino == before
    (path / "2.png").write_bytes(b"damaged")
    assert find_data(data) is None
    assert content_sha256(unpack(pack(images), data)) == data.sha256
    assert [folder.name for folder in path.parent.parent.iterdir()] == [path.parent.name]


def test_damaged_data_are_rejected(images: Path) -> None:
    data, damaged = described(images), pack(images).replace(b"one", b"0ne")
    with pytest.raises(BadInput, match=rf"received images are damaged: .*expected {data.sha256[:16]}"):
        unpack(damaged, data)
    with pytest.raises(BadInput, match="cannot write"):
        unpack(damaged[:700], data)
    assert not cached_path(data).exists()


def test_too_large_data_are_not_sent(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_node, "MAX_UPLOAD_BYTES", 5)
    with pytest.raises(BadInput, match="copy them to the same path"):
        pack(images)


def test_node_studies_the_images_that_it_has_or_receives(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    studied: list[str] = []
    monkeypatch.setattr(ray_node, "NodeProcess", lambda task, environment: studied.append(task.study.data))
    node = NodeActor(Task(header=new_header(), study=Study(), fingerprint=current_fingerprint()))
    data = described(images)
    assert node.start(data) is None
    assert node.start(data, pack(images)) == []
    assert node.start(described(images, str(images.parent))) == []
    assert node.start(None) == []
    assert studied == [str(cached_path(data)), str(images), Study().data]
