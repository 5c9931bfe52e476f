"""`polybench layers --allocations` with simulated engines: requests, results and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from polybench.cli import app
from polybench.engines.fake.engine import ALLOCATION_SITES
from polybench.experiments.allocation_sites import find_allocation_sites
from polybench.log import AllocationsCounted, encode_line, read_log
from polybench.runner.prepare import new_header
from polybench.schema.measurements import AllocationProfile, AllocationsDocument, AllocationSite
from polybench.schema.options import Study
from polybench.storage.anonymous_log import anonymous_event
from polybench.storage.store import Store
from tests.commands import printed, printed_json, refused
from tests.runner.studies import RecordingProgress


def find_sites(*engines: str) -> AllocationsDocument:
    return find_allocation_sites(
        Study(engines=engines, data="synthetic", devices=("cpu",), timeout=60.0), RecordingProgress()
    ).document


def test_each_configuration_is_profiled_once_or_has_a_reason(own_folders: Path) -> None:
    document = find_sites("fake", "fake", "faulty+no_allocation_count", "faulty+unavailable", "reference")
    profiled, duplicate, failed, missing, unsupported = document.configurations
    assert (profiled.source, profiled.coverage, profiled.sites) == (
        ALLOCATION_SITES.source,
        ALLOCATION_SITES.coverage,
        ALLOCATION_SITES.sites,
    )
    assert (profiled.bytes_per_step, profiled.count_per_step, profiled.status) == (3 << 20, 12, "ok")
    assert (duplicate.configuration, duplicate.sites) == ("fake/cpu#2", [])
    assert (failed.status, failed.sites) == ("failed", [])
    assert "the faulty profiler does not start" in (failed.reason or "")
    assert (missing.status, missing.hint) == ("unavailable", "use faulty without +unavailable")
    assert (unsupported.status, unsupported.sites) == ("unavailable", [])
    assert document.schema == "polybench.allocations/2"
    assert document.settings.model == "lenet"
    assert {"processes = 1", "parity = false", "metrics = false"} <= {*document.study.splitlines()}
    assert not (own_folders / "results").exists()


@pytest.mark.parametrize(
    ("engines", "code"),
    [("fake", 0), ("fake,faulty+unavailable", 0), ("fake,faulty+no_allocation_count", 1), ("faulty+unavailable", 4)],
)
def test_the_command_prints_one_document_and_has_the_usual_exit_codes(engines: str, code: int) -> None:
    result = CliRunner().invoke(
        app,
        [
            "layers",
            "--allocations",
            "--engines",
            engines,
            "--data",
            "synthetic",
            "--format",
            "json",
            "--devices",
            "cpu",
        ],
    )
    assert result.exit_code == code, result.output
    assert json.loads(result.stdout)["schema"] == "polybench.allocations/2"


def test_an_unknown_format_is_bad_input() -> None:
    assert "unknown format 'svg'" in refused("layers", "--allocations", "--engines", "fake", "--format", "svg")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--allocations --processes 2", "--processes: has no effect with --allocations: leave it out"),
        ("--allocations --strict", "--strict: has no effect with --allocations: leave it out"),
        ("--allocations --expand-blocks", "--expand-blocks: has no effect with --allocations: leave it out"),
        ("--top 5", "--top: has no effect without --allocations: leave it out"),
        ("--input pipeline", "--input: has no effect without --allocations: leave it out"),
        ("--replicas 2", "--replicas: has no effect without --allocations: leave it out"),
    ],
)
def test_an_option_without_effect_is_bad_input(options: str, message: str) -> None:
    assert refused("layers", "--engines", "fake", *options.split()).startswith(message)


def test_sites_are_saved_listed_shown_and_resumed(own_folders: Path) -> None:
    store = Store(own_folders / "results")
    command = ["layers", "--allocations", "--engines", "fake,fake+slow", "--data", "synthetic", "-q"]
    document = printed_json(*command, "--devices", "cpu", "--anonymous")
    (log,) = store.folder.glob("allocations-*.jsonl")
    assert printed_json("show", "allocations-last") == document
    assert "allocations of lenet" in printed("list")
    events = read_log(log)
    number = max(n for n, one in enumerate(events) if isinstance(one, AllocationsCounted))
    log.write_bytes(b"".join(map(encode_line, events[:number])))  # as if killed before the last profile
    resumed = printed_json("resume", "last", "-q", "--format", "json")
    assert resumed["configurations"] == document["configurations"]
    assert sum(isinstance(one, AllocationsCounted) for one in read_log(log)) == 2  # the first one is not repeated


def test_an_anonymous_log_has_no_folders_of_sites() -> None:
    site = AllocationSite("/home/ann/model.jl:7", 1024, 2)
    event = AllocationsCounted(configuration="flux/cpu", profile=AllocationProfile("Profile", "Julia", [site]))
    header = msgspec.structs.replace(new_header(), anonymous=True)
    anonymous = anonymous_event(header, event)
    assert isinstance(anonymous, AllocationsCounted)
    assert anonymous.profile == AllocationProfile("Profile", "Julia", [AllocationSite("model.jl:7", 1024, 2)])
