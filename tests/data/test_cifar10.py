import contextlib
import gzip
import io
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pooch
import pytest
import requests

from polybench.data import cifar10, open_dataset
from polybench.data.array_chunks import IMAGE_BYTES
from polybench.data.cifar10 import ARCHIVES, fetch, locate, read_pickle, verify
from polybench.errors import BadInput

RECORD = 3073


def all_formats(small):
    folders = [small.binary_folder(), small.python_folder()]
    archives = [
        small.archive(folders[0], "cifar-10-binary.tar.gz"),
        small.archive(folders[1], "cifar-10-python.tar.gz"),
    ]
    return [*folders, *archives]


def test_every_format_yields_the_same_images(small_cifar, scratch):
    paths = all_formats(small_cifar)
    for split, (images, labels) in (("train", small_cifar.train), ("test", small_cifar.part("test_batch"))):
        opened = [open_dataset(str(path), 0, scratch, split) for path in paths]
        for dataset in opened:
            assert dataset.name == "cifar10"
            np.testing.assert_array_equal(dataset.images, images)
            np.testing.assert_array_equal(dataset.labels, labels)
        assert len({dataset.sha256 for dataset in opened}) == 1


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_pickles_of_every_protocol_are_read(small_cifar, protocol):
    images, labels = small_cifar.part("data_batch_1")
    content = small_cifar.python_file("data_batch_1", protocol)
    pixels, read_labels = read_pickle(io.BytesIO(content), len(content))
    np.testing.assert_array_equal(pixels, images.reshape(-1, IMAGE_BYTES))
    np.testing.assert_array_equal(read_labels, labels)


def test_pickle_of_python_2_is_read():
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
    found, labels = read_pickle(io.BytesIO(content), len(content))
    assert found.tobytes() == pixels
    assert labels.tolist() == [7]


class Malicious:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def test_malicious_pickle_does_not_run(small_cifar, scratch, tmp_path):
    folder = small_cifar.python_folder()
    marker = tmp_path / "executed"
    (folder / "data_batch_2").write_bytes(pickle.dumps({b"data": Malicious(marker), b"labels": [1]}, 2))
    with pytest.raises(BadInput, match=r"data_batch_2 .*refers to posix\.mkdir.*polybench data fetch"):
        open_dataset(str(folder), 0, scratch)
    assert not marker.exists()


@pytest.mark.parametrize(
    "batch",
    [
        ["not a dictionary"],
        {b"labels": [1]},
        {b"data": np.zeros((1, 3072), np.int16), b"labels": [1]},
        {b"data": np.zeros((1, 784), np.uint8), b"labels": [1]},
        {b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]},
        {b"data": np.zeros((1, 3072), np.uint8), b"fine_labels": [1]},
        {b"data": np.zeros((1, 3072), np.uint8), b"labels": [300]},
        {b"data": np.zeros((1, 3072), np.uint8), b"labels": [1.0]},
    ],
)
def test_pickle_of_another_data_set_is_rejected(small_cifar, scratch, batch):
    folder = small_cifar.python_folder()
    (folder / "data_batch_5").write_bytes(pickle.dumps(batch, 2))
    with pytest.raises(BadInput, match="data_batch_5 is truncated or not CIFAR-10"):
        open_dataset(str(folder), 0, scratch)


def test_huge_pickle_is_not_read():
    with pytest.raises(ValueError, match="expected about 31 million"):
        read_pickle(None, 1 << 40)


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


def test_file_truncated_while_reading_is_rejected(small_cifar, scratch, monkeypatch):
    folder = small_cifar.binary_folder()
    file = folder / "data_batch_1.bin"
    before, stat = file.stat(), Path.stat
    os.truncate(file, 2 * RECORD)
    monkeypatch.setattr(Path, "stat", lambda path, **how: before if path == file else stat(path, **how))
    with pytest.raises(BadInput, match=rf"data_batch_1\.bin is truncated: {2 * RECORD} bytes, expected {7 * RECORD}"):
        open_dataset(str(folder), 0, scratch)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda file: file.write_bytes(b""), "CIFAR-10, or incomplete|not a .tar.gz"),
        (lambda file: file.write_bytes(b"PK\x03\x04" + bytes(100)), r"not a \.tar\.gz archive"),
        (lambda file: os.truncate(file, file.stat().st_size - 4), "truncated, damaged"),
        (lambda file: os.truncate(file, file.stat().st_size - 60_000), "truncated|missing"),
        (lambda file: set_byte(file, file.stat().st_size // 2, None), "truncated, damaged"),
    ],
)
def test_damaged_archive_is_rejected(small_cifar, scratch, damage, message):
    archive = small_cifar.archive(small_cifar.binary_folder(), "cifar-10-binary.tar.gz")
    damage(archive)
    with pytest.raises(BadInput, match=rf"cifar-10-binary\.tar\.gz.*({message})"):
        open_dataset(str(archive), 0, scratch)


@pytest.mark.parametrize(
    ("extra", "message"),
    [("data_batch_1", "duplicate file"), (None, "not CIFAR-10, or incomplete: data_batch_1, ")],
    ids=["duplicate file", "another data set"],
)
def test_archive_with_other_members_is_rejected(small_cifar, scratch, extra, message):
    folder = small_cifar.binary_folder()
    if extra is None:
        for file in folder.glob("*.bin"):
            file.rename(file.with_name(f"fine_{file.name}"))
    else:
        (folder / extra).write_bytes(small_cifar.python_file(extra))
    archive = shutil.make_archive(str(folder), "gztar", folder.parent, folder.name)
    with pytest.raises(BadInput, match=message):
        open_dataset(archive, 0, scratch)


def test_unreadable_archive_is_rejected(small_cifar, scratch, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    archive = small_cifar.archive(small_cifar.binary_folder(), "cifar-10-binary.tar.gz")
    monkeypatch.setattr(cifar10, "_BoundedGzip", refuse)
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


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x80\x02Nr" + (1 << 27).to_bytes(4, "little") + b".", "memo index of 134,217,728"),
        (b"\x80\x02" + b"(" * 1_000_001 + b".", "1,000,000 operations"),
        # Codecs are code: pickles of Python 3 use `_codecs.encode` for bytes, in latin1 only.
        (b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R.", "unexpected encoding 'rot13'"),
        (b"\x80\x02}(", "its pickle cannot be read"),
    ],
)
def test_pickle_that_would_exhaust_memory_or_run_code_is_rejected(content, reason):
    with io.BytesIO(content) as stream, pytest.raises(ValueError, match=reason):
        read_pickle(stream, len(content))


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


def tar_member(name, size=0, content=b"", **fields):
    info = tarfile.TarInfo(name)
    info.size = size or len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info.tobuf(tarfile.PAX_FORMAT) + content + bytes(-len(content) % 512)


FOLDER = ARCHIVES["binary"].folder
PAX = {"type": tarfile.XHDTYPE}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (tar_member("../../victim", content=b"x"), r"unexpected '\.\./\.\./victim'"),
        (tar_member("/victim", content=b"x"), "unexpected '/?victim'"),
        (tar_member(f"{FOLDER}/../../victim", content=b"x"), "unexpected"),
        (tar_member(f"{FOLDER}/a/victim", content=b"x"), "unexpected"),
        (tar_member(f"{FOLDER}/a", type=tarfile.SYMTYPE, linkname="/victim"), "unexpected"),
        (tar_member(f"{FOLDER}/a", type=tarfile.LNKTYPE, linkname="../victim"), "unexpected"),
        (tar_member(FOLDER, type=tarfile.SYMTYPE, linkname="/victim"), "unexpected"),
        (tar_member(f"{FOLDER}/a", type=tarfile.FIFOTYPE), "unexpected"),
        (tar_member(f"{FOLDER}/a", 1 << 40), "unexpected"),
        (tar_member(f"{FOLDER}/a", 1 << 30, **PAX), "unpacks to more than 1024 MiB"),
        (b"".join(tar_member(f"{FOLDER}/{number}") for number in range(1001)), "more than 1000 members"),
        (tar_member(f"{FOLDER}/data_batch_1.bin", content=bytes(RECORD)), "data_batch_2.* missing"),
        (b"", "CIFAR-10 not found"),
    ],
)
def test_fetch_unpacks_nothing_but_the_files_of_the_data_set(tmp_path, monkeypatch, content, reason):
    archive = tmp_path / "archive"
    archive.write_bytes(gzip.compress(content + bytes(1024)))
    monkeypatch.setattr(pooch, "retrieve", lambda *_, **__: str(archive))
    with pytest.raises(BadInput, match=reason):
        fetch("binary", tmp_path / "data")
    assert sorted(tmp_path.rglob("*")) == [archive, tmp_path / "data"]


def test_an_archive_that_unpacks_to_terabytes_is_rejected(tmp_path):
    archive = tmp_path / "cifar-10-binary.tar.gz"
    zeros = gzip.compress(bytes(1 << 20)) * 1100
    archive.write_bytes(gzip.compress(tar_member("big", 1 << 40)) + zeros)
    with pytest.raises(BadInput, match="unpacks to more than 1024 MiB"):
        verify(archive)


def test_two_fetches_at_once_download_once(small_cifar, tmp_path, monkeypatch):
    archive = small_cifar.archive(small_cifar.python_folder(), "cifar-10-python.tar.gz")
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
    archive = small_cifar.archive(small_cifar.python_folder(), "cifar-10-python.tar.gz")
    data = tmp_path / "data"
    program = f"""
import os, pathlib, pooch
from polybench.data.cifar10 import fetch
pooch.retrieve = lambda *_, **__: {str(archive)!r}
pathlib.Path.rename = lambda *_: os.kill(os.getpid(), 9)
fetch("python", pathlib.Path({str(data)!r}))
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGKILL
    assert [path.name[:7] for path in data.iterdir()] == [".fetch-"]
    monkeypatch.setattr(pooch, "retrieve", lambda *_, **__: str(archive))
    target = fetch("python", data)
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
    published = ARCHIVES["binary"]._replace(sha256=pooch.file_hash(str(archive)))
    monkeypatch.setitem(ARCHIVES, "binary", published)
    assert verify(archive).is_official is True
    sums = {path.stem: [pooch.file_hash(str(path), "md5")] for path in folder.glob("*.bin")}
    monkeypatch.setattr(cifar10, "_OFFICIAL_FILES", sums)
    assert verify(folder).is_official is True
    monkeypatch.setitem(sums, "data_batch_3", ["0" * 32])
    assert verify(folder).is_official is False


def test_verify_rejects_a_folder_without_cifar10(tmp_path):
    with pytest.raises(BadInput, match="CIFAR-10 not found in"):
        verify(tmp_path)
