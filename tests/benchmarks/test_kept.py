from __future__ import annotations

from pathlib import Path

from _kept import Kept


def test_rows_of_a_like_run_are_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    Kept(path, steps=5).add(engine="torch", samples=[[1.5]])
    Kept(path, steps=6).add(engine="torch", samples=[[2.5]])
    kept = Kept(path, steps=5)
    kept.add(engine="tf", samples=[])
    assert [row["engine"] for row in kept.rows] == ["torch", "tf"]
    assert kept.matching(engine="torch") == [{"steps": 5, "engine": "torch", "samples": [[1.5]]}]
    assert len(path.read_text().splitlines()) == 3


def test_without_a_file_rows_are_in_memory() -> None:
    kept = Kept(None)
    kept.add(engine="torch")
    assert kept.matching(engine="torch") == [{"engine": "torch"}]
