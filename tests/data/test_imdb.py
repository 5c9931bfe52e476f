"""IMDb's reviews as tokens, as in Keras's examples, and rejection of anything else."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from polybench.data import imdb, open_dataset
from polybench.data.imdb import ARCHIVE
from polybench.errors import BadInput

REVIEWS = {
    "train/pos/0_9.txt": "Good film.<br />A good, GOOD film it's",
    "train/pos/1_8.txt": "a film",
    "train/neg/0_1.txt": "bad bad film",
    "test/pos/0_10.txt": "good rarity",
    "test/neg/0_2.txt": "bad",
}


Archive = Callable[..., Path]
NETWORK = {"image_shape": (5,), "classes": 2, "vocabulary": 20_000}


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    """Write an archive of these reviews that counts as the published one."""

    def write(reviews: dict[str, bytes | str]) -> Path:
        path = tmp_path / ARCHIVE
        with tarfile.open(path, "w:gz") as tar:
            for name, text in reviews.items():
                content = text.encode() if isinstance(text, str) else text
                info = tarfile.TarInfo(name if "/../" in name or name[0] == "/" else f"aclImdb/{name}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        monkeypatch.setattr(imdb, "_ARCHIVE_MD5", hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest())
        return path

    return write


def folder(path: Path) -> Path:
    for name, text in REVIEWS.items():
        (path / "aclImdb" / name).parent.mkdir(parents=True, exist_ok=True)
        (path / "aclImdb" / name).write_text(text, "utf-8")
    return path


def tokens(source: Path, split: str = "train", length: int = 5, vocabulary: int = 20_000) -> np.ndarray:
    return np.concatenate([chunk.images for chunk in imdb.read(source, split, length, vocabulary)])


# By frequency: film 4, good 3, a 2, bad 2, it's 1.
FILM, GOOD, A, BAD, ITS = range(4, 9)


def test_tokens_are_words_by_frequency_and_the_last_ones_are_used(archive: Archive) -> None:
    source = archive(REVIEWS)
    bad, long, short = tokens(source)
    assert bad.tolist() == [0, 1, BAD, BAD, FILM]
    assert long.tolist() == [A, GOOD, GOOD, FILM, ITS]
    assert short.tolist() == [0, 0, 1, A, FILM]
    bad, good = tokens(source, "test", 3)
    assert (bad.tolist(), good.tolist()) == ([0, 1, BAD], [1, GOOD, 2])
    few = tokens(source, vocabulary=6)
    assert few.max() < 6
    assert few[0].tolist() == [0, 1, 2, 2, FILM]
    assert tokens(source, vocabulary=3).max() == 2


def test_pairs_of_words_have_buckets_after_the_words(archive: Archive) -> None:
    bad, _, short = tokens(archive(REVIEWS), length=9, vocabulary=20_000 + 1000)
    assert bad[2:6].tolist() == [1, BAD, BAD, FILM]
    assert ((bad[6:] >= 20_000) & (bad[6:] < 21_000)).all()
    assert len(set(bad[6:].tolist())) == 3
    assert short[4:7].tolist() == [1, A, FILM]


def test_folder_and_archive_have_the_same_data(tmp_path: Path, scratch: Path, archive: Archive) -> None:
    one = open_dataset(str(folder(tmp_path / "data")), 0, scratch, **NETWORK)
    other = open_dataset(str(archive(REVIEWS)), 0, scratch, **NETWORK)
    assert (one.name, one.sha256) == ("imdb", other.sha256)
    assert one.images.dtype == np.int32
    assert one.labels.tolist() == [0, 1, 1]


def test_auto_uses_imdb_in_the_data_folder(tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYBENCH_DATA", str(folder(tmp_path / "data")))
    assert open_dataset("auto", 0, scratch, **NETWORK).name == "imdb"
    assert open_dataset("auto", 0, scratch, **(NETWORK | {"vocabulary": 2})).name == "synthetic"


def test_members_with_other_names_are_ignored(tmp_path: Path, archive: Archive) -> None:
    evil = {"/etc/passwd": "x", "aclImdb/train/pos/../../../evil_1.txt": "x", "train/unsup/0_0.txt": "never read"}
    expected = tokens(archive(REVIEWS))
    np.testing.assert_array_equal(tokens(archive(REVIEWS | evil)), expected)
    assert {path.name for path in tmp_path.iterdir()} == {ARCHIVE}


@pytest.mark.parametrize("content", [b"", b"not an archive", b"\x1f\x8b"])
def test_only_the_published_archive_is_opened(tmp_path: Path, content: bytes) -> None:
    source = tmp_path / ARCHIVE
    source.write_bytes(content)
    with pytest.raises(BadInput, match=r"aclImdb_v1.tar.gz is not the published aclImdb_v1.tar.gz \(its MD5 is"):
        tokens(source)


@pytest.mark.parametrize(
    ("reviews", "message"),
    [
        ({}, "reviews in train missing"),
        ({"train/pos/0_9.txt": "good"}, "reviews in train missing"),
        (REVIEWS | {"train/neg/5_1.txt": bytes(2 << 20)}, r"train/neg/5_1.txt is not a review"),
    ],
)
def test_invalid_reviews_are_named(archive: Archive, reviews: dict[str, bytes | str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        tokens(archive(reviews))


@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [
        # The limit counts UTF-8 bytes, although a string would take four bytes per character here.
        ("_MAX_TEXT_BYTES", 80, "the reviews up to aclImdb/train/pos/2_9.txt have more than 80 bytes"),
        ("_MAX_WORDS", 4, "its reviews have more than 4 different words"),
    ],
)
def test_too_much_text_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, message: str
) -> None:
    source = folder(tmp_path) / "aclImdb"
    (source / "train" / "pos" / "2_9.txt").write_text("\N{PILE OF POO}" * 20, "utf-8")
    assert len(tokens(source)) == 4
    monkeypatch.setattr(imdb, limit, value)
    with pytest.raises(BadInput, match=message):
        tokens(source)


def test_pairs_that_differ_only_in_high_bits_have_different_buckets() -> None:
    words = {f"w{n}": n for n in range(4, 20_000)}
    # Pairs (a, 4) for a multiple of 4096: a x 20,000 has the same 17 low bits for all of them.
    text = " ".join(f"w{a} w4" for a in range(4096, 20_000, 4096)).encode()
    pairs = imdb._encode(text, words, 20_000, 1 << 10)
    assert len(set(pairs[1 + 2 * 4 :][1::2].tolist())) == 4
