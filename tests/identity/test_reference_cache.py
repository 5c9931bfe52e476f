"""What the reference has trained is kept: whole, sound, and not without bound."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polybench.identity.reference_cache import Losses, ReferenceCache

SIZE = 1000
ENTRY = 2 * SIZE + 400  # two files, and the manifest
LOSSES: Losses = {0: 2.5, 1: None}


def fetch(cache: ReferenceCache, key: str) -> bool:
    """Ask for an entry, and look at what comes; whether it was trained for that."""
    trained = []

    def train() -> Losses:
        trained.append(key)
        for name in "ab":
            (into / name).write_bytes(key.encode() * SIZE)
        return LOSSES

    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder)
        assert cache.fetch(key, into, train) == LOSSES
        assert {file.name: file.read_bytes() for file in into.iterdir()} == dict.fromkeys(
            "ab", key.encode() * SIZE
        )
    return bool(trained)


def test_what_is_known_is_not_trained_again(tmp_path: Path) -> None:
    cache = ReferenceCache(tmp_path / "cache")
    assert [fetch(cache, "x") for _ in range(3)] == [True, False, False]
    assert fetch(ReferenceCache(tmp_path / "cache"), "y")
    assert {entry.name for entry in (tmp_path / "cache").iterdir()} == {"x", "y"}


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def change_a_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("damage", [truncate, change_a_byte, Path.unlink])
@pytest.mark.parametrize("name", ["a", "b", "manifest.json"])
def test_a_damaged_entry_is_trained_anew(damage: Callable[[Path], None], name: str, tmp_path: Path) -> None:
    cache = ReferenceCache(tmp_path)
    fetch(cache, "x")
    damage(tmp_path / "x" / name)
    assert [fetch(cache, "x") for _ in range(2)] == [True, False]


def test_a_training_that_fails_leaves_no_entry(tmp_path: Path) -> None:
    def fail() -> Losses:
        (tmp_path / "into" / "a").write_bytes(b"half")
        raise RuntimeError("no memory")

    (tmp_path / "into").mkdir()
    with pytest.raises(RuntimeError, match="no memory"):
        ReferenceCache(tmp_path / "cache").fetch("x", tmp_path / "into", fail)
    assert list((tmp_path / "cache").glob("*")) == []
    assert fetch(ReferenceCache(tmp_path / "cache"), "x")


def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = ReferenceCache(tmp_path / "file" / "cache")
    assert [fetch(cache, "x") for _ in range(2)] == [True, True]


@given(st.lists(st.sampled_from("abcdef"), max_size=20))
@settings(deadline=None)
def test_beyond_the_limit_what_was_not_used_for_longest_goes(keys: list[str]) -> None:
    kept: OrderedDict[str, None] = OrderedDict()
    with tempfile.TemporaryDirectory() as name:
        cache = ReferenceCache(Path(name) / "cache", limit=3 * ENTRY)
        for key in keys:
            assert fetch(cache, key) == (key not in kept)
            kept[key] = None
            kept.move_to_end(key)
            while len(kept) > 3:
                kept.popitem(last=False)
            assert {entry.name for entry in (Path(name) / "cache").iterdir()} == set(kept)


def test_an_entry_larger_than_the_limit_is_there_until_the_next_comes(tmp_path: Path) -> None:
    cache = ReferenceCache(tmp_path, limit=1)
    assert [fetch(cache, key) for key in "xxyyx"] == [True, False, True, False, True]
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


def use(folder: Path, number: int) -> None:
    cache = ReferenceCache(folder, limit=2 * ENTRY)
    for turn in range(100):
        fetch(cache, "vwxyz"[(number + turn * (number + 1)) % 5])


def test_processes_that_use_it_at_once_get_what_they_asked_for(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(3) as pool:
        pool.starmap(use, [(tmp_path / "cache", number) for number in range(3)])
    fetch(ReferenceCache(tmp_path / "cache", limit=2 * ENTRY), "last")
    left = {entry.name for entry in (tmp_path / "cache").iterdir()}
    assert "last" in left
    assert left < {*"vwxyz", "last"}  # and no folder that was begun
