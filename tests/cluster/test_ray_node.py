"""Transfer of images: the received data are identical, or rejected."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from polybench.cluster import ray_node
from polybench.cluster.messages import Task, current_fingerprint
from polybench.cluster.ray_node import Data, NodeActor, cached_path, content_sha256, find_data, pack, unpack
from polybench.data.image_folder import find_images
from polybench.errors import BadInput
from polybench.runner.prepare import new_header
from polybench.schema.options import Study
from tests import small_datasets


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    for name, content in {"cat/1.png": b"one", "dog/2.png": b"two"}.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(content)
    return folder


def described(path: Path, folder: str = "/of/the/driver") -> Data:
    """Describe data of a driver that has them in a folder of its own."""
    return Data(f"{folder}/{path.name}", content_sha256(path))


def link_to_file(folder: Path) -> None:
    (folder.parent / "elsewhere.png").write_bytes(b"three")
    (folder / "cat" / "3.png").symlink_to(folder.parent / "elsewhere.png")


def link_to_folder(folder: Path) -> None:
    (folder.parent / "birds" / "young").mkdir(parents=True)
    (folder.parent / "birds" / "young" / "3.png").write_bytes(b"three")
    (folder / "bird").symlink_to(folder.parent / "birds")


@pytest.mark.parametrize("change", [lambda _: None, link_to_file, link_to_folder])
def test_folder_is_received_with_all_images_that_its_links_point_to(
    images: Path, change: Callable[[Path], object]
) -> None:
    change(images)
    data = described(images)
    assert find_data(data) is None
    path = unpack(pack(images), data)
    assert path == cached_path(data) == find_data(data)
    contents = [[file.read_bytes() for file in find_images(folder, "train").files] for folder in (images, path)]
    assert contents[0] == contents[1]


def test_only_the_files_of_a_data_set_are_sent(tmp_path: Path, images: Path) -> None:
    (keys := tmp_path / "keys").mkdir()
    (keys / "x.png").write_bytes(b"secret")
    cifar = small_datasets.cifar_folder(tmp_path, 50)
    for folder in (images, images / "cat", cifar):
        for name in (".env", ".git/config", "id_rsa", "server.pem", ".netrc", ".aws/x", "cat/x.json", "cat/x.ipynb"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(b"secret")
        (folder / "link").symlink_to(keys / "x.png")
        (folder / ".hidden").symlink_to(keys)
    assert b"secret" not in pack(images) + pack(cifar)
    names = {path.name for path in unpack(pack(cifar), described(cifar)).iterdir()}
    assert names == {path.name for path in cifar.iterdir() if "batch" in path.name}
    with pytest.raises(BadInput, match="no data set found"):
        pack(keys)


def test_file_is_received_unchanged(images: Path) -> None:
    file = images / "dog" / "2.png"
    assert unpack(pack(file), described(file)).read_bytes() == b"two"


def test_hash_depends_on_names_and_content(images: Path) -> None:
    digest = content_sha256(images)
    os.utime(images / "dog" / "2.png", (0, 0))
    assert content_sha256(images) == digest
    (images / "dog" / "2.png").rename(images / "dog" / "3.png")
    assert content_sha256(images) != digest


def test_data_shared_by_several_nodes_are_replaced_only_if_damaged(images: Path) -> None:
    data = described(images)
    path = unpack(pack(images), data)
    before = path.stat().st_ino
    assert unpack(pack(images), data).stat().st_ino == before
    (path / "dog" / "2.png").write_bytes(b"damaged")
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
