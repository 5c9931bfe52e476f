"""Images that are sent: what arrives is what was meant, or is refused."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from polybench.core.errors import BadInput
from polybench.fleet import packed
from polybench.fleet.messages import Refused, Stage
from polybench.fleet.packed import content_sha256, kept, pack, unpack
from polybench.fleet.ray_node import Data, RayNode, Wanted


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    (folder / "cat").mkdir(parents=True)
    (folder / "cat" / "1.png").write_bytes(b"one")
    (folder / "2.png").write_bytes(b"two")
    return folder


def test_a_folder_arrives_as_it_was(images: Path) -> None:
    digest = content_sha256(images)
    place = unpack(pack(images), "images", digest)
    assert place == kept("images", digest)
    assert sorted(str(path.relative_to(place)) for path in place.rglob("*")) == ["2.png", "cat", "cat/1.png"]
    assert content_sha256(place) == digest
    os.utime(images / "2.png", (0, 0))
    assert content_sha256(images) == digest
    (images / "2.png").rename(images / "3.png")
    assert content_sha256(images) != digest


def test_what_a_link_names_arrives(images: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.png").write_bytes(b"three")
    (images / "3.png").symlink_to(tmp_path / "elsewhere.png")
    assert (unpack(pack(images), "images", content_sha256(images)) / "3.png").read_bytes() == b"three"


def test_the_folder_that_a_link_names_arrives(images: Path, tmp_path: Path) -> None:
    before = content_sha256(images)
    (tmp_path / "dogs" / "young").mkdir(parents=True)
    (tmp_path / "dogs" / "young" / "4.png").write_bytes(b"four")
    (images / "dog").symlink_to(tmp_path / "dogs")
    digest = content_sha256(images)
    assert digest != before
    assert (unpack(pack(images), "images", digest) / "dog" / "young" / "4.png").read_bytes() == b"four"


def test_a_link_that_leads_back_is_named(images: Path) -> None:
    (images / "cat" / "all").symlink_to(images)
    with pytest.raises(BadInput, match="cat/all names a folder that it is in; remove this link"):
        content_sha256(images)


def test_a_file_arrives_as_it_was(images: Path) -> None:
    file = images / "2.png"
    assert unpack(pack(file), "2.png", content_sha256(file)).read_bytes() == b"two"


def test_what_another_node_of_the_same_home_reads_is_not_replaced_unless_it_is_damaged(images: Path) -> None:
    digest = content_sha256(images)
    place = unpack(pack(images), "images", digest)
    before = place.stat().st_ino
    assert unpack(pack(images), "images", digest).stat().st_ino == before
    (place / "2.png").write_bytes(b"damaged")
    assert content_sha256(unpack(pack(images), "images", digest)) == digest
    assert [path.name for path in place.parent.parent.iterdir()] == [place.parent.name]


def test_the_slower_of_two_nodes_takes_what_the_other_one_wrote(
    images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, rename = content_sha256(images), Path.rename

    def after_the_other(folder: Path, place: Path) -> Path:
        shutil.copytree(folder, place)
        return rename(folder, place)

    monkeypatch.setattr(Path, "rename", after_the_other)
    assert content_sha256(unpack(pack(images), "images", digest)) == digest


def test_damage_is_refused(images: Path) -> None:
    digest = content_sha256(images)
    damaged = pack(images).replace(b"one", b"0ne")
    with pytest.raises(BadInput, match=rf"arrived damaged: .*{digest[:16]} was sent"):
        unpack(damaged, "images", digest)
    with pytest.raises(BadInput, match="cannot write"):
        unpack(damaged[:700], "images", digest)
    assert not kept("images", digest).exists()


def test_what_is_too_large_belongs_there_already(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "LARGEST_BYTES", 5)
    with pytest.raises(BadInput, match="at the same path"):
        pack(images)


def test_a_node_asks_for_images_that_it_lacks(images: Path, tmp_path: Path) -> None:
    digest = content_sha256(images)
    node, task = RayNode(), Any
    node.begin(task, Data(str(tmp_path / "other" / "images"), digest))  # type: ignore[arg-type]
    assert node.next(0) == [Stage("receiving images"), Wanted()]
    node.supply(b"nonsense", Data(str(images), digest))
    (refused,) = node.next(0)
    assert isinstance(refused, Refused)
    assert refused.exit_code == 2


def test_a_node_that_cannot_read_its_images_says_so(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_allowed(*_: object) -> bool:
        raise PermissionError(13, "Permission denied", str(images))

    monkeypatch.setattr("polybench.fleet.ray_node.is_there", not_allowed)
    node, task = RayNode(), Any
    node.begin(task, Data(str(images), "0"))  # type: ignore[arg-type]
    (refused,) = node.next(0)
    assert isinstance(refused, Refused)
    assert "Permission denied" in refused.text


def test_links_that_lead_back_to_each_other_are_named(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "link").symlink_to(tmp_path / other)
    with pytest.raises(BadInput, match="names a folder that it is in; remove this link"):
        content_sha256(tmp_path)
