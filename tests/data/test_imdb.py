"""IMDb's reviews as tokens, as in Keras's examples, and protection against malicious archives."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from polybench.data import expected_images, imdb_archive, imdb_tokens, open_dataset
from polybench.data.imdb_archive import ARCHIVE
from polybench.errors import BadInput

REVIEWS = {
    "train/pos/0_9.txt": "Good film.<br />A good, GOOD film it's",
    "train/pos/1_8.txt": "a film",
    "train/neg/0_1.txt": "bad bad film",
    "test/pos/0_10.txt": "good rarity",
    "test/neg/0_2.txt": "bad",
}


def archive(path: Path, reviews: dict[str, bytes | str] | None = None) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, text in (REVIEWS if reviews is None else reviews).items():
            content = text.encode() if isinstance(text, str) else text
            info = tarfile.TarInfo(name if "/../" in name or name[0] == "/" else f"aclImdb/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def folder(path: Path) -> Path:
    for name, text in REVIEWS.items():
        (path / "aclImdb" / name).parent.mkdir(parents=True, exist_ok=True)
        (path / "aclImdb" / name).write_text(text, "utf-8")
    return path


def tokens(source: Path, split: str = "train", length: int = 5, vocabulary: int = 20_000) -> np.ndarray:
    return np.concatenate([chunk.images for chunk in imdb_tokens.read(source, split, length, vocabulary)])


# By frequency: film 4, good 3, a 2, bad 2, it's 1.
FILM, GOOD, A, BAD, ITS = range(4, 9)


def test_tokens_are_words_by_frequency_and_the_last_ones_are_used(tmp_path: Path) -> None:
    source = archive(tmp_path / ARCHIVE)
    bad, long, short = tokens(source)
    assert bad.tolist() == [0, 1, BAD, BAD, FILM]
    assert long.tolist() == [A, GOOD, GOOD, FILM, ITS]
    assert short.tolist() == [0, 0, 1, A, FILM]
    bad, good = tokens(source, "test", 3)
    assert (bad.tolist(), good.tolist()) == ([0, 1, BAD], [1, GOOD, 2])
    few = tokens(source, vocabulary=6)
    assert few.max() < 6
    assert few[0].tolist() == [0, 1, 2, 2, FILM]


def test_pairs_of_words_have_buckets_after_the_words(tmp_path: Path) -> None:
    source = archive(tmp_path / ARCHIVE)
    bad, _, short = tokens(source, length=9, vocabulary=20_000 + 1000)
    assert bad[2:6].tolist() == [1, BAD, BAD, FILM]
    assert ((bad[6:] >= 20_000) & (bad[6:] < 21_000)).all()
    assert len(set(bad[6:].tolist())) == 3
    assert short[4:7].tolist() == [1, A, FILM]


def test_folder_and_archive_have_the_same_data(tmp_path: Path) -> None:
    (scratch := tmp_path / "scratch").mkdir()
    packed = archive(tmp_path / ARCHIVE)
    network = {"image_shape": (5,), "classes": 2, "vocabulary": 20_000}
    one = open_dataset(str(folder(tmp_path / "data")), 0, scratch, **network)
    other = open_dataset(str(packed), 0, scratch, **network)
    assert (one.name, one.sha256) == ("imdb", other.sha256)
    assert one.images.dtype == np.int32
    assert one.labels.tolist() == [0, 1, 1]


def test_auto_uses_imdb_in_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (scratch := tmp_path / "scratch").mkdir()
    monkeypatch.setenv("POLYBENCH_DATA", str(folder(tmp_path / "data")))
    network = {"image_shape": (5,), "classes": 2, "vocabulary": 20_000}
    assert open_dataset("auto", 0, scratch, **network).name == "imdb"
    with pytest.raises(BadInput, match="IMDb has 2 classes, but this network has 3"):
        open_dataset("imdb", 0, scratch, image_shape=(5,), classes=3, vocabulary=9)
    with pytest.raises(BadInput, match="reviews are tokens, which this network does not take"):
        open_dataset("imdb", 0, scratch)


def test_members_with_other_names_are_ignored(tmp_path: Path) -> None:
    evil = {
        "/etc/passwd": "x",
        "aclImdb/train/pos/../../../evil_1.txt": "x",
        "train/unsup/0_0.txt": "never read",
    }
    source = archive(tmp_path / ARCHIVE, REVIEWS | evil)
    np.testing.assert_array_equal(tokens(source), tokens(archive(tmp_path / "plain.tar.gz")))
    assert {path.name for path in tmp_path.iterdir()} == {ARCHIVE, "plain.tar.gz"}


def test_archive_bomb_is_rejected_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imdb_archive, "_MAX_UNPACKED_BYTES", 1 << 20)
    source = archive(tmp_path / ARCHIVE, REVIEWS | {"zeros": bytes(8 << 20)})
    with pytest.raises(BadInput, match="zeros, of 8,388,608 bytes, ends beyond the limit of 1,048,576 unpacked bytes"):
        tokens(source)


@pytest.mark.parametrize(
    ("reviews", "message"),
    [
        ({}, "reviews in train missing"),
        ({"train/pos/0_9.txt": "good"}, "reviews in train missing"),
        (REVIEWS | {"train/neg/5_1.txt": bytes(2 << 20)}, r"train/neg/5_1.txt is not a review"),
    ],
)
def test_invalid_reviews_are_named(tmp_path: Path, reviews: dict[str, bytes | str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        tokens(archive(tmp_path / ARCHIVE, reviews))


def test_damaged_archive_is_rejected(tmp_path: Path) -> None:
    source = archive(tmp_path / ARCHIVE)
    source.write_bytes(source.read_bytes()[:150])
    with pytest.raises(BadInput, match=r"truncated, damaged or not a .tar.gz archive"):
        tokens(source)
    source.write_bytes(b"not an archive")
    with pytest.raises(BadInput, match=r"aclImdb_v1.tar.gz"):
        tokens(source)


def test_folder_of_reviews_is_not_a_folder_of_images(tmp_path: Path) -> None:
    assert expected_images(str(folder(tmp_path) / "aclImdb"), "train", (400,)) == 50_000


def test_member_with_a_huge_size_is_rejected(tmp_path: Path) -> None:
    info = tarfile.TarInfo("aclImdb/README")
    info.size = 1 << 62
    source = tmp_path / ARCHIVE
    source.write_bytes(gzip.compress(info.tobuf(tarfile.GNU_FORMAT)))
    with pytest.raises(BadInput, match="README, of 4,611,686,018,427,387,904 bytes, ends beyond"):
        tokens(source)


def test_headers_that_tarfile_cannot_read_are_rejected(tmp_path: Path) -> None:
    info = tarfile.TarInfo("aclImdb/README")
    info.pax_headers = {"GNU.sparse.map": "a,b"}
    source = tmp_path / ARCHIVE
    source.write_bytes(gzip.compress(info.tobuf(tarfile.PAX_FORMAT)))
    with pytest.raises(BadInput, match="truncated, damaged or not"):
        tokens(source)


def test_too_much_text_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The limit counts UTF-8 bytes, although a string would take four bytes per character here.
    monkeypatch.setattr(imdb_archive, "_MAX_TEXT_BYTES", 80)
    wide = {"train/pos/2_9.txt": "\N{PILE OF POO}" * 20}
    with pytest.raises(BadInput, match=r"pos/2_9.txt: reviews up to this one have more than 80 bytes"):
        tokens(archive(tmp_path / ARCHIVE, REVIEWS | wide))


def test_too_many_different_words_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imdb_tokens, "_MAX_WORDS", 4)
    with pytest.raises(BadInput, match="its reviews have more than 4 different words"):
        tokens(archive(tmp_path / ARCHIVE))


@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [
        ("_MAX_HEADER_BYTES", 2048, "headers of more than 2,048 bytes"),
        ("_MAX_MEMBERS", 3, "has more members than IMDb, at aclImdb/test/pos/0_10.txt"),
        ("_MAX_PAX_HEADERS", 1, "has more members than IMDb, at aclImdb/train/pos/0_9.txt"),
    ],
)
def test_too_many_or_too_long_headers_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, message: str
) -> None:
    source = tmp_path / ARCHIVE
    global_headers = {"comment": "x" * 3000, "other": "x"}
    with tarfile.open(source, "w:gz", format=tarfile.PAX_FORMAT, pax_headers=global_headers) as tar:
        for name, text in REVIEWS.items():
            info = tarfile.TarInfo(f"aclImdb/{name}")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    assert len(tokens(source)) == 3
    monkeypatch.setattr(imdb_archive, limit, value)
    with pytest.raises(BadInput, match=message):
        tokens(source)


def unpacked(tmp_path: Path) -> bytes:
    """Return a valid archive with members of one block each and an end of two blocks."""
    return gzip.decompress(archive(tmp_path / "right.tar.gz").read_bytes())[: 512 * (2 * len(REVIEWS) + 2)]


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (lambda tar: tar[:-1024], "neither a member nor an end"),  # all members, but not the end
        (lambda tar: tar[:4096] + b"x" * 512 + tar[4608:], "neither a member nor an end"),
        (lambda tar: negative() + tar, r"truncated, damaged or not a .tar.gz"),
        (lambda tar: holes() + tar, "headers of more than 65,536 bytes"),
    ],
)
def test_damage_that_tarfile_misses_is_rejected(
    tmp_path: Path, damaged: Callable[[bytes], bytes], message: str
) -> None:
    source = tmp_path / ARCHIVE
    source.write_bytes(gzip.compress(unpacked(tmp_path)))
    assert len(tokens(source)) == 3
    source.write_bytes(gzip.compress(damaged(unpacked(tmp_path))))
    with pytest.raises(BadInput, match=message):
        tokens(source)


def negative() -> bytes:
    """Return a member of -1 bytes."""
    info = tarfile.TarInfo("aclImdb/train/pos/7_9.txt")
    info.size = -1
    return info.tobuf(tarfile.GNU_FORMAT)


def holes() -> bytes:
    """Return a sparse member with block after block of holes."""
    info = tarfile.TarInfo("aclImdb/holes")
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[482], header[148:156] = 1, b" " * 8  # more blocks follow; the checksum field counts as blanks
    header[148:155] = b"%06o\0" % sum(header)
    more = bytearray(512)
    more[:24], more[504] = b"00000000001\0" * 2, 1
    return bytes(header + more * 200)


def test_wrong_checksum_at_the_end_is_rejected(tmp_path: Path) -> None:
    source = archive(tmp_path / ARCHIVE)
    content = bytearray(source.read_bytes())
    content[-8] ^= 1
    source.write_bytes(content)
    with pytest.raises(BadInput, match="CRC"):
        tokens(source)


def test_archive_that_ends_within_a_review_is_rejected(tmp_path: Path) -> None:
    info = tarfile.TarInfo("aclImdb/train/pos/0_9.txt")
    info.size = 1000
    source = tmp_path / ARCHIVE
    source.write_bytes(gzip.compress(info.tobuf() + b"good"))
    with pytest.raises(BadInput, match=r"it ends in aclImdb/train/pos/0_9.txt"):
        tokens(source)


def test_network_with_too_few_tokens_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = archive(tmp_path / ARCHIVE)
    assert tokens(source, vocabulary=3).max() == 2
    with pytest.raises(BadInput, match=r"need at least 3 tokens .* this network has 2"):
        tokens(source, vocabulary=2)
    (scratch := tmp_path / "scratch").mkdir()
    monkeypatch.setenv("POLYBENCH_DATA", str(folder(tmp_path / "data")))
    assert open_dataset("auto", 0, scratch, image_shape=(5,), classes=2, vocabulary=2).name == "synthetic"


def test_pairs_that_differ_only_in_high_bits_have_different_buckets() -> None:
    words = {f"w{n}": n for n in range(4, 20_000)}
    # Pairs (a, 4) for a multiple of 4096: a x 20,000 has the same 17 low bits for all of them.
    text = " ".join(f"w{a} w4" for a in range(4096, 20_000, 4096)).encode()
    pairs = imdb_tokens._encode(text, words, 20_000, 1 << 10)
    assert len(set(pairs[1 + 2 * 4 :][1::2].tolist())) == 4
