import io
import os
import tarfile

import pooch
import pytest
import requests

from polybench.data import cifar10
from polybench.data.cifar10 import ARCHIVES as ARCHIVE_NAMES
from polybench.data.cifar10 import FOLDERS
from polybench.data.fetch import ARCHIVES, extract, fetch, verify
from polybench.errors import BadInput


def archive_of(tmp_path, *members):
    path = tmp_path / "archive.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(bytes(member.size)))
    return path


def member(name, **attributes):
    info = tarfile.TarInfo(name)
    info.size = 4
    for key, value in attributes.items():
        setattr(info, key, value)
    return info


def test_published_archives_have_the_names_that_the_reader_expects():
    assert [archive.folder for archive in ARCHIVES.values()] == list(FOLDERS)
    assert [archive.url.rsplit("/", 1)[1] for archive in ARCHIVES.values()] == list(ARCHIVE_NAMES)


def test_archive_replaces_the_folder_completely(small_cifar, tmp_path):
    folder = small_cifar.binary_folder()
    archive = small_cifar.archive(folder, "cifar-10-binary.tar.gz")
    target = tmp_path / "unpacked" / folder.name
    target.mkdir(parents=True)
    (target / "old file").touch()
    extract(archive, target)
    assert sorted(path.name for path in target.iterdir()) == sorted(path.name for path in folder.glob("*_batch*.bin"))
    assert [path.name for path in target.parent.iterdir()] == [folder.name]
    assert verify(target).images == {"train": 35, "test": 7}


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (member("../outside"), "outside"),
        (member("cifar/../../outside"), "outside"),
        (member("/tmp/polybench-outside"), "outside"),
        (member("cifar/link", type=tarfile.SYMTYPE, linkname="/etc/passwd", size=0), "link"),
        (member("cifar/link", type=tarfile.LNKTYPE, linkname="cifar/file", size=0), "link"),
        (member("cifar/device", type=tarfile.CHRTYPE, size=0), "device"),
        (member("cifar/pipe", type=tarfile.FIFOTYPE, size=0), "device"),
    ],
    ids=["above", "above, inside", "absolute", "symbolic link", "hard link", "device", "pipe"],
)
def test_archive_with_an_unsafe_member_is_not_unpacked(tmp_path, bad, problem):
    archive = archive_of(tmp_path, member("cifar/file"), bad)
    parent = tmp_path / "parent"
    parent.mkdir()
    with pytest.raises(BadInput, match=rf"unsafe archive .*archive\.tar\.gz: its member .*{problem}"):
        extract(archive, parent / "cifar")
    assert list(parent.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive.tar.gz", "parent"]


def test_failed_unpacking_preserves_the_existing_folder(tmp_path):
    target = tmp_path / "cifar"
    target.mkdir()
    (target / "old").touch()
    with pytest.raises(BadInput, match="lacks the folder cifar"):
        extract(archive_of(tmp_path, member("another/file")), target)
    assert (target / "old").exists()


@pytest.mark.parametrize("content", [b"", b"neither gzip nor tar"])
def test_invalid_archive_is_rejected(tmp_path, content):
    archive = tmp_path / "archive.tar.gz"
    archive.write_bytes(content)
    with pytest.raises(BadInput, match="cannot unpack"):
        extract(archive, tmp_path / "cifar")


def test_truncated_archive_is_rejected(small_cifar, tmp_path):
    archive = small_cifar.archive(small_cifar.binary_folder(), "cifar-10-binary.tar.gz")
    os.truncate(archive, archive.stat().st_size // 2)
    with pytest.raises(BadInput, match="cannot unpack"):
        extract(archive, tmp_path / "cifar-10-batches-bin")


def test_fetch_unpacks_and_does_not_download_twice(small_cifar, tmp_path, monkeypatch):
    archive = small_cifar.archive(small_cifar.python_folder(), "cifar-10-python.tar.gz")
    calls = []

    def retrieve(url, known_hash, fname, path, downloader):
        calls.append((url, known_hash, fname, path))
        return str(archive)

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    target = tmp_path / "data" / "cifar-10-batches-py"
    assert fetch("python", target.parent) == target
    assert fetch("python", target.parent) == target
    published = ARCHIVES["python"]
    assert calls == [(published.url, f"sha256:{published.sha256}", "cifar-10-python.tar.gz", target.parent)]
    assert verify(target.parent).images == {"train": 35, "test": 7}


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            requests.ConnectionError("unreachable"),
            r"cannot download .*check the network, or download .* manually .*--data",
        ),
        (requests.HTTPError("404"), "cannot download .*HTTPError"),
        (requests.exceptions.InvalidProxyURL("not a URL"), "cannot download .*InvalidProxyURL"),
        (ValueError("SHA256 hash of downloaded file"), "wrong SHA-256"),
        (PermissionError(13, "Permission denied"), "cannot write to"),
    ],
)
def test_failed_download_is_reported_with_a_fix(tmp_path, monkeypatch, error, message):
    def retrieve(*_, **__):
        raise error

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    with pytest.raises(BadInput, match=message):
        fetch("binary", tmp_path)


def test_fetch_reports_an_incomplete_existing_folder(small_cifar):
    folder = small_cifar.binary_folder()
    (folder / "data_batch_1.bin").unlink()
    with pytest.raises(BadInput, match="data_batch_1 missing"):
        fetch("binary", folder.parent)


def test_verify_compares_with_the_published_files(small_cifar, monkeypatch):
    folder = small_cifar.binary_folder()
    archive = small_cifar.archive(folder, "cifar-10-binary.tar.gz")
    assert verify(archive).is_official is verify(folder).is_official is False
    monkeypatch.setattr(cifar10, "OFFICIAL_ARCHIVES", [pooch.file_hash(str(archive))])
    assert verify(archive).is_official is True
    sums = {path.stem: [pooch.file_hash(str(path), "md5")] for path in folder.glob("*.bin")}
    monkeypatch.setattr(cifar10, "_OFFICIAL_FILES", sums)
    assert verify(folder).is_official is True
    monkeypatch.setitem(sums, "data_batch_3", ["0" * 32])
    assert verify(folder).is_official is False


def test_verify_rejects_a_folder_without_cifar10(tmp_path):
    with pytest.raises(BadInput, match="CIFAR-10 not found in"):
        verify(tmp_path)
