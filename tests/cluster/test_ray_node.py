"""Transfer of images: the received data are identical, or rejected."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from polybench.cluster import ray_node
from polybench.cluster.messages import Rejected, StageChanged
from polybench.cluster.ray_node import Data, DataRequest, NodeActor, cached_path, content_sha256, pack, unpack
from polybench.errors import BadInput


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    (folder / "cat").mkdir(parents=True)
    (folder / "cat" / "1.png").write_bytes(b"one")
    (folder / "2.png").write_bytes(b"two")
    return folder


def test_folder_is_received_unchanged(images: Path) -> None:
    digest = content_sha256(images)
    path = unpack(pack(images), "images", digest)
    assert path == cached_path("images", digest)
    assert sorted(str(file.relative_to(path)) for file in path.rglob("*")) == ["2.png", "cat", "cat/1.png"]
    assert content_sha256(path) == digest
    os.utime(images / "2.png", (0, 0))
    assert content_sha256(images) == digest
    (images / "2.png").rename(images / "3.png")
    assert content_sha256(images) != digest


def test_target_of_a_link_is_received(images: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.png").write_bytes(b"three")
    (images / "3.png").symlink_to(tmp_path / "elsewhere.png")
    assert (unpack(pack(images), "images", content_sha256(images)) / "3.png").read_bytes() == b"three"


def test_folder_that_a_link_points_to_is_received(images: Path, tmp_path: Path) -> None:
    before = content_sha256(images)
    (tmp_path / "dogs" / "young").mkdir(parents=True)
    (tmp_path / "dogs" / "young" / "4.png").write_bytes(b"four")
    (images / "dog").symlink_to(tmp_path / "dogs")
    digest = content_sha256(images)
    assert digest != before
    assert (unpack(pack(images), "images", digest) / "dog" / "young" / "4.png").read_bytes() == b"four"


def test_link_to_a_parent_folder_is_named(images: Path) -> None:
    (images / "cat" / "all").symlink_to(images)
    with pytest.raises(BadInput, match="cat/all is a link to a parent folder; remove it"):
        content_sha256(images)


def test_file_is_received_unchanged(images: Path) -> None:
    file = images / "2.png"
    assert unpack(pack(file), "2.png", content_sha256(file)).read_bytes() == b"two"


def test_data_shared_by_several_nodes_are_replaced_only_if_damaged(images: Path) -> None:
    digest = content_sha256(images)
    path = unpack(pack(images), "images", digest)
    before = path.stat().st_ino
    assert unpack(pack(images), "images", digest).stat().st_ino == before
    (path / "2.png").write_bytes(b"damaged")
    assert content_sha256(unpack(pack(images), "images", digest)) == digest
    assert [folder.name for folder in path.parent.parent.iterdir()] == [path.parent.name]


def test_slower_of_two_nodes_uses_the_data_of_the_faster(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest, rename = content_sha256(images), Path.rename

    def rename_too_late(folder: Path, target: Path) -> Path:
        shutil.copytree(folder, target)
        return rename(folder, target)

    monkeypatch.setattr(Path, "rename", rename_too_late)
    assert content_sha256(unpack(pack(images), "images", digest)) == digest


def test_damaged_data_are_rejected(images: Path) -> None:
    digest = content_sha256(images)
    damaged = pack(images).replace(b"one", b"0ne")
    with pytest.raises(BadInput, match=rf"received images are damaged: .*expected {digest[:16]}"):
        unpack(damaged, "images", digest)
    with pytest.raises(BadInput, match="cannot write"):
        unpack(damaged[:700], "images", digest)
    assert not cached_path("images", digest).exists()


def test_too_large_data_are_not_sent(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_node, "MAX_UPLOAD_BYTES", 5)
    with pytest.raises(BadInput, match="copy them to the same path"):
        pack(images)


def test_node_requests_images_that_it_lacks(images: Path, tmp_path: Path) -> None:
    digest = content_sha256(images)
    node, task = NodeActor(), Any
    node.start(task, Data(str(tmp_path / "other" / "images"), digest))  # type: ignore[arg-type]
    assert node.next_messages(0) == [StageChanged("receiving images"), DataRequest()]
    node.send_data(b"invalid", Data(str(images), digest))
    (rejected,) = node.next_messages(0)
    assert isinstance(rejected, Rejected)
    assert rejected.exit_code == 2


def test_node_that_cannot_read_its_images_reports_it(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_allowed(*_: object) -> bool:
        raise PermissionError(13, "Permission denied", str(images))

    monkeypatch.setattr("polybench.cluster.ray_node.is_cached", not_allowed)
    node, task = NodeActor(), Any
    node.start(task, Data(str(images), "0"))  # type: ignore[arg-type]
    (rejected,) = node.next_messages(0)
    assert isinstance(rejected, Rejected)
    assert "Permission denied" in rejected.text


def test_links_to_each_other_are_named(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "link").symlink_to(tmp_path / other)
    with pytest.raises(BadInput, match="is a link to a parent folder; remove it"):
        content_sha256(tmp_path)
