"""The files that distinguish the code of two workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from polybench.protocol import loaded_code

MAPPED = "7f0000000000-7f0000001000 r-xp 00000000 08:01 42 {}\n"


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        ("/depot/compiled/v1.10/PolyBench/abc.so", False),
        ("/depot/compiled/v1.10/PolyBenchLuxExt/abc.so", False),
        ("/depot/compiled/v1.12/PolyBenchCUDAExt/abc.so", False),
        ("/depot/compiled/v1.10/Flux/abc.so", True),
        ("/usr/lib/PolyBench/libblas.so", True),
    ],
)
def test_compiled_code_of_polybenchs_own_julia_packages_is_left_out(
    file: str, counts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = tmp_path / "maps"
    maps.write_text(MAPPED.format(file))
    monkeypatch.setattr(loaded_code, "_MEMORY_MAPS", maps)
    assert [*loaded_code._library_files()] == ([file] if counts else [])
