"""Cache of files between studies: complete, intact, and limited in size."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polybench.data import file_cache
from polybench.data.file_cache import FileCache, cache_key

SIZE = 1000
ENTRY = 2 * SIZE + 400  # two files, and the manifest
Note = dict[int, float | None]
NOTE: Note = {0: 2.5, 1: None}


def cache_in(folder: Path, limit: int = 1 << 20) -> FileCache[Note]:
    return FileCache(folder, Note, limit)


def fetch(cache: FileCache[Note], key: str) -> bool:
    """Fetch an entry and check its files; return True if it was built."""
    built = []

    def build() -> Note:
        built.append(key)
        for name in "ab":
            (into / name).write_bytes(key.encode() * SIZE)
        return NOTE

    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder)
        assert cache.fetch(key, into, build) == NOTE
        assert {file.name: file.read_bytes() for file in into.iterdir()} == dict.fromkeys("ab", key.encode() * SIZE)
    return bool(built)


def test_existing_entry_is_not_rebuilt(tmp_path: Path) -> None:
    cache = cache_in(tmp_path / "cache")
    assert [fetch(cache, "x") for _ in range(3)] == [True, False, False]
    assert fetch(cache_in(tmp_path / "cache"), "y")
    assert {entry.name for entry in (tmp_path / "cache").iterdir()} == {"x", "y"}


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def change_a_byte(file: Path) -> None:
    """Change the content, but neither the size nor the modification time."""
    content, before = bytearray(file.read_bytes()), file.stat()
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("damage", [truncate, change_a_byte, Path.unlink])
@pytest.mark.parametrize("name", ["a", "b", "manifest.json"])
def test_damaged_entry_is_rebuilt(name: str, damage: Callable[[Path], None], tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    fetch(cache, "x")
    damage(tmp_path / "x" / name)
    assert [fetch(cache, "x") for _ in range(2)] == [True, False]


@pytest.mark.parametrize("name", ["../victim", "../../../victim", "..", "a/../../victim"])
def test_manifest_cannot_name_files_outside_of_its_entry(name: str, tmp_path: Path) -> None:
    cache = cache_in(tmp_path / "cache")
    fetch(cache, "x")
    manifest = tmp_path / "cache" / "x" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"checksums":{', f'"checksums":{{"{name}":"0",'))
    into = tmp_path / "in" / "to" / "here"
    into.mkdir(parents=True)
    victims = [folder / "victim" for folder in (into.parent, into.parents[1], into.parents[2])]
    for victim in victims:
        victim.write_text("all of it")
    assert cache.find("x", into) is None
    assert all(victim.read_text() == "all of it" for victim in victims)
    assert fetch(cache, "x")


def test_folder_in_which_others_can_write_is_not_used(tmp_path: Path) -> None:
    cache, folder = cache_in(tmp_path / "cache"), tmp_path / "cache"
    fetch(cache, "x")
    for mode, built in ((0o720, True), (0o702, True), (0o755, False)):
        folder.chmod(mode)
        assert fetch(cache, "x") == built


def test_failed_build_leaves_no_entry(tmp_path: Path) -> None:
    def fail() -> Note:
        (tmp_path / "into" / "a").write_bytes(b"half")
        raise RuntimeError("no memory")

    (tmp_path / "into").mkdir()
    with pytest.raises(RuntimeError, match="no memory"):
        cache_in(tmp_path / "cache").fetch("x", tmp_path / "into", fail)
    assert list((tmp_path / "cache").glob("*")) == []
    assert fetch(cache_in(tmp_path / "cache"), "x")


def test_cache_that_is_not_writable_only_costs_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    cache = cache_in(tmp_path / "file" / "cache")
    assert [fetch(cache, "x") for _ in range(2)] == [True, True]


def test_nothing_is_cached_on_a_nearly_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=(1 << 20) - 1))
    assert [fetch(cache_in(tmp_path), "x") for _ in range(2)] == [True, True]
    monkeypatch.undo()
    assert [fetch(cache_in(tmp_path), "x") for _ in range(2)] == [True, False]


def test_files_are_copied_if_hard_links_are_not_supported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(file_cache.os, "link", refuse)
    assert [fetch(cache_in(tmp_path), "x") for _ in range(2)] == [True, False]


def test_user_of_an_entry_keeps_it_after_removal_or_replacement(tmp_path: Path) -> None:
    cache, into = cache_in(tmp_path / "cache", limit=ENTRY), tmp_path / "into"
    into.mkdir()

    def writer(content: bytes) -> Callable[[], Note]:
        def write() -> Note:
            (into / "a").unlink(missing_ok=True)
            (into / "a").write_bytes(content)
            return NOTE

        return write

    cache.fetch("x", into, writer(b"x" * SIZE))
    with (into / "a").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as first:
        cache.fetch("y", into, writer(b"y" * SIZE))
        fetch(cache, "z")
        assert [entry.name for entry in (tmp_path / "cache").iterdir()] == ["z"]
        assert first[:] == b"x" * SIZE
    assert (into / "a").read_bytes() == b"y" * SIZE


def test_key_depends_on_values_and_on_the_content_of_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "b").write_text("x")
    assert cache_key("cifar10", (3, 32), tmp_path / "a") == cache_key("cifar10", (3, 32), tmp_path / "b")
    assert cache_key("cifar10", (3, 32)) != cache_key("cifar10", (3, 33))
    (tmp_path / "b").write_text("y")
    assert cache_key(tmp_path / "a") != cache_key(tmp_path / "b")


@given(st.lists(st.sampled_from("abcdef"), max_size=20))
@settings(deadline=None)
def test_least_recently_used_entries_are_evicted_beyond_the_limit(keys: list[str]) -> None:
    cached: OrderedDict[str, None] = OrderedDict()
    with tempfile.TemporaryDirectory() as name:
        cache = cache_in(Path(name) / "cache", limit=3 * ENTRY)
        for key in keys:
            assert fetch(cache, key) == (key not in cached)
            cached[key] = None
            cached.move_to_end(key)
            while len(cached) > 3:
                cached.popitem(last=False)
            assert {entry.name for entry in (Path(name) / "cache").iterdir()} == set(cached)


def test_entry_larger_than_the_limit_stays_until_the_next_one(tmp_path: Path) -> None:
    cache = cache_in(tmp_path, limit=1)
    assert [fetch(cache, key) for key in "xxyyx"] == [True, False, True, False, True]
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


def use(folder: Path, number: int) -> None:
    cache = cache_in(folder, limit=2 * ENTRY)
    for turn in range(100):
        fetch(cache, "vwxyz"[(number + turn * (number + 1)) % 5])


def test_concurrent_processes_get_their_entries(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(3) as pool:
        pool.starmap(use, [(tmp_path / "cache", number) for number in range(3)])
    fetch(cache_in(tmp_path / "cache", limit=2 * ENTRY), "last")
    remaining = {entry.name for entry in (tmp_path / "cache").iterdir()}
    assert "last" in remaining
    assert remaining < {*"vwxyz", "last"}  # without temporary folders


def test_incomplete_entries_of_killed_processes_are_removed(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    old, new = cache / "tmpold", cache / "tmpnew"
    for folder in (old, new):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    cache_in(cache).fetch("key", tmp_path / "into", lambda: (tmp_path / "into").mkdir() or NOTE)
    assert new.is_dir()
    assert not old.exists()


def test_entry_can_be_found_and_replaced_without_a_build(tmp_path: Path) -> None:
    cache = cache_in(tmp_path / "cache")
    into, files = tmp_path / "into", tmp_path / "files"
    files.mkdir()
    assert cache.find("x", into) is None
    for note, content in (({1: 1.0}, b"old"), ({2: 2.0}, b"new")):
        (files / "a").write_bytes(content)
        cache.replace("x", files, note)
        assert cache.find("x", into) == note
        assert (into / "a").read_bytes() == content
    truncate(tmp_path / "cache" / "x" / "a")
    assert cache.find("x", into) is None
    assert list(into.iterdir()) == []
