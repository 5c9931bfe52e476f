"""Folders of studies: those that are deleted, and what a study that measures nothing leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from polybench.errors import RequiredEngineMissing
from polybench.run import run_study
from polybench.runner.scratch import prune_logs
from polybench.schema.options import Study
from polybench.storage.store import Store
from tests.runner.studies import FAST, RecordingProgress


def test_logs_of_old_studies_are_deleted(tmp_path: Path) -> None:
    others = {tmp_path / "1999", tmp_path / "20260101"}  # folders of other programs
    studies = [tmp_path / f"20260101-000{number:03}-abcd" for number in range(120)]
    for folder in (*others, *studies):
        folder.mkdir()
    prune_logs(tmp_path)
    assert {*tmp_path.iterdir()} == {*others, *studies[20:]}


def test_strict_measures_nothing_and_leaves_no_files_if_an_engine_is_unavailable(tmp_path: Path) -> None:
    listener, study = RecordingProgress(), Study(engines=("fake", "faulty+unavailable"), **FAST)
    with pytest.raises(RequiredEngineMissing, match="faulty\\+unavailable/cpu"):
        run_study(study, listener, store=Store(tmp_path), strict=True)
    assert not any("round" in stage for stage in listener.stages)
    assert [*tmp_path.rglob("*")] == [tmp_path / "logs"]
