"""Cache sizes, in folders like the kernel's."""

from __future__ import annotations

from pathlib import Path

from polybench.machine.cores import last_level_cache_bytes


def machine(folder: Path, shared: list[str]) -> Path:
    """Describe CPUs with 1 MiB of private cache each, and 32 MiB shared by the given CPUs."""
    for cpu, others in enumerate(shared):
        for index, (level, size, sharing) in enumerate(
            [("1", "32K", f"{cpu}"), ("2", "1M", f"{cpu}"), ("3", "32768K", others)]
        ):
            cache = folder / f"cpu{cpu}" / "cache" / f"index{index}"
            cache.mkdir(parents=True)
            for name, text in (("level", level), ("size", size), ("shared_cpu_list", sharing)):
                (cache / name).write_text(f"{text}\n")
    return folder


def test_shared_cache_counts_once(tmp_path: Path) -> None:
    folder = machine(tmp_path, ["0-1", "0-1", "2-3", "2-3"])
    assert last_level_cache_bytes(2, {0, 1}, folder) == 32 << 20
    assert last_level_cache_bytes(4, {0, 1, 2, 3}, folder) == 64 << 20
    assert last_level_cache_bytes(1, {0, 1, 2, 3}, folder) == 32 << 20  # one thread can use one of them


def test_cache_size_is_unknown_if_the_kernel_does_not_describe_it(tmp_path: Path) -> None:
    assert last_level_cache_bytes(2, {0, 1}, tmp_path) is None
