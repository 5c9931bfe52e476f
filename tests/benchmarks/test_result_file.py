from __future__ import annotations

from pathlib import Path

from _result_file import ResultFile


def test_a_run_with_the_same_settings_continues_the_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    ResultFile(path, steps=5).add(engine="torch", samples=[[1.5]])
    ResultFile(path, steps=6).add(engine="torch", samples=[[2.5]])
    results = ResultFile(path, steps=5)
    results.add(engine="tf", samples=[])
    assert [row["engine"] for row in results.rows] == ["torch", "tf"]
    assert results.matching(engine="torch") == [{"steps": 5, "engine": "torch", "samples": [[1.5]]}]
    assert len(path.read_text().splitlines()) == 3


def test_without_a_file_rows_are_in_memory() -> None:
    results = ResultFile(None)
    results.add(engine="torch")
    assert results.matching(engine="torch") == [{"engine": "torch"}]
