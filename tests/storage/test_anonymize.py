"""Test what an anonymous document leaves out; tests/runner/test_privacy.py has whole studies."""

from __future__ import annotations

import tomllib

import msgspec
import pytest

from polybench.schema.measurements import AllocationsDocument, AllocationSite, ConfigurationAllocations
from polybench.storage.anonymize import OMITTED, anonymize, anonymize_study
from tests.factories import measured, study, typical_study, unmeasured


def test_logs_keep_their_names_without_their_folder() -> None:
    failed = unmeasured("tf/cpu", "failed", "killed", log_path="/home/user/logs/tf_cpu.0.log")
    assert anonymize(study(failed)).results[0].log_path == "tf_cpu.0.log"


@pytest.mark.parametrize("status", ["failed", "unavailable"])
def test_the_texts_of_an_engine_without_times_are_left_out(status: str) -> None:
    missing = unmeasured("tf/cpu", status, "cannot load /home/user/tf.so", "remove /home/user/tf.so")
    (result,) = anonymize(study(missing)).results
    assert (result.reason, result.hint) == (OMITTED, None)


def test_allocation_sites_keep_their_names_without_their_folder() -> None:
    saved = typical_study()
    site = AllocationSite("NNlib: conv! (/home/user/src/conv.jl)", 1.0, 2.0)
    document = AllocationsDocument(
        created=saved.created,
        polybench=saved.polybench,
        argv=saved.argv,
        study=saved.study,
        settings=saved.settings,
        host=saved.host,
        configurations=[
            ConfigurationAllocations(
                configuration="flux/cpu", engine="flux", variant=None, device="cpu", status="ok", sites=[site]
            )
        ],
    )
    ((anonymous,),) = (one.sites for one in anonymize(document).configurations)
    assert anonymous == msgspec.structs.replace(site, location="conv.jl)")


def test_versions_and_variables_with_a_path_are_left_out_at_any_depth() -> None:
    versions = {
        "torch": "2.13.0",
        "source": "/home/user/torch",
        "build": {"blas": "MKL", "interpreter": "/home/user/python", "flags": {"O": "3", "include": "/home/user/inc"}},
        "environment": {"OMP_NUM_THREADS": "2", "LD_PRELOAD": "/home/user/malloc.so"},
    }
    (result,) = anonymize(study(measured("torch/cpu", 0.01, versions=versions))).results
    assert result.versions == {
        "torch": "2.13.0",
        "build": {"blas": "MKL", "flags": {"O": "3"}},
        "environment": {"OMP_NUM_THREADS": "2"},
    }


@pytest.mark.parametrize(("data", "kept"), [("synthetic", True), ("cifar10", True), ("/home/user/images", False)])
def test_a_study_keeps_the_names_of_data_but_no_paths(data: str, kept: bool) -> None:
    text = f'engines = ["torch@old"]\ndata = "{data}"\nenv = {{old = "/home/user/old"}}\n'
    assert tomllib.loads(anonymize_study(text)) == {
        "engines": ["torch@old"],
        "data": data if kept else OMITTED,
        "env": {"old": OMITTED},
    }
