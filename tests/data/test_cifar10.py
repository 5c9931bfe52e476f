import contextlib
import hashlib
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pooch
import pytest
import requests

from polybench.data import cifar10, open_dataset
from polybench.data.cifar10 import ARCHIVES, fetch, locate, verify
from polybench.errors import BadInput
from tests.data.conftest import NAMES

RECORD = 3073


def make_files_official(monkeypatch, small):
    """Give the official files of both versions the checksums of the small ones."""
    md5 = {
        name: [hashlib.md5(file(name)).hexdigest() for file in (small.binary_file, small.python_file)] for name in NAMES
    }
    monkeypatch.setattr(cifar10, "_OFFICIAL_FILES", md5)
    return md5


def official_archive(monkeypatch, small, version):
    """Return an archive of the small files whose checksum is the official one."""
    folder = small.binary_folder() if version == "binary" else small.python_folder()
    archive = small.archive(folder, ARCHIVES[version].name)
    shutil.rmtree(folder)
    monkeypatch.setitem(ARCHIVES, version, ARCHIVES[version]._replace(sha256=pooch.file_hash(str(archive))))
    return archive


def test_every_format_yields_the_same_images(small_cifar, scratch, monkeypatch):
    make_files_official(monkeypatch, small_cifar)
    archives = [official_archive(monkeypatch, small_cifar, version) for version in ("binary", "python")]
    paths = [small_cifar.binary_folder(), small_cifar.python_folder(), *archives]
    for split, (images, labels) in (("train", small_cifar.train), ("test", small_cifar.part("test_batch"))):
        opened = [open_dataset(str(path), 0, scratch, split) for path in paths]
        for dataset in opened:
            assert dataset.name == "cifar10"
            np.testing.assert_array_equal(dataset.images, images)
            np.testing.assert_array_equal(dataset.labels, labels)
        assert len({dataset.sha256 for dataset in opened}) == 1


def test_a_file_that_python_2_wrote_is_read(small_cifar, scratch, monkeypatch):
    # Python 2 and its NumPy write byte strings as STRING opcodes, and numpy.core.multiarray.
    pixels = bytes(range(256)) * 12
    short = lambda text: b"U" + bytes([len(text)]) + text  # noqa: E731
    content = (
        b"\x80\x02}(" + short(b"data") + b"cnumpy.core.multiarray\n_reconstruct\n"
        b"cnumpy\nndarray\nK\x00\x85"
        + short(b"b")
        + b"\x87R(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\n"
        + short(b"u1")
        + b"K\x00K\x01\x87R(K\x03"
        + short(b"|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        + b"\x89T"
        + len(pixels).to_bytes(4, "little")
        + pixels
        + b"tb"
        + short(b"labels")
        + b"]K\x07au."
    )
    folder = small_cifar.python_folder()
    for name in NAMES:
        (folder / name).write_bytes(content)
    monkeypatch.setattr(cifar10, "_OFFICIAL_FILES", dict.fromkeys(NAMES, ("", hashlib.md5(content).hexdigest())))
    dataset = open_dataset(str(folder), 0, scratch)
    assert dataset.images.tobytes() == 5 * pixels
    assert dataset.labels.tolist() == 5 * [7]


class Malicious:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def test_no_pickle_is_opened_but_the_official_ones(small_cifar, scratch, monkeypatch, tmp_path):
    expected = make_files_official(monkeypatch, small_cifar)["data_batch_2"][1]
    folder = small_cifar.python_folder()
    marker = tmp_path / "executed"
    content = pickle.dumps({b"data": Malicious(marker), b"labels": [1]}, 2)
    pickle.loads(content)
    marker.rmdir()
    (folder / "data_batch_2").write_bytes(content)
    found = hashlib.md5(content).hexdigest()
    with pytest.raises(
        BadInput, match=rf"/data_batch_2 is not .*its MD5 is {found}, expected {expected};.*polybench data fetch"
    ):
        open_dataset(str(folder), 0, scratch)
    assert not marker.exists()


def test_other_images_in_the_python_version_are_rejected(small_cifar, scratch):
    folder = small_cifar.python_folder()
    found, expected = pooch.file_hash(str(folder / "data_batch_1"), "md5"), "c99cafc152244af753f735de768cd75f"
    with pytest.raises(BadInput, match=f"data_batch_1 .*MD5 is {found}, expected {expected}; .*in the binary format"):
        open_dataset(str(folder), 0, scratch)


def set_byte(file, position, value):
    content = bytearray(file.read_bytes())
    content[position] = content[position] ^ 0xFF if value is None else value
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("data_batch_4.bin", lambda file: os.truncate(file, 0), "is truncated.* 0 bytes, expected 30730000"),
        (
            "data_batch_4.bin",
            lambda file: os.truncate(file, 5 * RECORD + 17),
            "is truncated.* 15382 bytes, expected 307",
        ),
        ("data_batch_1.bin", lambda file: os.truncate(file, 4 * RECORD), "is truncated: 4 images, .* has 7"),
        ("data_batch_5.bin", lambda file: os.truncate(file, 4 * RECORD), "is truncated: 4 images, .* has 7"),
        (
            "data_batch_2.bin",
            lambda file: set_byte(file, 3 * RECORD, 10),
            ".* record 3 has label 10, labels are 0 to 9",
        ),
        ("data_batch_3.bin", Path.unlink, None),
    ],
)
def test_damaged_file_of_a_folder_is_named(small_cifar, scratch, name, damage, message):
    folder = small_cifar.binary_folder()
    damage(folder / name)
    with pytest.raises(BadInput, match=f"{name} {message}" if message else "data_batch_3 missing"):
        open_dataset(str(folder), 0, scratch)


def test_a_file_that_is_too_large_is_not_read(small_cifar, scratch):
    os.truncate(small_cifar.binary_folder() / "data_batch_3.bin", 1 << 30)
    with pytest.raises(BadInput, match=r"cannot read .*data_batch_3\.bin: it has 1024 MiB: expected at most 64 MiB"):
        open_dataset(str(small_cifar.root), 0, scratch)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cifar-10-binary.tar.gz", r"expected \w+ \(cifar-10-binary.tar.gz\); `polybench data fetch`"),
        ("cifar-10-python.tar.gz", r"expected \w+ \(cifar-10-python.tar.gz\); `polybench data fetch`"),
        ("mine.tgz", r"expected \w+ \(cifar-10-binary.tar.gz\) or \w+ \(cifar-10-python.tar.gz\);"),
    ],
)
def test_no_archive_is_opened_but_the_official_ones(small_cifar, scratch, monkeypatch, name, expected):
    for version in ("binary", "python"):
        official_archive(monkeypatch, small_cifar, version)
    archive = small_cifar.archive(small_cifar.binary_folder(), name)
    found = pooch.file_hash(str(archive))
    with pytest.raises(BadInput, match=f"{archive} is not an official .* SHA-256 is {found}, {expected}"):
        open_dataset(str(archive), 0, scratch)


def test_a_truncated_archive_is_rejected(small_cifar, scratch, monkeypatch):
    archive = official_archive(monkeypatch, small_cifar, "binary")
    os.truncate(archive, archive.stat().st_size - 4)
    expected = ARCHIVES["binary"].sha256
    with pytest.raises(BadInput, match=f"SHA-256 is {pooch.file_hash(str(archive))}, expected {expected} "):
        open_dataset(str(archive), 0, scratch)


def test_unreadable_archive_is_rejected(small_cifar, scratch, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    archive = small_cifar.archive(small_cifar.binary_folder(), "cifar-10-binary.tar.gz")
    monkeypatch.setattr(cifar10, "open_regular_file", refuse)
    with pytest.raises(BadInput, match=r"cannot read .*binary\.tar\.gz: Permission denied"):
        open_dataset(str(archive), 0, scratch)


def test_locate_prefers_the_folder_to_the_archive(small_cifar, tmp_path):
    assert locate(tmp_path / "absent") is None
    assert locate(tmp_path) is None
    folder = small_cifar.binary_folder()
    assert locate(folder) == locate(folder.parent) == folder
    archive = small_cifar.archive(folder, "cifar-10-binary.tar.gz")
    assert locate(archive) == archive
    shutil.rmtree(folder)
    assert locate(archive.parent) == archive


def test_fetch_unpacks_and_does_not_download_twice(small_cifar, tmp_path, monkeypatch):
    make_files_official(monkeypatch, small_cifar)
    archive = official_archive(monkeypatch, small_cifar, "python")
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


def test_two_fetches_at_once_download_once(small_cifar, tmp_path, monkeypatch):
    make_files_official(monkeypatch, small_cifar)
    archive = official_archive(monkeypatch, small_cifar, "python")
    calls, meeting = [], threading.Barrier(2)

    def retrieve(*arguments, **_):
        calls.append(arguments)
        with contextlib.suppress(threading.BrokenBarrierError):
            meeting.wait(1.0)  # without a lock, both fetches meet here
        return str(archive)

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    with ThreadPoolExecutor(2) as pool:
        targets = list(pool.map(lambda _: fetch("python", tmp_path / "data"), range(2)))
    assert targets == [tmp_path / "data" / "cifar-10-batches-py"] * 2
    assert len(calls) == 1
    assert list((tmp_path / "data").iterdir()) == targets[:1]


def test_a_fetch_removes_what_a_killed_one_left(small_cifar, tmp_path, monkeypatch):
    archive = official_archive(monkeypatch, small_cifar, "binary")
    data = tmp_path / "data"
    program = f"""
import os, pathlib, pooch
from polybench.data.cifar10 import fetch
pooch.retrieve = lambda *_, **__: {str(archive)!r}
pathlib.Path.rename = lambda *_: os.kill(os.getpid(), 9)
fetch("binary", pathlib.Path({str(data)!r}))
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGKILL
    assert [path.name[:7] for path in data.iterdir()] == [".fetch-"]
    monkeypatch.setattr(pooch, "retrieve", lambda *_, **__: str(archive))
    target = fetch("binary", data)
    assert list(data.iterdir()) == [target]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            requests.ConnectionError("unreachable"),
            r"cannot download .*check the network, or download .* manually .*--data",
        ),
        (requests.HTTPError("404"), "cannot download .*HTTPError"),
        (requests.exceptions.InvalidProxyURL("not a URL"), "cannot download .*InvalidProxyURL"),
        (
            ValueError("SHA256 hash of downloaded file (x): expected 1, got 2"),
            r"not CIFAR-10 \(.*expected 1, got 2\); try",
        ),
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
    archive = official_archive(monkeypatch, small_cifar, "binary")
    assert verify(archive).is_official is True
    folder = small_cifar.binary_folder()
    assert verify(folder).is_official is False
    md5 = make_files_official(monkeypatch, small_cifar)
    assert verify(folder).is_official is True
    monkeypatch.setitem(md5, "data_batch_3", ["0" * 32])
    assert verify(folder).is_official is False


def test_verify_rejects_a_folder_without_cifar10(tmp_path):
    with pytest.raises(BadInput, match="CIFAR-10 not found in"):
        verify(tmp_path)
