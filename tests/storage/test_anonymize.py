"""Test what an anonymous document leaves out; tests/runner/test_privacy.py has whole studies."""

from __future__ import annotations

import tomllib

import pytest

from polybench.storage.anonymize import OMITTED, anonymize, anonymize_study
from tests.factories import study, unmeasured


def test_logs_keep_their_names_without_their_folder() -> None:
    failed = unmeasured("tf/cpu", "failed", "killed", log_path="/home/user/logs/tf_cpu.0.log")
    assert anonymize(study(failed)).results[0].log_path == "tf_cpu.0.log"


@pytest.mark.parametrize(("data", "kept"), [("synthetic", True), ("cifar10", True), ("/home/user/images", False)])
def test_a_study_keeps_the_names_of_data_but_no_paths(data: str, kept: bool) -> None:
    text = f'engines = ["torch@old"]\ndata = "{data}"\nenv = {{old = "/home/user/old"}}\n'
    assert tomllib.loads(anonymize_study(text)) == {
        "engines": ["torch@old"],
        "data": data if kept else OMITTED,
        "env": {"old": OMITTED},
    }
